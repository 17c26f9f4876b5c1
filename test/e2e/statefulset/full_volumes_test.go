//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// refuses fails unless the change is refused as a bad one.
func (s suite) refuses(edit func(*v1beta1.StatefulSet)) {
	s.T.Helper()
	s.Eventually("the change is refused", harness.Short, func() string {
		set := s.set()
		edit(set)
		err := s.Client.Update(s.Ctx(), set)
		switch {
		case err == nil:
			s.T.Fatalf("the change was accepted")
		case apierrors.IsInvalid(err):
			s.T.Logf("refused: %v", err)
			return ""
		}
		return err.Error() // a conflict, or a webhook that cannot answer yet
	})
}

// 15.1, rows 1 to 7: which templates may grow, and what follows.
func TestSizesOfClaimTemplates(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		classes []string
		grow    []int    // indexes of templates that are to have 2Gi
		sizes   []string // of the templates in the end; none if the change is refused
	}{
		"1 one template that may grow":                     {[]string{expandable}, []int{0}, []string{"2Gi"}},
		"2 one template that may not":                      {[]string{fixed}, []int{0}, nil},
		"3 two templates that may grow":                    {[]string{expandable, expandable}, []int{0, 1}, []string{"2Gi", "2Gi"}},
		"4 two templates that may not":                     {[]string{fixed, fixed}, []int{0, 1}, nil},
		"5 the one that may grow, beside one that may not": {[]string{expandable, fixed}, []int{0}, []string{"2Gi", "1Gi"}},
		"6 the one that may not grow, beside one that may": {[]string{fixed, expandable}, []int{0}, nil},
		"7 both, one of which may not grow":                {[]string{fixed, expandable}, []int{0, 1}, nil},
	}
	for label, row := range rows {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			for _, policy := range []v1beta1.PodUpdatePolicyType{v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType} {
				for _, image := range []string{harness.Nginx1, harness.Nginx2} {
					t.Run(string(policy)+" "+image, func(t *testing.T) {
						t.Parallel()
						s := newSuite(t)
						s.Create(web(3, withClaims(row.classes...), func(set *v1beta1.StatefulSet) { rolling(set).PodUpdatePolicy = policy }))
						grow := func(set *v1beta1.StatefulSet) {
							for _, i := range row.grow {
								setSize(set, i, "2Gi")
							}
							app(set).Image = image
						}
						if row.sizes == nil {
							s.refuses(grow)
							return
						}
						s.waitClaims(3, 3)
						pods := harness.UIDs(s.Pods("web"))
						s.change(grow)
						s.waitComplete(3)
						s.waitClaims(3, 3)
						s.requireSized(row.sizes...)
						require.Equal(t, 3, harness.CountImage(s.Pods("web"), "app", image))
						if recreated := policy == v1beta1.RecreatePodUpdatePolicyType && image != harness.Nginx1; !recreated {
							require.Equal(t, pods, harness.UIDs(s.Pods("web")), "sizes alone recreate no Pod")
						}
					})
				}
			}
		})
	}
}

// 15.1, row 8: marked Pods come back while volumes grow under a partition.
func TestVolumesGrowUnderSpecifiedDeletion(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(4, inPlace, withClaims(expandable)))
	first := s.waitComplete(4)
	replace := func(ordinal int) {
		t.Helper()
		old := s.pod(ordinal)
		s.label(ordinal, v1beta1.SpecifiedDeleteLabel, "true")
		s.waitReplaced(old)
		s.waitPodReady(ordinal)
	}
	replace(1)
	s.waitComplete(4)
	s.change(func(set *v1beta1.StatefulSet) {
		app(set).Image = harness.Nginx2
		setSize(set, 0, "2Gi")
		set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
	})
	s.waitStatus("two Pods are updated", func(st v1beta1.StatefulSetStatus) bool {
		return st.UpdatedReadyReplicas == 2 && st.ReadyReplicas == 4
	})
	replace(2)
	replace(1)
	after := s.waitClaims(4, 2)
	require.Equal(t, first.CurrentRevision, after.CurrentRevision)
	s.requireRevision(after.UpdateRevision, 2, 3)
	s.requireRevision(after.CurrentRevision, 0, 1)
	require.Equal(t, map[string]string{"data0-web-0": "1Gi", "data0-web-1": "1Gi", "data0-web-2": "2Gi", "data0-web-3": "2Gi"}, s.capacities())
}

// grownByOne is a set of three Pods of which the last one has a new image and a volume of 2Gi.
func grownByOne(t *testing.T, policy v1beta1.PodUpdatePolicyType) suite {
	t.Helper()
	s := newSuite(t)
	s.Create(web(3, withClaims(expandable), func(set *v1beta1.StatefulSet) { rolling(set).PodUpdatePolicy = policy }))
	s.waitComplete(3)
	s.waitClaims(3, 3)
	s.change(func(set *v1beta1.StatefulSet) {
		app(set).Image = harness.Nginx2
		setSize(set, 0, "2Gi")
		rolling(set).Partition = new(int32(2))
	})
	s.waitStatus("one Pod is updated", func(st v1beta1.StatefulSetStatus) bool { return st.UpdatedReadyReplicas == 1 })
	st := s.waitClaims(3, 1)
	s.requireRevision(st.CurrentRevision, 0, 1)
	s.requireRevision(st.UpdateRevision, 2)
	for ordinal, image := range []string{harness.Nginx1, harness.Nginx1, harness.Nginx2} {
		require.Equal(t, image, harness.Image(s.pod(ordinal), "app"), "image of %s", name(ordinal))
	}
	require.Equal(t, map[string]string{"data0-web-0": "1Gi", "data0-web-1": "1Gi", "data0-web-2": "2Gi"}, s.capacities())
	return s
}

// back takes the image back and lifts the partition.
func back(set *v1beta1.StatefulSet) {
	app(set).Image = harness.Nginx1
	rolling(set).Partition = new(int32(0))
}

// forBothPolicies runs a scenario that starts with grownByOne.
func forBothPolicies(t *testing.T, scenario func(suite)) {
	t.Parallel()
	for _, policy := range []v1beta1.PodUpdatePolicyType{v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			scenario(grownByOne(t, policy))
		})
	}
}

// 15.1, row 9: the image goes back, the sizes go on.
func TestImageGoesBackWhileVolumesGrow(t *testing.T) {
	forBothPolicies(t, func(s suite) {
		s.change(back)
		s.waitComplete(3)
		s.waitClaims(3, 3)
		s.requireSized("2Gi")
		require.Equal(s.T, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx1))

		pods := harness.UIDs(s.Pods("web"))
		s.change(func(set *v1beta1.StatefulSet) { setSize(set, 0, "3Gi") })
		s.waitClaims(3, 3)
		s.requireSized("3Gi")
		require.Equal(s.T, pods, harness.UIDs(s.Pods("web")), "sizes alone recreate no Pod")
	})
}

// 15.1, row 10: then a third image.
func TestAThirdImageFollowsWhileVolumesGrow(t *testing.T) {
	forBothPolicies(t, func(s suite) {
		s.change(back)
		s.waitComplete(3)
		s.image(harness.Nginx3)
		s.waitComplete(3)
		s.waitClaims(3, 3)
		s.requireSized("2Gi")
		require.Equal(s.T, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx3))
	})
}

// 15.1, row 11: image and size go back; what has grown stays grown.
func TestSizesThatGoBackShrinkNothing(t *testing.T) {
	forBothPolicies(t, func(s suite) {
		s.change(func(set *v1beta1.StatefulSet) {
			back(set)
			setSize(set, 0, "1Gi")
		})
		s.waitComplete(3)
		s.waitClaims(3, 3)
		want := map[string]string{"data0-web-0": "1Gi", "data0-web-1": "1Gi", "data0-web-2": "2Gi"}
		require.Equal(s.T, want, s.capacities())
		s.image(harness.Nginx3)
		s.waitComplete(3)
		s.waitClaims(3, 3)
		require.Equal(s.T, want, s.capacities())
		require.Equal(s.T, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx3))
	})
}

// 15.1, row 12: with the strategy OnDelete no further volume grows.
func TestVolumesStopGrowingWithOnDelete(t *testing.T) {
	forBothPolicies(t, func(s suite) {
		s.change(func(set *v1beta1.StatefulSet) {
			back(set)
			set.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnDeleteVolumeClaimUpdateStrategyType
		})
		s.waitComplete(3)
		s.waitClaims(3, 1)
		s.image(harness.Nginx3)
		s.waitComplete(3)
		s.waitClaims(3, 1)
		require.Equal(s.T, map[string]string{"data0-web-0": "1Gi", "data0-web-1": "1Gi", "data0-web-2": "2Gi"}, s.capacities())
		require.Equal(s.T, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx3))
	})
}

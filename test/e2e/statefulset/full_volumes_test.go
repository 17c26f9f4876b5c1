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

var bothPolicies = []v1beta1.PodUpdatePolicyType{v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType}

func policy(p v1beta1.PodUpdatePolicyType) func(*v1beta1.StatefulSet) {
	return func(set *v1beta1.StatefulSet) { rolling(set).PodUpdatePolicy = p }
}

// grow makes the claim templates of the indexes ask for size, and the Pods have the image.
func grow(size, image string, templates []int) func(*v1beta1.StatefulSet) {
	return func(set *v1beta1.StatefulSet) {
		for _, i := range templates {
			setSize(set, i, size)
		}
		app(set).Image = image
	}
}

// 15.1, rows 1, 3 and 5: templates grow, first by themselves, then together with a new image.
func TestClaimTemplatesThatMayGrow(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		classes []string
		grow    []int
		sizes   func(grown string) []string // of the templates
	}{
		"1 one template":            {[]string{expandable}, []int{0}, func(grown string) []string { return []string{grown} }},
		"3 two templates":           {[]string{expandable, expandable}, []int{0, 1}, func(grown string) []string { return []string{grown, grown} }},
		"5 beside one that may not": {[]string{expandable, fixed}, []int{0}, func(grown string) []string { return []string{grown, "1Gi"} }},
	}
	for label, row := range rows {
		for _, p := range bothPolicies {
			t.Run(label+" "+string(p), func(t *testing.T) {
				t.Parallel()
				s := newSuite(t)
				s.Create(web(3, withClaims(row.classes...), policy(p)))
				s.waitClaims(3, 3)
				pods := harness.UIDs(s.Pods("web"))

				s.change(grow("2Gi", harness.Nginx1, row.grow))
				s.waitClaims(3, 3)
				s.requireSized(row.sizes("2Gi")...)
				require.Equal(t, pods, harness.UIDs(s.Pods("web")), "sizes alone recreate no Pod")

				s.change(grow("3Gi", harness.Nginx2, row.grow))
				s.waitComplete(3)
				s.waitClaims(3, 3)
				s.requireSized(row.sizes("3Gi")...)
				require.Equal(t, 3, harness.CountImage(s.Pods("web"), "app", harness.Nginx2))
				if p == v1beta1.InPlaceIfPossiblePodUpdatePolicyType {
					require.Equal(t, pods, harness.UIDs(s.Pods("web")), "in place")
				}
			})
		}
	}
}

// 15.1, rows 2, 4, 6 and 7: with or without a new image and whatever the policy, nothing else grows.
func TestClaimTemplatesThatMayNotGrow(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		classes []string
		grow    []int
	}{
		"2 one template":        {[]string{fixed}, []int{0}},
		"4 two templates":       {[]string{fixed, fixed}, []int{0, 1}},
		"6 beside one that may": {[]string{fixed, expandable}, []int{0}},
		"7 with one that may":   {[]string{fixed, expandable}, []int{0, 1}},
	}
	for label, row := range rows {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			s.Create(web(3, withClaims(row.classes...)))
			s.waitClaims(3, 3)
			for _, p := range bothPolicies {
				s.change(policy(p))
				for _, image := range []string{harness.Nginx1, harness.Nginx2} {
					s.refuses(grow("2Gi", image, row.grow))
				}
			}
			s.waitComplete(3)
			require.Len(t, s.claims(), 3*len(row.classes))
			for name, size := range s.capacities() {
				require.Equal(t, "1Gi", size, "claim %s", name)
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
func grownByOne(t *testing.T, p v1beta1.PodUpdatePolicyType) suite {
	t.Helper()
	s := newSuite(t)
	s.Create(web(3, withClaims(expandable), policy(p)))
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
	for _, p := range bothPolicies {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			scenario(grownByOne(t, p))
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

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The StorageClasses of the cluster under test.
const (
	expandable = "allow-volume-expansion"
	fixed      = "disallow-volume-expansion"
)

// withClaims gives every Pod one claim of 1Gi per class, named data0, data1 and so on, which grow with the rolling update.
func withClaims(classes ...string) func(*v1beta1.StatefulSet) {
	return func(set *v1beta1.StatefulSet) {
		app(set).ReadinessProbe = nil // none of these tests makes a Pod unready
		set.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
		for i, class := range classes {
			data := fmt.Sprintf("data%d", i)
			set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: data},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					StorageClassName: &class,
					Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			})
			app(set).VolumeMounts = append(app(set).VolumeMounts, corev1.VolumeMount{Name: data, MountPath: "/" + data})
		}
	}
}

// setSize makes the claim template of that index ask for size.
func setSize(set *v1beta1.StatefulSet, template int, size string) {
	set.Spec.VolumeClaimTemplates[template].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// claims lists the claims that exist and are not being deleted, by name.
func (s suite) claims() []corev1.PersistentVolumeClaim {
	s.T.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	s.Eventually("listing claims", harness.Short, func() string {
		return text(s.Client.List(s.Ctx(), list, client.InNamespace(s.Namespace)))
	})
	live := slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool { return c.DeletionTimestamp != nil })
	slices.SortFunc(live, func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return live
}

// capacities maps the names of claims to the sizes that they have.
func (s suite) capacities() map[string]string {
	s.T.Helper()
	sizes := map[string]string{}
	for _, c := range s.claims() {
		have := c.Status.Capacity[corev1.ResourceStorage]
		sizes[c.Name] = have.String()
	}
	return sizes
}

// sized is what capacities returns for claims of n Pods, where sizes are those of the templates.
func sized(n int, sizes ...string) map[string]string {
	want := map[string]string{}
	for ordinal := range n {
		for i, size := range sizes {
			want[fmt.Sprintf("data%d-%s", i, name(ordinal))] = size
		}
	}
	return want
}

// waitClaims waits until n Pods are ready, and of the claims of each template want are as the template says.
func (s suite) waitClaims(n, want int32) v1beta1.StatefulSetStatus {
	s.T.Helper()
	return s.waitStatus(fmt.Sprintf("%d Pods are ready, %d claims of each template as it says", n, want), func(st v1beta1.StatefulSetStatus) bool {
		for _, c := range st.VolumeClaims {
			if c.CompatibleReplicas != want || c.CompatibleReadyReplicas != want {
				return false
			}
		}
		return st.Replicas == n && st.ReadyReplicas == n && len(st.VolumeClaims) > 0
	})
}

// requireSized fails unless every claim of three Pods asks for what its template says, and has it.
func (s suite) requireSized(sizes ...string) {
	s.T.Helper()
	require.Equal(s.T, sized(3, sizes...), s.capacities())
	for _, c := range s.claims() {
		asked, have := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
		require.Zero(s.T, asked.Cmp(have), "claim %s asks for %s and has %s", c.Name, asked.String(), have.String())
	}
}

// 15.1, row 1: volumes grow while their Pods run, and keep what is in them.
func TestVolumesGrowWithAnUpdateInPlace(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.Create(web(3, inPlace, withClaims(expandable)))
	s.waitClaims(3, 3)
	before := harness.Identities(s.Pods("web"))
	for ordinal := range 3 {
		s.inside(ordinal, "hostname > /data0/id")
	}
	watch := s.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	s.change(func(set *v1beta1.StatefulSet) {
		setSize(set, 0, "2Gi")
		app(set).Image = harness.Nginx2
	})
	s.waitComplete(3)
	s.waitClaims(3, 3)
	watch.Check(s.Env)
	s.requireSized("2Gi")
	s.RequireSamePods("web", before)
	for ordinal := range 3 {
		require.Equal(t, harness.Nginx2, harness.Image(s.pod(ordinal), "app"))
		require.Equal(t, name(ordinal)+"\n", s.inside(ordinal, "cat /data0/id"))
	}
}

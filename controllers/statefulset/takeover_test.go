// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// taken reads objects as OpenKruise 1.9 left them.
func taken(t *testing.T, moment string) (objects []client.Object) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "openkruise-1.9", moment+".yaml"))
	require.NoError(t, err)
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &meta))
		o, err := apitest.Scheme().New(meta.GroupVersionKind())
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), o))
		obj, ok := o.(client.Object)
		require.True(t, ok)
		objects = append(objects, obj)
	}
	return objects
}

// What OpenKruise 1.9 left is recognised as it is: nothing at all is written.
func TestTakeOverWritesNothing(t *testing.T) {
	for _, moment := range []string{"1-created", "2-mid-rollout"} {
		t.Run(moment, func(t *testing.T) {
			b := newBench(t, taken(t, moment)...)
			for _, name := range []string{"asts", "asts-pps"} {
				for range 3 {
					writes, _ := b.settle("takeover", name)
					assert.Empty(t, writes)
				}
			}
		})
	}
}

// A rollout that OpenKruise began goes on with its revisions, and back to its first one.
func TestTakeOverGoesOnWithTheRollout(t *testing.T) {
	b := newBench(t, taken(t, "2-mid-rollout")...)
	set := &v1beta1.StatefulSet{}
	key := client.ObjectKey{Namespace: "takeover", Name: "asts"}
	require.NoError(t, b.api.Get(t.Context(), key, set))
	set.Generation++
	set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(0))
	require.NoError(t, b.api.Update(t.Context(), set))
	writes, _ := b.settle("takeover", "asts")
	pod := &corev1.Pod{}
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "takeover", Name: "asts-0"}, pod))
	assert.Equal(t, "nginx:1.17", pod.Spec.Containers[0].Image)
	assert.Equal(t, "asts-95896cf77", pod.Labels["controller-revision-hash"])

	require.NoError(t, b.api.Get(t.Context(), key, set))
	set.Generation++
	set.Spec.Template.Spec.Containers[0].Image = "nginx:1.16"
	require.NoError(t, b.api.Update(t.Context(), set))
	more, _ := b.settle("takeover", "asts")
	require.NoError(t, b.api.Get(t.Context(), key, set))
	assert.Equal(t, "asts-5dc665c48b", set.Status.UpdateRevision)
	for _, w := range append(writes, more...) {
		assert.NotContains(t, w, "create", "no new revision, no new Pod")
		assert.NotContains(t, w, "delete")
	}
}

// Claims that OpenKruise made are used, whatever the retention policy says of them.
func TestTakeOverOfClaims(t *testing.T) {
	objects := taken(t, "1-created")
	template := claimTemplate("data")
	template.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	template.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	template.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	var set *v1beta1.StatefulSet
	for _, o := range objects {
		switch o := o.(type) {
		case *v1beta1.StatefulSet:
			if o.Name == "asts" {
				set = o
				o.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{template}
				o.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
				o.Status.VolumeClaims = []v1beta1.VolumeClaimStatus{{VolumeClaimName: "data", CompatibleReplicas: 3, CompatibleReadyReplicas: 3}}
			}
		case *corev1.Pod:
			if metav1.GetControllerOf(o).Name != "asts" {
				continue
			}
			o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + o.Name},
			}})
			c := template.DeepCopy()
			c.Name, c.Namespace, c.Labels = "data-"+o.Name, o.Namespace, map[string]string{"app": "asts"}
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "asts", UID: set.UID}}
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: template.Spec.Resources.Requests}
			objects = append(objects, c)
		}
	}
	b := newBench(t, objects...)
	writes, _ := b.settle("takeover", "asts")
	assert.Empty(t, writes)
}

// Objects that skipped the webhook lack everything that has a default, and some are wrong.
func TestObjectsThatSkippedTheWebhook(t *testing.T) {
	policy := func(o *v1beta1.StatefulSet) *v1beta1.RollingUpdateStatefulSetStrategy {
		o.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{}
		return o.Spec.UpdateStrategy.RollingUpdate
	}
	cases := map[string]struct {
		edit   func(*v1beta1.StatefulSet)
		writes string // of the first pass
	}{
		"nothing but selector and template": {func(*v1beta1.StatefulSet) {}, "create Pod db-0"},
		"an empty rolling update":           {func(o *v1beta1.StatefulSet) { policy(o) }, "create Pod db-0"},
		"an unknown strategy":               {func(o *v1beta1.StatefulSet) { o.Spec.UpdateStrategy.Type = "Other" }, "create Pod db-0"},
		"an unknown Pod management policy":  {func(o *v1beta1.StatefulSet) { o.Spec.PodManagementPolicy = "Other" }, "create Pod db-0"},
		"an unknown update policy":          {func(o *v1beta1.StatefulSet) { policy(o).PodUpdatePolicy = "Other" }, "create Pod db-0"},
		"negative numbers": {func(o *v1beta1.StatefulSet) {
			o.Spec.Replicas = new(int32(-1))
			o.Spec.RevisionHistoryLimit = new(int32(-1))
			policy(o).Partition = new(int32(-1))
			o.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: -1}
		}, ""},
		"limits that are none": {func(o *v1beta1.StatefulSet) {
			policy(o).MaxUnavailable = parsed("lots")
			o.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: parsed("none")}
			o.Spec.ReserveOrdinals = append(o.Spec.ReserveOrdinals, *parsed("x-y"), *parsed("5"))
		}, "create Pod db-0"},
		"empty hooks and policies": {func(o *v1beta1.StatefulSet) {
			o.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{}, InPlaceUpdate: &v1beta1.LifecycleHook{}, PreNormal: &v1beta1.LifecycleHook{}}
			o.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
			policy(o).UnorderedUpdate = &v1beta1.UnorderedUpdateStrategy{}
		}, "create Pod db-0"},
		"a claim template without a size": {func(o *v1beta1.StatefulSet) {
			o.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data")}
			o.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
		}, "create PersistentVolumeClaim data-db-0, create Pod db-0"},
		"no selector":      {func(o *v1beta1.StatefulSet) { o.Spec.Selector = nil }, "nothing"},
		"an empty one":     {func(o *v1beta1.StatefulSet) { o.Spec.Selector = &metav1.LabelSelector{} }, "nothing"},
		"one of no labels": {func(o *v1beta1.StatefulSet) { o.Spec.Selector.MatchLabels = map[string]string{"": "?"} }, "nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := bare("db")
			tc.edit(set)
			b := newBench(t, set)
			writes, _ := b.settle("shop", "db")
			var want []string
			if tc.writes != "nothing" {
				want = append(want, "create ControllerRevision")
				if tc.writes != "" {
					want = append(want, strings.Split(tc.writes, ", ")...)
				}
				want = append(want, "update status of StatefulSet db")
			}
			var got []string
			for _, w := range writes {
				if strings.HasPrefix(w, "create ControllerRevision") {
					w = "create ControllerRevision"
				}
				got = append(got, w)
			}
			assert.Empty(t, cmp.Diff(want, got))
			for range 3 { // with Pods, then changed
				b.settle("shop", "db")
			}
			now := &v1beta1.StatefulSet{}
			require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(set), now))
			now.Spec.Template.Spec.Containers[0].Image = "app:2"
			require.NoError(t, b.api.Update(t.Context(), now))
			b.settle("shop", "db")
		})
	}
}

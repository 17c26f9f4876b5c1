// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// up and down convert as the webhook does: through JSON, without touching the TypeMeta.
func up[S, H any](t require.TestingT, f func(context.Context, *S, *H) error, in *S) *H {
	out := new(H)
	setKind(out, "kept")
	require.NoError(t, f(context.Background(), in, out))
	require.Equal(t, "kept", kindOf(out), "conversion touched the TypeMeta")
	setKind(out, "")
	return wire(t, out)
}

func setKind(v any, kind string) {
	reflect.ValueOf(v).Elem().FieldByName("Kind").SetString(kind)
}

func kindOf(v any) string { return reflect.ValueOf(v).Elem().FieldByName("Kind").String() }

func without[T any](v *T) *T {
	reflect.ValueOf(v).Elem().FieldByName("TypeMeta").SetZero()
	return v
}

func statefulSetUp(t require.TestingT, in *v1alpha1.StatefulSet) *v1beta1.StatefulSet {
	return up(t, v1alpha1.StatefulSetToHub, in)
}

func statefulSetDown(t require.TestingT, in *v1beta1.StatefulSet) *v1alpha1.StatefulSet {
	return up(t, v1alpha1.StatefulSetFromHub, in)
}

func daemonSetUp(t require.TestingT, in *v1alpha1.DaemonSet) *v1beta1.DaemonSet {
	return up(t, v1alpha1.DaemonSetToHub, in)
}

func daemonSetDown(t require.TestingT, in *v1beta1.DaemonSet) *v1alpha1.DaemonSet {
	return up(t, v1alpha1.DaemonSetFromHub, in)
}

// progressive puts the annotation that a DaemonSet's conversion gives a meaning to.
func progressive(t *rapid.T, m *metav1.ObjectMeta) {
	if v := rapid.SampledFrom([]string{"-", "-", "true", "true", "false", "True", ""}).Draw(t, "progressive"); v != "-" {
		setAnnotation(m, v1beta1.DaemonSetProgressiveCreateAnnotation, v)
	}
}

func randomDaemonHub(t *rapid.T) *v1beta1.DaemonSet {
	ds := without(random[v1beta1.DaemonSet](t))
	progressive(t, &ds.ObjectMeta)
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r != nil {
		r.RollingUpdateType = rapid.SampledFrom([]v1beta1.RollingUpdateType{"Standard", "InPlaceIfPossible", "", "Odd"}).Draw(t, "type")
	}
	return ds
}

func randomDaemonSpoke(t *rapid.T) *v1alpha1.DaemonSet {
	ds := without(random[v1alpha1.DaemonSet](t))
	progressive(t, &ds.ObjectMeta)
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r != nil {
		r.RollingUpdateType = rapid.SampledFrom([]v1beta1.RollingUpdateType{"Standard", "Surging", "Surging", "InPlaceIfPossible", "", "Odd"}).Draw(t, "type")
	}
	return ds
}

func TestSetsSurviveV1alpha1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := without(random[v1beta1.StatefulSet](t))
		view := statefulSetDown(t, set)
		same(t, set, statefulSetUp(t, view), "a v1alpha1 client that changes nothing changed a StatefulSet")
		require.NotContains(t, view.Annotations, v1beta1.V1alpha1FieldsAnnotation)

		ds := randomDaemonHub(t)
		dview := daemonSetDown(t, ds)
		same(t, ds, daemonSetUp(t, dview), "a v1alpha1 client that changes nothing changed a DaemonSet")
		require.NotContains(t, dview.Annotations, v1beta1.V1alpha1FieldsAnnotation)
		field := ds.Spec.ScaleStrategy != nil && ds.Spec.ScaleStrategy.PartitionedScaling
		require.Equal(t, field, dview.Annotations[v1beta1.DaemonSetProgressiveCreateAnnotation] == "true", "the field is the truth")
	})
}

func TestSetsSurviveV1beta1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := without(random[v1alpha1.StatefulSet](t))
		stored := statefulSetUp(t, set)
		same(t, set, statefulSetDown(t, stored), "storing changed a StatefulSet")
		require.NotContains(t, stored.Annotations, v1beta1.V1beta1FieldsAnnotation)

		ds := randomDaemonSpoke(t)
		dstored := daemonSetUp(t, ds)
		same(t, ds, daemonSetDown(t, dstored), "storing changed a DaemonSet")
		require.NotContains(t, dstored.Annotations, v1beta1.V1beta1FieldsAnnotation)
		require.NotEqual(t, "true", dstored.Annotations[v1beta1.DaemonSetProgressiveCreateAnnotation], "the field takes its place")
	})
}

// A change that a v1alpha1 client makes reaches the stored object, and changes nothing else.
func TestOneChangeOfASetIsOneChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := without(random[v1beta1.StatefulSet](t))
		view := statefulSetDown(t, set)
		view.Spec.Replicas, set.Spec.Replicas = new(int32(77)), new(int32(77))
		view.Spec.UpdateStrategy.Type, set.Spec.UpdateStrategy.Type = "OnDelete", "OnDelete"
		same(t, set, statefulSetUp(t, view), "a StatefulSet changed more than was meant")

		ds := randomDaemonHub(t)
		dview := daemonSetDown(t, ds)
		dview.Spec.BurstReplicas, ds.Spec.BurstReplicas = new(intstr.FromInt32(77)), new(intstr.FromInt32(77))
		same(t, ds, daemonSetUp(t, dview), "a DaemonSet changed more than was meant")

		// A v1beta1 client likewise.
		old := randomDaemonSpoke(t)
		stored := daemonSetUp(t, old)
		old.Spec.MinReadySeconds, stored.Spec.MinReadySeconds = 77, 77
		same(t, old, daemonSetDown(t, stored), "a DaemonSet changed more than was meant")
	})
}

func TestUnreadableAnnotationsOnSetsAreNoObstacle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		garbage := rapid.SampledFrom([]string{"", "{", "null", "[]", `{"lifecycle":5}`, `{"annotations":{"x":null}}`, `{"updateStrategy":null}`, "x"}).Draw(t, "garbage")
		for _, key := range []string{v1beta1.V1beta1FieldsAnnotation, v1beta1.V1alpha1FieldsAnnotation} {
			set := without(random[v1alpha1.StatefulSet](t))
			want := statefulSetUp(t, set)
			setAnnotation(&set.ObjectMeta, key, garbage)
			same(t, want, statefulSetUp(t, set), "garbage changed a StatefulSet")

			hub := randomDaemonHub(t)
			dwant := daemonSetDown(t, hub)
			setAnnotation(&hub.ObjectMeta, key, garbage)
			same(t, dwant.Spec, daemonSetDown(t, hub).Spec, "garbage changed a DaemonSet")
		}
	})
}

// Writing to the result of a conversion, anywhere in it, leaves the source alone.
func TestConversionOfSetsSharesNoMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, setView, setBack := random[v1beta1.StatefulSet](t), &v1alpha1.StatefulSet{}, &v1beta1.StatefulSet{}
		setBefore := set.DeepCopy()
		setView.FromHub(set)
		setSource := setView.DeepCopy()
		require.NoError(t, v1alpha1.StatefulSetToHub(context.Background(), setView, setBack))
		scramble(reflect.ValueOf(setBack))
		same(t, setSource, setView, "StatefulSetToHub shares memory")
		scramble(reflect.ValueOf(setView))
		same(t, setBefore, set, "StatefulSetFromHub shares memory")

		ds, dsView, dsBack := randomDaemonHub(t), &v1alpha1.DaemonSet{}, &v1beta1.DaemonSet{}
		dsBefore := ds.DeepCopy()
		dsView.FromHub(ds)
		dsSource := dsView.DeepCopy()
		require.NoError(t, v1alpha1.DaemonSetToHub(context.Background(), dsView, dsBack))
		scramble(reflect.ValueOf(dsBack))
		same(t, dsSource, dsView, "DaemonSetToHub shares memory")
		scramble(reflect.ValueOf(dsView))
		same(t, dsBefore, ds, "DaemonSetFromHub shares memory")
	})
}

// A v1alpha1 writer who leaves the annotation out means to have the fields of v1alpha1 only.
func TestWithoutTheAnnotationV1beta1FieldsGo(t *testing.T) {
	set := &v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{ServiceName: "db", ReserveOrdinals: []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("4-6")}}}
	view := statefulSetDown(t, set)
	require.JSONEq(t, `{"reserveOrdinals":[1,"4-6"]}`, view.Annotations[v1beta1.V1beta1FieldsAnnotation])
	require.Equal(t, set, statefulSetUp(t, view))
	delete(view.Annotations, v1beta1.V1beta1FieldsAnnotation)
	require.Empty(t, statefulSetUp(t, view).Spec.ReserveOrdinals)

	plain := &v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{ServiceName: "db"}}
	v1beta1.SetDefaultsStatefulSet(plain, v1beta1.DefaultOptions{})
	require.Empty(t, statefulSetDown(t, plain).Annotations, "an ordinary object needs no annotation of ours")
}

// daemonset.md 4, row by row.
func TestProgressiveCreationOfADaemonSet(t *testing.T) {
	const key = v1beta1.DaemonSetProgressiveCreateAnnotation
	for value, want := range map[string]bool{"true": true, "True": false, "": false, "false": false} {
		in := &v1alpha1.DaemonSet{}
		setAnnotation(&in.ObjectMeta, key, value)
		stored := daemonSetUp(t, in)
		require.Equal(t, want, stored.Spec.ScaleStrategy != nil && stored.Spec.ScaleStrategy.PartitionedScaling, value)
		require.NotEqual(t, "true", stored.Annotations[key])
	}
	// It once had the annotation and v1beta1 turned it off: a v1alpha1 write leaves it off.
	off := &v1beta1.DaemonSet{Spec: v1beta1.DaemonSetSpec{ScaleStrategy: &v1beta1.DaemonSetScaleStrategy{}}}
	setAnnotation(&off.ObjectMeta, key, "true")
	view := daemonSetDown(t, off)
	require.NotContains(t, view.Annotations, key)
	view.Spec.MinReadySeconds = 3
	require.False(t, daemonSetUp(t, view).Spec.ScaleStrategy.PartitionedScaling)
	// A v1alpha1 client turns it on, and off again.
	setAnnotation(&view.ObjectMeta, key, "true")
	on := daemonSetUp(t, view)
	require.True(t, on.Spec.ScaleStrategy.PartitionedScaling)
	view = daemonSetDown(t, on)
	require.Equal(t, "true", view.Annotations[key])
	delete(view.Annotations, key)
	require.Nil(t, daemonSetUp(t, view).Spec.ScaleStrategy)
}

func TestSurgingIsStandard(t *testing.T) {
	in := &v1alpha1.DaemonSet{Spec: v1alpha1.DaemonSetSpec{UpdateStrategy: v1alpha1.DaemonSetUpdateStrategy{
		RollingUpdate: &v1beta1.RollingUpdateDaemonSet{RollingUpdateType: "Surging", MaxSurge: new(intstr.FromInt32(2))},
	}}}
	stored := daemonSetUp(t, in)
	require.Equal(t, &v1beta1.RollingUpdateDaemonSet{RollingUpdateType: "Standard", MaxSurge: new(intstr.FromInt32(2))}, stored.Spec.UpdateStrategy.RollingUpdate)
	require.Equal(t, in.Spec, daemonSetDown(t, stored).Spec)
	stored.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(3))
	view := daemonSetDown(t, stored)
	require.Equal(t, v1beta1.StandardRollingUpdateType, view.Spec.UpdateStrategy.RollingUpdate.RollingUpdateType, "the old word holds no longer than what it was said of")

	hashed := daemonSetDown(t, &v1beta1.DaemonSet{Status: v1beta1.DaemonSetStatus{UpdateRevision: "abc"}})
	require.Equal(t, "abc", hashed.Status.DaemonSetHash)
}

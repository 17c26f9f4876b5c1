// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/randfill"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// codecs is only asked for by the fuzz functions of metav1.
var codecs = serializer.NewCodecFactory(runtime.NewScheme())

// random fills v with a seed that rapid draws, and passes it through JSON as a request does.
func random[T any](t *rapid.T) *T {
	seed := rapid.Int64().Draw(t, "seed")
	filler := apifuzzer.FuzzerFor(apifuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, intOrString), rand.NewSource(seed), codecs).
		NilChance(.3).NumElements(0, 2).MaxDepth(12)
	var v T
	filler.Fill(&v)
	return wire(t, &v)
}

func intOrString(serializer.CodecFactory) []any {
	return []any{func(v *intstr.IntOrString, c randfill.Continue) {
		if c.Bool() {
			*v = intstr.FromInt32(int32(c.Intn(20) - 5))
			return
		}
		*v = intstr.FromString([]string{"", "5", "+5", "-3", "007", "50%", "12.5%", "abc"}[c.Intn(8)])
	}}
}

// wire returns v as it is after a journey as JSON.
func wire[T any](t require.TestingT, v *T) *T {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var out T
	require.NoError(t, json.Unmarshal(text, &out))
	return &out
}

func same(t *rapid.T, want, got any, what string) {
	if !equality.Semantic.DeepEqual(want, got) {
		t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// special puts the keys that conversion gives a meaning to among the labels and annotations.
func special(t *rapid.T, m *metav1.ObjectMeta) {
	labels := rapid.SampledFrom([]string{"-", "-", "true", "false", "True", ""}).Draw(t, "exclude label")
	if labels != "-" {
		m.Labels = maps.Clone(m.Labels)
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[v1beta1.ExcludePreparingDeleteLabel] = labels
	}
	for _, key := range []string{
		v1beta1.ImagePreDownloadParallelismAnnotation,
		v1beta1.ImagePreDownloadTimeoutSecondsAnnotation,
		v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation,
	} {
		value := rapid.SampledFrom([]string{"-", "-", "5", "+5", "007", "-3", "50%", "abc", "", "99999999999"}).Draw(t, key)
		if value != "-" {
			if m.Annotations == nil {
				m.Annotations = map[string]string{}
			}
			m.Annotations[key] = value
		}
	}
}

func randomHub(t *rapid.T) *v1beta1.CloneSet {
	cs := random[v1beta1.CloneSet](t)
	special(t, &cs.ObjectMeta)
	s := &cs.Spec.UpdateStrategy
	s.Type = rapid.SampledFrom([]v1beta1.CloneSetUpdateStrategyType{"RollingUpdate", "RollingUpdate", "OnDelete", "", "Odd"}).Draw(t, "type")
	if s.RollingUpdate != nil {
		s.RollingUpdate.PodUpdatePolicy = rapid.SampledFrom([]v1beta1.PodUpdatePolicyType{
			"ReCreate", "InPlaceIfPossible", "InPlaceOnly", "", "Odd",
		}).Draw(t, "policy")
	}
	return cs
}

func randomSpoke(t *rapid.T) *v1alpha1.CloneSet {
	cs := random[v1alpha1.CloneSet](t)
	special(t, &cs.ObjectMeta)
	cs.Spec.UpdateStrategy.Type = rapid.SampledFrom([]v1alpha1.CloneSetUpdateStrategyType{
		"ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete", "", "Odd",
	}).Draw(t, "type")
	return cs
}

func toHub(t require.TestingT, in *v1alpha1.CloneSet) *v1beta1.CloneSet {
	out := &v1beta1.CloneSet{TypeMeta: metav1.TypeMeta{Kind: "kept"}}
	require.NoError(t, v1alpha1.CloneSetToHub(context.Background(), in, out))
	require.Equal(t, "kept", out.Kind, "conversion touched the TypeMeta")
	out.TypeMeta = metav1.TypeMeta{}
	return wire(t, out)
}

func fromHub(t require.TestingT, in *v1beta1.CloneSet) *v1alpha1.CloneSet {
	out := &v1alpha1.CloneSet{TypeMeta: metav1.TypeMeta{Kind: "kept"}}
	require.NoError(t, v1alpha1.CloneSetFromHub(context.Background(), in, out))
	require.Equal(t, "kept", out.Kind, "conversion touched the TypeMeta")
	out.TypeMeta = metav1.TypeMeta{}
	return wire(t, out)
}

func TestCloneSetSurvivesV1alpha1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomHub(t)
		in.TypeMeta = metav1.TypeMeta{}
		view := fromHub(t, in)
		same(t, in, toHub(t, view), "a v1alpha1 client that changes nothing changed something")
		require.NotContains(t, view.Annotations, v1beta1.V1alpha1FieldsAnnotation)
	})
}

func TestCloneSetSurvivesV1beta1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomSpoke(t)
		in.TypeMeta = metav1.TypeMeta{}
		stored := toHub(t, in)
		same(t, in, fromHub(t, stored), "storing changed what a v1alpha1 client wrote")
		require.NotContains(t, stored.Annotations, v1beta1.V1beta1FieldsAnnotation)
	})
}

// A change that one client makes reaches the other version, and changes nothing else.
func TestOneChangeIsOneChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomHub(t)
		in.TypeMeta = metav1.TypeMeta{}
		if in.Spec.UpdateStrategy.RollingUpdate == nil {
			in.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{}
		}
		view := fromHub(t, in)
		edit := rapid.SampledFrom([]struct {
			view func(*v1alpha1.CloneSet)
			hub  func(*v1beta1.CloneSet)
		}{
			{func(c *v1alpha1.CloneSet) { c.Spec.Replicas = new(int32(77)) }, func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(77)) }},
			{func(c *v1alpha1.CloneSet) { c.Spec.UpdateStrategy.Paused = true }, func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = true }},
			{
				func(c *v1alpha1.CloneSet) { c.Spec.UpdateStrategy.Partition = new(intstr.FromString("33%")) },
				func(c *v1beta1.CloneSet) {
					c.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromString("33%"))
				},
			},
			{
				func(c *v1alpha1.CloneSet) { c.Spec.ScaleStrategy.DisablePVCReuse = true },
				func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = false },
			},
		}).Draw(t, "edit")
		edit.view(view)
		edit.hub(in)
		same(t, in, toHub(t, view), "a v1alpha1 client changed more than it meant to")
	})
}

func TestImagePullJobAndNodeImageSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := random[v1beta1.ImagePullJob](t)
		job.TypeMeta = metav1.TypeMeta{}
		var oldJob v1alpha1.ImagePullJob
		var newJob v1beta1.ImagePullJob
		require.NoError(t, v1alpha1.ImagePullJobFromHub(context.Background(), job, &oldJob))
		require.NoError(t, v1alpha1.ImagePullJobToHub(context.Background(), wire(t, &oldJob), &newJob))
		same(t, job, &newJob, "ImagePullJob")

		ni := random[v1beta1.NodeImage](t)
		ni.TypeMeta = metav1.TypeMeta{}
		for _, image := range ni.Spec.Images {
			for i := range image.PullSecrets {
				image.PullSecrets[i] = v1beta1.ReferenceObject{
					Namespace: "ns", Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"),
					Mode: rapid.SampledFrom([]string{"", "batch"}).Draw(t, "mode"),
				}
			}
		}
		var oldImage v1alpha1.NodeImage
		var newImage v1beta1.NodeImage
		require.NoError(t, v1alpha1.NodeImageFromHub(context.Background(), ni, &oldImage))
		view := wire(t, &oldImage)
		require.NoError(t, v1alpha1.NodeImageToHub(context.Background(), view, &newImage))
		same(t, ni, wire(t, &newImage), "NodeImage")

		// The original v1alpha1 type has no mode: its clients write the references without.
		for _, image := range view.Spec.Images {
			for i := range image.PullSecrets {
				image.PullSecrets[i].Mode = ""
			}
		}
		require.NoError(t, v1alpha1.NodeImageToHub(context.Background(), view, &newImage))
		for name, image := range ni.Spec.Images {
			for i, ref := range image.PullSecrets {
				disagree := slices.ContainsFunc(image.PullSecrets, func(o v1beta1.ReferenceObject) bool {
					return o.Name == ref.Name && o.Mode != ref.Mode
				})
				if !disagree {
					require.Equal(t, ref.Mode, newImage.Spec.Images[name].PullSecrets[i].Mode)
				}
			}
		}
	})
}

// No node must not become every node on its way through another version.
func TestASelectorOfNoNodeStaysOne(t *testing.T) {
	job := &v1alpha1.ImagePullJob{}
	job.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{}}
	var hub v1beta1.ImagePullJob
	require.NoError(t, v1alpha1.ImagePullJobToHub(context.Background(), wire(t, job), &hub))
	got := wire(t, &hub).Spec.Selector
	require.NotNil(t, got.Names)
	require.Empty(t, got.Names)
}

func TestUnreadableAnnotationsAreNoObstacle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		garbage := rapid.SampledFrom([]string{"", "{", "null", "[]", `{"type":5}`, `{"labels":{"x":null}}`, `{"annotations":null}`, "x"}).Draw(t, "garbage")
		in := randomSpoke(t)
		want := toHub(t, in)
		setAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, garbage)
		setAnnotation(&in.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation, garbage)
		same(t, want.Spec, toHub(t, in).Spec, "garbage changed the object")

		hub := randomHub(t)
		wantView := fromHub(t, hub)
		setAnnotation(&hub.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, garbage)
		setAnnotation(&hub.ObjectMeta, v1beta1.V1alpha1FieldsAnnotation, garbage)
		same(t, wantView.Spec, fromHub(t, hub).Spec, "garbage changed the object")
	})
}

func setAnnotation(m *metav1.ObjectMeta, key, value string) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[key] = value
}

// Writing to the result of a conversion, anywhere in it, leaves the source alone.
func TestConversionSharesNoMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hub := randomHub(t)
		before := hub.DeepCopy()
		var view v1alpha1.CloneSet
		require.NoError(t, v1alpha1.CloneSetFromHub(context.Background(), hub, &view))
		same(t, before, hub, "CloneSetFromHub wrote to its source")
		source := view.DeepCopy()
		var back v1beta1.CloneSet
		require.NoError(t, v1alpha1.CloneSetToHub(context.Background(), &view, &back))
		same(t, source, &view, "CloneSetToHub wrote to its source")
		scramble(reflect.ValueOf(&back))
		same(t, source, &view, "CloneSetToHub shares memory")
		scramble(reflect.ValueOf(&view))
		same(t, before, hub, "CloneSetFromHub shares memory")

		ni := random[v1beta1.NodeImage](t)
		niBefore := ni.DeepCopy()
		var niView v1alpha1.NodeImage
		require.NoError(t, v1alpha1.NodeImageFromHub(context.Background(), ni, &niView))
		niSource := niView.DeepCopy()
		var niBack v1beta1.NodeImage
		require.NoError(t, v1alpha1.NodeImageToHub(context.Background(), &niView, &niBack))
		scramble(reflect.ValueOf(&niBack))
		same(t, niSource, &niView, "NodeImageToHub shares memory")
		scramble(reflect.ValueOf(&niView))
		same(t, niBefore, ni, "NodeImageFromHub shares memory")
	})
}

// scramble sets everything that v reaches to its zero value, from the leaves up.
func scramble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			scramble(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				scramble(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			scramble(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			scramble(value)
			v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
		}
	}
	if v.CanSet() {
		v.SetZero()
	}
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// fields points at what a CloneSet has in both versions, wherever it is there. A scenario
// that only touches them runs as a client of either version.
type fields struct {
	Replicas       **int32
	Template       *corev1.PodTemplateSpec
	MinReady       *int32
	Deadline       **int32
	Lifecycle      **v1beta1.Lifecycle
	PodsToDelete   *[]string
	Partition      **intstr.IntOrString
	MaxUnavailable **intstr.IntOrString
	Paused         *bool
	Claims         *[]corev1.PersistentVolumeClaim

	// ZeroStrategy drops the whole update strategy, so that only defaults are left.
	ZeroStrategy func()
	// ExcludePreparingDelete is a field in one version and a label in the other.
	ExcludePreparingDelete func()
	// PullParallelism is a field in one version and an annotation in the other.
	PullParallelism func(n string)
	// OnlyPolicy makes the update strategy one of which only the policy is set.
	OnlyPolicy func(v1beta1.PodUpdatePolicyType)
	// ReuseClaims says whether claims wait for another Pod; the field of one version is the opposite of the other's.
	ReuseClaims func(bool)
}

// version is one served version of the API.
type version interface {
	// create makes a harness.WebSet called web.
	create(e *harness.Env, replicas int32, edit func(fields))
	// change reads web, edits it and writes it, again on conflict.
	change(e *harness.Env, edit func(fields))
	// pulls lists image and parallelism of the ImagePullJobs that web controls.
	pulls(e *harness.Env) [][2]string
}

// inBothVersions runs a scenario twice, as a client of each version.
func inBothVersions(t *testing.T, scenario func(e *harness.Env, api version)) {
	t.Parallel()
	for name, api := range map[string]version{"v1beta1": beta{}, "v1alpha1": alpha{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(harness.New(t), api)
		})
	}
}

type beta struct{}

func (beta) fields(cs *v1beta1.CloneSet) fields {
	s := &cs.Spec
	if s.UpdateStrategy.RollingUpdate == nil {
		s.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{}
	}
	r := s.UpdateStrategy.RollingUpdate
	return fields{
		Replicas: &s.Replicas, Template: &s.Template, MinReady: &s.MinReadySeconds, Deadline: &s.ProgressDeadlineSeconds,
		Lifecycle: &s.Lifecycle, PodsToDelete: &s.ScaleStrategy.PodsToDelete,
		Partition: &r.Partition, MaxUnavailable: &r.MaxUnavailable, Paused: &r.Paused,
		Claims:       &s.VolumeClaimTemplates,
		ZeroStrategy: func() { s.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{} },
		OnlyPolicy: func(p v1beta1.PodUpdatePolicyType) {
			s.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: p}}
		},
		ReuseClaims:            func(yes bool) { s.ScaleStrategy.EnablePVCReuse = yes },
		ExcludePreparingDelete: func() { s.ScaleStrategy.ExcludePreparingDelete = true },
		PullParallelism: func(n string) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.Parse(n))}
		},
	}
}

func (b beta) create(e *harness.Env, replicas int32, edit func(fields)) {
	e.T.Helper()
	cs := harness.WebSet("web", replicas)
	edit(b.fields(cs))
	e.Create(cs)
}

func (b beta) change(e *harness.Env, edit func(fields)) {
	e.T.Helper()
	e.Update("web", func(cs *v1beta1.CloneSet) { edit(b.fields(cs)) })
}

func (beta) pulls(e *harness.Env) [][2]string {
	e.T.Helper()
	list := &v1beta1.ImagePullJobList{}
	require.NoError(e.T, e.Client.List(e.Ctx(), list, client.InNamespace(e.Namespace)))
	var found [][2]string
	for i := range list.Items {
		found = append(found, pullsOf(&list.Items[i], list.Items[i].Spec)...)
	}
	return found
}

func pullsOf(job metav1.Object, spec v1beta1.ImagePullJobSpec) [][2]string {
	if ref := metav1.GetControllerOf(job); ref == nil || ref.Name != "web" {
		return nil
	}
	return [][2]string{{spec.Image, spec.Parallelism.String()}}
}

type alpha struct{}

func (alpha) fields(cs *v1alpha1.CloneSet) fields {
	s := &cs.Spec
	u := &s.UpdateStrategy
	return fields{
		Replicas: &s.Replicas, Template: &s.Template, MinReady: &s.MinReadySeconds, Deadline: &s.ProgressDeadlineSeconds,
		Lifecycle: &s.Lifecycle, PodsToDelete: &s.ScaleStrategy.PodsToDelete,
		Partition: &u.Partition, MaxUnavailable: &u.MaxUnavailable, Paused: &u.Paused,
		Claims:       &s.VolumeClaimTemplates,
		ZeroStrategy: func() { *u = v1alpha1.CloneSetUpdateStrategy{} },
		OnlyPolicy: func(p v1beta1.PodUpdatePolicyType) {
			*u = v1alpha1.CloneSetUpdateStrategy{Type: v1alpha1.CloneSetUpdateStrategyType(p)}
		},
		ReuseClaims:            func(yes bool) { s.ScaleStrategy.DisablePVCReuse = !yes },
		ExcludePreparingDelete: func() { metav1.SetMetaDataLabel(&cs.ObjectMeta, v1beta1.ExcludePreparingDeleteLabel, "true") },
		PullParallelism: func(n string) {
			metav1.SetMetaDataAnnotation(&cs.ObjectMeta, "apps.kruise.io/image-predownload-parallelism", n)
		},
	}
}

// alphaSet is harness.WebSet, written as a client of v1alpha1 writes it.
func alphaSet(name string, replicas int32) *v1alpha1.CloneSet {
	web := harness.WebSet(name, replicas)
	return &v1alpha1.CloneSet{
		ObjectMeta: web.ObjectMeta,
		Spec: v1alpha1.CloneSetSpec{
			Replicas: &replicas, Selector: web.Spec.Selector, Template: web.Spec.Template,
			UpdateStrategy: v1alpha1.CloneSetUpdateStrategy{
				Type:           v1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType,
				MaxUnavailable: new(intstr.FromInt32(1)),
			},
		},
	}
}

func (a alpha) create(e *harness.Env, replicas int32, edit func(fields)) {
	e.T.Helper()
	cs := alphaSet("web", replicas)
	edit(a.fields(cs))
	e.Create(cs)
}

func (a alpha) change(e *harness.Env, edit func(fields)) {
	e.T.Helper()
	changeAlpha(e, "web", func(cs *v1alpha1.CloneSet) { edit(a.fields(cs)) })
}

// changeAlpha reads, edits and writes a CloneSet as a client of v1alpha1.
func changeAlpha(e *harness.Env, name string, edit func(*v1alpha1.CloneSet)) {
	e.T.Helper()
	e.Eventually("updating CloneSet "+name+" in v1alpha1", harness.Short, func() string {
		cs := &v1alpha1.CloneSet{}
		err := e.Client.Get(e.Ctx(), e.Key(name), cs)
		if err == nil {
			edit(cs)
			err = e.Client.Update(e.Ctx(), cs)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

func (alpha) pulls(e *harness.Env) [][2]string {
	e.T.Helper()
	list := &v1alpha1.ImagePullJobList{}
	require.NoError(e.T, e.Client.List(e.Ctx(), list, client.InNamespace(e.Namespace)))
	var found [][2]string
	for i := range list.Items {
		found = append(found, pullsOf(&list.Items[i], list.Items[i].Spec)...)
	}
	return found
}

// Both versions have fields that the other lacks; a client of one must not lose the other's.
func TestAV1alpha1ClientLosesNothingOfV1beta1(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 2, partition("1"), func(cs *v1beta1.CloneSet) {
		cs.Spec.ScaleStrategy.ExcludePreparingDelete = true
		cs.Spec.ScaleStrategy.EnablePVCReuse = true
		cs.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{
			GracePeriodSeconds:                  1,
			ImagePreDownloadParallelism:         new(intstr.FromInt32(2)),
			ImagePreDownloadTimeoutSeconds:      new(int32(33)),
			ImagePreDownloadMinUpdatedReadyPods: new(int32(1)),
		}
	}))
	e.Create(harness.WebSet("sleepy", 1, func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.Type = v1beta1.OnDeleteCloneSetUpdateStrategyType
		cs.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromInt32(1))
	}))
	e.WaitAvailable("web", 2)
	e.WaitAvailable("sleepy", 1)
	before, sleepy := e.CloneSet("web"), e.CloneSet("sleepy")

	for _, name := range []string{"web", "sleepy"} {
		changeAlpha(e, name, func(cs *v1alpha1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
	}
	e.WaitUpdated("web", 2, 1)
	after := e.CloneSet("web")
	require.Equal(t, harness.Nginx2, after.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, before.Spec.ScaleStrategy, after.Spec.ScaleStrategy)
	require.Equal(t, before.Spec.UpdateStrategy, after.Spec.UpdateStrategy)
	require.Equal(t, sleepy.Spec.UpdateStrategy, e.CloneSet("sleepy").Spec.UpdateStrategy)

	// And what the v1alpha1 client does mean to change, changes.
	changeAlpha(e, "web", func(cs *v1alpha1.CloneSet) { cs.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(0)) })
	e.WaitAvailable("web", 2)

	// The other way round: made in v1alpha1, edited in v1beta1.
	e.Create(func() client.Object {
		cs := alphaSet("old", 1)
		cs.Spec.ScaleStrategy.DisablePVCReuse = true
		return cs
	}())
	e.WaitAvailable("old", 1)
	e.Update("old", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
	e.WaitAvailable("old", 1)
	old := &v1alpha1.CloneSet{}
	require.NoError(t, e.Client.Get(e.Ctx(), e.Key("old"), old))
	require.True(t, old.Spec.ScaleStrategy.DisablePVCReuse)
	require.Equal(t, v1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType, old.Spec.UpdateStrategy.Type)
	require.Equal(t, new(intstr.FromInt32(1)), old.Spec.UpdateStrategy.MaxUnavailable)
}

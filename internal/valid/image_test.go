// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

func pull(change ...func(*v1beta1.ImagePullJob)) *v1beta1.ImagePullJob {
	job := &v1beta1.ImagePullJob{Spec: v1beta1.ImagePullJobSpec{Image: "nginx:1.27"}}
	v1beta1.SetDefaultsImagePullJob(job)
	for _, f := range change {
		f(job)
	}
	return job
}

func TestImagePullJob(t *testing.T) {
	some := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, c := range map[string]struct {
		change func(*v1beta1.ImagePullJob)
		path   []string
	}{
		"the plain one":           {func(*v1beta1.ImagePullJob) {}, nil},
		"a digest":                {func(j *v1beta1.ImagePullJob) { j.Spec.Image = "nginx@sha256:" + fmt.Sprintf("%064d", 1) }, nil},
		"parallelism 0":           {func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt32(0)) }, nil},
		"parallelism as text":     {func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromString("3")) }, nil},
		"an empty selector":       {func(j *v1beta1.ImagePullJob) { j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{} }, nil},
		"deadline equal timeout":  {func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(600)) }, nil},
		"any pull policy":         {func(j *v1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "Whenever" }, nil},
		"no image":                {func(j *v1beta1.ImagePullJob) { j.Spec.Image = "" }, []string{"spec.image"}},
		"an image that cannot be": {func(j *v1beta1.ImagePullJob) { j.Spec.Image = "Nginx::x" }, []string{"spec.image"}},
		"parallelism in percent":  {func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromString("10%")) }, []string{"spec.parallelism"}},
		"parallelism negative":    {func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt32(-1)) }, []string{"spec.parallelism"}},
		"deadline below timeout":  {func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(599)) }, []string{"spec.completionPolicy.activeDeadlineSeconds"}},
		"an unknown type":         {func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = "Once" }, []string{"spec.completionPolicy.type"}},
		"Never with a deadline": {func(j *v1beta1.ImagePullJob) {
			j.Spec.CompletionPolicy = v1beta1.CompletionPolicy{Type: v1beta1.Never, ActiveDeadlineSeconds: new(int64(1))}
		}, []string{"spec.completionPolicy.activeDeadlineSeconds"}},
		"Never with a time to live": {func(j *v1beta1.ImagePullJob) {
			j.Spec.CompletionPolicy = v1beta1.CompletionPolicy{Type: v1beta1.Never, TTLSecondsAfterFinished: new(int32(1))}
		}, []string{"spec.completionPolicy.ttlSecondsAfterFinished"}},
		"both selectors": {func(j *v1beta1.ImagePullJob) {
			j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{"n"}}
			j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: some}
		}, []string{"spec.selector"}},
		"names and labels": {func(j *v1beta1.ImagePullJob) {
			j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{"n"}, LabelSelector: some}
		}, []string{"spec.selector.names"}},
		"a name twice": {func(j *v1beta1.ImagePullJob) {
			j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{"n", "n"}}
		}, []string{"spec.selector.names[1]"}},
		"a Pod selector that cannot be": {func(j *v1beta1.ImagePullJob) {
			j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}}
		}, []string{"spec.podSelector.matchLabels"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.ImagePullJob(pull(c.change))
			require.Equal(t, c.path, paths(errs), "%v", errs)
		})
	}
}

func TestPullSecretsAreImmutable(t *testing.T) {
	secrets := func(names ...string) *v1beta1.ImagePullJob {
		return pull(func(j *v1beta1.ImagePullJob) { j.Spec.PullSecrets = names })
	}
	require.Nil(t, valid.ImagePullJobDenial(secrets("a"), secrets("a")))
	require.Nil(t, valid.ImagePullJobDenial(pull(), pull(func(j *v1beta1.ImagePullJob) { j.Spec.Image = "nginx:1.28" })))
	require.ErrorContains(t, valid.ImagePullJobDenial(secrets("a"), secrets("b")), "spec.pullSecrets is immutable")
}

func TestNodeImage(t *testing.T) {
	node := func(change func(tag *v1beta1.ImageTagSpec)) *v1beta1.NodeImage {
		tag := v1beta1.ImageTagSpec{Tag: "1.27", PullPolicy: &v1beta1.ImageTagPullPolicy{TTLSecondsAfterFinished: new(int32(60))}}
		ni := &v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{tag}}}}}
		v1beta1.SetDefaultsNodeImage(ni, metav1.NewTime(time.Unix(1, 0)))
		change(&ni.Spec.Images["nginx"].Tags[0])
		return ni
	}
	tags := "spec.images[nginx].tags[0]"
	for name, c := range map[string]struct {
		ni   *v1beta1.NodeImage
		path []string
	}{
		"the plain one":         {node(func(*v1beta1.ImageTagSpec) {}), nil},
		"no tag":                {node(func(t *v1beta1.ImageTagSpec) { t.Tag = "" }), []string{tags + ".tag"}},
		"no time":               {node(func(t *v1beta1.ImageTagSpec) { t.CreatedAt = nil }), []string{tags + ".createdAt"}},
		"negative version":      {node(func(t *v1beta1.ImageTagSpec) { t.Version = -1 }), []string{tags + ".version"}},
		"no pull policy":        {node(func(t *v1beta1.ImageTagSpec) { t.PullPolicy = nil }), []string{tags + ".pullPolicy"}},
		"no time to live":       {node(func(t *v1beta1.ImageTagSpec) { t.PullPolicy.TTLSecondsAfterFinished = nil }), []string{tags + ".pullPolicy.ttlSecondsAfterFinished"}},
		"an image without name": {&v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{"": {}}}}, []string{"spec.images[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.NodeImage(c.ni)
			require.Equal(t, c.path, paths(errs), "%v", errs)
		})
	}
	twice := node(func(*v1beta1.ImageTagSpec) {})
	twice.Spec.Images["nginx"] = v1beta1.ImageSpec{Tags: append(twice.Spec.Images["nginx"].Tags, twice.Spec.Images["nginx"].Tags...)}
	require.Equal(t, []string{"spec.images[nginx].tags[1].tag"}, paths(valid.NodeImage(twice)))

	many := &v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{}}}
	for i := range valid.MaxNodeImages + 1 {
		many.Spec.Images[fmt.Sprintf("image-%d", i)] = v1beta1.ImageSpec{}
	}
	require.Equal(t, []string{"spec.images"}, paths(valid.NodeImage(many)))
}

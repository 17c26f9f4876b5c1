// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

func pullList(change ...func(*v1beta1.ImageListPullJob)) *v1beta1.ImageListPullJob {
	job := &v1beta1.ImageListPullJob{Spec: v1beta1.ImageListPullJobSpec{Images: []string{"nginx:1.27", "busybox"}}}
	v1beta1.SetDefaultsImageListPullJob(job)
	for _, f := range change {
		f(job)
	}
	return job
}

func images(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("image-%d:1", i)
	}
	return out
}

func TestImageListPullJob(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1beta1.ImageListPullJob)
		path   []string
	}{
		"the plain one":                  {func(*v1beta1.ImageListPullJob) {}, nil},
		"as many images as there may be": {func(j *v1beta1.ImageListPullJob) { j.Spec.Images = images(255) }, nil},
		"one image in two words":         {func(j *v1beta1.ImageListPullJob) { j.Spec.Images = []string{"nginx", "nginx:latest"} }, nil},
		"a deadline below the timeout":   {func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(1)) }, nil},
		"no image":                       {func(j *v1beta1.ImageListPullJob) { j.Spec.Images = nil }, []string{"spec.images"}},
		"an empty image":                 {func(j *v1beta1.ImageListPullJob) { j.Spec.Images[1] = "" }, []string{"spec.images[1]"}},
		"an image that cannot be":        {func(j *v1beta1.ImageListPullJob) { j.Spec.Images[0] = "A:B:C" }, []string{"spec.images[0]"}},
		"an image twice":                 {func(j *v1beta1.ImageListPullJob) { j.Spec.Images[1] = j.Spec.Images[0] }, []string{"spec.images[1]"}},
		"one image too many":             {func(j *v1beta1.ImageListPullJob) { j.Spec.Images = images(256) }, []string{"spec.images"}},
		"parallelism in percent":         {func(j *v1beta1.ImageListPullJob) { j.Spec.Parallelism = new(intstr.FromString("10%")) }, []string{"spec.parallelism"}},
		"an unknown type":                {func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.Type = "Once" }, []string{"spec.completionPolicy.type"}},
		"Never with both times": {func(j *v1beta1.ImageListPullJob) {
			j.Spec.CompletionPolicy = v1beta1.CompletionPolicy{Type: v1beta1.Never, ActiveDeadlineSeconds: new(int64(1)), TTLSecondsAfterFinished: new(int32(1))}
		}, []string{"spec.completionPolicy.activeDeadlineSeconds", "spec.completionPolicy.ttlSecondsAfterFinished"}},
		"both selectors": {func(j *v1beta1.ImageListPullJob) {
			j.Spec.Selector, j.Spec.PodSelector = &v1beta1.ImagePullJobNodeSelector{}, &v1beta1.ImagePullJobPodSelector{}
		}, []string{"spec.selector"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.ImageListPullJob(pullList(c.change))
			require.Equal(t, c.path, paths(errs), "%v", errs)
		})
	}
}

func TestAStoredFaultKeepsNoImageJobFromChanging(t *testing.T) {
	odd := func(j *v1beta1.ImageListPullJob) { j.Spec.CompletionPolicy.Type = "Once" }
	more := func(j *v1beta1.ImageListPullJob) { j.Spec.Images = append(j.Spec.Images, "alpine") }
	require.Empty(t, valid.ImageListPullJobUpdate(pullList(odd), pullList(odd, more)))
	require.Len(t, valid.ImageListPullJobUpdate(pullList(), pullList(odd, more)), 1)

	// This one was stored before there were defaults.
	early := &v1beta1.ImagePullJob{Spec: v1beta1.ImagePullJobSpec{Image: "nginx"}}
	early.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(5))
	later := early.DeepCopy()
	later.Spec.Image = "nginx:1.28"
	v1beta1.SetDefaultsImagePullJob(later)
	require.Len(t, valid.ImagePullJob(later), 1)
	require.Empty(t, valid.ImagePullJobUpdate(early, later))
}

// OpenKruise has no limit for what is written past the webhook, and a list that is too long must
// be able to shrink.
func TestANodeImageWithTooManyImagesMayShrink(t *testing.T) {
	list := func(n int) *v1beta1.NodeImage {
		ni := &v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{}}}
		for _, name := range images(n) {
			ni.Spec.Images[name] = v1beta1.ImageSpec{}
		}
		return ni
	}
	require.Empty(t, valid.NodeImageUpdate(list(300), list(299)))
	require.Empty(t, valid.NodeImageUpdate(list(300), list(300)))
	require.Len(t, valid.NodeImageUpdate(list(300), list(301)), 1)
	require.Empty(t, valid.NodeImageUpdate(list(255), list(256)))
	errs := valid.NodeImageUpdate(list(256), list(257))
	require.Len(t, errs, 1)
	require.EqualError(t, errs[0], "spec.images: Too many: 257: must have at most 256 items; a node works on no more at a time: "+
		"wait until other jobs are done, or delete some, or shorten their ttlSecondsAfterFinished")
}

func TestWarningsOfImageJobs(t *testing.T) {
	type job = v1beta1.ImagePullJob
	for name, c := range map[string]struct {
		change func(*job)
		want   []string
	}{
		"the plain one": {func(*job) {}, nil},
		"a pull policy of Pods": {func(j *job) { j.Spec.ImagePullPolicy = "Never" },
			[]string{`spec.imagePullPolicy: "Never" is not known and has the effect of Always; use Always or IfNotPresent`}},
		"names of no node": {func(j *job) { j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{Names: []string{}} },
			[]string{"spec.selector.names: an empty list selects no node; leave the selector out to select all"}},
		"an empty selector of nodes": {func(j *job) { j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{} }, nil},
		"an empty selector of Pods": {func(j *job) { j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{} },
			[]string{"spec.podSelector: selects the nodes of all Pods of the namespace; set matchLabels"}},
		"secrets that are none": {func(j *job) { j.Spec.PullSecrets = []string{"a", "", "a"} },
			[]string{"spec.pullSecrets[1]: is empty and has no effect", `spec.pullSecrets[2]: "a" is listed twice`}},
		"no time": {func(j *job) { j.Spec.PullPolicy.TimeoutSeconds = new(int32(0)) },
			[]string{"spec.pullPolicy.timeoutSeconds: 0 leaves no time for a pull; set some minutes"}},
		"less than no retry": {func(j *job) { j.Spec.PullPolicy.BackoffLimit = new(int32(-1)) },
			[]string{"spec.pullPolicy.backoffLimit: -1 has the effect of 0: a failed pull is not tried again"}},
		"less than no time to live": {func(j *job) { j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(-1)) },
			[]string{"spec.completionPolicy.ttlSecondsAfterFinished: -1 has the effect of 0: the job is deleted as soon as it is complete"}},
		"a deadline for one attempt": {func(j *job) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(600)) },
			[]string{"spec.completionPolicy.activeDeadlineSeconds: 600 may end the job before its 3 retries of pullPolicy.timeoutSeconds (600) are over"}},
		"which a controller need not be told": {func(j *job) {
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(600))
			j.OwnerReferences = []metav1.OwnerReference{{Controller: new(true)}}
		}, nil},
		"a deadline for all attempts": {func(j *job) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(2400)) }, nil},
		"a tag beside a digest": {func(j *job) { j.Spec.Image = "a.io:5000/nginx:1@sha256:" + fmt.Sprintf("%064d", 1) },
			[]string{"spec.image: the tag has no effect beside the digest sha256:" + fmt.Sprintf("%064d", 1)}},
		"a digest and a port": {func(j *job) { j.Spec.Image = "a.io:5000/nginx@sha256:" + fmt.Sprintf("%064d", 1) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, valid.ImagePullJobWarnings(pull(c.change)))
		})
	}

	require.Empty(t, valid.ImageListPullJobWarnings(pullList()))
	require.Equal(t, []string{
		`spec.images[1]: "nginx:latest" is the same image as "docker.io/library/nginx" and is pulled twice; leave one of them out`,
		"spec.completionPolicy.activeDeadlineSeconds: 300 is less than pullPolicy.timeoutSeconds (600), which no ImagePullJob may have; raise it or lower the timeout",
	}, valid.ImageListPullJobWarnings(pullList(func(j *v1beta1.ImageListPullJob) {
		j.Spec.Images = []string{"docker.io/library/nginx", "nginx:latest"}
		j.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(300))
	})))
	require.Equal(t, []string{
		"spec.images[docker.io/library/nginx]: is not the short name of an image without tag, such as nginx or quay.io/acme/app, and cannot be pulled",
		"spec.images[nginx:1]: is not the short name of an image without tag, such as nginx or quay.io/acme/app, and cannot be pulled",
		`spec.images[quay.io/acme/app].tags[1].imagePullPolicy: "Never" is not known and has the effect of Always; use Always or IfNotPresent`,
	}, valid.NodeImageWarnings(&v1beta1.NodeImage{Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{
		"nginx:1": {}, "docker.io/library/nginx": {}, "nginx": {},
		"quay.io/acme/app": {Tags: []v1beta1.ImageTagSpec{{Tag: "1"}, {Tag: "2", ImagePullPolicy: "Never"}}},
	}}}))
}

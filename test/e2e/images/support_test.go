//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// configNamespace is where copies of pull secrets go.
const configNamespace = "kruise-daemon-config"

// version is one served version of the API. Both have the same fields.
type version interface {
	job() job
	list() list
}

// job is an ImagePullJob of either version.
type job struct {
	client.Object
	spec   *v1beta1.ImagePullJobSpec
	status *v1beta1.ImagePullJobStatus
}

// list is an ImageListPullJob of either version.
type list struct {
	client.Object
	spec   *v1beta1.ImageListPullJobSpec
	status *v1beta1.ImageListPullJobStatus
}

type beta struct{}

func (beta) job() job {
	o := &v1beta1.ImagePullJob{}
	return job{o, &o.Spec, &o.Status}
}

func (beta) list() list {
	o := &v1beta1.ImageListPullJob{}
	return list{o, &o.Spec, &o.Status}
}

type alpha struct{}

func (alpha) job() job {
	o := &v1alpha1.ImagePullJob{}
	return job{o, &o.Spec, &o.Status}
}

func (alpha) list() list {
	o := &v1alpha1.ImageListPullJob{}
	return list{o, &o.Spec, &o.Status}
}

// suite is one test, and the version through which it speaks.
type suite struct {
	*harness.Env
	api version
}

func newSuite(t *testing.T, api version) suite {
	t.Helper()
	s := suite{harness.New(t), api}
	// A node gets its NodeImage half a minute after it is ready, and a job is done when all
	// NodeImages that there are have the image.
	s.Eventually("a NodeImage for each node", harness.Long, func() string {
		all := &v1beta1.NodeImageList{}
		if err := s.Client.List(s.Ctx(), all); err != nil {
			return err.Error()
		}
		if want := len(s.NodeNames()); len(all.Items) < want {
			return fmt.Sprintf("%d of %d are there", len(all.Items), want)
		}
		return ""
	})
	return s
}

// onRealNodes selects the nodes without the label of NodeImages that a test has made.
func onRealNodes(j *v1beta1.ImagePullJobTemplate) {
	j.Selector = &v1beta1.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1beta1.FakeNodeImageLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
	}}
}

func on(nodes ...string) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) { j.Selector = &v1beta1.ImagePullJobNodeSelector{Names: nodes} }
}

func parallel(n int32) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) { j.Parallelism = new(intstr.FromInt32(n)) }
}

func attempts(timeout, retries int32) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) {
		j.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: &timeout, BackoffLimit: &retries}
	}
}

func secrets(names ...string) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) { j.PullSecrets = names }
}

func ttl(seconds int32) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) { j.CompletionPolicy.TTLSecondsAfterFinished = &seconds }
}

func never(j *v1beta1.ImagePullJobTemplate) { j.CompletionPolicy.Type = v1beta1.Never }

func policy(p v1beta1.ImagePullPolicy) func(*v1beta1.ImagePullJobTemplate) {
	return func(j *v1beta1.ImagePullJobTemplate) { j.ImagePullPolicy = p }
}

// pull creates a job that ends, on all real nodes one after the other unless edit says otherwise.
func (s suite) pull(name, image string, edit ...func(*v1beta1.ImagePullJobTemplate)) {
	s.T.Helper()
	j := s.api.job()
	j.SetName(name)
	j.spec.Image = image
	j.spec.CompletionPolicy.Type = v1beta1.Always
	onRealNodes(&j.spec.ImagePullJobTemplate)
	for _, f := range edit {
		f(&j.spec.ImagePullJobTemplate)
	}
	s.Create(j.Object)
}

// job reads a job, and fails the test if it is gone.
func (s suite) job(name string) job {
	s.T.Helper()
	j := s.api.job()
	s.Eventually("reading ImagePullJob "+name, harness.Short, func() string { return text(s.Client.Get(s.Ctx(), s.Key(name), j.Object)) })
	return j
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// waitDesired waits until job "job" knows its nodes.
func (s suite) waitDesired(want int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("ImagePullJob job is meant for %d nodes", want), harness.Short, func() string {
		if got := s.job("job").status; int(got.Desired) != want {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
}

// waitCompleted waits for the end of a job, and wants so many nodes of each kind.
func (s suite) waitCompleted(name string, succeeded, failed int) v1beta1.ImagePullJobStatus {
	s.T.Helper()
	var status v1beta1.ImagePullJobStatus
	s.Eventually("ImagePullJob "+name+" completes", harness.Long, func() string {
		status = *s.job(name).status
		if status.CompletionTime == nil {
			return fmt.Sprintf("status %+v", status)
		}
		return ""
	})
	require.Equal(s.T, []int{succeeded, failed, 0}, []int{int(status.Succeeded), int(status.Failed), int(status.Active)}, "succeeded, failed, active of %s: %+v", name, status)
	return status
}

// waitSucceeded waits until a job that never completes has come to so many nodes.
func (s suite) waitSucceeded(name string, want int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("ImagePullJob %s succeeds on %d nodes", name, want), harness.Long, func() string {
		if got := s.job(name).status; int(got.Succeeded) != want {
			return fmt.Sprintf("status %+v", *got)
		}
		return ""
	})
	require.Nil(s.T, s.job(name).status.CompletionTime, "a job of type Never does not complete")
}

// waitGone waits until an object of the test's namespace is gone.
func (s suite) waitGone(what string, obj client.Object, name string) {
	s.T.Helper()
	s.Eventually(what+" "+name+" is gone", harness.Short, func() string {
		err := s.Client.Get(s.Ctx(), s.Key(name), obj)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("it exists, or: %v", err)
	})
}

func (s suite) nodeImage(node string) *v1beta1.NodeImage {
	s.T.Helper()
	ni := &v1beta1.NodeImage{}
	s.Eventually("reading NodeImage "+node, harness.Short, func() string { return text(s.Client.Get(s.Ctx(), client.ObjectKey{Name: node}, ni)) })
	return ni
}

// tagOf finds an image in the spec of a NodeImage, nil if it is not there.
func tagOf(ni *v1beta1.NodeImage, image string) *v1beta1.ImageTagSpec {
	ref, err := imageref.Parse(image)
	if err != nil {
		panic(err) // the test's own
	}
	tags := ni.Spec.Images[ref.Name].Tags
	for i := range tags {
		if tags[i].Tag == ref.Tag {
			return &tags[i]
		}
	}
	return nil
}

// statusOf finds an image in the status of a NodeImage, nil if it is not there.
func statusOf(ni *v1beta1.NodeImage, image string) *v1beta1.ImageTagStatus {
	ref, err := imageref.Parse(image)
	if err != nil {
		panic(err) // the test's own
	}
	tags := ni.Status.ImageStatuses[ref.Name].Tags
	for i := range tags {
		if tags[i].Tag == ref.Tag {
			return &tags[i]
		}
	}
	return nil
}

// waitTagGone waits until no node is told to have the image.
func (s suite) waitTagGone(image string) {
	s.T.Helper()
	s.Eventually("no NodeImage lists "+image, harness.Short, func() string {
		for _, n := range s.NodeNames() {
			if tagOf(s.nodeImage(n), image) != nil {
				return n + " does"
			}
		}
		return ""
	})
}

// copies are the Secrets made from a Secret of the test's namespace.
func (s suite) copies(secret string) []corev1.Secret {
	s.T.Helper()
	all := &corev1.SecretList{}
	s.Eventually("listing the copies of secrets", harness.Short, func() string { return text(s.Client.List(s.Ctx(), all, client.InNamespace(configNamespace))) })
	return slices.DeleteFunc(all.Items, func(c corev1.Secret) bool {
		return c.Annotations["imagepulljobs.kruise.io/source-key"] != s.Namespace+"/"+secret
	})
}

// waitCopied waits until there is exactly one copy of Secret pull-secret, for that job, with its data.
func (s suite) waitCopied(job string, data map[string][]byte) {
	s.T.Helper()
	const secret = "pull-secret"
	s.Eventually("a copy of Secret "+secret, harness.Short, func() string {
		found := s.copies(secret)
		if len(found) != 1 {
			return fmt.Sprintf("%d copies", len(found))
		}
		if refs := found[0].Annotations["imagepulljobs.kruise.io/references"]; !slices.Contains(strings.Split(refs, ","), s.Namespace+"/"+job) {
			return "it is for " + refs
		}
		if !maps.EqualFunc(found[0].Data, data, func(a, b []byte) bool { return string(a) == string(b) }) {
			return "its data differs"
		}
		return ""
	})
}

func (s suite) waitNoCopy(secret string) {
	s.T.Helper()
	s.Eventually("no copy of Secret "+secret, harness.Short, func() string {
		if n := len(s.copies(secret)); n != 0 {
			return fmt.Sprintf("%d copies", n)
		}
		return ""
	})
}

// events lists reasons and messages of events about an object of that kind and name.
func (s suite) events(kind, name string) []string {
	s.T.Helper()
	all := &corev1.EventList{}
	s.Eventually("listing events", harness.Short, func() string { return text(s.Client.List(s.Ctx(), all, client.InNamespace(s.Namespace))) })
	var found []string
	for _, ev := range all.Items {
		if ev.InvolvedObject.Kind == kind && ev.InvolvedObject.Name == name {
			found = append(found, ev.Reason+": "+ev.Message)
		}
	}
	return found
}

// waitPulling waits until the node says that it is pulling, and has asked for something.
func (s suite) waitPulling(image harness.TestImage, node string) {
	s.T.Helper()
	s.Eventually(node+" downloads "+image.Ref, harness.Long, func() string {
		st := statusOf(s.nodeImage(node), image.Ref)
		if st == nil || st.Phase != v1beta1.ImagePhasePulling {
			return fmt.Sprintf("status %+v", st)
		}
		if len(s.Downloads(image)[node]) == 0 {
			return "no layer was asked for"
		}
		return ""
	})
}

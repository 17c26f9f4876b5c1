// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package imagepulljob

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

func (c *cluster) node(t *testing.T, name string) *v1beta1.NodeImage {
	t.Helper()
	node := &v1beta1.NodeImage{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, node))
	return node
}

func (c *cluster) edit(t *testing.T, key client.ObjectKey, obj client.Object, change func()) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(t.Context(), key, obj); err != nil {
			return err
		}
		change()
		return c.Update(t.Context(), obj)
	}))
}

func (c *cluster) event(t *testing.T, reason, message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var list corev1.EventList
		return c.List(t.Context(), &list, client.InNamespace("default")) == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "ImagePullJob" && e.Reason == reason && strings.Contains(e.Message, message)
		})
	}, soon, tick, "event %s", reason)
}

func TestEditsReachNodesThatPull(t *testing.T) {
	c := start(t)
	c.nodes(t, 2)
	c.answerWith("node1", "") // silent
	key := c.job(t, "pull", func(j *v1beta1.ImagePullJob) { j.Spec.Selector = &v1beta1.ImagePullJobNodeSelector{} })
	c.eventually(t, key, long, "one node is through", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })
	c.writes.since()
	job := &v1beta1.ImagePullJob{}
	c.edit(t, key, job, func() {
		job.Spec.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(77)), BackoffLimit: new(int32(1))}
		job.Spec.CompletionPolicy.ActiveDeadlineSeconds = new(int64(7777))
	})
	require.Eventually(t, func() bool {
		p := c.node(t, "node1").Spec.Images["nginx"].Tags[0].PullPolicy
		return p.TimeoutSeconds != nil && *p.TimeoutSeconds == 77 && *p.BackoffLimit == 1 && *p.ActiveDeadlineSeconds == 7777
	}, soon, tick)
	require.Zero(t, c.node(t, "node1").Spec.Images["nginx"].Tags[0].Version, "nothing is pulled anew")
	require.Nil(t, c.node(t, "node0").Spec.Images["nginx"].Tags[0].PullPolicy.TimeoutSeconds, "what is through is left alone")
	require.Never(t, func() bool { return len(c.writes.since()) > 1 }, 2*time.Second, tick)
}

func TestAFullNodeImageIsToldAndTriedLater(t *testing.T) {
	c := start(t)
	full := newNode("full").with(func(n *v1beta1.NodeImage) {
		n.Spec.Images = map[string]v1beta1.ImageSpec{}
		for i := range 256 {
			n.Spec.Images[fmt.Sprintf("image%d", i)] = v1beta1.ImageSpec{Tags: []v1beta1.ImageTagSpec{{Tag: "1"}}}
			if n.Status.ImageStatuses == nil {
				n.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
			}
		}
	}).obj
	require.NoError(t, c.Create(t.Context(), full))
	c.nodes(t, 1)
	key := c.job(t, "pull", func(j *v1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt(1)) })
	c.eventually(t, key, long, "the other node is through, and the job says what it waits for", func(j *v1beta1.ImagePullJob) bool {
		return j.Status.Succeeded == 1 && strings.Contains(j.Status.Message, "full cannot get the task: the NodeImage lists 256 images")
	})
	c.event(t, EventAssignFailed, "full cannot get the task")
	require.Equal(t, 1, c.writes.since()["PUT nodeimages"], "the full one is not tried")
	c.edit(t, client.ObjectKey{Name: "full"}, full, func() { delete(full.Spec.Images, "image7") })
	c.eventually(t, key, long, "completion once there is room", complete)
}

func TestDigestsAndJobsForOneImage(t *testing.T) {
	c := start(t)
	c.nodes(t, 1)
	digest := "sha256:" + strings.Repeat("ab", 32)
	byDigest := func(name string) client.ObjectKey {
		return c.job(t, name, func(j *v1beta1.ImagePullJob) {
			j.Spec.Image = "registry.k8s.io/pause:3.10@" + digest
			j.Spec.CompletionPolicy.Type = v1beta1.Never
		})
	}
	first, second := byDigest("first"), byDigest("second")
	for _, key := range []client.ObjectKey{first, second} {
		c.eventually(t, key, long, "success of both", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })
	}
	tags := c.node(t, "node0").Spec.Images["registry.k8s.io/pause"].Tags
	require.Len(t, tags, 1)
	require.Equal(t, digest, tags[0].Tag)
	require.Len(t, tags[0].OwnerReferences, 2)
	require.EqualValues(t, 1, tags[0].Version)
}

// A namespace of copies that is going, or gone, holds no job back.
func TestJobsEndWithoutTheNamespaceOfCopies(t *testing.T) {
	c := start(t)
	c.nodes(t, 1)
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "login"}}))
	withCopy := c.job(t, "copy", func(j *v1beta1.ImagePullJob) {
		j.Spec.PullSecrets, j.Spec.CompletionPolicy.Type = []string{"login"}, v1beta1.Never
	})
	c.eventually(t, withCopy, long, "success", func(j *v1beta1.ImagePullJob) bool { return j.Status.Succeeded == 1 })
	// Nothing finishes the deletion of a namespace here: it stays as it is for good.
	require.NoError(t, c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pullsecret.DefaultNamespace}}))
	without := c.job(t, "without", nil)
	c.eventually(t, without, long, "completion", complete)
	late := c.job(t, "late", func(j *v1beta1.ImagePullJob) { j.Spec.PullSecrets = []string{"login"} })
	c.eventually(t, late, soon, "finalizer", func(j *v1beta1.ImagePullJob) bool { return len(j.Finalizers) == 1 })
	for _, key := range []client.ObjectKey{withCopy, late} {
		require.NoError(t, c.Delete(t.Context(), &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
		c.eventually(t, key, soon, "deletion", gone)
	}
	var copies corev1.SecretList
	require.NoError(t, c.List(t.Context(), &copies, client.InNamespace(pullsecret.DefaultNamespace)))
	require.Empty(t, copies.Items)
}

// Whoever takes the finalizer off by hand leaves no copy of a secret behind.
func TestCopiesOfJobsThatVanish(t *testing.T) {
	c := start(t)
	c.nodes(t, 1)
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "login"}}))
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: pullsecret.DefaultNamespace, Name: "login-abcdef",
		Annotations: map[string]string{pullsecret.SourceAnnotation: "default/login", pullsecret.ReferencesAnnotation: "default/gone"},
	}}))
	require.Eventually(t, func() bool {
		var copies corev1.SecretList
		return c.List(t.Context(), &copies, client.InNamespace(pullsecret.DefaultNamespace)) == nil && len(copies.Items) == 0
	}, soon, tick)
}

func TestAnEmptyListOfNamesIsNoNode(t *testing.T) {
	c := start(t)
	c.nodes(t, 2)
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
		"metadata": map[string]any{"namespace": "default", "name": "none"},
		"spec":     map[string]any{"image": "nginx:1", "completionPolicy": map[string]any{}, "selector": map[string]any{"names": []any{}}},
	}}
	require.NoError(t, c.Create(t.Context(), job))
	done := c.eventually(t, client.ObjectKey{Namespace: "default", Name: "none"}, long, "completion", complete)
	require.Zero(t, done.Status.Desired)
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package install

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// asDaemon is a client with the identity that the API server derives from the token of a
// daemon Pod on a node.
func asDaemon(t *testing.T, cfg *rest.Config, extra map[string][]string) client.Client {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kruise-system:kruise-daemon",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"}, Extra: extra,
	}
	c, err := client.New(cfg, client.Options{Scheme: apitest.Scheme()})
	require.NoError(t, err)
	return c
}

func onNode(name string) map[string][]string {
	return map[string][]string{"authentication.kubernetes.io/node-name": {name}}
}

func TestDaemonWritesOnlyItsOwnNode(t *testing.T) {
	ctx := t.Context()
	c, cfg := newCluster(t)
	mustRun(t, c, render(t, defaults(t, ProfileDefault)), nil, RunOptions{})
	(&removing{Cluster: c, r: &Removal{CRDs: []string{"nodeimages.apps.kruise.io", "clonesets.apps.kruise.io"}}}).mustReset(t)
	failOpenLive(t, c)
	for _, node := range []string{"node-a", "node-b"} {
		require.NoError(t, c.Client.Create(ctx, &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}))
	}
	pods := map[string]*corev1.Pod{}
	for name, node := range map[string]string{"on-a": "node-a", "on-b": "node-b", "on-none": ""} {
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "x"}}}}
		require.NoError(t, c.Client.Create(ctx, pods[name]))
	}
	statusOf := func(as client.Client, node string) error {
		image := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return as.Status().Patch(ctx, image, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"desired":1}}`)))
	}
	podStatus := func(as client.Client, name string) error {
		return as.Status().Patch(ctx, pods[name].DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"seen":"`+time.Now().String()+`"}}}`)))
	}
	a := asDaemon(t, cfg, onNode("node-a"))
	// Policies are compiled in the background: wait until one denies.
	require.Eventually(t, func() bool { return apierrors.IsForbidden(statusOf(a, "node-b")) }, 2*time.Minute, 100*time.Millisecond)

	allowed := map[string]func() error{
		"the status of its own NodeImage":   func() error { return statusOf(a, "node-a") },
		"the status of a Pod on its node":   func() error { return podStatus(a, "on-a") },
		"other users are not concerned":     func() error { return statusOf(c.Client, "node-b") },
		"a Pod of another node, other user": func() error { return podStatus(c.Client, "on-b") },
	}
	for name, do := range allowed {
		t.Run(name, func(t *testing.T) { require.NoError(t, do()) })
	}
	none := asDaemon(t, cfg, nil)
	otherClaim := onNode("node-b")
	maps.Copy(otherClaim, map[string][]string{"authentication.kubernetes.io/pod-name": {"kruise-daemon-x"}})
	b := asDaemon(t, cfg, otherClaim)
	denied := map[string]struct {
		do   func() error
		want string
	}{
		"the status of another NodeImage":     {func() error { return statusOf(a, "node-b") }, "kruise-daemon on node node-a may not write nodeimages node-b of node node-b"},
		"a Pod of another node":               {func() error { return podStatus(a, "on-b") }, "kruise-daemon on node node-a may not write pods on-b of node node-b"},
		"a Pod on no node":                    {func() error { return podStatus(a, "on-none") }, "may not write pods on-none, which is on no node"},
		"a token without a node":              {func() error { return statusOf(none, "node-a") }, "the token of kruise-daemon names no node"},
		"the Pods of the first, by the other": {func() error { return podStatus(b, "on-a") }, "kruise-daemon on node node-b may not write pods on-a"},
	}
	for name, tc := range denied {
		t.Run(name, func(t *testing.T) {
			err := tc.do()
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func (u *removing) mustReset(t *testing.T) {
	t.Helper()
	require.NoError(t, u.resetConversion(t.Context()))
}

// While no manager answers, only Pods of Kruise workloads are stopped.
func TestPodsWhileTheManagerIsDown(t *testing.T) {
	cases := map[string]struct {
		values Values
	}{
		"default":                     {defaults(t, ProfileDefault)},
		"with KruisePodReadinessGate": {defaults(t, ProfileE2E)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			c, _ := newCluster(t)
			mustRun(t, c, render(t, tc.values), nil, RunOptions{})
			pod := func(name, namespace string, owner ...metav1.OwnerReference) error {
				return c.Client.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, OwnerReferences: owner},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "x"}}}})
			}
			own := metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "1", Controller: new(true)}
			// Configurations are read in the background: wait until the first one is refused.
			n := 0
			require.Eventually(t, func() bool {
				n++
				return pod("kruise-"+time.Now().Format("150405.000000"), "default", own) != nil
			}, 2*time.Minute, 100*time.Millisecond)
			require.ErrorContains(t, pod("owned", "default", own), "mpod.kb.io")
			replicaSet := own
			replicaSet.APIVersion, replicaSet.Kind = "apps/v1", "ReplicaSet"
			require.NoError(t, pod("native", "default", replicaSet))
			require.NoError(t, pod("bare", "default"))
			notController := own
			notController.Controller = nil
			require.NoError(t, pod("not-controlled", "default", notController))
			require.NoError(t, pod("system", DefaultNamespace, own), "the manager's own namespace never waits for it")
		})
	}
}

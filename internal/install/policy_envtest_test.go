// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package install

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

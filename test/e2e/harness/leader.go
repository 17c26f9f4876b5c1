//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KillLeader deletes the manager's Pod that holds the lease, without grace, and returns its
// name. It disturbs every other test.
func (e *Env) KillLeader() string {
	e.T.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: SystemNamespace, Name: "kruise-manager"}
	require.NoError(e.T, e.Client.Get(e.Ctx(), key, lease))
	pods := &corev1.PodList{}
	require.NoError(e.T, e.Client.List(e.Ctx(), pods, client.InNamespace(SystemNamespace)))
	for i := range pods.Items {
		name := pods.Items[i].Name
		if strings.HasPrefix(*lease.Spec.HolderIdentity, name) {
			require.NoError(e.T, e.Client.Delete(e.Ctx(), &pods.Items[i], client.GracePeriodSeconds(0)))
			return name
		}
	}
	e.T.Fatalf("no manager Pod holds the lease: %s", *lease.Spec.HolderIdentity)
	return ""
}

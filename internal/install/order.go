// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// applyOrder is the order of kinds in which a stream can be applied object by object
// (cli.md 4.1): webhooks after what they need, workloads last.
var applyOrder = []string{
	"Namespace",
	"CustomResourceDefinition",
	"ServiceAccount",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ConfigMap", "Secret",
	"Issuer", "Certificate",
	"Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	"Deployment", "DaemonSet",
}

func orderOf(kind string) int {
	if i := slices.Index(applyOrder, kind); i >= 0 {
		return i
	}
	return slices.Index(applyOrder, "Service")
}

// Sort puts objects into the order in which they are applied; equal kinds are sorted by
// namespace and name.
func Sort(objs []*unstructured.Unstructured) {
	slices.SortStableFunc(objs, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(
			cmp.Compare(orderOf(a.GetKind()), orderOf(b.GetKind())),
			cmp.Compare(a.GetKind(), b.GetKind()),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}

// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// ruPath is a field of the rolling update, where the Advanced StatefulSet and DaemonSet keep
// their strategy.
func ruPath(field string) Path { return Path{"spec", "updateStrategy", "rollingUpdate", field} }

// rollingUpdate is where the Advanced StatefulSet and DaemonSet keep their strategy, the
// same in both versions.
func rollingUpdate(policy string) map[string]Fields {
	f := Fields{
		Template: Path{"spec", "template"}, Paused: ruPath("paused"), Partition: ruPath("partition"),
		MaxUnavailable: ruPath("maxUnavailable"), Policy: ruPath(policy),
	}
	return map[string]Fields{"v1beta1": f, "v1alpha1": f}
}

var statefulSet = &Adapter{
	For:           target.StatefulSet,
	DefaultPolicy: "ReCreate",
	Scale:         true,
	Marks:         true,
	Fields:        rollingUpdate("podUpdatePolicy"),
	Facts:         statefulSetFacts,
}

func statefulSetFacts(u *unstructured.Unstructured) (verdict.Facts, error) {
	replicas := 1
	if n, ok := number(u, "spec", "replicas"); ok {
		replicas = n
	}
	keep, raw := intOr(u, ruPath("partition"), intstr.FromInt32(0))
	partition := min(max(0, keep.IntValue()), replicas)
	unavailable, unavailableRaw := intOr(u, ruPath("maxUnavailable"), intstr.FromInt32(1))
	limit, err := percent.Of(unavailable, int32(replicas), percent.Down)
	if err != nil {
		return verdict.Facts{}, err
	}
	f := verdict.Facts{
		Generation: u.GetGeneration(), ObservedGeneration: int64(count(u, "observedGeneration")),
		Desired: replicas,
		Total:   count(u, "replicas"), Ready: count(u, "readyReplicas"), Available: count(u, "availableReplicas"),
		Updated: count(u, "updatedReplicas"), UpdatedReady: count(u, "updatedReadyReplicas"), UpdatedAvailable: count(u, "updatedAvailableReplicas"),
		Partition:      verdict.Partition{Raw: raw, Keep: partition, Target: replicas - partition},
		MaxUnavailable: max(1, int(limit)), MaxUnavailableRaw: orDefault(unavailableRaw, "1"),
		Paused: paused(u), Manual: onDelete(u), InPlaceOnly: policyOf(u, "podUpdatePolicy") == "InPlaceOnly",
		UpdateRevision: status(u, "updateRevision"), CurrentRevision: status(u, "currentRevision"),
	}
	if u.GroupVersionKind().Version == "v1alpha1" {
		// This version does not tell updated Pods apart; its nearest number is that of all.
		f.UpdatedReady = min(f.Updated, f.Ready)
		f.UpdatedAvailable = f.UpdatedReady
	}
	return f, nil
}

// Ordered reports a StatefulSet that makes and updates its Pods one after the other.
func (w Workload) Ordered() bool {
	if w.Kind != target.StatefulSet {
		return false
	}
	v, _, _ := unstructured.NestedString(w.Live.Object, "spec", "podManagementPolicy")
	return v != "Parallel"
}

// count is a number of the status, 0 when absent.
func count(u *unstructured.Unstructured, field string) int {
	n, _ := number(u, "status", field)
	return n
}

// intOr reads an int or percentage, and how it is written; "" when it is absent.
func intOr(u *unstructured.Unstructured, path Path, absent intstr.IntOrString) (intstr.IntOrString, string) {
	v, ok, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !ok {
		return absent, ""
	}
	switch v := v.(type) {
	case int64:
		n := intstr.FromInt32(int32(v))
		return n, n.String()
	case string:
		return intstr.FromString(v), v
	}
	return absent, ""
}

func orDefault(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

func paused(u *unstructured.Unstructured) bool {
	v, _, _ := unstructured.NestedBool(u.Object, "spec", "updateStrategy", "rollingUpdate", "paused")
	return v
}

func onDelete(u *unstructured.Unstructured) bool {
	v, _, _ := unstructured.NestedString(u.Object, "spec", "updateStrategy", "type")
	return v == "OnDelete"
}

func policyOf(u *unstructured.Unstructured, field string) string {
	v, _, _ := unstructured.NestedString(u.Object, "spec", "updateStrategy", "rollingUpdate", field)
	return v
}

// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// rollingUpdate is where the Advanced StatefulSet and DaemonSet keep their strategy, the
// same in both versions.
func rollingUpdate(policy string) map[string]Fields {
	at := func(field string) Path { return Path{"spec", "updateStrategy", "rollingUpdate", field} }
	f := Fields{
		Template: Path{"spec", "template"}, Paused: at("paused"), Partition: at("partition"),
		MaxUnavailable: at("maxUnavailable"), Policy: at(policy),
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

// StatefulSet decodes an object of either version into the hub type.
func StatefulSet(u *unstructured.Unstructured) (*v1beta1.StatefulSet, error) {
	hub := &v1beta1.StatefulSet{}
	if u.GroupVersionKind().Version != "v1alpha1" {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hub); err != nil {
			return nil, fmt.Errorf("reading StatefulSet %s: %w", u.GetName(), err)
		}
		return hub, nil
	}
	old := &v1alpha1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, old); err != nil {
		return nil, fmt.Errorf("reading StatefulSet %s: %w", u.GetName(), err)
	}
	hub = old.ToHub()
	hub.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("StatefulSet"))
	return hub, nil
}

func statefulSetFacts(u *unstructured.Unstructured) (verdict.Facts, error) {
	set, err := StatefulSet(u)
	if err != nil {
		return verdict.Facts{}, err
	}
	limits, st := statefulset.LimitsOf(set), set.Status
	f := verdict.Facts{
		Generation: set.Generation, ObservedGeneration: st.ObservedGeneration,
		Desired: limits.Replicas,
		Total:   int(st.Replicas), Ready: int(st.ReadyReplicas), Available: int(st.AvailableReplicas),
		Updated: int(st.UpdatedReplicas), UpdatedReady: int(st.UpdatedReadyReplicas), UpdatedAvailable: int(st.UpdatedAvailableReplicas),
		Partition:      verdict.Partition{Keep: limits.Partition, Target: limits.Replicas - limits.Partition},
		MaxUnavailable: limits.MaxUnavailable, MaxUnavailableRaw: "1",
		Paused: statefulset.Paused(set), Manual: statefulset.OnDelete(set),
		InPlaceOnly:    statefulset.Policy(set) == v1beta1.InPlaceOnlyPodUpdatePolicyType,
		UpdateRevision: st.UpdateRevision, CurrentRevision: st.CurrentRevision,
	}
	if ru := set.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.Partition != nil {
			f.Partition.Raw = fmt.Sprint(*ru.Partition)
		}
		if ru.MaxUnavailable != nil {
			f.MaxUnavailableRaw = ru.MaxUnavailable.String()
		}
	}
	if u.GroupVersionKind().Version == "v1alpha1" && f.UpdatedReady == 0 && f.UpdatedAvailable == 0 {
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
	set, err := StatefulSet(w.Live)
	return err == nil && !statefulset.Parallel(set)
}

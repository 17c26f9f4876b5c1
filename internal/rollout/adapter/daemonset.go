// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

var daemonSet = &Adapter{
	For:              target.DaemonSet,
	PercentPartition: true,
	DefaultPolicy:    "Standard",
	Fields:           rollingUpdate("rollingUpdateType"),
	Facts:            daemonSetFacts,
	Revisions: func(u *unstructured.Unstructured) (string, string) {
		return daemonSetRevision(u), ""
	},
}

// daemonSetRevision is the name of the update revision: the status has only its hash.
func daemonSetRevision(u *unstructured.Unstructured) string {
	hash := status(u, "updateRevision")
	if hash == "" {
		hash = status(u, "daemonSetHash")
	}
	if hash == "" || strings.HasPrefix(hash, u.GetName()+"-") {
		return hash
	}
	return u.GetName() + "-" + hash
}

// DaemonSet decodes an object of either version into the hub type.
func DaemonSet(u *unstructured.Unstructured) (*v1beta1.DaemonSet, error) {
	hub := &v1beta1.DaemonSet{}
	if u.GroupVersionKind().Version != "v1alpha1" {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hub); err != nil {
			return nil, fmt.Errorf("reading DaemonSet %s: %w", u.GetName(), err)
		}
		return hub, nil
	}
	old := &v1alpha1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, old); err != nil {
		return nil, fmt.Errorf("reading DaemonSet %s: %w", u.GetName(), err)
	}
	hub = old.ToHub()
	hub.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("DaemonSet"))
	return hub, nil
}

func daemonSetFacts(u *unstructured.Unstructured) (verdict.Facts, error) {
	set, err := DaemonSet(u)
	if err != nil {
		return verdict.Facts{}, err
	}
	st := set.Status
	desired, ready, available, updated := int(st.DesiredNumberScheduled), int(st.NumberReady), int(st.NumberAvailable), int(st.UpdatedNumberScheduled)
	limits := daemonset.LimitsOf(set, desired)
	keep := min(limits.Partition, desired)
	f := verdict.Facts{
		Generation: set.Generation, ObservedGeneration: st.ObservedGeneration,
		Desired: desired, Total: int(st.CurrentNumberScheduled), Ready: ready, Available: available,
		// The status does not count which of the unavailable Pods are updated: none is
		// called available that may not be.
		Updated: updated, UpdatedReady: max(0, updated-(desired-ready)), UpdatedAvailable: max(0, updated-(desired-available)),
		Partition:      verdict.Partition{Keep: keep, Target: desired - keep},
		MaxUnavailable: limits.MaxUnavailable, MaxUnavailableRaw: "1", MaxSurge: limits.MaxSurge,
		Paused: daemonset.Paused(set), Manual: daemonset.OnDelete(set), AllAvailable: true,
		UpdateRevision: daemonSetRevision(u),
	}
	if ru := set.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.Partition != nil {
			f.Partition.Raw = ru.Partition.String()
		}
		switch {
		case ru.MaxUnavailable != nil:
			f.MaxUnavailableRaw = ru.MaxUnavailable.String()
		case limits.MaxSurge > 0:
			f.MaxUnavailableRaw = "0"
		}
	}
	return f, nil
}

// NodeSelector is the selector on nodes that an update is limited to; nil when it is not.
func (w Workload) NodeSelector() (labels.Selector, error) {
	if w.Kind != target.DaemonSet {
		return nil, nil //nolint:nilnil // no selector is an answer
	}
	raw, ok, err := unstructured.NestedMap(w.Live.Object, "spec", "updateStrategy", "rollingUpdate", "selector")
	if err != nil || !ok {
		return nil, err
	}
	s := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, s); err != nil {
		return nil, fmt.Errorf("reading spec.updateStrategy.rollingUpdate.selector: %w", err)
	}
	return metav1.LabelSelectorAsSelector(s)
}

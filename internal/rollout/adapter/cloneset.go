// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

var cloneSet = &Adapter{
	For:              target.CloneSet,
	PercentPartition: true,
	DefaultPolicy:    "ReCreate",
	Scale:            true,
	Marks:            true,
	Fields: map[string]Fields{
		"v1beta1": {
			Template:       Path{"spec", "template"},
			Paused:         Path{"spec", "updateStrategy", "rollingUpdate", "paused"},
			Partition:      Path{"spec", "updateStrategy", "rollingUpdate", "partition"},
			MaxUnavailable: Path{"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"},
			Policy:         Path{"spec", "updateStrategy", "rollingUpdate", "podUpdatePolicy"},
		},
		"v1alpha1": {
			Template:       Path{"spec", "template"},
			Paused:         Path{"spec", "updateStrategy", "paused"},
			Partition:      Path{"spec", "updateStrategy", "partition"},
			MaxUnavailable: Path{"spec", "updateStrategy", "maxUnavailable"},
			Policy:         Path{"spec", "updateStrategy", "type"},
		},
	},
	Facts: cloneSetFacts,
}

// CloneSet decodes an object of either version into the hub type.
func CloneSet(u *unstructured.Unstructured) (*v1beta1.CloneSet, error) {
	hub := &v1beta1.CloneSet{}
	if u.GroupVersionKind().Version != "v1alpha1" {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, hub); err != nil {
			return nil, fmt.Errorf("reading CloneSet %s: %w", u.GetName(), err)
		}
		return hub, nil
	}
	old := &v1alpha1.CloneSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, old); err != nil {
		return nil, fmt.Errorf("reading CloneSet %s: %w", u.GetName(), err)
	}
	hub = old.ToHub()
	hub.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("CloneSet"))
	return hub, nil
}

func cloneSetFacts(u *unstructured.Unstructured) (verdict.Facts, error) {
	cs, err := CloneSet(u)
	if err != nil {
		return verdict.Facts{}, err
	}
	limits, st := cloneset.LimitsOf(cs), cs.Status
	f := verdict.Facts{
		Generation: cs.Generation, ObservedGeneration: st.ObservedGeneration,
		Desired: limits.Replicas,
		Total:   int(st.Replicas), Ready: int(st.ReadyReplicas), Available: int(st.AvailableReplicas),
		Updated: int(st.UpdatedReplicas), UpdatedReady: int(st.UpdatedReadyReplicas), UpdatedAvailable: int(st.UpdatedAvailableReplicas),
		Partition:      verdict.Partition{Keep: limits.Partition, Target: limits.Replicas - limits.Partition},
		MaxUnavailable: limits.MaxUnavailable, MaxUnavailableRaw: "20%", MaxSurge: limits.MaxSurge,
		Paused: cloneset.Paused(cs), Manual: cloneset.OnDelete(cs),
		InPlaceOnly:    cloneset.Policy(cs) == v1beta1.InPlaceOnlyPodUpdatePolicyType,
		UpdateRevision: st.UpdateRevision, CurrentRevision: st.CurrentRevision,
	}
	if ru := cs.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.Partition != nil {
			f.Partition.Raw = ru.Partition.String()
		}
		if ru.MaxUnavailable != nil {
			f.MaxUnavailableRaw = ru.MaxUnavailable.String()
		}
	}
	// The controller's own arithmetic wins where it has spoken of this very spec.
	if n, ok := number(u, "status", "expectedUpdatedReplicas"); ok && f.ObservedGeneration >= f.Generation && !f.Manual {
		f.Partition.Target, f.Partition.Keep = n, f.Desired-n
	}
	f.Deadline = cloneSetDeadline(cs)
	return f, nil
}

// noDeadline is the value of progressDeadlineSeconds that means none.
const noDeadline = 1<<31 - 1

func cloneSetDeadline(cs *v1beta1.CloneSet) *verdict.Deadline {
	s := cs.Spec.ProgressDeadlineSeconds
	d := &verdict.Deadline{Field: "spec.progressDeadlineSeconds"}
	if s != nil && *s != noDeadline {
		d.Seconds = *s
	}
	for _, c := range cs.Status.Conditions {
		if c.Type == v1beta1.CloneSetConditionProgressing && c.Status == "False" && c.Reason == v1beta1.CloneSetReasonProgressDeadlineExceed {
			d.Exceeded, d.Message, d.Since = true, c.Message, c.LastTransitionTime.Time
		}
	}
	if d.Seconds == 0 && !d.Exceeded {
		return nil
	}
	return d
}

func selector(u *unstructured.Unstructured) (labels.Selector, error) {
	raw, ok, err := unstructured.NestedMap(u.Object, "spec", "selector")
	if err != nil || !ok {
		return labels.Nothing(), err
	}
	s := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, s); err != nil {
		return nil, fmt.Errorf("reading spec.selector: %w", err)
	}
	return metav1.LabelSelectorAsSelector(s)
}

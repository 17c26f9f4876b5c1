// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// recreateHubFields is the value of v1beta1.V1beta1FieldsAnnotation on a ContainerRecreateRequest.
type recreateHubFields struct {
	// Conditions are all of them, where the annotation of this version does not say enough.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *ContainerRecreateRequest) ToHub() *v1beta1.ContainerRecreateRequest {
	dst := &v1beta1.ContainerRecreateRequest{}
	src.intoHub(dst)
	return dst
}

// ContainerRecreateRequestToHub converts src to the hub version. The two annotations of this
// version become status and are gone from the metadata, so that a client that writes back what
// it read leaves nothing behind; one that cannot be read is dropped (container-recreate.md 2.3).
func ContainerRecreateRequestToHub(_ context.Context, src *ContainerRecreateRequest, dst *v1beta1.ContainerRecreateRequest) error {
	src.intoHub(dst)
	return nil
}

func (src *ContainerRecreateRequest) intoHub(dst *v1beta1.ContainerRecreateRequest) {
	in := src.DeepCopy()
	dst.Spec = v1beta1.ContainerRecreateRequestSpec{
		PodName: in.Spec.PodName, Containers: in.Spec.Containers, Strategy: (*v1beta1.RecreateStrategy)(in.Spec.Strategy),
		ActiveDeadlineSeconds: in.Spec.ActiveDeadlineSeconds, TTLSecondsAfterFinished: in.Spec.TTLSecondsAfterFinished,
	}
	dst.Status = v1beta1.ContainerRecreateRequestStatus{
		Phase: in.Status.Phase, CompletionTime: in.Status.CompletionTime, Message: in.Status.Message,
		ContainerRecreateStates: convertStates[v1beta1.RecreateState](in.Status.ContainerRecreateStates),
	}
	takeSnapshot(&in.ObjectMeta, &dst.Status)

	var kept recreateHubFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, &kept)
	since := takeTime(&in.ObjectMeta, v1beta1.RecreateUnreadyAcquiredAnnotation)
	dst.Status.Conditions = kept.Conditions
	if known := graceSince(kept.Conditions); !known.Equal(since) {
		// A client of this version made the Pod not ready, or took that back.
		dst.Status.Conditions = slices.DeleteFunc(kept.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1beta1.PreRecreateGraceCondition
		})
		dst.Status.Conditions = append(dst.Status.Conditions, graceConditions(since)...)
	}
	dst.ObjectMeta = in.ObjectMeta
}

// ContainerRecreateRequestFromHub converts src from the hub version. Snapshot and the start of
// the grace period become annotations.
func ContainerRecreateRequestFromHub(_ context.Context, src *v1beta1.ContainerRecreateRequest, dst *ContainerRecreateRequest) error {
	dst.FromHub(src)
	return nil
}

// FromHub is ContainerRecreateRequestFromHub for callers that have no context.
func (dst *ContainerRecreateRequest) FromHub(src *v1beta1.ContainerRecreateRequest) {
	in := src.DeepCopy()
	dst.Spec = ContainerRecreateRequestSpec{
		PodName: in.Spec.PodName, Containers: in.Spec.Containers, Strategy: (*RecreateStrategy)(in.Spec.Strategy),
		ActiveDeadlineSeconds: in.Spec.ActiveDeadlineSeconds, TTLSecondsAfterFinished: in.Spec.TTLSecondsAfterFinished,
	}
	dst.Status = ContainerRecreateRequestStatus{
		Phase: in.Status.Phase, CompletionTime: in.Status.CompletionTime, Message: in.Status.Message,
		ContainerRecreateStates: convertStates[RecreateState](in.Status.ContainerRecreateStates),
	}
	setOrDelete(&in.Annotations, v1beta1.RecreateSnapshotAnnotation, snapshotText(in.Status.ContainerStatusSnapshot))

	since := graceSince(in.Status.Conditions)
	var text *string
	if since != nil {
		text = new(since.UTC().Format(time.RFC3339))
	}
	setOrDelete(&in.Annotations, v1beta1.RecreateUnreadyAcquiredAnnotation, text)
	var kept recreateHubFields
	if len(in.Status.Conditions) > 0 && !equality.Semantic.DeepEqual(in.Status.Conditions, graceConditions(since)) {
		kept.Conditions = in.Status.Conditions
	}
	putAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, kept)
	dst.ObjectMeta = in.ObjectMeta
}

// takeSnapshot moves the annotation into the status, unless it cannot be read.
func takeSnapshot(m *metav1.ObjectMeta, status *v1beta1.ContainerRecreateRequestStatus) {
	text, ok := m.Annotations[v1beta1.RecreateSnapshotAnnotation]
	if !ok {
		return
	}
	setOrDelete(&m.Annotations, v1beta1.RecreateSnapshotAnnotation, nil)
	var read []v1beta1.ContainerSnapshot
	if json.Unmarshal([]byte(text), &read) == nil && len(read) > 0 {
		status.ContainerStatusSnapshot = read
	}
}

// snapshotText is the inverse of takeSnapshot.
func snapshotText(snapshot []v1beta1.ContainerSnapshot) *string {
	if len(snapshot) == 0 {
		return nil
	}
	text, err := json.Marshal(snapshot)
	if err != nil { // strings, numbers and booleans only
		return nil
	}
	return new(string(text))
}

// takeTime removes an annotation and returns the time that it holds, nil if it holds none.
func takeTime(m *metav1.ObjectMeta, key string) *metav1.Time {
	text, ok := m.Annotations[key]
	if !ok {
		return nil
	}
	setOrDelete(&m.Annotations, key, nil)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}

// graceSince is when the condition became True, nil if it is not.
func graceSince(conditions []metav1.Condition) *metav1.Time {
	for _, c := range conditions {
		if c.Type == v1beta1.PreRecreateGraceCondition && c.Status == metav1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return new(c.LastTransitionTime)
		}
	}
	return nil
}

// graceConditions are the conditions of a request whose Pod is not ready since then.
func graceConditions(since *metav1.Time) []metav1.Condition {
	if since == nil {
		return nil
	}
	return []metav1.Condition{{
		Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue, LastTransitionTime: *since,
		Reason: v1beta1.PreRecreateGraceCondition, Message: v1beta1.PreRecreateGraceMessage,
	}}
}

// convertStates converts between the versions of RecreateState, whose fields are the same.
func convertStates[To, From v1beta1.RecreateState | RecreateState](in []From) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i := range in {
		out[i] = To(in[i])
	}
	return out
}

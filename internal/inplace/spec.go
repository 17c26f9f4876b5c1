// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// UpdateSpec is what an in-place update changes in a Pod. As JSON it is the annotation
// apps.kruise.io/inplace-update-grace (inplace-update.md 2.3). It is read-only once made.
type UpdateSpec struct {
	// Revision is the key of the target revision.
	Revision string `json:"revision"`
	// ContainerImages maps container names to new images.
	ContainerImages map[string]string `json:"containerImages,omitempty"`
	// ContainerRefMetadata maps container names to the changed labels and annotations
	// that their environment reads.
	ContainerRefMetadata map[string]RefMetadata `json:"containerRefMetadata,omitempty"`
	// ContainerResources maps container names to the changed quantities only.
	ContainerResources map[string]corev1.ResourceRequirements `json:"containerResources,omitempty"`
	// MetaDataPatch is a strategic merge patch of the Pod with the rest of the metadata.
	MetaDataPatch         []byte `json:"metaDataPatch,omitempty"`
	UpdateEnvFromMetadata bool   `json:"updateEnvFromMetadata,omitempty"`
	GraceSeconds          int32  `json:"graceSeconds,omitempty"`

	// OldTemplate and NewTemplate are part of the wire format and stay empty.
	OldTemplate *corev1.PodTemplateSpec `json:"oldTemplate,omitempty"`
	NewTemplate *corev1.PodTemplateSpec `json:"newTemplate,omitempty"`
}

// RefMetadata is the part of a Pod's metadata that one container's environment reads and
// an update changes. As JSON it is an ObjectMeta of its time: creationTimestamp is always
// there and null.
type RefMetadata struct {
	CreationTimestamp *metav1.Time      `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	// RemovedLabels and RemovedAnnotations are keys that the new template lacks, sorted;
	// OpenKruise has no such fields and ignores them.
	RemovedLabels      []string `json:"removedLabels,omitempty"`
	RemovedAnnotations []string `json:"removedAnnotations,omitempty"`
}

// State is the JSON of the annotation apps.kruise.io/inplace-update-state: what an
// in-place update has done and what is left (inplace-update.md 2.2). It stays on the Pod
// after completion. The field order is wire contract.
type State struct {
	Revision string `json:"revision"`
	// UpdateTimestamp is the start, in whole seconds; the grace period counts from it.
	UpdateTimestamp metav1.Time `json:"updateTimestamp"`
	// LastContainerStatuses holds the image IDs before the change of the containers
	// whose image changed in a batch already sent; null in JSON when there is none.
	LastContainerStatuses map[string]ContainerStatus `json:"lastContainerStatuses"`
	UpdateEnvFromMetadata bool                       `json:"updateEnvFromMetadata,omitempty"`
	UpdateResources       bool                       `json:"updateResources,omitempty"`
	UpdateImages          bool                       `json:"updateImages,omitempty"`

	NextContainerImages      map[string]string                      `json:"nextContainerImages,omitempty"`
	NextContainerRefMetadata map[string]RefMetadata                 `json:"nextContainerRefMetadata,omitempty"`
	NextContainerResources   map[string]corev1.ResourceRequirements `json:"nextContainerResources,omitempty"`
	// PreCheckBeforeNext is there only while something is left to do.
	PreCheckBeforeNext *PreCheck `json:"preCheckBeforeNext,omitempty"`
	// ContainerBatchesRecord has every batch sent, in order.
	ContainerBatchesRecord []Batch `json:"containerBatchesRecord,omitempty"`
}

// ContainerStatus is what the state remembers of a container.
type ContainerStatus struct {
	ImageID string `json:"imageID,omitempty"`
}

// PreCheck is the condition for the next batch.
type PreCheck struct {
	ContainersRequiredReady []string `json:"containersRequiredReady,omitempty"`
}

// Batch is a set of containers changed in one write.
type Batch struct {
	Timestamp  metav1.Time `json:"timestamp"`
	Containers []string    `json:"containers"` // sorted
}

// Pending tells whether containers are left for a later batch.
func (s *State) Pending() bool {
	return len(s.NextContainerImages)+len(s.NextContainerRefMetadata)+len(s.NextContainerResources) > 0
}

// Clone returns a copy whose maps can be changed.
func (s *State) Clone() *State {
	c := *s
	c.LastContainerStatuses = maps.Clone(s.LastContainerStatuses)
	c.NextContainerImages = maps.Clone(s.NextContainerImages)
	c.NextContainerRefMetadata = maps.Clone(s.NextContainerRefMetadata)
	c.NextContainerResources = maps.Clone(s.NextContainerResources)
	c.ContainerBatchesRecord = slices.Clone(s.ContainerBatchesRecord)
	return &c
}

// StateOf reads the state of the Pod's last in-place update, also under the old key; nil
// without an error if there was none.
func StateOf(pod metav1.Object) (*State, error) {
	return annotation[State](pod, v1beta1.InPlaceUpdateStateAnnotation, v1beta1.InPlaceUpdateStateAnnotationOld)
}

// GraceOf reads the update that waits for its grace period to end, also under the old
// key; nil without an error if there is none.
func GraceOf(pod metav1.Object) (*UpdateSpec, error) {
	return annotation[UpdateSpec](pod, v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld)
}

func annotation[T any](pod metav1.Object, key, oldKey string) (*T, error) {
	text, ok := pod.GetAnnotations()[key]
	if !ok {
		key = oldKey
		if text, ok = pod.GetAnnotations()[key]; !ok {
			return nil, nil
		}
	}
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", key, err)
	}
	return v, nil
}

func setState(pod *corev1.Pod, s *State) {
	setKey(&pod.Annotations, v1beta1.InPlaceUpdateStateAnnotation, encode(s))
	delete(pod.Annotations, v1beta1.InPlaceUpdateStateAnnotationOld)
}

func setGrace(pod *corev1.Pod, u *UpdateSpec) {
	setKey(&pod.Annotations, v1beta1.InPlaceUpdateGraceAnnotation, encode(u))
	delete(pod.Annotations, v1beta1.InPlaceUpdateGraceAnnotationOld)
}

func dropGrace(pod *corev1.Pod) {
	delete(pod.Annotations, v1beta1.InPlaceUpdateGraceAnnotation)
	delete(pod.Annotations, v1beta1.InPlaceUpdateGraceAnnotationOld)
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err)) // strings, maps and quantities only
	}
	return string(data)
}

func wireTime(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

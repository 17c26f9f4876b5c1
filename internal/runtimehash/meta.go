// SPDX-License-Identifier: Apache-2.0

package runtimehash

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// ContainersMeta is the JSON of the annotation apps.kruise.io/runtime-containers-meta:
// one record per app container, in the order of status.containerStatuses.
type ContainersMeta struct {
	Containers []ContainerMeta `json:"containers"`
}

// ContainerMeta is what the node agent knows of one container instance.
type ContainerMeta struct {
	Name string `json:"name"`
	// ContainerID is as in the Pod's status: runtime name, "://" and the id. The hashes
	// are valid for this instance only.
	ContainerID  string `json:"containerID"`
	RestartCount int32  `json:"restartCount"`
	Hashes       Hashes `json:"hashes"`
}

// Hashes tell from what an instance was started; 0 is unknown.
type Hashes struct {
	// PlainHash is the kubelet's own hash of the container spec.
	PlainHash uint64 `json:"plainHash"`
	// ExtractedEnvFromMetadataHash covers the variables that come from labels and
	// annotations, with the values inside the container.
	ExtractedEnvFromMetadataHash uint64 `json:"extractedEnvFromMetadataHash,omitempty"`
}

// FromObject reads the annotation of a Pod; nil without an error if there is none. On
// unreadable JSON it returns nil and the error: callers treat that as an absent
// annotation and may log it.
func FromObject(pod metav1.Object) (*ContainersMeta, error) {
	text := pod.GetAnnotations()[v1beta1.RuntimeContainersMetaAnnotation]
	if text == "" {
		return nil, nil
	}
	m := &ContainersMeta{}
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", v1beta1.RuntimeContainersMetaAnnotation, err)
	}
	return m, nil
}

// Container finds the record of a container by name; nil if there is none. It works on
// a nil receiver.
func (m *ContainersMeta) Container(name string) *ContainerMeta {
	if m == nil {
		return nil
	}
	for i := range m.Containers {
		if m.Containers[i].Name == name {
			return &m.Containers[i]
		}
	}
	return nil
}

// JSON is the annotation's value: compact, fields in the order of the type.
func (m *ContainersMeta) JSON() string {
	data, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encoding ContainersMeta: %v", err)) // strings and numbers only
	}
	return string(data)
}

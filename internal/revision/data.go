// SPDX-License-Identifier: Apache-2.0

// Package revision makes, compares and finds the ControllerRevisions of workloads.
//
// Its bytes are a wire contract: a revision that an earlier release (or OpenKruise 1.x)
// wrote must compare equal to the one this package makes of the same template, or every
// Pod restarts when the manager is replaced. The rules are cloneset.md 8.1 to 8.4. The
// package only computes; it reads and writes no API objects.
package revision

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// maxNamePrefix is how many bytes of the workload's name a revision name keeps.
const maxNamePrefix = 223

// Data returns the bytes a revision stores for template: compact JSON with sorted keys,
// HTML-escaped as encoding/json does, and with the null creationTimestamps that
// Kubernetes libraries before 1.34 printed and newer ones leave out.
func Data(template *corev1.PodTemplateSpec) ([]byte, error) {
	tree, err := toTree(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the Pod template: %w", err)
	}
	tree["$patch"] = "replace"
	nullCreationTimestamp(tree)
	spec, _ := tree["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		ephemeral, _ := volume["ephemeral"].(map[string]any)
		if claim, ok := ephemeral["volumeClaimTemplate"].(map[string]any); ok {
			nullCreationTimestamp(claim)
		}
	}
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": tree}})
	if err != nil {
		return nil, fmt.Errorf("encoding the Pod template: %w", err)
	}
	return data, nil
}

func toTree(template *corev1.PodTemplateSpec) (map[string]any, error) {
	raw, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	tree := map[string]any{}
	return tree, json.Unmarshal(raw, &tree)
}

// nullCreationTimestamp gives object's metadata the null that old encoders printed.
func nullCreationTimestamp(object map[string]any) {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	if _, set := metadata["creationTimestamp"]; !set {
		metadata["creationTimestamp"] = nil
	}
}

// Hash is the revision hash of data: FNV-1 over data and the decimal collision count,
// its decimal digits written in Kubernetes' safe alphabet.
func Hash(data []byte, collisionCount int32) string {
	h := fnv.New32()
	h.Write(data)
	h.Write([]byte(strconv.FormatInt(int64(collisionCount), 10)))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Name is the name of the revision of owner with hash.
func Name(owner, hash string) string {
	if len(owner) > maxNamePrefix {
		owner = owner[:maxNamePrefix]
	}
	return owner + "-" + hash
}

// ShortHash is the text after the last '-' of a revision name, or all of it.
func ShortHash(name string) string {
	return name[strings.LastIndexByte(name, '-')+1:]
}

// SameRevision reports whether a Pod whose label controller-revision-hash is podLabel is
// at the revision called revisionName. Both label forms match: the full name, and the
// bare hash that gate CloneSetShortHash writes. An empty label matches nothing.
func SameRevision(podLabel, revisionName string) bool {
	return podLabel != "" && ShortHash(podLabel) == ShortHash(revisionName)
}

// claim is what the hash of volumeClaimTemplates covers, in the field order and with the
// empty fields that a whole PersistentVolumeClaim had in OpenKruise 1.9.
type claim struct {
	Metadata struct {
		Name              string  `json:"name,omitempty"`
		CreationTimestamp *string `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec   corev1.PersistentVolumeClaimSpec `json:"spec"`
	Status struct{}                         `json:"status"`
}

// VolumeClaimTemplateHash is the decimal hash of name and spec of each template, order
// aside; "" when there are none.
func VolumeClaimTemplateHash(templates []corev1.PersistentVolumeClaim) string {
	if len(templates) == 0 {
		return ""
	}
	claims := make([]claim, len(templates))
	for i, t := range templates {
		claims[i].Metadata.Name = t.Name
		claims[i].Spec = t.Spec
	}
	slices.SortStableFunc(claims, func(a, b claim) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	raw, err := json.Marshal(claims)
	if err != nil {
		return "" // a decoded claim spec always encodes
	}
	return strconv.FormatUint(uint64(dumpHash(raw)), 10)
}

// dumpHash is FNV-1a over the text `([]uint8)[b0 b1 …]` (daemon.md 6.3).
func dumpHash(raw []byte) uint32 {
	h := fnv.New32a()
	text := append(make([]byte, 0, 4*len(raw)+16), "([]uint8)["...)
	for i, b := range raw {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendUint(text, uint64(b), 10)
	}
	h.Write(append(text, ']'))
	return h.Sum32()
}

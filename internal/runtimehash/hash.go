// SPDX-License-Identifier: Apache-2.0

package runtimehash

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// ContainerHashKey is the runtime annotation (or label) in which the kubelet keeps its
// hash of the container, as hexadecimal digits.
const ContainerHashKey = "io.kubernetes.container.hash"

// Plain is the hash that kubelets from 1.31 on give to a container: it covers only the
// image and the name.
func Plain(c *corev1.Container) uint64 {
	return ofJSON(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
}

// PlainLegacy is the hash that kubelets before 1.31 give to a container: it covers the
// JSON of all its fields.
func PlainLegacy(c *corev1.Container) uint64 { return ofJSON(c) }

// PlainFits tells whether a container with the recorded hash was started from c, by any
// form a kubelet has used. A recorded 0 means unknown and never fits.
func PlainFits(recorded uint64, c *corev1.Container) bool {
	return recorded != 0 && (recorded == Plain(c) || recorded == PlainLegacy(c))
}

// ParsePlain reads the value of ContainerHashKey as the runtime reports it.
func ParsePlain(hex string) (uint64, error) {
	h, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("parsing container hash %q: %w", hex, err)
	}
	return h, nil
}

// ofJSON is FNV-1a (32 bit) over the text "([]uint8)[1 2 3]" of the JSON bytes of v: the
// dump that Kubernetes takes of a byte slice before hashing it.
func ofJSON(v any) uint64 {
	data, err := json.Marshal(v)
	if err != nil {
		// The types hashed here are structs, slices and strings; none can fail to encode.
		panic(fmt.Sprintf("encoding %T for its hash: %v", v, err))
	}
	text := make([]byte, 0, 4*len(data)+16)
	text = append(text, "([]uint8)["...)
	for i, b := range data {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendUint(text, uint64(b), 10)
	}
	text = append(text, ']')
	h := fnv.New32a()
	h.Write(text)
	return uint64(h.Sum32())
}

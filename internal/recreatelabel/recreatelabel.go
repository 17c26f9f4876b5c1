// SPDX-License-Identifier: Apache-2.0

// Package recreatelabel says under which label value the requests to recreate containers of a
// node are found. The webhook writes it and the agent of the node selects by it, so both must
// make the same of a name that is too long for a label. It is pure.
package recreatelabel

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/util/validation"
)

// digits is how many hexadecimal digits of the hash a long name keeps: 40 bits.
const digits = 10

// Node returns the value of the label crr.apps.kruise.io/node-name for a node. It is the name,
// unless that is longer than the 63 characters of a label value: then it is the beginning of the
// name, a dash, and a hash of all of it, always 63 characters.
//
// Two long names that share a value are possible and not likely; the annotation of the same key
// has the full name, see Is.
func Node(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:validation.LabelValueMaxLength-digits-1] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// Annotation returns the value of the annotation of the same key, which has the full name of a
// node whose label has a hash. It is empty when the label says it all.
func Annotation(name string) string {
	if Node(name) == name {
		return ""
	}
	return name
}

// Is reports whether a request that has these values of label and annotation, either of which
// may be empty, is one for the node.
func Is(label, annotation, node string) bool {
	return label == Node(node) && (annotation == "" || annotation == node)
}

// Full returns the name of the node that label and annotation speak of.
func Full(label, annotation string) string {
	if annotation != "" && Node(annotation) == label {
		return annotation
	}
	return label
}

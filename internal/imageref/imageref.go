// SPDX-License-Identifier: Apache-2.0

// Package imageref splits image references into the name and tag under which NodeImage
// lists them, and puts them together again. Rules: images.md 1. It is pure; it asks no
// registry and resolves no digest.
package imageref

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Ref is an image as NodeImage names it.
type Ref struct {
	// Name is the familiar name without tag, such as nginx or registry.k8s.io/pause: the
	// key of spec.images and status.imageStatuses.
	Name string
	// Tag is a tag, or a whole digest such as sha256:….
	Tag string
}

// Parse normalises a reference the way Docker does: docker.io and library are implied and
// left out of Name, a missing tag is latest, and of tag and digest the digest wins.
func Parse(image string) (Ref, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return Ref{}, fmt.Errorf("parsing image %q: %w", image, err)
	}
	ref := Ref{Name: reference.FamiliarName(named), Tag: "latest"}
	if tagged, ok := named.(reference.Tagged); ok {
		ref.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		ref.Tag = digested.Digest().String()
	}
	return ref, nil
}

// IsDigest reports whether the tag is a digest: only digests contain a colon.
func (r Ref) IsDigest() bool { return strings.Contains(r.Tag, ":") }

// String is the reference to hand to a container runtime: name:tag or name@digest.
func (r Ref) String() string {
	if r.IsDigest() {
		return r.Name + "@" + r.Tag
	}
	return r.Name + ":" + r.Tag
}

// Repository is the name with its registry spelled out, such as docker.io/library/nginx:
// what credentials are looked up with. A name that does not parse is returned as it is.
func (r Ref) Repository() string {
	named, err := reference.ParseNormalizedNamed(r.Name)
	if err != nil {
		return r.Name
	}
	return named.Name()
}

// In reports whether r is among the repo tags and repo digests that a runtime lists for
// one of its images. Entries that do not parse, such as <none>:<none>, never match.
func (r Ref) In(repoTags, repoDigests []string) bool {
	names := repoTags
	if r.IsDigest() {
		names = repoDigests
	}
	for _, name := range names {
		if got, err := Parse(name); err == nil && got == r {
			return true
		}
	}
	return false
}

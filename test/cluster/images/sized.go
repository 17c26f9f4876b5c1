// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Limits of images made on demand: a registry holds a layer in memory while it makes it.
const (
	maxLayers     = 100
	maxLayerBytes = 64 << 20
)

// Sized makes an image that waits until told to stop, with the base and so many layers of its own of so many bytes,
// which no compression makes smaller. Its content follows from its name.
func Sized(base Base, ref string, layers, bytes int) (v1.Image, error) {
	if layers < 1 || layers > maxLayers || bytes < 1 || bytes > maxLayerBytes {
		return nil, fmt.Errorf("%d layers of %d bytes: up to %d layers of up to %d bytes are made", layers, bytes, maxLayers, maxLayerBytes)
	}
	baseLayer, err := base.Tree().Layer()
	if err != nil {
		return nil, err
	}
	all := []v1.Layer{baseLayer}
	noise := rand.NewChaCha8(sha256.Sum256([]byte(ref)))
	for i := range layers {
		data := make([]byte, bytes)
		_, _ = noise.Read(data) // never fails
		l, err := Tree{fmt.Sprintf("usr/share/noise/%d", i): {Data: data, Mode: 0o644}}.Layer()
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", ref, err)
		}
		all = append(all, l)
	}
	return Assemble(v1.Config{
		Cmd: []string{"hold"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}, all...)
}

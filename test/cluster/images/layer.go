// SPDX-License-Identifier: Apache-2.0

// Package images makes container images in process, without a container engine: the images that tests run, made of
// a static busybox and a few scripts, and the product's image, made of its binaries. Equal content gives equal
// digests, whenever and wherever an image is built.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch is the time of everything in every image.
var epoch = time.Unix(0, 0).UTC()

// File is an entry of a layer: a symbolic link if Link is set, a directory if Dir is set, else a regular file.
type File struct {
	Data []byte
	Mode int64 // permissions; 0 means 0755
	Link string
	Dir  bool
	UID  int
}

// Tree maps paths without a leading slash to entries. Parent directories that are missing are made, owned by root.
type Tree map[string]File

// Layer is the tree as an image layer.
func (t Tree) Layer() (v1.Layer, error) {
	data, err := t.tar()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
	if err != nil {
		return nil, fmt.Errorf("making an image layer: %w", err)
	}
	return layer, nil
}

func (t Tree) tar() ([]byte, error) {
	all := maps.Clone(t)
	for p := range t {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Dir: true}
			}
		}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(all)) { // a directory sorts before what it holds
		f := all[name]
		h := &tar.Header{Name: name, Mode: f.Mode, ModTime: epoch, Uid: f.UID, Gid: f.UID, Typeflag: tar.TypeReg, Size: int64(len(f.Data))}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("adding %s to an image layer: %w", name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("adding %s to an image layer: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing an image layer: %w", err)
	}
	return buf.Bytes(), nil
}

// Assemble makes an image of this machine's architecture from layers, the lowest first.
func Assemble(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Config: config, Created: v1.Time{Time: epoch},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("setting the configuration of an image: %w", err)
	}
	for _, l := range layers {
		if image, err = mutate.Append(image, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}}}); err != nil {
			return nil, fmt.Errorf("adding a layer to an image: %w", err)
		}
	}
	return image, nil
}

// SPDX-License-Identifier: Apache-2.0

// Command image assembles the container image of a release from binaries that are built
// already, for every architecture, and pushes it or writes it as an OCI layout. It needs no
// Docker daemon and no base image: the image holds two static programs, certificates and users
// (install.md 2, "Image"). The same input gives the same digest.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of every file and of the image.
var epoch = time.Unix(0, 0).UTC()

// nobody is the user that the manager runs as.
const nobody = 65534

// programs maps a path in the image to the binary that becomes it.
var programs = []struct{ target, binary string }{{"manager", "kruise-manager"}, {"kruise-daemon", "kruise-daemon"}}

func main() {
	dist := flag.String("dist", "dist", "folder with the binaries, as goreleaser lays it out")
	arches := flag.String("arch", "amd64,arm64", "architectures of the image")
	certificates := flag.String("certificates", "/etc/ssl/certs/ca-certificates.crt", "file with the certificates of authorities")
	push := flag.String("push", "", "reference to push the image as, with the credentials of ~/.docker/config.json")
	out := flag.String("layout", "", "folder to write the image into, as an OCI layout")
	flag.Parse()
	if err := run(*dist, strings.Split(*arches, ","), *certificates, *push, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(dist string, arches []string, certificates, push, out string) error {
	certs, err := os.ReadFile(certificates)
	if err != nil {
		return fmt.Errorf("reading certificates: %w", err)
	}
	index, err := assemble(dist, arches, certs)
	if err != nil {
		return err
	}
	if out != "" {
		if _, err := layout.Write(out, index); err != nil {
			return fmt.Errorf("writing the image to %s: %w", out, err)
		}
	}
	if push != "" {
		ref, err := name.ParseReference(push)
		if err != nil {
			return fmt.Errorf("reading the name of the image: %w", err)
		}
		if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("pushing %s: %w", ref, err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	fmt.Println(digest)
	return nil
}

// assemble makes an index with one image an architecture.
func assemble(dist string, arches []string, certs []byte) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	base, err := layer(
		entry{name: "etc/", dir: true}, entry{name: "etc/ssl/", dir: true}, entry{name: "etc/ssl/certs/", dir: true},
		entry{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnobody:x:65534:\n")},
		entry{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")},
		entry{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certs},
		entry{name: "log/", dir: true, uid: nobody}, entry{name: "tmp/", dir: true, mode: 0o1777, uid: nobody},
	)
	if err != nil {
		return nil, err
	}
	for _, arch := range arches {
		image, err := forArch(dist, arch, base)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

func forArch(dist, arch string, base v1.Layer) (v1.Image, error) {
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: epoch}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/manager"}, WorkingDir: "/",
			Env: []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("setting the configuration of the image: %w", err)
	}
	layers := []v1.Layer{base}
	for _, p := range programs { // a layer each: a change of one leaves the other in the caches of the nodes
		found, err := filepath.Glob(filepath.Join(dist, p.binary+"_linux_"+arch+"*", p.binary))
		if err != nil || len(found) != 1 {
			return nil, fmt.Errorf("expected one %s for linux/%s in %s, found %d", p.binary, arch, dist, len(found))
		}
		data, err := os.ReadFile(found[0])
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", p.binary, err)
		}
		l, err := layer(entry{name: p.target, mode: 0o755, data: data})
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	for _, l := range layers {
		if image, err = mutate.Append(image, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: epoch}}}); err != nil {
			return nil, fmt.Errorf("adding a layer: %w", err)
		}
	}
	return image, nil
}

// entry is a file or folder of a layer.
type entry struct {
	name string
	dir  bool
	mode int64 // 0: 0755
	uid  int
	data []byte
}

func layer(entries ...entry) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.uid, Gid: e.uid, Size: int64(len(e.data)), ModTime: epoch, Typeflag: tar.TypeReg}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if e.dir {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("adding %s: %w", e.name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("adding %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing a layer: %w", err)
	}
	data := buf.Bytes()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	return l, nil
}

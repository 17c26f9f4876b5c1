// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ProductRepository is the name under which nodes find the product's image.
const ProductRepository = "docker.io/kruisectl/kruise-manager"

// nobody is the user the manager runs as.
const nobody = 65534

// Product makes the image that the manager and the node agent share: two static programs, certificates, users and
// nothing else. The entrypoint is the manager.
func Product(manager, daemon string, certificates []byte) (v1.Image, error) {
	files := Tree{
		"etc/ssl/certs/ca-certificates.crt": {Data: certificates, Mode: 0o644},
		"etc/passwd":                        {Data: []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"), Mode: 0o644},
		"etc/group":                         {Data: []byte("root:x:0:\nnobody:x:65534:\n"), Mode: 0o644},
		"tmp":                               {Dir: true, Mode: 0o1777, UID: nobody},
		"log":                               {Dir: true, Mode: 0o755, UID: nobody},
	}
	base, err := files.Layer()
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{base}
	// A layer per program: a change of one leaves the other in the caches of the nodes.
	for _, program := range [][2]string{{"manager", manager}, {"kruise-daemon", daemon}} {
		l, err := programLayer(program[0], program[1])
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return Assemble(v1.Config{
		Entrypoint: []string{"/manager"},
		WorkingDir: "/",
		Env:        []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
	}, layers...)
}

func programLayer(target, source string) (v1.Layer, error) {
	data, err := os.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("reading the program %s: %w", target, err)
	}
	return Tree{target: {Data: data}}.Layer()
}

// BuildProduct compiles the manager and the node agent of the product module in repo, without cgo and without paths of
// this machine in them, and makes their image.
func BuildProduct(ctx context.Context, repo string) (v1.Image, error) {
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		return nil, fmt.Errorf("reading the machine's certificates (Debian package ca-certificates): %w", err)
	}
	out, err := os.MkdirTemp("", "kruise-image-")
	if err != nil {
		return nil, fmt.Errorf("creating a build directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(out) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", out+"/", "./cmd/kruise-manager", "./cmd/kruise-daemon")
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=-trimpath", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the product in %s: %w\n%s", repo, err, strings.TrimSpace(string(text)))
	}
	return Product(filepath.Join(out, "kruise-manager"), filepath.Join(out, "kruise-daemon"), certificates)
}

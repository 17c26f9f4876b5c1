// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Pause is the image of every sandbox.
const Pause = "registry.k8s.io/pause:3.10"

// PrivateHost is the registry that wants credentials.
const PrivateHost = "private.registry.test:5001"

// BusyboxPath is where Debian's busybox-static puts its program.
const BusyboxPath = "/bin/busybox"

// kind is what the containers of an image do when nothing else is asked of them.
type kind int

const (
	web    kind = iota // serve HTTP on port 80; /version is the tag
	shell              // run a shell, which ends at once without a terminal
	hold               // wait until told to stop
	pause              // as hold, with nothing else in the image's name
	agnost             // the commands pause, netexec and serve-hostname
	minecraft
	exit
)

// Entry is one image of the catalog.
type Entry struct {
	Ref     string // full name with host and tag
	kind    kind
	content string // what makes the image differ from others of its kind; two entries may share it
}

// Catalog lists all test images. Two entries have the same digest only if that is their purpose.
func Catalog() []Entry {
	var list []Entry
	add := func(k kind, repository string, tags ...string) {
		for _, t := range tags {
			list = append(list, Entry{Ref: repository + ":" + t, kind: k, content: t})
		}
	}
	const hub, e2e = "docker.io/", "registry.k8s.io/e2e-test-images/"
	add(web, hub+"library/nginx", "1.14.2", "1.15.1", "1.16", "1.17", "1.18", "1.19", "1.20", "latest", "alpine")
	// Another tag of the same image: an update between the two changes no digest.
	list = append(list, Entry{Ref: hub + "library/nginx:mainline-alpine", kind: web, content: "alpine"})
	add(web, hub+"library/httpd", "2.4.38", "2.4.39", "latest")
	add(shell, hub+"library/busybox", "1.32", "1.33", "1.34", "1.35", "1.36", "latest")
	add(shell, hub+"library/centos", "7")
	add(hold, hub+"library/redis", "5.0", "6.0", "7.4")
	add(hold, hub+"kruisectl/sidecar", "1", "2", "3")
	add(minecraft, hub+"openkruise/minecraft-demo", "probe-v0")
	add(hold, hub+"openkruise/hotupgrade-sample", "empty", "sidecarv1", "sidecarv2")
	add(exit, hub+"minchou/exit", "v1.0")
	add(web, e2e+"httpd", "2.4.38-4", "2.4.39-4")
	add(web, e2e+"nginx", "1.14-4", "1.15-4")
	add(shell, e2e+"busybox", "1.36.1-1")
	add(agnost, e2e+"agnhost", "2.53")
	add(hold, e2e+"redis", "5.0.5-3")
	add(web, PrivateHost+"/private/app", "1", "2")
	add(pause, "registry.k8s.io/pause", "3.10")
	return list
}

// Base is what all test images are made of.
type Base struct {
	Busybox []byte   // static program
	Applets []string // names under which it is to be called
}

// SystemBase is the base made of this machine's static busybox.
func SystemBase() (Base, error) {
	data, err := os.ReadFile(BusyboxPath)
	if err != nil {
		return Base{}, fmt.Errorf("reading the static busybox (Debian package busybox-static): %w", err)
	}
	out, err := exec.Command(BusyboxPath, "--list").Output()
	if err != nil {
		return Base{}, fmt.Errorf("listing the applets of busybox: %w", err)
	}
	return Base{Busybox: data, Applets: strings.Fields(string(out))}, nil
}

// Tree is the root file system without anything that differs between images.
func (b Base) Tree() Tree {
	t := Tree{
		"bin/busybox": {Data: b.Busybox},
		"bin/bash":    script(`exec sh "$@"`),
		"sbin":        {Link: "bin"},
		"usr/bin":     {Link: "../bin"},
		"usr/sbin":    {Link: "../bin"},
		"tmp":         {Dir: true, Mode: 0o1777},
		"var/tmp":     {Dir: true, Mode: 0o1777},
		"root":        {Dir: true, Mode: 0o700},
		"etc/passwd":  {Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"), Mode: 0o644},
		"etc/group":   {Data: []byte("root:x:0:\nnobody:x:65534:\n"), Mode: 0o644},
		"bin/hold":    script(holdScript),
	}
	for _, a := range b.Applets {
		if name := "bin/" + a; a != "busybox" && a != "bash" {
			t[name] = File{Link: "busybox"}
		}
	}
	return t
}

// Build makes the images of all entries, keyed by name. The base layer is shared.
func Build(base Base, entries []Entry) (map[string]v1.Image, error) {
	baseLayer, err := base.Tree().Layer()
	if err != nil {
		return nil, err
	}
	built := map[string]v1.Image{}
	for _, e := range entries {
		files, config := e.contents()
		layer, err := files.Layer()
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", e.Ref, err)
		}
		config.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, config.Env...)
		if built[e.Ref], err = Assemble(config, baseLayer, layer); err != nil {
			return nil, fmt.Errorf("building %s: %w", e.Ref, err)
		}
	}
	return built, nil
}

// Private says whether the image is served only to users with credentials.
func (e Entry) Private() bool { return strings.HasPrefix(e.Ref, PrivateHost+"/") }

// Names are the full names of all entries, sorted.
func Names(entries []Entry) []string {
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Ref)
	}
	slices.Sort(names)
	return names
}

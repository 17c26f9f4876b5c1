// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the Kubernetes programs that a local cluster runs, from the Go module proxy alone,
// once per set of versions, into a cache directory outside the work tree. Programs that are present are never
// built again; concurrent builds wait for each other. Each Set has a directory of its own, so that another version of
// one set leaves the programs of the other as they are.
package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Versions of everything that is built. A change of any of them leads to another cache directory.
const (
	KubernetesVersion = "v1.37.2"
	StagingVersion    = "v0.37.2" // of the k8s.io modules that live in the Kubernetes repository
	EtcdVersion       = "v3.7.3"
	ContainerdVersion = "v2.4.2"
	CrictlVersion     = "v1.37.0"

	ProvisionerVersion = "v6.4.0" // of external-provisioner
	ResizerVersion     = "v2.3.0" // of external-resizer
)

const kubernetesModule = "k8s.io/kubernetes"

const kubernetesLDFlags = "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Group is a set of programs that are built from one generated module: two groups may need
// different versions of the same dependency.
type Group struct {
	Name     string
	Module   string            // module that holds the programs, required by the generated module
	Version  string            // of Module
	More     map[string]string // further modules with programs, and their versions; they share dependencies with Module
	Pins     Pins              // which modules get a fixed version, whatever Module requires
	LDFlags  string            // for go build
	Programs map[string]string // file name in the cache directory to import path
}

// modules maps each module that holds programs of the group to its version.
func (g Group) modules() map[string]string {
	all := map[string]string{g.Module: g.Version}
	maps.Copy(all, g.More)
	return all
}

// Pins say which dependencies of a group have versions that Kubernetes chooses.
type Pins int

// The kinds of Pins.
const (
	NoPins         Pins = iota
	StagingPins         // the modules that Kubernetes replaces by folders: Kubernetes itself
	KubernetesPins      // those and all that Kubernetes requires: most of them are downloaded and compiled already
)

// Set is what is built into one cache directory.
type Set struct {
	Name   string // for people: its versions; the beginning of the directory's name
	Groups []Group
}

// Sets are all sets, the most important one first.
func Sets() []Set { return []Set{Core(), Volumes()} }

// Core is the set of programs that every cluster runs and that test environments take from one directory. What envtest
// needs is built first.
func Core() Set {
	kubernetes := func(name string, programs ...string) Group {
		g := Group{
			Name: name, Module: kubernetesModule, Version: KubernetesVersion, Pins: StagingPins,
			LDFlags: kubernetesLDFlags, Programs: map[string]string{},
		}
		for _, p := range programs {
			g.Programs[p] = kubernetesModule + "/cmd/" + p
		}
		return g
	}
	const containerd = "github.com/containerd/containerd/v2"
	return Set{Name: named("k8s", KubernetesVersion, "etcd", EtcdVersion, "containerd", ContainerdVersion), Groups: []Group{
		{
			Name: "etcd", Module: "go.etcd.io/etcd/server/v3", Version: EtcdVersion, LDFlags: "-s -w",
			Programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
		},
		kubernetes("kubernetes", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
		{
			Name: "containerd", Module: containerd, Version: ContainerdVersion,
			LDFlags: "-s -w -X " + containerd + "/version.Version=" + ContainerdVersion,
			Programs: map[string]string{
				"containerd":              containerd + "/cmd/containerd",
				"containerd-shim-runc-v2": containerd + "/cmd/containerd-shim-runc-v2",
				"ctr":                     containerd + "/cmd/ctr",
			},
		},
		{
			Name: "crictl", Module: "sigs.k8s.io/cri-tools", Version: CrictlVersion,
			LDFlags:  "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=" + CrictlVersion,
			Programs: map[string]string{"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
		},
	}}
}

// Volumes is the set of programs that make volumes for claims, beside the driver of package volumes.
func Volumes() Set {
	const (
		provisioner = "github.com/kubernetes-csi/external-provisioner/v6"
		resizer     = "github.com/kubernetes-csi/external-resizer/v2"
	)
	return Set{Name: named("k8s", KubernetesVersion, "provisioner", ProvisionerVersion, "resizer", ResizerVersion), Groups: []Group{{
		Name: "volumes", Module: provisioner, Version: ProvisionerVersion, More: map[string]string{resizer: ResizerVersion},
		Pins: KubernetesPins, LDFlags: "-s -w",
		Programs: map[string]string{"csi-provisioner": provisioner + "/cmd/csi-provisioner", "csi-resizer": resizer + "/cmd/csi-resizer"},
	}}}
}

// named joins pairs of a program's name and its version.
func named(pairs ...string) string {
	var parts []string
	for pair := range slices.Chunk(pairs, 2) {
		parts = append(parts, pair[0]+"-"+strings.TrimPrefix(pair[1], "v"))
	}
	return strings.Join(parts, "_")
}

// EnvtestPrograms are the programs that a test environment without nodes needs (KUBEBUILDER_ASSETS).
func EnvtestPrograms() []string { return []string{"etcd", "kube-apiserver", "kubectl"} }

// ControlPlanePrograms are the programs of a cluster whose nodes are simulated.
func ControlPlanePrograms() []string {
	return append(EnvtestPrograms(), "kube-controller-manager", "kube-scheduler")
}

// Programs are the names of all programs of the set, sorted.
func (s Set) Programs() []string {
	var names []string
	for _, g := range s.Groups {
		for p := range g.Programs {
			names = append(names, p)
		}
	}
	slices.Sort(names)
	return names
}

// CacheRoot is the directory that holds everything worth keeping between clusters:
// $KRUISECTL_CACHE, or else the user's cache directory.
func CacheRoot() (string, error) {
	root := os.Getenv("KRUISECTL_CACHE")
	if root == "" {
		var err error
		if root, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("finding a cache directory (set KRUISECTL_CACHE): %w", err)
		}
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("finding a cache directory: %w", err)
	}
	return filepath.Join(root, "kruisectl"), nil
}

// Dir is the directory that holds the programs of the set in these versions. It may not exist yet.
func (s Set) Dir() (string, error) {
	root, err := CacheRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "bin", s.Key()), nil
}

// Key names the versions and build flags of the set, for people and as the name of a directory.
func (s Set) Key() string {
	h := sha256.New()
	for _, g := range s.Groups {
		for _, m := range slices.Sorted(maps.Keys(g.modules())) {
			fmt.Fprintln(h, m, g.modules()[m], g.LDFlags)
		}
	}
	return s.Name + "_" + hex.EncodeToString(h.Sum(nil))[:8]
}

// Missing returns those of names that dir does not hold, in their order.
func Missing(dir string, names []string) []string {
	var missing []string
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(dir, n)); err != nil || !info.Mode().IsRegular() {
			missing = append(missing, n)
		}
	}
	return missing
}

// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the Kubernetes programs that a local cluster runs, from the Go module proxy alone,
// once per set of versions, into a cache directory outside the work tree. Programs that are present are never
// built again; concurrent builds wait for each other.
package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
)

const kubernetesLDFlags = "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Group is a set of programs that are built from one generated module: two groups may need
// different versions of the same dependency.
type Group struct {
	Name     string
	Module   string            // module that holds the programs, the only requirement of the generated module
	Version  string            // of Module
	Staging  bool              // whether the k8s.io modules that Module replaces by folders need replacements here
	LDFlags  string            // for go build
	Programs map[string]string // file name in the cache directory to import path
}

// Groups are all programs of a cluster, in the order in which they are built: what envtest needs comes first.
func Groups() []Group {
	kubernetes := func(name string, programs ...string) Group {
		g := Group{
			Name: name, Module: "k8s.io/kubernetes", Version: KubernetesVersion, Staging: true,
			LDFlags: kubernetesLDFlags, Programs: map[string]string{},
		}
		for _, p := range programs {
			g.Programs[p] = "k8s.io/kubernetes/cmd/" + p
		}
		return g
	}
	const containerd = "github.com/containerd/containerd/v2"
	return []Group{
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
	}
}

// EnvtestPrograms are the programs that a test environment without nodes needs (KUBEBUILDER_ASSETS).
func EnvtestPrograms() []string { return []string{"etcd", "kube-apiserver", "kubectl"} }

// ControlPlanePrograms are the programs of a cluster whose nodes are simulated.
func ControlPlanePrograms() []string {
	return append(EnvtestPrograms(), "kube-controller-manager", "kube-scheduler")
}

// AllPrograms are the names of all programs, sorted.
func AllPrograms() []string {
	var names []string
	for _, g := range Groups() {
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

// Dir is the directory that holds the programs of these versions. It may not exist yet.
func Dir() (string, error) {
	root, err := CacheRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "bin", Key()), nil
}

// Key names the set of versions and build flags, for people and as the name of a directory.
func Key() string {
	h := sha256.New()
	for _, g := range Groups() {
		fmt.Fprintln(h, g.Module, g.Version, g.LDFlags)
	}
	trim := func(v string) string { return strings.TrimPrefix(v, "v") }
	return fmt.Sprintf("k8s-%s_etcd-%s_containerd-%s_%s", trim(KubernetesVersion), trim(EtcdVersion),
		trim(ContainerdVersion), hex.EncodeToString(h.Sum(nil))[:8])
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

// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"
)

// HostRunDir is where the host's /var/run is mounted in the agent's container.
const HostRunDir = "/hostvarrun"

// wellKnownSockets are tried in this order, below the host's /var/run (daemon.md 2.2, and
// the places where k3s, rke2, k0s and microk8s keep theirs).
var wellKnownSockets = []string{
	"containerd.sock", "containerd/containerd.sock",
	"crio.sock", "crio/crio.sock",
	"cri-dockerd.sock", "cri-dockerd/cri-dockerd.sock",
	"k3s/containerd/containerd.sock", "k0s/containerd.sock",
}

// ErrNoRuntime says that no socket below the given directory answers CRI v1.
var ErrNoRuntime = errors.New("no container runtime answers CRI v1")

// Set is the runtimes of a node, best first.
type Set struct {
	Runtimes []Runtime
	closers  []func() error
}

// First is the runtime that pulls images. The set must not be empty, and those of Detect
// are not.
func (s *Set) First() Runtime { return s.Runtimes[0] }

// ByName finds the runtime of a container ID's scheme.
func (s *Set) ByName(name string) (Runtime, bool) {
	i := slices.IndexFunc(s.Runtimes, func(r Runtime) bool { return r.Name() == name })
	if i < 0 {
		return nil, false
	}
	return s.Runtimes[i], true
}

// Close closes all connections.
func (s *Set) Close() error {
	var errs []error
	for _, closer := range s.closers {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// Detect connects to all runtimes with a socket below dir; with socketFile not empty only
// to that one. It returns ErrNoRuntime, with what went wrong per socket, when none answers.
func Detect(ctx context.Context, dir, socketFile string) (*Set, error) {
	candidates := wellKnownSockets
	if socketFile != "" {
		candidates = []string{socketFile}
	}
	set := &Set{}
	var errs []error
	for _, candidate := range candidates {
		path := filepath.Join(dir, candidate)
		if _, err := os.Stat(path); err != nil {
			if !errors.Is(err, fs.ErrNotExist) || socketFile != "" {
				errs = append(errs, err)
			}
			continue
		}
		rt, closer, err := Dial(ctx, path)
		if err != nil {
			klog.FromContext(ctx).Info("Skipping a socket that does not answer CRI v1", "socket", path, "reason", err.Error())
			errs = append(errs, err)
			continue
		}
		if _, known := set.ByName(rt.Name()); known {
			// Two paths of one runtime, for example a symbolic link.
			if err := closer(); err != nil {
				errs = append(errs, err)
			}
			continue
		}
		set.Runtimes = append(set.Runtimes, rt)
		set.closers = append(set.closers, closer)
	}
	if len(set.Runtimes) == 0 {
		return nil, fmt.Errorf("%w below %s: %w", ErrNoRuntime, dir, errors.Join(errs...))
	}
	return set, nil
}

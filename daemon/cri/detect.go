// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// HostRunDir is where the host's /var/run is mounted in the agent's container.
const HostRunDir = "/hostvarrun"

// unixSockets are tried in this order, below the host's /var/run (daemon.md 2.2): first the
// runtimes' own places, then those of k3s and rke2 and of k0s. That of microk8s is
// containerd.sock below /var/snap/microk8s/common/run: there that directory is mounted in
// place of /var/run.
var unixSockets = []string{
	"containerd.sock", "containerd/containerd.sock",
	"crio.sock", "crio/crio.sock",
	"cri-dockerd.sock", "cri-dockerd/cri-dockerd.sock",
	"k3s/containerd/containerd.sock", "k3s/cri-dockerd/cri-dockerd.sock",
	"k0s/containerd.sock",
}

// ErrNoRuntime says that no socket below the given directory answers CRI v1.
var ErrNoRuntime = errors.New("no container runtime answers CRI v1")

// Options say where runtimes are.
type Options struct {
	// Dir is where the host's /var/run is.
	Dir string
	// SocketFile, when not empty, is the only socket, relative to Dir. Windows ignores both:
	// there is one pipe.
	SocketFile string
	// Observe is told of every call of every runtime; nil is nobody.
	Observe func(Call)
}

// Call is one finished call of a runtime.
type Call struct {
	// Method is the name in the CRI, such as PullImage.
	Method string
	// Code is that of gRPC, such as OK or Unavailable.
	Code string
	Took time.Duration
}

// Set is the runtimes of a node, best first. One that starts later joins it: see Keep.
type Set struct {
	o Options

	mu      sync.RWMutex
	members []member

	problems map[string]string // last logged, by path; of the goroutine that looks
}

type member struct {
	Runtime
	path   string
	closer func() error
}

// First is the runtime whose socket comes first. The set must not be empty, and those of
// Detect are not.
func (s *Set) First() Runtime {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.members[0].Runtime
}

// All lists the runtimes, best first.
func (s *Set) All() []Runtime {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]Runtime, 0, len(s.members))
	for _, m := range s.members {
		all = append(all, m.Runtime)
	}
	return all
}

// ByName finds the runtime of a container ID's scheme.
func (s *Set) ByName(name string) (Runtime, bool) {
	all := s.All()
	i := slices.IndexFunc(all, func(r Runtime) bool { return r.Name() == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// Busiest is the runtime that most of the given container IDs name, with their scheme, as
// the kubelet reports them: the one that the kubelet uses. It is First when they name none.
// Images pulled into another runtime would be of no use to the node's Pods.
func (s *Set) Busiest(containerIDs iter.Seq[string]) Runtime {
	all := s.All()
	if len(all) == 1 {
		return all[0]
	}
	votes := map[string]int{}
	for id := range containerIDs {
		if scheme, _, ok := strings.Cut(id, "://"); ok {
			votes[scheme]++
		}
	}
	best := all[0]
	for _, r := range all[1:] {
		if votes[r.Name()] > votes[best.Name()] {
			best = r
		}
	}
	return best
}

// Close closes all connections.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.members {
		errs = append(errs, m.closer())
	}
	s.members = nil
	return errors.Join(errs...)
}

// Detect connects to all runtimes with a socket below o.Dir. It returns ErrNoRuntime, with
// what went wrong per socket, when none answers.
func Detect(ctx context.Context, o Options) (*Set, error) {
	set := &Set{o: o, problems: map[string]string{}}
	if err := set.look(ctx); len(set.members) == 0 {
		return nil, fmt.Errorf("%w below %s: %w", ErrNoRuntime, o.Dir, err)
	}
	return set, nil
}

// Keep looks for further runtimes until ctx ends, ever less often: one may have been
// restarting while the agent started.
func (s *Set) Keep(ctx context.Context, after func(time.Duration) <-chan time.Time) {
	const first, most = 10 * time.Second, 10 * time.Minute
	for wait := first; ; wait = min(2*wait, most) {
		select {
		case <-ctx.Done():
			return
		case <-after(wait):
		}
		_ = s.look(ctx) // logs what is new
	}
}

// look tries every socket without a connection and returns why some do not answer. Of two
// paths of one runtime, for example a symbolic link, the first counts.
func (s *Set) look(ctx context.Context) error {
	problems := map[string]error{}
	for _, path := range candidates(s.o) {
		if err := s.try(ctx, path); err != nil {
			problems[path] = err
		}
	}
	for path, err := range problems {
		// Without any runtime the caller has the reasons, and tells them.
		if len(s.members) > 0 && s.problems[path] != err.Error() {
			klog.FromContext(ctx).Info("Skipping a socket that does not answer CRI v1", "socket", path, "reason", err.Error())
			s.problems[path] = err.Error()
		}
	}
	return errors.Join(slices.Collect(maps.Values(problems))...)
}

// try connects to one path unless that is done or nothing is there.
func (s *Set) try(ctx context.Context, path string) error {
	if s.has(func(m member) bool { return m.path == path }) {
		return nil
	}
	if err := exists(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) && s.o.SocketFile == "" {
			return nil
		}
		return err
	}
	if s.has(func(m member) bool { return sameFile(m.path, path) }) {
		return nil
	}
	rt, closer, err := dial(ctx, path, s.o.Observe)
	if err != nil {
		return explained(err)
	}
	if s.has(func(m member) bool { return m.Name() == rt.Name() }) {
		return closer()
	}
	klog.FromContext(ctx).Info("Found a container runtime", "runtime", rt.Name(), "socket", path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, member{Runtime: rt, path: path, closer: closer})
	return nil
}

func (s *Set) has(is func(member) bool) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.members, is)
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// explained adds what to do to the errors that users ask about most.
func explained(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "Unimplemented"):
		return fmt.Errorf("%w (a containerd without its CRI plugin, as Docker brings along, cannot be used)", err)
	case errors.Is(err, fs.ErrPermission), strings.Contains(text, "permission denied"):
		return fmt.Errorf("%w (SELinux or another profile keeps the agent from the socket)", err)
	}
	return err
}

func under(dir string, files []string) []string {
	paths := make([]string, 0, len(files))
	for _, file := range files {
		paths = append(paths, filepath.Join(dir, file))
	}
	return paths
}

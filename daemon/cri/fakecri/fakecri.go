// SPDX-License-Identifier: Apache-2.0

// Package fakecri is a container runtime in memory for tests: it can be slow, fail, ask
// for credentials, go away and come back, and it records what it was asked. Runtime
// implements cri.Runtime directly, for tests with synthetic time; Serve puts it behind a
// unix socket, for tests of the gRPC client and of the whole agent (daemon.md 3).
package fakecri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

// ErrUnavailable is what every call returns while the runtime is down.
var ErrUnavailable = fmt.Errorf("runtime is down: %w", cri.ErrUnavailable)

// ErrUnauthenticated is the answer to a pull with the wrong credentials.
var ErrUnauthenticated = errors.New("unauthenticated")

// PullScript says how pulls of one reference behave. The zero value succeeds at once.
type PullScript struct {
	// Latency is how long each attempt takes; it ends early with the context.
	Latency time.Duration
	// Failures is how many attempts fail before one succeeds; negative is for ever.
	Failures int
	// Hang never answers until the context ends.
	Hang bool
	// Auth, when not nil, is the only accepted login.
	Auth *cri.Auth
	// Err is what failed attempts answer, in place of a text of the fake. Without Failures
	// every attempt fails with it.
	Err error
}

// Container is a container of the fake with its scripts.
type Container struct {
	cri.Status
	// Exec maps a command, joined by blanks, to its answer; unknown commands exit with 127.
	Exec map[string]ExecScript
	// ExecCalls maps a command, joined by blanks, to the answers of its first, second, …
	// call; the last one stays. It counts before Exec.
	ExecCalls map[string][]ExecScript
	// StopDelay is how long the process takes to exit after the stop signal.
	StopDelay time.Duration
	// NilStatus makes the runtime answer without a status, as one that is removing the
	// container does.
	NilStatus bool
	// Vanished lists the container and does not know it when asked for its status.
	Vanished bool

	// LastGrace is what the last call to stop it allowed.
	LastGrace time.Duration

	execs map[string]int // calls so far, by command
}

// ExecScript is the answer to one command.
type ExecScript struct {
	Stdout, Stderr string
	Code           int32
	// Delay longer than the timeout of the call makes it time out.
	Delay time.Duration
	// Err is an error of the runtime, not of the command.
	Err error
}

// Runtime is the fake. Create it with New. All methods may be called concurrently.
type Runtime struct {
	mu         sync.Mutex
	name       string
	down       bool
	images     map[string]cri.Image
	scripts    map[string]PullScript
	containers map[string]*Container
	sandboxes  map[string]cri.Sandbox
	calls      []string
	faults     faults
	pulls      []cri.Pull
	running    int
	maxRunning int
}

// New returns an empty runtime with the given name.
func New(name string) *Runtime {
	return &Runtime{name: name, images: map[string]cri.Image{}, scripts: map[string]PullScript{}, containers: map[string]*Container{}, sandboxes: map[string]cri.Sandbox{}}
}

// SetDown makes every call fail, or ends that.
func (r *Runtime) SetDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// AddImage makes an image present under full references such as docker.io/library/nginx:1.
func (r *Runtime) AddImage(image cri.Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[image.ID] = image
}

// Script sets how pulls of reference, as the agent asks for it, behave from now on.
func (r *Runtime) Script(reference string, s PullScript) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts[reference] = s
}

// AddContainer adds or replaces a container.
func (r *Runtime) AddContainer(c Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[c.ID] = &c
}

// RemoveContainer forgets a container.
func (r *Runtime) RemoveContainer(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
}

// AddSandbox gives a Pod its ready sandbox, in place of an earlier one.
func (r *Runtime) AddSandbox(podUID string, s cri.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[podUID] = s
}

// Calls lists the calls so far, such as "PullImage nginx:1" or "StopContainer abc".
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// CallsOf counts the calls whose text starts with prefix.
func (r *Runtime) CallsOf(prefix string) int {
	n := 0
	for _, call := range r.Calls() {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

// Pulls lists the pull requests so far.
func (r *Runtime) Pulls() []cri.Pull {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

// MaxConcurrentPulls is the largest number of pulls that were under way at once.
func (r *Runtime) MaxConcurrentPulls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxRunning
}

// Name implements cri.Runtime.
func (r *Runtime) Name() string { return r.name }

// Images implements cri.Runtime; the order is by ID.
func (r *Runtime) Images(ctx context.Context) ([]cri.Image, error) {
	if err := r.enter(ctx, "ListImages"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	images := make([]cri.Image, 0, len(r.images))
	for _, id := range slices.Sorted(maps.Keys(r.images)) {
		images = append(images, r.images[id])
	}
	return images, nil
}

// PullImage implements cri.Runtime by the script of the reference.
func (r *Runtime) PullImage(ctx context.Context, pull cri.Pull) (string, error) {
	script := r.startPull(pull)
	defer r.endPull()
	if err := r.enter(ctx, "PullImage %s", pull.Reference); err != nil {
		return "", err
	}
	if script.Hang {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if err := sleep(ctx, script.Latency); err != nil {
		return "", err
	}
	if script.Auth != nil && (pull.Auth == nil || *pull.Auth != *script.Auth) {
		return "", fmt.Errorf("pulling %s: %w", pull.Reference, ErrUnauthenticated)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return "", ErrUnavailable
	}
	if script.Failures != 0 || script.Err != nil {
		failure := script.Err
		if script.Failures > 0 {
			script.Failures--
			if script.Failures == 0 {
				script.Err = nil
			}
			r.scripts[pull.Reference] = script
		}
		if failure != nil {
			return "", failure
		}
		return "", fmt.Errorf("pulling %s: scripted failure", pull.Reference)
	}
	id := "sha256:id-of-" + pull.Reference
	image := cri.Image{ID: id}
	if strings.Contains(pull.Reference, "@") {
		image.RepoDigests = []string{pull.Reference}
	} else {
		image.RepoTags = []string{pull.Reference}
	}
	r.images[id] = image
	return id, nil
}

func (r *Runtime) startPull(pull cri.Pull) PullScript {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulls = append(r.pulls, pull)
	r.running++
	r.maxRunning = max(r.maxRunning, r.running)
	return r.scripts[pull.Reference]
}

func (r *Runtime) endPull() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

// Containers implements cri.Runtime.
func (r *Runtime) Containers(ctx context.Context, filter cri.Filter) ([]cri.Container, error) {
	if err := r.enter(ctx, "ListContainers %s", filter.PodUID+filter.ID); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []cri.Container
	for _, c := range r.containers {
		if (filter.ID == "" || filter.ID == c.ID) && (filter.PodUID == "" || filter.PodUID == c.Labels[cri.LabelPodUID]) {
			found = append(found, c.Container)
		}
	}
	slices.SortFunc(found, func(a, b cri.Container) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	return found, nil
}

// Container implements cri.Runtime.
func (r *Runtime) Container(ctx context.Context, id string) (cri.Status, error) {
	if err := r.enter(ctx, "ContainerStatus %s", id); err != nil {
		return cri.Status{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok || c.Vanished || c.NilStatus {
		return cri.Status{}, fmt.Errorf("container %s: %w", id, cri.ErrNotFound)
	}
	return c.Status, nil
}

// Sandbox implements cri.Runtime.
func (r *Runtime) Sandbox(ctx context.Context, podUID string) (cri.Sandbox, error) {
	if err := r.enter(ctx, "PodSandboxStatus %s", podUID); err != nil {
		return cri.Sandbox{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxes[podUID]
	if !ok {
		return cri.Sandbox{}, fmt.Errorf("Pod %s: %w", podUID, cri.ErrNoSandbox)
	}
	return s, nil
}

// Exec implements cri.Runtime by the container's scripts.
func (r *Runtime) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	text := strings.Join(command, " ")
	if err := r.enter(ctx, "ExecSync %s %s", id, text); err != nil {
		return nil, err
	}
	script, err := r.script(id, text)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, min(script.Delay, timeout)); err != nil {
		return nil, err
	}
	switch {
	case script.Err != nil:
		return nil, script.Err
	case script.Delay > timeout:
		return nil, cri.ErrTimedOut
	case script.Code != 0:
		return []byte(script.Stdout), &cri.ExitError{Code: script.Code, Stderr: script.Stderr}
	}
	return []byte(script.Stdout), nil
}

// script is the answer to the next call of a command.
func (r *Runtime) script(id, command string) (ExecScript, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	switch {
	case !ok:
		return ExecScript{}, fmt.Errorf("container %s: %w", id, cri.ErrNotFound)
	case c.State != cri.StateRunning:
		return ExecScript{}, fmt.Errorf("container %s is not running", id)
	}
	if scripts := c.ExecCalls[command]; len(scripts) > 0 {
		if c.execs == nil {
			c.execs = map[string]int{}
		}
		script := scripts[min(c.execs[command], len(scripts)-1)]
		c.execs[command]++
		return script, nil
	}
	if script, known := c.Exec[command]; known {
		return script, nil
	}
	return ExecScript{Code: 127, Stderr: "not found"}, nil
}

// Stop implements cri.Runtime; a container that outlives grace is killed with code 137.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	if err := r.enter(ctx, "StopContainer %s", id); err != nil {
		return err
	}
	r.mu.Lock()
	c, ok := r.containers[id]
	var delay time.Duration
	if ok {
		c.LastGrace = grace
		if c.State != cri.StateExited {
			delay = c.StopDelay
		}
	}
	r.mu.Unlock()
	if !ok {
		return fmt.Errorf("container %s: %w", id, cri.ErrNotFound)
	}
	if err := sleep(ctx, min(delay, grace)); err != nil {
		return err
	}
	code := int32(0)
	if delay > grace {
		code = 137
	}
	r.Exit(id, code)
	return nil
}

// Exit ends the process of a container by itself, as a crash does. It is no call, and has
// no effect on a container that has exited or is unknown.
func (r *Runtime) Exit(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.containers[id]; ok && c.State != cri.StateExited {
		c.State, c.Finished, c.ExitCode = cri.StateExited, time.Now(), code
	}
}

// Known returns a container, without a call.
func (r *Runtime) Known(id string) (Container, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return Container{}, false
	}
	return *c, true
}

// OfPod returns the containers of a Pod, newest first, without a call.
func (r *Runtime) OfPod(podUID string) []Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Container
	for _, c := range r.containers {
		if c.Labels[cri.LabelPodUID] == podUID {
			found = append(found, *c)
		}
	}
	slices.SortFunc(found, func(a, b Container) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// Change edits a container in place, for example its scripts; it tells whether it is known.
func (r *Runtime) Change(id string, edit func(*Container)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if ok {
		edit(c)
	}
	return ok
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

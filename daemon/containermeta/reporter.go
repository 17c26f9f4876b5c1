// SPDX-License-Identifier: Apache-2.0

// Package containermeta tells the manager, in an annotation of each Pod, from which spec
// and environment its containers were started, and restarts containers whose environment
// an in-place update has changed. Decide is the pure part. Rules: inplace-update.md 9 and
// daemon.md 6.
package containermeta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

const (
	reporters, restarters = 5, 10
	// lookDelay gathers the several updates that a container start makes.
	lookDelay            = time.Second
	firstRetry, maxRetry = 500 * time.Millisecond, 50 * time.Second
	// cacheLag bounds how long our own last patch is waited for.
	cacheLag   = 30 * time.Second
	envTimeout = 3 * time.Second
	// maxEnvTries bounds how often a program is run in a container that has none.
	maxEnvTries = 8
)

// Store is where Pods are.
type Store interface {
	// Pod returns a Pod of this node from a cache, read-only, or a NotFound error.
	Pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error)
	// PatchStatus sends a strategic merge patch to the status subresource of a Pod and
	// returns the new version.
	PatchStatus(ctx context.Context, key types.NamespacedName, patch []byte) (*corev1.Pod, error)
}

// Runtimes finds a runtime by the scheme of container IDs.
type Runtimes interface {
	ByName(name string) (cri.Runtime, bool)
}

// Options are what the agent's main decides.
type Options struct {
	Store    Store
	Runtimes Runtimes
	Events   record.EventRecorder
	// Synced reports whether the cache behind Store has been filled.
	Synced func() bool
	// TrackEnv is the gate InPlaceUpdateEnvFromMetadata.
	TrackEnv bool
}

// Reporter is the worker. Create it with New and feed it with Added, Updated and Deleted.
type Reporter struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	kills workqueue.TypedRateLimitingInterface[target]

	mu       sync.Mutex
	written  map[types.NamespacedName]version
	restarts map[string]attempt // by Pod UID and container name
}

// version is what our last patch of a Pod returned.
type version struct {
	resource string
	at       time.Time
}

// New returns a Reporter that does nothing before Run.
func New(o Options) *Reporter {
	return &Reporter{
		o: o,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "runtime_container_meta"}),
		kills: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[target](restartDelay, maxRestartDelay),
			workqueue.TypedRateLimitingQueueConfig[target]{Name: "runtime_container_meta_restarter"}),
		written:  map[types.NamespacedName]version{},
		restarts: map[string]attempt{},
	}
}

// Name identifies the worker in logs and health checks.
func (r *Reporter) Name() string { return "podInformerSynced" }

// Ready returns an error until Pods can be read.
func (r *Reporter) Ready() error {
	if r.o.Synced != nil && !r.o.Synced() {
		return errors.New("not synced")
	}
	return nil
}

// Added is called for Pods that appear in the cache.
func (r *Reporter) Added(pod *corev1.Pod) { r.updated(nil, pod) }

// Updated is called for Pods that change.
func (r *Reporter) Updated(before, after *corev1.Pod) { r.updated(before, after) }

func (r *Reporter) updated(before, after *corev1.Pod) {
	if relevant(before, after, r.o.TrackEnv) {
		r.queue.AddAfter(keyOf(after), lookDelay)
	}
}

// Deleted is called for Pods that are gone.
func (r *Reporter) Deleted(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, keyOf(pod))
	for i := range pod.Spec.Containers {
		delete(r.restarts, restartKey(pod.UID, pod.Spec.Containers[i].Name))
	}
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// Run reports and restarts until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for range reporters {
		group.Go(func() { work(ctx, r.queue, r.report) })
	}
	for range restarters {
		group.Go(func() { work(ctx, r.kills, r.kill) })
	}
	<-ctx.Done()
	r.queue.ShutDown()
	r.kills.ShutDown()
	group.Wait()
	return nil
}

// work handles items until the queue is shut down. A panic over an odd container must not
// take the whole agent along; the item is tried again.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handle func(context.Context, T) error) {
	for {
		item, ended := queue.Get()
		if ended {
			return
		}
		if err := safely(ctx, item, handle); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Retrying", "item", item, "reason", err.Error())
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}

func safely[T any](ctx context.Context, item T, handle func(context.Context, T) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return handle(ctx, item)
}

// report looks at one Pod's containers and writes what changed.
func (r *Reporter) report(ctx context.Context, key types.NamespacedName) error {
	pod, err := r.o.Store.Pod(ctx, key)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Pod %s: %w", key, err)
	}
	if !ours(pod) {
		return nil
	}
	if r.behind(key, pod) {
		r.queue.AddAfter(key, lookDelay)
		return nil
	}
	runtime, scheme, err := r.runtimeOf(pod)
	if runtime == nil {
		return err
	}
	snap := Snapshot{Pod: pod, Runtime: scheme, TrackEnv: r.o.TrackEnv, Envs: map[string]map[string]string{}}
	if snap.Containers, err = runtime.Containers(ctx, cri.Filter{PodUID: runtimeUID(pod)}); err != nil {
		return fmt.Errorf("looking at Pod %s: %w", key, err)
	}
	plan := Decide(snap)
	var envErr error
	if len(plan.AskEnv) > 0 {
		for _, id := range plan.AskEnv {
			env, err := environment(ctx, runtime, id)
			envErr = errors.Join(envErr, err)
			if env != nil {
				snap.Envs[id] = env
			}
		}
		plan = Decide(snap)
	}
	if plan.Meta != nil {
		if err := r.write(ctx, key, pod, plan); err != nil {
			return err
		}
	}
	for _, name := range fitting(pod, plan.Meta) {
		r.forget(pod.UID, name)
	}
	for _, restart := range plan.Restart {
		r.scheduleRestart(ctx, pod, scheme, restart)
	}
	if envErr != nil && !errors.Is(envErr, cri.ErrUnavailable) && r.queue.NumRequeues(key) >= maxEnvTries {
		// An image without an env program, and a runtime that does not tell: it stays so.
		klog.FromContext(ctx).Info("Cannot tell the environment of a container", "pod", key, "reason", envErr.Error())
		return nil
	}
	return envErr
}

func (r *Reporter) write(ctx context.Context, key types.NamespacedName, pod *corev1.Pod, plan Plan) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID, // another Pod of this name is not meant
		"annotations": map[string]string{v1beta1.RuntimeContainersMetaAnnotation: plan.Meta.JSON()},
	}})
	if err != nil {
		return fmt.Errorf("encoding the annotation of Pod %s: %w", key, err)
	}
	written, err := r.o.Store.PatchStatus(ctx, key, patch)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another Pod by now: its own event comes
	}
	if err != nil {
		return fmt.Errorf("patching Pod %s: %w", key, err)
	}
	klog.FromContext(ctx).V(1).Info("Reported containers", "pod", key, "meta", plan.Meta.JSON())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[key] = version{resource: written.ResourceVersion, at: time.Now()}
	return nil
}

// behind reports whether the cache does not show our last patch yet.
func (r *Reporter) behind(key types.NamespacedName, pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.written[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, v.resource)
	if err != nil || order >= 0 || time.Since(v.at) > cacheLag {
		delete(r.written, key)
		return false
	}
	return true
}

// runtimeOf returns the runtime of the Pod's containers; nil without an error while none
// has started.
func (r *Reporter) runtimeOf(pod *corev1.Pod) (cri.Runtime, string, error) {
	for i := range pod.Status.ContainerStatuses {
		scheme, _, ok := strings.Cut(pod.Status.ContainerStatuses[i].ContainerID, "://")
		if !ok {
			continue
		}
		runtime, found := r.o.Runtimes.ByName(scheme)
		if !found {
			return nil, "", fmt.Errorf("no runtime named %q answers on this node", scheme)
		}
		return runtime, scheme, nil
	}
	return nil, "", nil
}

// runtimeUID is the UID that the kubelet labels containers with: that of the static Pod's
// source and not that of its mirror.
func runtimeUID(pod *corev1.Pod) string {
	if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(pod.UID)
}

// environment returns the variables that a container was started with: from the runtime if
// it tells, else from a program in the container. It returns nil for a container that is
// gone: its successor has another ID.
func environment(ctx context.Context, runtime cri.Runtime, id string) (map[string]string, error) {
	status, err := runtime.Container(ctx, id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if status.Env != nil {
		return status.Env, nil
	}
	// NUL ends each variable: values may have newlines and blanks at their ends.
	out, err := runtime.Exec(ctx, id, []string{"env", "-0"}, envTimeout)
	var exit *cri.ExitError
	if errors.As(err, &exit) {
		out, err = runtime.Exec(ctx, id, []string{"env"}, envTimeout)
		if err != nil {
			return nil, err
		}
		return parseLines(string(out)), nil
	}
	if err != nil {
		return nil, err
	}
	return parseNUL(string(out)), nil
}

// parseNUL reads variables that end with NUL.
func parseNUL(text string) map[string]string {
	env := map[string]string{}
	for entry := range strings.SplitSeq(text, "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// variable is the beginning of a line that starts a variable.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*=`)

// parseLines reads variables that end with a newline. A line that starts none belongs to the
// value before it. Blanks at the ends of values stay.
func parseLines(text string) map[string]string {
	env := map[string]string{}
	last := ""
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if variable.MatchString(line) {
			name, value, _ := strings.Cut(line, "=")
			last, env[name] = name, value
		} else if last != "" {
			env[last] += "\n" + line
		}
	}
	return env
}

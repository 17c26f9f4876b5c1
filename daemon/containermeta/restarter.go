// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

// Event reasons on the Pod, as the kubelet has them.
const (
	EventKilling           = "Killing"
	EventFailedPreStopHook = "FailedPreStopHook"
)

const (
	maxRestartDelay = 10 * time.Minute
	// sameRestart is how long a container is left alone after a restart that should have
	// given it the environment that it still lacks.
	sameRestart = 10 * time.Minute
)

// target is one container instance to stop.
type target struct {
	pod         types.NamespacedName
	runtime, id string
	container   string
}

// attempt is the last restart of a container.
type attempt struct {
	id       string
	expected uint64
	at       time.Time
}

func restartKey(uid types.UID, container string) string { return string(uid) + "/" + container }

// scheduleRestart queues a restart, once per container instance and, unless much time has
// passed, once per environment: a hash that cannot match must not restart a container again
// and again.
func (r *Reporter) scheduleRestart(pod *corev1.Pod, runtime string, restart Restart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := restartKey(pod.UID, restart.Name)
	last := r.restarts[key]
	if last.id == restart.ID {
		return
	}
	if wait := sameRestart - time.Since(last.at); last.expected == restart.Expected && wait > 0 {
		r.queue.AddAfter(keyOf(pod), wait)
		return
	}
	r.restarts[key] = attempt{id: restart.ID, expected: restart.Expected, at: time.Now()}
	r.kills.AddAfter(target{pod: keyOf(pod), runtime: runtime, id: restart.ID, container: restart.Name}, restart.Delay)
}

// kill stops a container if it still runs. It does not look at the Pod's conditions again:
// an update that follows may be complete by now, and the restart is due all the same.
func (r *Reporter) kill(ctx context.Context, t target) error {
	runtime, ok := r.o.Runtimes.ByName(t.runtime)
	if !ok {
		return fmt.Errorf("no runtime named %q answers on this node", t.runtime)
	}
	status, err := runtime.Container(ctx, t.id)
	if errors.Is(err, cri.ErrNotFound) || err == nil && status.State != cri.StateRunning {
		return nil // the kubelet was faster
	}
	if err != nil {
		return err
	}
	pod, err := r.o.Store.Pod(ctx, t.pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Pod %s: %w", t.pod, err)
	}
	object := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: "spec.containers{" + t.container + "}",
	}
	klog.FromContext(ctx).Info("Restarting a container for its environment", "pod", t.pod, "container", t.container, "id", t.id)
	r.o.Events.Eventf(object, corev1.EventTypeNormal, EventKilling, "Stopping container %s: its environment from metadata changed", t.container)
	options, hookErr := cri.AnnotatedKill(status)
	options.PodIP = pod.Status.PodIP
	runErr, err := cri.Kill(ctx, runtime, status, options)
	if hookErr = errors.Join(hookErr, runErr); hookErr != nil {
		r.o.Events.Eventf(object, corev1.EventTypeWarning, EventFailedPreStopHook, "Container %s: %v", t.container, hookErr)
	}
	if err != nil && !errors.Is(err, cri.ErrNotFound) {
		return fmt.Errorf("restarting container %s of Pod %s: %w", t.container, t.pod, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

const maxRestartDelay = 10 * time.Minute

// target is one container instance to stop.
type target struct {
	pod         types.NamespacedName
	uid         types.UID
	runtime, id string
	container   string
	// waited tells that the kubelet has had its time.
	waited bool
}

// attempt is the last restart of a container.
type attempt struct {
	Restart
	stopped bool // it has taken place
}

func restartKey(uid types.UID, container string) string { return string(uid) + "/" + container }

// scheduleRestart queues a restart, once per container instance. One that has taken place and
// has changed nothing is not repeated: a hash that cannot match must not restart a container
// again and again.
func (r *Reporter) scheduleRestart(ctx context.Context, pod *corev1.Pod, runtime string, restart Restart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := restartKey(pod.UID, restart.Name)
	last := r.restarts[key]
	switch {
	case last.ID == restart.ID && last.Expected == restart.Expected:
		return
	case last.stopped && last.Expected == restart.Expected && last.Recorded == restart.Recorded:
		klog.FromContext(ctx).Info("Leaving a container alone that was restarted and still lacks the environment its Pod asks for",
			"pod", keyOf(pod), "container", restart.Name)
		r.restarts[key] = attempt{Restart: restart, stopped: true} // said once
		return
	}
	r.restarts[key] = attempt{Restart: restart}
	waited := restart.Delay > restartDelay
	r.kills.AddAfter(target{pod: keyOf(pod), uid: pod.UID, runtime: runtime, id: restart.ID, container: restart.Name, waited: waited}, restart.Delay)
}

// stopped notes that a restart has taken place.
func (r *Reporter) stopped(t target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := restartKey(t.uid, t.container)
	if last, ok := r.restarts[key]; ok && last.ID == t.id {
		last.stopped = true
		r.restarts[key] = last
	}
}

// forget makes room for another restart of a container: the last one has led to what it was
// for, or is not needed any more.
func (r *Reporter) forget(uid types.UID, container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.restarts, restartKey(uid, container))
}

// kill stops a container if it still runs and still needs it.
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
	if apierrors.IsNotFound(err) || err == nil && pod.UID != t.uid {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Pod %s: %w", t.pod, err)
	}
	switch verdict := Due(pod, t.container, t.runtime+"://"+t.id); {
	case verdict == Drop:
		r.forget(t.uid, t.container)
		return nil
	case verdict == Wait && !t.waited:
		t.waited = true
		r.kills.AddAfter(t, kubeletDelay+graceOf(&status.Container))
		return nil
	}
	return r.stop(ctx, runtime, t, pod, status)
}

// stop stops a container the way the kubelet does, with its hook and grace period.
func (r *Reporter) stop(ctx context.Context, runtime cri.Runtime, t target, pod *corev1.Pod, status cri.Status) error {
	object := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: "spec.containers{" + t.container + "}",
	}
	klog.FromContext(ctx).Info("Restarting a container for its environment", "pod", t.pod, "container", t.container, "id", t.id)
	r.o.Events.Eventf(object, corev1.EventTypeNormal, EventKilling, "Stopping container %s: its environment from metadata changed", t.container)
	r.stopped(t)
	options, hookErr := cri.AnnotatedKill(status)
	options.PodIP = pod.Status.PodIP
	runErr, err := cri.Kill(ctx, runtime, status, options)
	if hookErr = errors.Join(hookErr, runErr); hookErr != nil {
		r.o.Events.Eventf(object, corev1.EventTypeWarning, EventFailedPreStopHook, "Container %s: %s", t.container, named(hookErr, t))
	}
	if err != nil && !errors.Is(err, cri.ErrNotFound) {
		return fmt.Errorf("restarting container %s of Pod %s: %w", t.container, t.pod, err)
	}
	return nil
}

// named is the text of an error with the container's name in place of its ID: events with
// the same text are counted as one.
func named(err error, t target) string { return strings.ReplaceAll(err.Error(), t.id, t.container) }

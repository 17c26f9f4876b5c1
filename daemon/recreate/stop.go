// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// Event reasons on the Pod, as the kubelet has them.
const (
	EventKilling           = "Killing"
	EventFailedPreStopHook = "FailedPreStopHook"
)

// observe asks the runtime of the request for its containers and, where one of them does not
// run, the API server for the Pod.
func (w *Worker) observe(ctx context.Context, key Key, r *v1beta1.ContainerRecreateRequest) (Snapshot, cri.Runtime, error) {
	snap := Snapshot{Request: r, Containers: map[string]Container{}}
	w.mu.Lock()
	if p := w.progress[r.UID]; p != nil {
		snap.Kills = p.kills
	}
	w.mu.Unlock()
	name, why := runtimeOf(r)
	if why != "" {
		snap.NoRuntime = why
		return snap, nil, nil
	}
	rt, ok := w.o.Runtimes.ByName(name)
	if !ok {
		snap.NoRuntime = fmt.Sprintf("no runtime named %q answers on this node", name)
		return snap, nil, nil
	}
	var err error
	if snap.Containers, err = newestContainers(ctx, rt, key, r); err != nil {
		return snap, rt, err
	}
	for _, c := range r.Spec.Containers {
		if cur, found := snap.Containers[c.Name]; !found || cur.State == cri.StateExited {
			snap.Pod, err = w.pod(ctx, key)
			break
		}
	}
	return snap, rt, err
}

// pod is nil when it is gone or another has its name; both are for the manager to judge.
func (w *Worker) pod(ctx context.Context, key Key) (*corev1.Pod, error) {
	pod, err := w.o.Store.Pod(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Pod})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != key.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Pod %s/%s: %w", key.Namespace, key.Pod, err)
	}
	return pod, nil
}

// runtimeOf is the name of the runtime that all containers of the request have, or why there
// is none.
func runtimeOf(r *v1beta1.ContainerRecreateRequest) (runtime, why string) {
	for _, c := range r.Spec.Containers {
		if c.StatusContext == nil {
			return "", "container " + c.Name + " has no status context"
		}
		name, own := recreate.SplitID(c.StatusContext.ContainerID)
		switch {
		case name == "" || own == "":
			return "", fmt.Sprintf("container %s has the ID %q, which names no runtime", c.Name, c.StatusContext.ContainerID)
		case runtime != "" && runtime != name:
			return "", fmt.Sprintf("the containers belong to several runtimes, %s and %s", runtime, name)
		}
		runtime = name
	}
	return runtime, ""
}

// newestContainers finds the newest container of each name in the request. One that vanishes
// between two calls is as good as not listed.
func newestContainers(ctx context.Context, rt cri.Runtime, key Key, r *v1beta1.ContainerRecreateRequest) (map[string]Container, error) {
	list, err := rt.Containers(ctx, cri.Filter{PodUID: string(key.UID)})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if list, err = mirrored(ctx, rt, key, r); err != nil {
			return nil, err
		}
	}
	found := map[string]Container{}
	for _, c := range r.Spec.Containers {
		for _, candidate := range list { // newest first
			if candidate.Labels[cri.LabelContainerName] != c.Name {
				continue
			}
			status, err := rt.Container(ctx, candidate.ID)
			if errors.Is(err, cri.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			restarts, err := strconv.ParseInt(candidate.Annotations[cri.AnnotationRestartCount], 10, 32)
			if err != nil {
				restarts = int64(candidate.Attempt)
			}
			found[c.Name] = Container{
				ID: status.ID, State: status.State, RestartCount: int32(restarts), Started: status.Started, ExitCode: status.ExitCode,
			}
			break
		}
	}
	return found, nil
}

// mirrored lists the containers of a static Pod. The API server has a mirror of it with
// another UID than its containers; the request knows one of those.
func mirrored(ctx context.Context, rt cri.Runtime, key Key, r *v1beta1.ContainerRecreateRequest) ([]cri.Container, error) {
	for _, c := range r.Spec.Containers {
		_, own := recreate.SplitID(c.StatusContext.ContainerID)
		status, err := rt.Container(ctx, own)
		if errors.Is(err, cri.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if uid := status.Labels[cri.LabelPodUID]; uid != "" && uid != string(key.UID) {
			return rt.Containers(ctx, cri.Filter{PodUID: uid})
		}
	}
	return nil, nil
}

// stop stops a container and notes it for reportStops. It takes as long as the grace period,
// whatever becomes of the request in that time.
func (w *Worker) stop(ctx context.Context, key Key, snap Snapshot, rt cri.Runtime, target Target) {
	r := snap.Request
	object := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Pod, UID: key.UID,
		FieldPath: "spec.containers{" + target.Name + "}",
	}
	say := func(kind, reason, message string) {
		// Without IDs, events about the same container can be counted together.
		w.o.Events.Event(object, kind, reason, strings.ReplaceAll(message, target.ID, target.Name))
	}
	logger := klog.FromContext(ctx).WithValues("request", klog.KObj(r), "pod", klog.KRef(key.Namespace, key.Pod), "container", target.Name, "id", target.ID)
	logger.Info("Stopping a container")
	say(corev1.EventTypeNormal, EventKilling, fmt.Sprintf("Stopping container %s by ContainerRecreateRequest %s", target.Name, r.Name))
	progress := w.of(r.UID)
	started := w.now()
	hookErr, err := cri.Kill(ctx, rt, cri.Status{Container: cri.Container{ID: target.ID, State: snap.Containers[target.Name].State}}, w.killOptions(ctx, key, r, rt, target.Name))
	if errors.Is(err, cri.ErrNotFound) {
		err = nil // it is gone, as it should be
	}
	took := w.now().Sub(started)
	if hookErr != nil {
		logger.Info("The preStop hook did not work", "reason", hookErr.Error())
		say(corev1.EventTypeWarning, EventFailedPreStopHook, fmt.Sprintf("Container %s: %v", target.Name, hookErr))
	}
	if err != nil && ctx.Err() != nil {
		return // the agent ends: its next life looks at what is there
	}
	logger.Info("Stopped a container", "took", took, "error", err)
	w.o.Metrics.stopped(err, took)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		progress.kills[target.Name] = Kill{ID: target.ID, At: w.now()}
	}
	w.stopped[key] = append(w.stopped[key], stopped{request: r, target: target, err: err})
}

// killOptions are those that the request brings, and the Pod's IP for a hook that needs it.
func (w *Worker) killOptions(ctx context.Context, key Key, r *v1beta1.ContainerRecreateRequest, rt cri.Runtime, container string) cri.KillOptions {
	var o cri.KillOptions
	if seconds := recreate.Strategy(r).TerminationGracePeriodSeconds; seconds != nil {
		o.Grace = new(time.Duration(*seconds) * time.Second)
	}
	for _, c := range r.Spec.Containers {
		if c.Name == container && c.PreStop != nil {
			o.Hook = &corev1.LifecycleHandler{Exec: c.PreStop.Exec, HTTPGet: c.PreStop.HTTPGet, TCPSocket: c.PreStop.TCPSocket, Sleep: c.PreStop.Sleep}
			o.Ports = c.Ports
		}
	}
	if o.Hook != nil && o.Hook.HTTPGet != nil && o.Hook.HTTPGet.Host == "" {
		o.PodIP = w.podIP(ctx, key, rt)
	}
	return o
}

// podIP asks the runtime and, for Pods with the node's network, the API server. A hook
// without an IP fails, and says so.
func (w *Worker) podIP(ctx context.Context, key Key, rt cri.Runtime) string {
	sandbox, err := rt.Sandbox(ctx, string(key.UID))
	if ip := sandbox.IP(); err == nil && ip != "" {
		return ip
	}
	pod, podErr := w.pod(ctx, key)
	if err := errors.Join(err, podErr); err != nil {
		klog.FromContext(ctx).Info("Looking for the IP of a Pod", "pod", klog.KRef(key.Namespace, key.Pod), "reason", err.Error())
	}
	if pod == nil {
		return ""
	}
	return pod.Status.PodIP
}

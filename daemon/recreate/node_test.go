// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// runtimes has the one runtime of the node.
type runtimes struct{ w *world }

func (r runtimes) ByName(name string) (cri.Runtime, bool) {
	return worldRuntime{w: r.w}, name == "containerd"
}

type worldRuntime struct {
	cri.Runtime
	w *world
}

var errRuntime = errors.New("runtime is busy")

func (r worldRuntime) Containers(_ context.Context, filter cri.Filter) ([]cri.Container, error) {
	if before, _ := r.w.fail(); before {
		return nil, errRuntime
	}
	var list []cri.Container
	for _, b := range slices.Backward(r.w.boxes) { // newest first
		if string(b.podUID) == filter.PodUID {
			list = append(list, b.Container)
		}
	}
	return list, nil
}

func (r worldRuntime) Container(_ context.Context, id string) (cri.Status, error) {
	if b := r.w.box(id); b != nil {
		return b.Status, nil
	}
	return cri.Status{}, cri.ErrNotFound
}

func (r worldRuntime) Stop(ctx context.Context, id string, _ time.Duration) error {
	f := r.w.current
	f.target, f.request = id, r.w.stopping
	if r.w.check != nil {
		r.w.check(f, r.w.box(id))
	}
	f.paused <- struct{}{}
	if err := <-f.result; err != nil {
		return err
	}
	if b := r.w.box(id); b != nil {
		b.stops++
	}
	return ctx.Err()
}

// recorder notes for which request a container is about to be stopped.
type recorder struct {
	record.EventRecorder
	w *world
}

func (r recorder) Event(_ runtime.Object, _, reason, message string) {
	if _, request, ok := strings.Cut(message, " by ContainerRecreateRequest "); ok && reason == "Killing" {
		r.w.stopping = request
	}
}

func (w *world) box(id string) *box {
	for _, b := range w.boxes {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// newest is the newest container of a name, or nil.
func (w *world) newest(pod types.UID, name string) *box {
	for _, b := range slices.Backward(w.boxes) {
		if b.podUID == pod && b.Name == name {
			return b
		}
	}
	return nil
}

func (w *world) exit(b *box, code int32) {
	if b != nil && b.State == cri.StateRunning {
		b.State, b.ExitCode, b.ready = cri.StateExited, code, false
		w.note("node: %s exits with %d", b.ID, code)
	}
}

// start makes the kubelet start a container that does not run, if the policies say so.
func (w *world) start(pod *corev1.Pod, name string) bool {
	last := w.newest(pod.UID, name)
	attempt := uint32(0)
	if last != nil {
		if _, restarts := recreate.Restarts(pod, name, last.ExitCode); !restarts || last.State != cri.StateExited {
			return false
		}
		attempt = last.Attempt + 1
	}
	w.count++
	b := &box{podUID: pod.UID, Status: cri.Status{Started: w.clock.Now(), Container: cri.Container{
		ID: fmt.Sprintf("%s-%d", name, w.count), Name: name, Attempt: attempt, State: cri.StateRunning, Created: w.clock.Now(),
		Labels:      map[string]string{cri.LabelContainerName: name, cri.LabelPodUID: string(pod.UID)},
		Annotations: map[string]string{cri.AnnotationRestartCount: strconv.Itoa(int(attempt))},
	}}}
	w.boxes = append(w.boxes, b)
	w.note("kubelet: starts %s", b.ID)
	return true
}

// mirror makes the kubelet write the status of a Pod; it tells whether it changed.
func (w *world) mirror(name string) bool {
	pod, ok := w.server.pods[name]
	if !ok {
		return false
	}
	pod = pod.DeepCopy()
	var statuses []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		b := w.newest(pod.UID, c.Name)
		if b == nil {
			continue
		}
		s := corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + b.ID, Ready: b.ready, RestartCount: int32(b.Attempt)}
		if b.State == cri.StateRunning {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(b.Started.Truncate(time.Second))}
		} else {
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: b.ExitCode}
		}
		statuses = append(statuses, s)
	}
	before := pod.Status.DeepCopy()
	pod.Status.ContainerStatuses = statuses
	if fmt.Sprint(before.ContainerStatuses) == fmt.Sprint(statuses) {
		return false
	}
	w.server.storePod(pod)
	return true
}

// newPod makes a Pod whose containers run and are ready.
func (w *world) newPod(name string, policy corev1.RestartPolicy, gate bool, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + w.server.next())}}
	pod.Spec.RestartPolicy, pod.Status.Phase = policy, corev1.PodRunning
	if gate {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.KruisePodReady}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue}}
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c})
	}
	w.server.storePod(pod)
	for _, c := range containers {
		w.start(pod, c)
		w.newest(pod.UID, c).ready = true
	}
	w.mirror(name)
	return w.server.pods[name]
}

// admit does what the webhook does, and creates the request.
func (w *world) admit(pod *corev1.Pod, spec v1beta1.ContainerRecreateRequestSpec, containers ...string) *v1beta1.ContainerRecreateRequest {
	w.count++
	r := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("crr-%d", w.count),
		Labels: map[string]string{v1beta1.RecreatePodUIDLabel: string(pod.UID), v1beta1.RecreateNodeNameLabel: "node", v1beta1.RecreateActiveLabel: "true"},
	}, Spec: spec}
	v1beta1.SetDefaultsContainerRecreateRequest(r)
	r.Spec.PodName = pod.Name
	for _, name := range containers {
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == name {
				r.Spec.Containers = append(r.Spec.Containers, v1beta1.RecreateContainer{Name: name, StatusContext: &v1beta1.RecreateContainerContext{ContainerID: s.ContainerID, RestartCount: s.RestartCount}})
			}
		}
	}
	w.server.createRequest(r)
	w.note("user: creates %s for %v of %s: %+v", r.Name, containers, pod.Name, *r.Spec.Strategy)
	return r
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// kubelet takes one Pod one step further; broken images never run.
func (w *world) kubelet(name string) {
	live := w.pods.live[name]
	if live == nil {
		return
	}
	if live.DeletionTimestamp != nil {
		w.tell("kubelet: %s is gone", name)
		delete(w.pods.live, name)
		return
	}
	if IsTerminal(live) {
		return
	}
	p := live.DeepCopy()
	for _, v := range p.Spec.Volumes {
		claim := w.claims.live[v.PersistentVolumeClaim.ClaimName]
		if p.Spec.NodeName == "" && (claim == nil || claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound) {
			return // not scheduled without its volumes
		}
		if claim != nil && p.Spec.NodeName != "" && (!w.offline || p.Status.Phase == corev1.PodPending) {
			w.growFileSystem(claim)
		}
	}
	if p.Spec.NodeName == "" {
		if w.cordon {
			return
		}
		p.Spec.NodeName = "node"
		w.storePod(p)
		return
	}
	c := p.Spec.Containers[0]
	var status corev1.ContainerStatus
	if len(p.Status.ContainerStatuses) > 0 {
		status = p.Status.ContainerStatuses[0]
	}
	if status.Image != c.Image || status.ContainerID == "" {
		status.Name, status.Image, status.ImageID = c.Name, c.Image, "id-of-"+c.Image
		status.RestartCount++
		status.ContainerID = fmt.Sprintf("c://%s/%d", name, status.RestartCount)
		status.Ready = false // ready at the next step
	} else {
		status.Ready = !strings.HasPrefix(c.Image, "bad") && !w.broken[name]
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.setReady(p, status.Ready)
	if !equality.Semantic.DeepEqual(p.Status, live.Status) {
		w.storePod(p)
	}
}

func (w *world) setReady(p *corev1.Pod, ready bool) {
	set := func(t corev1.PodConditionType, is bool) {
		status := corev1.ConditionFalse
		if is {
			status = corev1.ConditionTrue
		}
		podready.SetCondition(p, corev1.PodCondition{Type: t, Status: status}, w.now)
	}
	set(corev1.ContainersReady, ready)
	gate := podready.Condition(p, v1beta1.InPlaceUpdateReady)
	held := podready.Condition(p, v1beta1.KruisePodReady)
	set(corev1.PodReady, ready && gate != nil && gate.Status == corev1.ConditionTrue && (held == nil || held.Status == corev1.ConditionTrue))
}

// crash lets a Pod's container restart, or ends the Pod for good.
func (w *world) crash(name string, ends bool) {
	live := w.pods.live[name]
	if live == nil || live.DeletionTimestamp != nil || IsTerminal(live) || live.Status.Phase != corev1.PodRunning {
		return
	}
	p := live.DeepCopy()
	if ends {
		w.tell("node: %s fails", name)
		p.Status.Phase = corev1.PodFailed
	} else {
		w.tell("node: %s restarts", name)
	}
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].Ready = false
	}
	w.setReady(p, false)
	w.outside[name] = true
	w.storePod(p)
}

// userDeletes deletes a Pod past the controller.
func (w *world) userDeletes(name string) {
	live := w.pods.live[name]
	if live == nil || live.DeletionTimestamp != nil {
		return
	}
	w.tell("user: delete Pod %s", name)
	w.outside[name] = true
	p := live.DeepCopy()
	p.DeletionTimestamp = new(metav1.NewTime(w.now))
	w.storePod(p)
}

// userMarks labels a Pod for deletion.
func (w *world) userMarks(name string) {
	if live := w.pods.live[name]; live != nil && live.DeletionTimestamp == nil {
		w.tell("user: mark Pod %s", name)
		p := live.DeepCopy()
		p.Labels[v1beta1.SpecifiedDeleteLabel] = "true"
		w.storePod(p)
	}
}

// volumes lets the binder, the driver and the garbage collector take one claim further.
func (w *world) volumes(name string) {
	live := w.claims.live[name]
	if live == nil {
		return
	}
	claim := live.DeepCopy()
	asks, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	switch {
	case claim.DeletionTimestamp != nil:
		if !w.used(name) {
			w.tell("claim %s is gone", name)
			w.lost = append(w.lost, name)
			delete(w.claims.live, name)
		}
		return
	case w.doomed(claim):
		w.tell("collector: delete claim %s", name)
		claim.DeletionTimestamp = new(metav1.NewTime(w.now))
	case claim.Status.Phase != corev1.ClaimBound:
		claim.Status.Phase = corev1.ClaimBound
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: asks}
	case has.Cmp(asks) < 0 && len(claim.Status.Conditions) == 0:
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now),
		}}
	default:
		return
	}
	w.storeClaim(claim)
}

func (w *world) growFileSystem(live *corev1.PersistentVolumeClaim) {
	if len(live.Status.Conditions) == 0 {
		return
	}
	claim := live.DeepCopy()
	claim.Status.Conditions = nil
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]}
	w.storeClaim(claim)
}

// used: some Pod that has been scheduled has the claim.
func (w *world) used(claim string) bool {
	for _, p := range w.pods.live {
		if p.Spec.NodeName != "" && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim.ClaimName == claim }) {
			return true
		}
	}
	return false
}

// doomed: it has owners, and none of them exists.
func (w *world) doomed(claim *corev1.PersistentVolumeClaim) bool {
	for _, r := range claim.OwnerReferences {
		p := w.pods.live[r.Name]
		if r.UID == w.set.UID || p != nil && p.UID == r.UID {
			return false
		}
	}
	return len(claim.OwnerReferences) > 0
}

// hooks lets the owner of the hooks do its part with one Pod: let go of one that is to be
// updated or deleted, take back one that comes up.
func (w *world) hooks(name string) {
	lc, live := w.set.Spec.Lifecycle, w.pods.live[name]
	if lc == nil || live == nil || live.DeletionTimestamp != nil {
		return
	}
	p := live.DeepCopy()
	switch state := lifecycle.State(p); state {
	case v1beta1.LifecyclePreparingUpdate:
		lifecycle.Unhook(lc.InPlaceUpdate, p)
	case v1beta1.LifecyclePreparingDelete:
		lifecycle.Unhook(lc.PreDelete, p)
	case v1beta1.LifecycleUpdated, v1beta1.LifecyclePreparingNormal:
		lifecycle.Rehook(lc.InPlaceUpdate, p)
		lifecycle.Rehook(lc.PreDelete, p)
		lifecycle.Rehook(lc.PreNormal, p)
	case v1beta1.LifecycleNormal:
		lifecycle.Rehook(lc.InPlaceUpdate, p)
	}
	if !equality.Semantic.DeepEqual(p, live) {
		w.tell("hooks: %s in state %s", name, lifecycle.State(p))
		w.storePod(p)
	}
}

// round lets everybody act once, in a fixed order.
func (w *world) round() (busy bool) {
	w.syncAll()
	busy = w.reconcile(func() bool { return false })
	before, pods, claims := w.version, len(w.pods.live), len(w.claims.live)
	for _, name := range w.pods.names() {
		w.kubelet(name)
		w.hooks(name)
	}
	for _, name := range w.claims.names() {
		w.volumes(name)
	}
	busy = busy || w.version != before || len(w.pods.live) != pods || len(w.claims.live) != claims
	w.now = w.now.Add(time.Second)
	if !busy && w.requeue > 0 {
		w.now = w.now.Add(w.requeue) // nothing but time makes a difference
		return true
	}
	return busy
}

// settle runs rounds until nothing happens any more.
func (w *world) settle() {
	quiet := 0
	for range 3000 {
		if w.round() {
			quiet = 0
		} else if quiet++; quiet > 2 {
			return
		}
	}
	w.fail("no fixed point after 3000 rounds:\n%s", w.tale())
}

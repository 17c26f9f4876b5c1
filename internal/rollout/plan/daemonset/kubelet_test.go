// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// kubelet takes one Pod one step further: scheduler, kubelet and Pod garbage collector in
// one. Broken images never run.
func (w *world) kubelet(name string) {
	live := w.pods[name]
	if live == nil {
		return
	}
	node := w.nodes[TargetNode(live)]
	switch {
	case live.DeletionTimestamp != nil, live.Spec.NodeName != "" && node == nil:
		w.tell("kubelet: %s is gone", name)
		delete(w.pods, name)
		return
	case live.Spec.NodeName == "":
		if node == nil || !w.eligible(node) {
			return
		}
		p := live.DeepCopy()
		p.Spec.NodeName = node.Name
		w.store(p)
		return
	case isOver(live):
		return
	}
	p := live.DeepCopy()
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
		status.Ready = !strings.HasPrefix(c.Image, "bad")
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	w.setReady(p, status.Ready)
	if !equality.Semantic.DeepEqual(p.Status, live.Status) {
		w.store(p)
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
	for _, g := range p.Spec.ReadinessGates {
		c := podready.Condition(p, g.ConditionType)
		ready = ready && c != nil && c.Status == corev1.ConditionTrue
	}
	set(corev1.PodReady, ready)
}

// end makes a Pod fail.
func (w *world) end(name string) {
	live := w.pods[name]
	if live == nil || live.DeletionTimestamp != nil || live.Spec.NodeName == "" {
		return
	}
	p := live.DeepCopy()
	p.Status.Phase = corev1.PodFailed
	w.setReady(p, false)
	w.store(p)
	w.tell("%s fails", name)
}

// remove deletes a Pod by somebody else's hand.
func (w *world) remove(name string) {
	if live := w.pods[name]; live != nil && live.DeletionTimestamp == nil {
		p := live.DeepCopy()
		p.DeletionTimestamp = new(metav1.NewTime(w.now))
		w.store(p)
		w.tell("somebody deletes %s", name)
	}
}

// hook is the preDelete hook of tests.
var hook = map[string]string{"hook": "on"}

// release lets go of a Pod that prepares to be deleted.
func (w *world) release(name string) {
	live := w.pods[name]
	if live == nil || live.Labels[v1beta1.LifecycleStateLabel] == "" || live.Labels["hook"] == "" {
		return
	}
	p := live.DeepCopy()
	delete(p.Labels, "hook")
	w.store(p)
	w.tell("the hook releases %s", name)
}

// round lets everybody act once, in a fixed order.
func (w *world) round() (busy bool) {
	w.syncAll()
	busy = w.reconcile(func() bool { return false })
	before, pods := w.version, len(w.pods)
	for _, name := range w.names() {
		w.kubelet(name)
		w.release(name)
	}
	w.now = w.now.Add(time.Second)
	w.notice()
	return busy || w.version != before || len(w.pods) != pods
}

// settle runs rounds until nothing happens any more, for longer than any wait takes.
func (w *world) settle() {
	quiet, wait := 0, time.Duration(0)
	for _, b := range w.backoffs {
		wait = max(wait, b.Delay)
	}
	for range 3000 {
		if w.round() {
			quiet = 0
		} else if quiet++; quiet > int(w.set.Spec.MinReadySeconds)+int(wait.Seconds())+3 {
			return
		}
	}
	w.broken("no fixed point after 3000 rounds")
}

// checkGoal: every node that should have a Pod has one of the present template that is
// available, and no other node has one that the controller could take away.
func (w *world) checkGoal() {
	s := w.snapshot()
	plan := Decide(s, w.now)
	if !plan.Idle() || plan.Requeue > 0 {
		w.broken("not idle at the end: %s", brief(plan))
	}
	for _, n := range slices.Sorted(maps.Keys(w.nodes)) {
		pods := w.on(n, true)
		run, stay := EligibilityOf(&w.set.Spec.Template).On(w.nodes[n])
		switch {
		case !run && (stay || len(pods) == 0):
		case len(pods) != 1 || !run:
			w.broken("node %s has %d Pods", n, len(pods))
		case !w.serves(n):
			w.broken("the Pod of node %s is not available", n)
		case !revision.SameRevision(pods[0].Labels["controller-revision-hash"], s.Hash()):
			w.broken("the Pod of node %s is old", n)
		case pods[0].Spec.Containers[0].Image != w.set.Spec.Template.Spec.Containers[0].Image:
			w.broken("the Pod of node %s is labelled as new and runs %s", n, pods[0].Spec.Containers[0].Image)
		}
	}
	st := w.set.Status
	if st.UpdatedNumberScheduled != st.DesiredNumberScheduled || st.NumberAvailable != st.DesiredNumberScheduled || st.ObservedGeneration != w.set.Generation {
		w.broken("the status does not tell: %+v", st)
	}
}

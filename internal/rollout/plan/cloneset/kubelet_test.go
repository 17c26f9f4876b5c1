// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kruisectl/kruisectl/internal/podready"
)

// kubelet takes one Pod one step further; broken images never run.
func (w *world) kubelet(name string) {
	live := w.pods[name]
	if live == nil {
		return
	}
	if live.DeletionTimestamp != nil || live.Status.Phase == corev1.PodFailed { // or the collector of failed Pods
		w.tell("kubelet: %s is gone", name)
		delete(w.pods, name)
		return
	}
	p := live.DeepCopy()
	if p.Spec.NodeName == "" {
		p.Spec.NodeName = "node"
		w.store(p)
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

// round lets everybody act once, in a fixed order, and a second pass.
func (w *world) round() (busy bool) {
	w.syncAll()
	busy = w.reconcile(func() bool { return false })
	before := w.version
	for _, name := range w.names() {
		w.kubelet(name)
		w.operator(name)
	}
	w.now = w.now.Add(time.Second)
	return busy || w.version != before || len(w.names()) != w.active()
}

// settle runs rounds until nothing happens any more, for longer than any wait takes.
func (w *world) settle() {
	quiet := 0
	for range 500 {
		if w.round() {
			quiet = 0
		} else if quiet++; quiet > int(w.set.Spec.MinReadySeconds)+3 {
			return
		}
	}
	w.fail("no fixed point after 500 rounds:\n%s", strings.Join(w.story[max(0, len(w.story)-120):], "\n"))
}

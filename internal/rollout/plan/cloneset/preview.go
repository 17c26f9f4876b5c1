// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// PodAction is what a rollout does to one Pod.
type PodAction string

// The actions of a preview.
const (
	// PodInPlace: the Pod is updated in place and keeps its name, address and volumes.
	PodInPlace PodAction = "InPlace"
	// PodRecreate: the Pod is deleted and replaced.
	PodRecreate PodAction = "Recreate"
	// PodKeep: the Pod stays as it is; Held says why when it is not at the update revision.
	PodKeep PodAction = "Keep"
	// PodBlocked: the change needs recreation, and the policy forbids it.
	PodBlocked PodAction = "Blocked"
	// PodDelete: the Pod is scaled in or was marked for deletion.
	PodDelete PodAction = "Delete"
)

// PodPreview is what a rollout will do to one Pod that exists now.
type PodPreview struct {
	Pod    string    `json:"pod"`
	Action PodAction `json:"action"`
	// Way is what an update of the Pod is, or would be if it were not kept: InPlace,
	// Recreate or Blocked; empty for a Pod that is at the update revision.
	Way PodAction `json:"way,omitempty"`
	// Batch is 1 for the Pods that are changed first, and so on; 0 for those that are not.
	Batch int `json:"batch,omitempty"`
	// Reasons are the fields that forbid an in-place update.
	Reasons []inplace.Reason `json:"reasons,omitempty"`
	// Held is why the Pod is kept or blocked, one sentence.
	Held string `json:"held,omitempty"`
	// HeldBy is the stable form of Held.
	HeldBy Reason `json:"heldBy,omitempty"`
}

// maxRounds bounds the simulation; the batches of what is left then are extrapolated.
const maxRounds = 300

// Preview runs the whole rollout of s over a model in which every step succeeds at once:
// Pods become ready, hooks let go. It returns one entry per Pod of s, in the order of
// s.Pods. A Pod that is not ready now stays so until it is updated.
func Preview(s Snapshot, now time.Time) []PodPreview {
	d := newDecider(&s, now)
	out := make([]PodPreview, len(s.Pods))
	index := make(map[string]*PodPreview, len(s.Pods))
	for i, v := range d.views {
		out[i] = PodPreview{Pod: v.pod.Name, Action: PodKeep}
		if !v.updated {
			out[i].Way, out[i].Reasons = d.way(v)
		}
		index[v.pod.Name] = &out[i]
	}

	m := newModel(&s, now)
	batch, size, settled := 0, 1, false
	var last Plan
	for range maxRounds {
		last = Decide(m.snapshot, m.now)
		if n := record(index, last, batch+1); n > 0 {
			batch, size = batch+1, n
		}
		if settled = !m.apply(&last); settled {
			break
		}
	}
	if !settled {
		extrapolate(index, last, batch, size)
	}
	for _, h := range last.Held {
		if p := index[h.Pod]; p != nil && p.Action == PodKeep {
			p.Held, p.HeldBy = h.Detail, h.Why
			if h.Why == HeldInPlaceOnly {
				p.Action = PodBlocked
			}
		}
	}
	return out
}

// way is how a Pod gets to the update revision.
func (d *decider) way(v *view) (PodAction, []inplace.Reason) {
	policy := Policy(d.s.Set)
	if policy == v1beta1.RecreatePodUpdatePolicyType {
		return PodRecreate, nil
	}
	c := d.compare(v, d.s.Update.Name)
	switch {
	case c.InPlace != nil:
		return PodInPlace, nil
	case policy == v1beta1.InPlaceOnlyPodUpdatePolicyType:
		return PodBlocked, c.Recreate
	}
	return PodRecreate, c.Recreate
}

// extrapolate lets the Pods that wait for maxUnavailable follow, size at a time, in the
// order in which they wait.
func extrapolate(index map[string]*PodPreview, last Plan, batch, size int) {
	waiting := 0
	for _, h := range last.Held {
		p := index[h.Pod]
		if p == nil || p.Batch > 0 || h.Why != HeldMaxUnavailable && h.Why != HeldScaleFirst || p.Way == PodBlocked {
			continue
		}
		p.Action, p.Batch = p.Way, batch+1+waiting/size
		waiting++
	}
}

// record notes what the plan does to Pods for the first time, and returns to how many.
func record(index map[string]*PodPreview, plan Plan, batch int) (n int) {
	note := func(pod string, action PodAction) {
		if p := index[pod]; p != nil && p.Batch == 0 {
			p.Action, p.Batch = action, batch
			n++
		}
	}
	for _, s := range plan.Update {
		switch s.Do {
		case Mark:
			note(s.Pod, PodRecreate)
		default:
			note(s.Pod, PodInPlace)
		}
	}
	for _, s := range plan.Scale {
		if s.Why != ReasonScaleInReverted {
			note(s.Pod, PodDelete)
		}
	}
	return n
}

// model is a cluster in which everything succeeds. Pods are copied before they change.
type model struct {
	snapshot Snapshot
	now      time.Time
	round    time.Duration
	created  int
	// trusted are Pods that become ready because the model itself brought them forward.
	trusted map[string]bool
}

func newModel(s *Snapshot, now time.Time) *model {
	m := &model{snapshot: *s, now: now, trusted: map[string]bool{}}
	m.round = time.Duration(s.Set.Spec.MinReadySeconds)*time.Second + time.Second
	m.snapshot.Set = s.Set.DeepCopy()
	m.snapshot.Inactive, m.snapshot.Claims = nil, nil
	m.snapshot.Pods = append([]*corev1.Pod(nil), s.Pods...)
	for _, p := range s.Pods {
		if revision.SameRevision(p.Labels["controller-revision-hash"], s.Update.Name) {
			m.trusted[p.Name] = true
		}
	}
	m.settle()
	return m
}

// apply carries the plan out and lets time pass; false when there was nothing to do.
func (m *model) apply(plan *Plan) bool {
	if plan.Idle() {
		return false
	}
	byName := map[string]int{}
	for i, p := range m.snapshot.Pods {
		byName[p.Name] = i
	}
	gone := map[string]bool{}
	for _, s := range append(append(append([]Step(nil), plan.Refresh...), plan.Scale...), plan.Update...) {
		i, ok := byName[s.Pod]
		if !ok {
			continue
		}
		if s.Do == Delete {
			gone[s.Pod] = true
			continue
		}
		pod := m.snapshot.Pods[i].DeepCopy()
		m.do(pod, s)
		m.snapshot.Pods[i] = pod
	}
	kept := m.snapshot.Pods[:0:0]
	for _, p := range m.snapshot.Pods {
		if !gone[p.Name] {
			kept = append(kept, p)
		}
	}
	m.snapshot.Pods = kept
	for i := range plan.Create.Total() {
		name := m.snapshot.Update.Name
		if i < plan.Create.Current {
			name = m.snapshot.Current.Name
		}
		m.create(name)
	}
	m.snapshot.Set.Spec.ScaleStrategy.PodsToDelete = nil
	m.settle()
	m.now = m.now.Add(m.round)
	status := Status(m.snapshot, m.now)
	m.snapshot.Set.Status = status
	if status.CurrentRevision == m.snapshot.Update.Name {
		m.snapshot.Current = m.snapshot.Update
	}
	return true
}

func (m *model) do(pod *corev1.Pod, s Step) {
	if s.Transition.Rule != "" {
		s.Transition.Apply(pod, m.now)
	}
	switch s.Do {
	case Mark:
		setLabel(pod, v1beta1.SpecifiedDeleteLabel, "true")
	case UpdateInPlace:
		SetRevision(pod, s.Target, m.snapshot.Gates.ShortHash)
		m.trusted[pod.Name] = true
	}
	if s.Why == ReasonTemplateHash {
		setLabel(pod, v1beta1.PodTemplateHashLabel, shortHash(pod.Labels["controller-revision-hash"]))
	}
}

func setLabel(pod *corev1.Pod, key, value string) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[key] = value
}

func (m *model) create(revisionName string) {
	m.created++
	pod := &corev1.Pod{}
	pod.Name = fmt.Sprintf("+new-%04d", m.created)
	pod.Labels = map[string]string{}
	for k, v := range m.snapshot.Set.Spec.Template.Labels {
		pod.Labels[k] = v
	}
	SetRevision(pod, revisionName, m.snapshot.Gates.ShortHash)
	pod.Spec.NodeName = "node"
	m.trusted[pod.Name] = true
	m.snapshot.Pods = append(m.snapshot.Pods, pod)
}

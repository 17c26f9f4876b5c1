// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

// PodAction is what a rollout does to one Pod.
type PodAction string

// The actions of a preview.
const (
	// PodInPlace: the Pod is updated in place and keeps its name, address and volumes.
	PodInPlace PodAction = "InPlace"
	// PodRecreate: the Pod is deleted and replaced on its node.
	PodRecreate PodAction = "Recreate"
	// PodKeep: the Pod stays as it is; Held says why when it is not at the update revision.
	PodKeep PodAction = "Keep"
	// PodDelete: the Pod goes and its node gets none.
	PodDelete PodAction = "Delete"
	// PodCreate: the node has no Pod now and gets one.
	PodCreate PodAction = "Create"
)

// PodPreview is what a rollout will do to one Pod that exists now, or to one node without.
type PodPreview struct {
	// Pod is empty for a node that has none.
	Pod    string    `json:"pod,omitempty"`
	Node   string    `json:"node"`
	Action PodAction `json:"action"`
	// Way is what an update of the Pod is, or would be if it were not kept: InPlace or
	// Recreate; empty for a Pod that is at the update revision.
	Way PodAction `json:"way,omitempty"`
	// Batch is 1 for what is changed first, and so on; 0 for what is not changed.
	Batch int `json:"batch,omitempty"`
	// Reasons are the fields that forbid an in-place update.
	Reasons []inplace.Reason `json:"reasons,omitempty"`
	// Held is why the Pod is kept, or the node gets none: one sentence.
	Held string `json:"held,omitempty"`
	// HeldBy is the stable form of Held.
	HeldBy Reason `json:"heldBy,omitempty"`
}

// The simulation ends after maxRounds, of large clusters after fewer, so that it takes a
// second at most; the batches of what is left then are extrapolated.
const (
	maxRounds  = 200
	fewRounds  = 10
	maxLookups = 50_000 // rounds times nodes
)

// Preview runs the whole rollout of s over a model in which every step succeeds at once:
// Pods become ready, hooks let go. It returns one entry per Pod of s that does not
// terminate and per node that should have a Pod and has none, by node, then by name. A Pod
// that is not ready now stays so until it is updated.
func Preview(s Snapshot, now time.Time) []PodPreview {
	d := newDecider(&s, now)
	out := previewed{pods: map[string]*PodPreview{}, nodes: map[string]*PodPreview{}}
	for _, p := range d.places {
		out.place(d, p)
	}
	m := newModel(&s, now)
	batch, size, settled := 0, 1, false
	var last Plan
	for range max(fewRounds, min(maxRounds, maxLookups/(len(s.Nodes)+1))) {
		last = Decide(m.snapshot, m.now)
		if n := out.record(m, &last, batch+1); n > 0 {
			batch, size = batch+1, n
		}
		if settled = !m.apply(&last); settled {
			break
		}
	}
	if !settled {
		out.extrapolate(&last, batch, size)
	}
	for _, h := range last.Held {
		if p := out.of(h); p != nil && p.Batch == 0 {
			p.Held, p.HeldBy = h.Detail, h.Why
		}
	}
	return out.list()
}

// previewed collects the entries by Pod, and by node for nodes without one.
type previewed struct{ pods, nodes map[string]*PodPreview }

func (o previewed) place(d *decider, p *place) {
	if p.run && len(p.pods) == 0 {
		o.nodes[p.name] = &PodPreview{Node: p.name, Action: PodKeep}
	}
	for _, v := range p.pods {
		if v.terminating {
			continue
		}
		e := &PodPreview{Pod: v.pod.Name, Node: p.name, Action: PodKeep}
		if !v.isNew {
			e.Way = PodRecreate
			if InPlace(d.s.Set) {
				if c := d.compare(v); c.InPlace != nil {
					e.Way = PodInPlace
				} else {
					e.Reasons = c.Recreate
				}
			}
		}
		o.pods[v.pod.Name] = e
	}
}

func (o previewed) of(s Step) *PodPreview {
	if s.Pod != "" {
		return o.pods[s.Pod]
	}
	return o.nodes[s.Node]
}

// record notes what the plan does for the first time, and returns to how many.
func (o previewed) record(m *model, plan *Plan, batch int) (n int) {
	note := func(e *PodPreview, action PodAction) {
		if e != nil && e.Batch == 0 {
			e.Action, e.Batch = action, batch
			n++
		}
	}
	for _, s := range plan.Update {
		note(o.pods[s.Pod], PodInPlace)
	}
	for _, s := range plan.Delete {
		switch s.Why {
		case ReasonMisplaced, ReasonNodeGone, ReasonSurplus:
			note(o.pods[s.Pod], PodDelete)
		default:
			note(o.pods[s.Pod], PodRecreate)
		}
	}
	for _, s := range plan.Create {
		note(o.nodes[s.Node], PodCreate)
		if s.Why != ReasonSurge {
			continue
		}
		for _, p := range m.snapshot.Pods { // the old Pod's update begins with its follower
			if TargetNode(p) == s.Node {
				note(o.pods[p.Name], PodRecreate)
			}
		}
	}
	return n
}

// extrapolate lets the Pods that wait for a limit follow, size at a time, in the order in
// which they wait.
func (o previewed) extrapolate(last *Plan, batch, size int) {
	waiting := 0
	for _, h := range last.Held {
		e := o.of(h)
		if e == nil || e.Batch > 0 {
			continue
		}
		switch h.Why {
		case HeldMaxUnavailable, HeldMaxSurge, HeldManageFirst, HeldBurst:
			e.Action, e.Batch = cmp.Or(e.Way, PodCreate), batch+1+waiting/size
			waiting++
		}
	}
}

func (o previewed) list() []PodPreview {
	var out []PodPreview
	for _, e := range slices.Concat(slices.Collect(maps.Values(o.pods)), slices.Collect(maps.Values(o.nodes))) {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b PodPreview) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// model is a cluster in which everything succeeds. Pods are copied before they change.
type model struct {
	snapshot Snapshot
	now      time.Time
	round    time.Duration
	created  int
	// trusted are Pods that become ready because they are at the update revision.
	trusted map[string]bool
}

func newModel(s *Snapshot, now time.Time) *model {
	m := &model{snapshot: *s, now: now, trusted: map[string]bool{}}
	m.round = time.Duration(s.Set.Spec.MinReadySeconds)*time.Second + time.Second
	m.snapshot.Backoffs = nil
	m.snapshot.Pods = nil
	for _, place := range s.places(now) {
		for _, v := range place.pods {
			if !v.terminating {
				m.snapshot.Pods = append(m.snapshot.Pods, v.pod)
				m.trusted[v.pod.Name] = v.isNew && !v.over
			}
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
	steps := map[string]Step{}
	for _, s := range slices.Concat(plan.Refresh, plan.Update, plan.Delete) {
		steps[s.Pod] = s
	}
	var pods []*corev1.Pod
	for _, p := range m.snapshot.Pods {
		switch s := steps[p.Name]; s.Do {
		case Delete, Move: // hooks let go
			continue
		case UpdateInPlace:
			p = p.DeepCopy()
			SetHash(p, m.snapshot.Hash())
			m.trusted[p.Name] = true
		}
		pods = append(pods, p)
	}
	for _, s := range plan.Create {
		pods = append(pods, m.create(s.Node))
	}
	m.snapshot.Pods = pods
	m.settle()
	m.now = m.now.Add(m.round)
	return true
}

func (m *model) create(node string) *corev1.Pod {
	m.created++
	pod := &corev1.Pod{}
	pod.Name = fmt.Sprintf("+new-%04d", m.created)
	pod.Labels = maps.Clone(m.snapshot.Set.Spec.Template.Labels)
	SetHash(pod, m.snapshot.Hash())
	pod.Spec.NodeName = node
	m.trusted[pod.Name] = true
	return pod
}

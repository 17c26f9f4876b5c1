// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/property"
)

// TestJobsEnd plays jobs on simulated nodes: nodes answer in any order, succeed or fail,
// come and go; another job may take the same task; tasks may expire. At every step no more
// nodes pull than allowed and the counts add up; in the end every node is through.
func TestJobsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "parallelism")
		job := newJob().parallelism(limit)
		snap := snapshot(job)
		options := taskOptions{Jitter: func(int32) int32 { return 0 }}
		nodes := rapid.IntRange(0, 8).Draw(t, "nodes")
		for i := range nodes {
			snap.Nodes = append(snap.Nodes, newNode(fmt.Sprintf("node%d", i)).obj)
		}
		now := t0
		disturbances := rapid.IntRange(0, 5).Draw(t, "disturbances")
		for range 200 {
			now = now.Add(time.Second)
			plan := Decide(snap, now)
			checkCounts(t, snap, plan, limit)
			if plan.Status.CompletionTime != nil {
				if left := unfinished(snap); len(left) > 0 {
					t.Fatalf("complete while %v are not through", left)
				}
				return
			}
			snap.Job.Status = plan.Status
			for _, name := range plan.Assign {
				i := slices.IndexFunc(snap.Nodes, func(n *v1beta1.NodeImage) bool { return n.Name == name })
				changed := snap.Nodes[i].DeepCopy()
				assign(changed, snap, options, now)
				snap.Nodes[i] = changed
			}
			if pulling := len(count(snap).pulling); pulling > limit {
				t.Fatalf("%d nodes pull, %d allowed", pulling, limit)
			}
			if disturbances > 0 && rapid.Bool().Draw(t, "disturb") {
				disturbances--
				disturb(t, &snap, fmt.Sprintf("late%d", disturbances))
				if len(count(snap).pulling) > limit {
					return // another job restarted nodes that were through: nobody's limit
				}
			}
			answer(t, snap)
		}
		t.Fatal("the job does not end")
	})
}

func checkCounts(t *rapid.T, snap Snapshot, plan Plan, limit int) {
	s := plan.Status
	if int(s.Desired) != len(snap.Nodes) || s.Active+s.Succeeded+s.Failed > s.Desired || s.Active < 0 {
		t.Fatalf("counts do not add up for %d nodes: %+v", len(snap.Nodes), s)
	}
	if len(s.FailedNodes) != int(s.Failed) {
		t.Fatalf("%d failed, but names are %v", s.Failed, s.FailedNodes)
	}
	if s.CompletionTime == nil && s.Active == 0 && len(plan.Assign) == 0 && limit > 0 {
		t.Fatalf("nothing happens and nothing will: %+v", plan)
	}
	if again := Decide(snap, s.StartTime.Time); !slices.Equal(again.Assign, plan.Assign) {
		t.Fatalf("the same snapshot gives other nodes: %v, %v", again.Assign, plan.Assign)
	}
}

func unfinished(snap Snapshot) []string {
	c := count(snap)
	return slices.Concat(c.pulling, c.unassigned)
}

// disturb does what others do meanwhile; late is the name of a node that joins.
func disturb(t *rapid.T, snap *Snapshot, late string) {
	if len(snap.Nodes) == 0 {
		snap.Nodes = append(snap.Nodes, newNode(late).obj)
		return
	}
	i := rapid.IntRange(0, len(snap.Nodes)-1).Draw(t, "node")
	changed := snap.Nodes[i].DeepCopy()
	switch rapid.SampledFrom([]string{"leave", "join", "expire", "bump"}).Draw(t, "what") {
	case "leave":
		snap.Nodes = slices.Delete(slices.Clone(snap.Nodes), i, i+1)
		return
	case "join":
		snap.Nodes = append(slices.Clone(snap.Nodes), newNode(late).obj)
		return
	case "expire":
		changed.Spec.Images = nil
	case "bump":
		if tag := findTag(changed.Spec.Images["nginx"].Tags, "1"); tag != nil {
			tag.Version++
			tag.OwnerReferences = append(tag.OwnerReferences, corev1.ObjectReference{UID: "other"})
		}
	}
	snap.Nodes[i] = changed
}

// answer lets some nodes report; one of those that pull always does.
func answer(t *rapid.T, snap Snapshot) {
	pulling := count(snap).pulling
	for i, name := range pulling {
		if i > 0 && rapid.Bool().Draw(t, "slow") {
			continue
		}
		n := slices.IndexFunc(snap.Nodes, func(n *v1beta1.NodeImage) bool { return n.Name == name })
		changed := snap.Nodes[n].DeepCopy()
		phase := rapid.SampledFrom([]v1beta1.ImagePullPhase{v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed}).Draw(t, "phase")
		changed.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{{
			Tag: "1", Phase: phase, Version: changed.Spec.Images["nginx"].Tags[0].Version, CompletionTime: &metav1.Time{Time: t0},
		}}}}
		snap.Nodes[n] = changed
	}
}

// TestWhatChangesAPlanWakesTheJob: a change of a NodeImage after which the job would do or
// say something else must not pass unnoticed, or the job stands still.
func TestWhatChangesAPlanWakesTheJob(t *testing.T) {
	property.Many(t, 2000, func(t *rapid.T) {
		job := newJob().parallelism(3).with(func(j *v1beta1.ImagePullJob) {
			j.Spec.Selector = rapid.SampledFrom([]*v1beta1.ImagePullJobNodeSelector{
				nil, {}, {Names: []string{"a"}}, {Names: []string{}}, {Names: []string{"b"}},
				{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"zone": "east"}}},
				{LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}}},
			}).Draw(t, "selector")
		})
		plan := func(n *v1beta1.NodeImage) Plan {
			m, err := newMatcher(job.obj)
			if err != nil {
				t.Fatal(err)
			}
			s := snapshot(job)
			s.Secrets = []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}
			if m.node(n) {
				s.Nodes = append(s.Nodes, n)
			}
			return Decide(s, t0)
		}
		before, after := drawNode(t, "before"), drawNode(t, "after")
		if equality.Semantic.DeepEqual(plan(before), plan(after)) {
			return
		}
		if wakes := change(before, after); wakes == nil || !wakes(job.obj) {
			t.Fatalf("the plan changes from %+v to %+v and the job sleeps", plan(before), plan(after))
		}
	})
}

// drawNode draws a NodeImage called a, with or without the task of the job.
func drawNode(t *rapid.T, label string) *v1beta1.NodeImage {
	n := newNode("a")
	if rapid.Bool().Draw(t, label+" has the task") {
		n = n.task(rapid.Int64Range(0, 1).Draw(t, label+" version"), rapid.SampledFrom([][]string{{"job"}, {"other"}, {"other", "job"}, {}}).Draw(t, label+" owners")...)
		if rapid.Bool().Draw(t, label+" secret") {
			n = n.secret()
		}
		if rapid.Bool().Draw(t, label+" reports") {
			n = n.reports(rapid.SampledFrom([]v1beta1.ImagePullPhase{v1beta1.ImagePhasePulling, v1beta1.ImagePhaseFailed, v1beta1.ImagePhaseSucceeded}).Draw(t, label+" phase"), 0).
				says(rapid.SampledFrom([]string{"", "denied"}).Draw(t, label+" message"))
		}
	}
	return n.with(func(n *v1beta1.NodeImage) {
		if rapid.Bool().Draw(t, label+" zone") {
			n.Labels = map[string]string{"zone": "east"}
		}
		if n.Spec.Images == nil {
			n.Spec.Images = map[string]v1beta1.ImageSpec{}
		}
		for i := range rapid.SampledFrom([]int{0, 1, 255, 256}).Draw(t, label+" other images") {
			n.Spec.Images[fmt.Sprintf("image%d", i)] = v1beta1.ImageSpec{}
		}
	}).obj
}

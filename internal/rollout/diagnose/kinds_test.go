// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func wrapped(t *testing.T, k *target.Kind, set any, stored []*appsv1.ControllerRevision, pods []*corev1.Pod) Snapshot {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(k.Kind))
	w, err := adapter.Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
	if err != nil {
		t.Fatal(err)
	}
	s := Snapshot{Workload: w, Pods: pods, Stored: stored, Gates: DefaultGates()}
	if s.Facts, err = w.Facts(); err != nil {
		t.Fatal(err)
	}
	return s
}

// db is a StatefulSet of four in the middle of an update: updated Pods have the highest
// ordinals.
func db(t *testing.T, updated int, change ...func(fixture.StatefulSetBuilder) fixture.StatefulSetBuilder) Snapshot {
	t.Helper()
	build := func(image string) fixture.StatefulSetBuilder {
		b := fixture.StatefulSet("db").Replicas(4).Image(image).Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
		for _, c := range change {
			b = c(b)
		}
		return b
	}
	old, next := fixture.StatefulSetRevision(build("db:1"), 1), fixture.StatefulSetRevision(build("db:2"), 2)
	set, n := build("db:2").Obj(), int32(updated)
	set.Status = v1beta1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 4, ReadyReplicas: 4, AvailableReplicas: 4,
		UpdatedReplicas: n, UpdatedReadyReplicas: n, UpdatedAvailableReplicas: n, CurrentRevision: old.Name, UpdateRevision: next.Name}
	var pods []*corev1.Pod
	for i := range 4 {
		b, r := build("db:1"), old
		if i >= 4-updated {
			b, r = build("db:2"), next
		}
		pods = append(pods, fixture.PodOfStatefulSet(b, i).At(r).Node("node").Created(noon.Add(-time.Hour)).Ready(noon.Add(-time.Minute)).Obj())
	}
	s := wrapped(t, target.StatefulSet, set, []*appsv1.ControllerRevision{old, next}, pods)
	Refine(&s)
	return s
}

// agent is a DaemonSet on four nodes of which the first does not tolerate it; updated Pods
// are on the last ones.
func agent(t *testing.T, updated int, change ...func(fixture.DaemonSetBuilder) fixture.DaemonSetBuilder) Snapshot {
	t.Helper()
	build := func(image string) fixture.DaemonSetBuilder {
		b := fixture.DaemonSet("agent").Image(image)
		for _, c := range change {
			b = c(b)
		}
		return b
	}
	old, next := fixture.DaemonSetRevision(build("agent:1"), 1), fixture.DaemonSetRevision(build("agent:2"), 2)
	old.CreationTimestamp, next.CreationTimestamp = metav1.NewTime(noon.Add(-2*time.Hour)), metav1.NewTime(noon.Add(-time.Hour))
	set := build("agent:2").Obj()
	set.Status = v1beta1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, NumberReady: 3, NumberAvailable: 3,
		UpdatedNumberScheduled: int32(updated), UpdateRevision: revision.ShortHash(next.Name)}
	nodes := map[string]*corev1.Node{}
	var pods []*corev1.Pod
	for i := range 4 {
		name := fmt.Sprintf("node-%d", i)
		node := fixture.Node(name).Label("zone", string(rune('a'+i%2)))
		if i == 0 {
			nodes[name] = node.Taint("dedicated", corev1.TaintEffectNoSchedule).Obj()
			continue
		}
		nodes[name] = node.Obj()
		b, r := build("agent:1"), old
		if i >= 4-updated {
			b, r = build("agent:2"), next
		}
		pods = append(pods, fixture.PodOfDaemonSet(b, name).At(r).Created(noon.Add(-time.Hour)).Ready(noon.Add(-time.Minute)).Obj())
	}
	s := wrapped(t, target.DaemonSet, set, []*appsv1.ControllerRevision{old, next}, pods)
	s.Nodes, s.AllNodes = nodes, true
	Refine(&s)
	return s
}

func cannotStart(p *corev1.Pod, reason string) {
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

func TestFindingsOfBothKinds(t *testing.T) {
	type sts = fixture.StatefulSetBuilder
	type ds = fixture.DaemonSetBuilder
	cases := map[string]struct {
		snapshot Snapshot
		want     string // code, severity and part of the message
	}{
		"a StatefulSet in order is stuck behind a broken old Pod": {func() Snapshot {
			s := db(t, 1)
			cannotStart(s.Pods[0], "CrashLoopBackOff")
			return s
		}(), "W17 Blocker pod db-0 is at an older revision and cannot run"},
		"a StatefulSet that may skip a broken Pod is not stuck": {func() Snapshot {
			s := db(t, 1, sts.Parallel)
			cannotStart(s.Pods[0], "CrashLoopBackOff")
			return s
		}(), "!W17"},
		"reserved ordinals explain the names": {db(t, 4, func(b sts) sts { return b.Reserve("1") }), "W18 Note its 4 pods are db-0 to db-4"},
		"plain ordinals need no explanation":  {db(t, 4), "!W18"},
		"a partition is named":                {db(t, 2, func(b sts) sts { return b.Partition(2) }), "W03 Note partition 2 keeps 2 of 4 pods"},
		"recreation that the policy forbids": {func() Snapshot {
			s := db(t, 1, func(b sts) sts { return b.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType) })
			s.Stored[0] = fixture.StatefulSetRevision(fixture.StatefulSet("db").Replicas(4).Image("db:1").Env("A", "1"), 1)
			s.Stored[0].Name = s.Facts.CurrentRevision
			return s
		}(), "W07 Blocker recreation, which podUpdatePolicy InPlaceOnly forbids"},
		"nodes that take no Pod are counted":  {agent(t, 3), "W20 Note 1 of 4 nodes take no pod: node selector, affinity or a taint that is not tolerated: node-0"},
		"a partition of a DaemonSet is named": {agent(t, 1, func(b ds) ds { return b.Partition("50%") }), "W03 Note partition 50% keeps 1 of 3 pods"},
		"a selector on nodes is named":        {agent(t, 1, func(b ds) ds { return b.OnNodes("zone", "b") }), "W03 Note node selector zone=b keeps 1 of 3 pods"},
		"nodes that wait for their Pod are listed": {func() Snapshot {
			s := agent(t, 1, ds.PartitionedScaling, func(b ds) ds { return b.Partition("3") })
			s.Pods = s.Pods[2:]
			return s
		}(), "W20 Cause nodes without a pod that wait (PartitionedScaling): node-1, node-2"},
		"a Pod for a node that is gone": {func() Snapshot {
			s := agent(t, 3)
			delete(s.Nodes, "node-3")
			return s
		}(), "W20 Cause 1 pod bound for nodes that do not exist"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, f := range Workload(tc.snapshot, noon).Findings {
				lines = append(lines, fmt.Sprintf("%s %s %s", f.Code, f.Severity, f.Message))
			}
			all := strings.Join(lines, "\n")
			if code, none := strings.CutPrefix(tc.want, "!"); none && strings.Contains(all, code) || !none && !strings.Contains(all, tc.want) {
				t.Errorf("findings are\n%s\nwant %s", all, tc.want)
			}
		})
	}
}

// The rules that hold Pods are those of the planners, by name.
func TestPodsSayWhatHoldsThem(t *testing.T) {
	cases := map[string]struct {
		snapshot Snapshot
		pod      int
		want     string
	}{
		"the partition of a StatefulSet":  {db(t, 1, func(b fixture.StatefulSetBuilder) fixture.StatefulSetBuilder { return b.Partition(3) }), 0, "Partition"},
		"a paused StatefulSet":            {db(t, 1, fixture.StatefulSetBuilder.Paused), 0, "Paused"},
		"the order of a StatefulSet":      {db(t, 1), 0, "OrderedReady"},
		"maxUnavailable of a StatefulSet": {db(t, 1, fixture.StatefulSetBuilder.Parallel), 0, "MaxUnavailable"},
		"the partition of a DaemonSet":    {agent(t, 1, func(b fixture.DaemonSetBuilder) fixture.DaemonSetBuilder { return b.Partition("2") }), 0, "Partition"},
		"the selector of a DaemonSet":     {agent(t, 1, func(b fixture.DaemonSetBuilder) fixture.DaemonSetBuilder { return b.OnNodes("zone", "a") }), 0, "Selector"},
		"a DaemonSet that waits by hand":  {agent(t, 1, fixture.DaemonSetBuilder.OnDelete), 0, "OnDelete"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := Pod(tc.snapshot, tc.snapshot.Pods[tc.pod], noon)
			if len(r.Findings) == 0 || r.Findings[0].Code != "P02" || r.Findings[0].Evidence["held"] != tc.want {
				t.Errorf("findings are %+v, want P02 held by %s", r.Findings, tc.want)
			}
		})
	}
}

func TestADaemonSetThatWasTakenBackIsHeldByItsPartition(t *testing.T) {
	partition := func(b fixture.DaemonSetBuilder) fixture.DaemonSetBuilder { return b.Partition("2") }
	s := agent(t, 1, partition)
	if got := verdict.Of(s.Facts); got.Verdict != verdict.PartitionReached {
		t.Fatalf("a canary is %s: %s", got.Verdict, got.Message)
	}
	// The template of the older revision was put back: it has the update role now, and the
	// Pods that are held are at the one that came after it.
	s = agent(t, 1, partition)
	s.Stored[1].CreationTimestamp = metav1.NewTime(noon.Add(-3 * time.Hour))
	Refine(&s)
	if got := verdict.Of(s.Facts); got.Verdict != verdict.Blocked || got.Reason != verdict.ReasonPartitionHoldsRollback {
		t.Errorf("a canary that was taken back is %s (%s): %s", got.Verdict, got.Reason, got.Message)
	}
}

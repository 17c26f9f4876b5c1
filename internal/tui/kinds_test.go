// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	hashes "github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// snapshot is what fetch would have read of set and its surroundings.
func snapshot(t *testing.T, k *target.Kind, set any, stored []*appsv1.ControllerRevision, pods []*corev1.Pod) diagnose.Snapshot {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(k.Kind))
	w, err := adapter.Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
	require.NoError(t, err)
	s := diagnose.Snapshot{Workload: w, Pods: pods, Stored: stored, Gates: diagnose.DefaultGates()}
	s.Facts, err = w.Facts()
	require.NoError(t, err)
	return s
}

func made(r *appsv1.ControllerRevision, before time.Duration) *appsv1.ControllerRevision {
	r.CreationTimestamp = metav1.NewTime(ago(before))
	return r
}

// kafka is a StatefulSet of twelve with reserved ordinal 3, in the middle of an update: the
// highest two are updated, the next one is under way, and the lowest is not there.
func kafka(t *testing.T) view.Rollout {
	t.Helper()
	build := func(image string) fixture.StatefulSetBuilder {
		return fixture.StatefulSet("kafka").Namespace("data").Replicas(12).Parallel().Reserve("3").Image(image).
			Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).MaxUnavailable("2").Partition(4)
	}
	old, update := made(fixture.StatefulSetRevision(build("kafka:3.7.0"), 1), 200*time.Hour), made(fixture.StatefulSetRevision(build("kafka:3.7.1"), 2), 5*time.Minute)
	set := build("kafka:3.7.1").Obj()
	set.Status = v1beta1.StatefulSetStatus{
		ObservedGeneration: 1, Replicas: 11, ReadyReplicas: 10, AvailableReplicas: 10, UpdatedReplicas: 3, UpdatedReadyReplicas: 2, UpdatedAvailableReplicas: 2,
		CurrentRevision: old.Name, UpdateRevision: update.Name,
	}
	var pods []*corev1.Pod
	for _, n := range []int{1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12} {
		b, rev, since := build("kafka:3.7.0"), old, 200*time.Hour
		if n > 9 {
			b, rev, since = build("kafka:3.7.1"), update, time.Duration(13-n)*time.Minute
		}
		p := fixture.PodOfStatefulSet(b, n).At(rev).Node(fmt.Sprintf("worker-%d", n%5+1)).Created(ago(210 * time.Hour)).Ready(ago(since))
		if n == 10 {
			p = p.NotReady(ago(20 * time.Second))
		}
		pods = append(pods, p.Obj())
	}
	s := snapshot(t, target.StatefulSet, set, []*appsv1.ControllerRevision{old, update}, pods)
	diagnose.Refine(&s)
	return view.Of(s, "prod-eu", t0)
}

// agent is a DaemonSet that is updated on the nodes of one zone; one node is new and has no
// Pod, another one takes none.
func agent(t *testing.T) view.Rollout {
	t.Helper()
	build := func(image string) fixture.DaemonSetBuilder {
		return fixture.DaemonSet("agent").Namespace("infra").Image(image).InPlace().MaxUnavailable("1").OnNodes("zone", "a")
	}
	old, update := made(fixture.DaemonSetRevision(build("agent:1.8"), 1), 200*time.Hour), made(fixture.DaemonSetRevision(build("agent:1.9"), 2), 5*time.Minute)
	set := build("agent:1.9").Obj()
	set.Status = v1beta1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: 7, CurrentNumberScheduled: 6, NumberReady: 6, NumberAvailable: 6, NumberUnavailable: 1,
		UpdatedNumberScheduled: 1, UpdateRevision: hashes.ShortHash(update.Name),
	}
	var pods []*corev1.Pod
	nodes := map[string]*corev1.Node{}
	for n := range 8 {
		name := fmt.Sprintf("node-%d", n)
		node := fixture.Node(name).Label("zone", string(rune('a'+n%2)))
		if n == 7 {
			node = node.Taint("dedicated", corev1.TaintEffectNoSchedule)
		}
		nodes[name] = node.Obj()
		if n >= 6 {
			continue
		}
		b, rev, since := build("agent:1.8"), old, 200*time.Hour
		if n == 4 {
			b, rev, since = build("agent:1.9"), update, 40*time.Second
		}
		pods = append(pods, fixture.PodOfDaemonSet(b, name).At(rev).Created(ago(210*time.Hour)).Ready(ago(since)).Obj())
	}
	s := snapshot(t, target.DaemonSet, set, []*appsv1.ControllerRevision{old, update}, pods)
	s.Nodes, s.AllNodes = nodes, true
	diagnose.Refine(&s)
	return view.Of(s, "prod-eu", t0)
}

func TestGoldenFramesOfOtherKinds(t *testing.T) {
	for name, build := range map[string]func(*testing.T) view.Rollout{"statefulset": kafka, "daemonset": agent} {
		for _, size := range []Size{{80, 24}, {100, 30}, {40, 10}} {
			file := fmt.Sprintf("%s-%dx%d-ascii.golden", name, size.Width, size.Height)
			t.Run(file, func(t *testing.T) { compareGolden(t, file, model(build(t), NewTheme(true, false), size).View(), size) })
		}
	}
}

// A node without a Pod cannot be asked about: its row leads to the workload.
func TestWhyOnAMissingPodAsksAboutTheWorkload(t *testing.T) {
	m := model(agent(t), NewTheme(true, false), Size{100, 30})
	require.Equal(t, view.GroupMissing, m.rollout.Pods[0].Group)
	_, cmd := rolloutScreen{}.Update(keyMsg("w"), scene{keys: m.keys, rollout: m.rollout})
	require.Equal(t, openWhyMsg{}, cmd())
}

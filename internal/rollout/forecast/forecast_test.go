// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func snapshot(t *testing.T, k *target.Kind, set any, stored *appsv1.ControllerRevision, pods []*corev1.Pod) diagnose.Snapshot {
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
	s := diagnose.Snapshot{Workload: w, Pods: pods, Stored: []*appsv1.ControllerRevision{stored}, Gates: diagnose.DefaultGates()}
	if s.Facts, err = w.Facts(); err != nil {
		t.Fatal(err)
	}
	return s
}

const inPlaceIfPossible = v1beta1.InPlaceIfPossiblePodUpdatePolicyType

// settled are workloads of six Pods of each kind, all at one revision and ready.
func settled(t *testing.T) map[string]diagnose.Snapshot {
	t.Helper()
	ready := func(b fixture.PodBuilder) *corev1.Pod {
		return b.Created(noon.Add(-time.Hour)).Ready(noon.Add(-time.Minute)).Obj()
	}
	clone := fixture.CloneSet("web").Replicas(6).Policy(inPlaceIfPossible).MaxUnavailable("2")
	sts := fixture.StatefulSet("db").Replicas(6).Policy(inPlaceIfPossible).MaxUnavailable("2").Parallel()
	ads := fixture.DaemonSet("agent").InPlace().MaxUnavailable("2")
	cr, sr, dr := fixture.Revision(clone, 1), fixture.StatefulSetRevision(sts, 1), fixture.DaemonSetRevision(ads, 1)
	var cp, sp, dp []*corev1.Pod
	nodes := map[string]*corev1.Node{}
	for i := range 6 {
		node := fmt.Sprintf("node-%d", i)
		nodes[node] = fixture.Node(node).Obj()
		cp = append(cp, ready(fixture.PodOf(clone, fmt.Sprintf("web-%c", 'a'+i)).At(cr).Node(node)))
		sp = append(sp, ready(fixture.PodOfStatefulSet(sts, i).At(sr).Node(node)))
		dp = append(dp, ready(fixture.PodOfDaemonSet(ads, node).At(dr)))
	}
	web := clone.Obj()
	web.Status = v1beta1.CloneSetStatus{ObservedGeneration: 1, Replicas: 6, ReadyReplicas: 6, AvailableReplicas: 6, UpdatedReplicas: 6, UpdateRevision: cr.Name, CurrentRevision: cr.Name}
	db := sts.Obj()
	db.Status = v1beta1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 6, ReadyReplicas: 6, AvailableReplicas: 6, UpdatedReplicas: 6, UpdateRevision: sr.Name, CurrentRevision: sr.Name}
	agent := ads.Obj()
	agent.Status = v1beta1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 6, CurrentNumberScheduled: 6, NumberReady: 6, NumberAvailable: 6,
		UpdatedNumberScheduled: 6, UpdateRevision: revision.ShortHash(dr.Name)}
	all := map[string]diagnose.Snapshot{
		"cloneset":    snapshot(t, target.CloneSet, web, cr, cp),
		"statefulset": snapshot(t, target.StatefulSet, db, sr, sp),
	}
	d := snapshot(t, target.DaemonSet, agent, dr, dp)
	d.Nodes, d.AllNodes = nodes, true
	all["daemonset"] = d
	return all
}

func after(t *testing.T, w adapter.Workload, change apply.Change) adapter.Workload {
	t.Helper()
	res, err := apply.Patch(t.Context(), nil, w, apply.Options{DryRun: apply.DryRunClient}, change, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.After
}

func image(name string) apply.Change {
	return apply.SetImages([]apply.Image{{Container: "app", Image: name}}, "")
}

func variable(w adapter.Workload) ([]apply.Op, error) { return apply.SetEnv(w, "A", "1") }

func set(path func(adapter.Fields) adapter.Path, v any, changes ...apply.Change) apply.Change {
	return func(w adapter.Workload) ([]apply.Op, error) {
		all := apply.Set(w, path(w.At), v)
		for _, c := range changes {
			ops, err := c(w)
			if err != nil {
				return nil, err
			}
			all = apply.Join(all, ops)
		}
		return all, nil
	}
}

func partition(f adapter.Fields) adapter.Path { return f.Partition }
func paused(f adapter.Fields) adapter.Path    { return f.Paused }

// What is the same in the rules of the kinds is the same in their forecasts.
func TestForecastsOfAllKindsAgree(t *testing.T) {
	cases := map[string]struct {
		change                        apply.Change
		verdict                       Verdict
		inPlace, recreated, kept, end int
		heldBy                        string
	}{
		"a new image changes all, two at a time": {image("app:2"), InPlace, 6, 0, 0, 3, ""},
		"a variable recreates all":               {variable, Recreate, 0, 6, 0, 3, ""},
		"the same template changes nothing":      {image("app:1"), NoChange, 0, 0, 6, 0, ""},
		"a partition keeps some":                 {set(partition, int64(4), image("app:2")), InPlace, 2, 0, 4, 1, "Partition"},
		"a pause keeps all":                      {set(paused, true, image("app:2")), InPlace, 0, 0, 6, 0, "Paused"},
	}
	for name, tc := range cases {
		for kind, s := range settled(t) {
			t.Run(name+" of a "+kind, func(t *testing.T) {
				f, err := Of(s, after(t, s.Workload, tc.change), false, noon)
				if err != nil {
					t.Fatal(err)
				}
				if f.Verdict != tc.verdict || f.InPlace != tc.inPlace || f.Recreated != tc.recreated || f.Kept != tc.kept || f.LastBatch != tc.end {
					t.Errorf("%s: %d in place, %d recreated, %d kept, %d batches (%s), want %+v", f.Verdict, f.InPlace, f.Recreated, f.Kept, f.LastBatch, f.Message, tc)
				}
				held := map[string]bool{}
				for _, r := range f.Pods {
					if r.Action == keep && r.Way != "" {
						held[r.HeldBy] = true
					}
				}
				if tc.heldBy != "" && (len(held) != 1 || !held[tc.heldBy]) {
					t.Errorf("Pods are held by %v, want %s", slices.Collect(maps.Keys(held)), tc.heldBy)
				}
				rows := 0
				for _, b := range f.AllBatches() {
					if len(b) == 0 || len(b) > 2 {
						t.Errorf("a batch has %d Pods", len(b))
					}
					rows += len(b)
				}
				if rows != f.InPlace+f.Recreated {
					t.Errorf("%d Pods are in batches, %d change", rows, f.InPlace+f.Recreated)
				}
			})
		}
	}
}

// An object of which any part is missing has a forecast or an error, and never a panic;
// every Pod has a row.
func TestForecastIsTotal(t *testing.T) {
	for kind, s := range settled(t) {
		t.Run(kind, func(t *testing.T) {
			next := after(t, s.Workload, image("app:2"))
			rapid.Check(t, func(rt *rapid.T) {
				w := next
				w.Live = next.Live.DeepCopy()
				for range rapid.IntRange(0, 4).Draw(rt, "removals") {
					lose(rt, w.Live.Object)
				}
				f, err := Of(s, w, rapid.Bool().Draw(rt, "local"), noon)
				if err == nil && len(f.Pods) != len(s.Pods) {
					rt.Fatalf("%d rows for %d Pods", len(f.Pods), len(s.Pods))
				}
			})
		})
	}
}

// lose deletes one random field of the spec, at any depth.
func lose(t *rapid.T, m map[string]any) {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return
	}
	k := rapid.SampledFrom(keys).Draw(t, "key")
	if child, ok := m[k].(map[string]any); ok && rapid.Bool().Draw(t, "descend") {
		lose(t, child)
		return
	}
	if k != "apiVersion" && k != "kind" && k != "metadata" && k != "name" { // there is no object without
		delete(m, k)
	}
}

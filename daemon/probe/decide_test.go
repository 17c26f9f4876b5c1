// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func execTask(change func(*v1alpha1.ContainerProbeSpec)) Task {
	task := Task{Key: Key{UID: "u1", Name: "m#a"}, Namespace: "shop", Pod: "web-0", Container: "main"}
	task.Probe.Exec = &corev1.ExecAction{Command: []string{"check"}}
	if change != nil {
		change(&task.Probe)
	}
	return task
}

func running(id string, since time.Duration) Sight {
	return Sight{ID: id, Running: true, Started: t0.Add(-since)}
}

// step is one tick of a probe; a nil result stands for none.
type step struct {
	sight  Sight
	result string // "" is none; else the state, + or -, and a message
}

func (s step) of() *Result {
	switch {
	case s.result == "":
		return nil
	case s.result[0] == '+':
		return &Result{State: v1alpha1.ProbeSucceeded, Message: s.result[1:]}
	}
	return &Result{State: v1alpha1.ProbeFailed, Message: s.result[1:]}
}

func TestTracker(t *testing.T) {
	c1 := running("c1", time.Minute)
	exited := Sight{ID: "c1"}
	thresholds := func(p *v1alpha1.ContainerProbeSpec) { p.SuccessThreshold, p.FailureThreshold = 2, 3 }
	cases := map[string]struct {
		probe func(*v1alpha1.ContainerProbeSpec)
		seed  Stored
		steps []step
		want  []string // what is published: state and message
	}{
		"the first sight of a container is Unknown": {
			steps: []step{{c1, ""}}, want: []string{"Unknown "},
		},
		"each result is published with thresholds of 0": {
			steps: []step{{c1, "+a"}, {c1, "+a"}, {c1, "-b"}},
			want:  []string{"Unknown ", "Succeeded a", "Succeeded a", "Failed b"},
		},
		"results below their threshold change nothing": {
			probe: thresholds,
			steps: []step{{c1, "+"}, {c1, "+1"}, {c1, "-"}, {c1, "-"}, {c1, "+"}, {c1, "-"}, {c1, "-"}, {c1, "-2"}, {c1, "+"}, {c1, "+3"}},
			want:  []string{"Unknown ", "Succeeded 1", "Failed 2", "Succeeded 3"},
		},
		"a result that could not be had leaves the count": {
			probe: thresholds, steps: []step{{c1, "+"}, {c1, ""}, {c1, "+1"}}, want: []string{"Unknown ", "Succeeded 1"},
		},
		"a container that does not run has failed, whatever its threshold": {
			probe: thresholds, steps: []step{{c1, "+"}, {c1, "+"}, {exited, ""}},
			want: []string{"Unknown ", "Succeeded ", "Failed Container(main) is Non-running"},
		},
		"counts start again after the container did not run": {
			probe: thresholds, steps: []step{{c1, "+"}, {exited, ""}, {c1, "+"}, {c1, "+2"}},
			want: []string{"Unknown ", "Failed Container(main) is Non-running", "Succeeded 2"},
		},
		"a new container is Unknown, and counts start again": {
			probe: thresholds, steps: []step{{c1, "+"}, {c1, "+"}, {running("c2", time.Minute), "+"}, {running("c2", time.Minute), "+2"}},
			want: []string{"Unknown ", "Succeeded ", "Unknown ", "Succeeded 2"},
		},
		"a container is not probed in its first second": {
			steps: []step{{running("c1", 900*time.Millisecond), "never"}}, want: []string{"Unknown "},
		},
		"a container is not probed before its initial delay": {
			probe: func(p *v1alpha1.ContainerProbeSpec) { p.InitialDelaySeconds = 5 },
			steps: []step{{running("c1", 4*time.Second), "never"}, {running("c1", 5*time.Second), "+now"}},
			want:  []string{"Unknown ", "Succeeded now"},
		},
		"an earlier result of the same container holds": {
			seed:  Stored{Result: Result{State: "Succeeded", Message: "old"}, At: t0.Add(-time.Minute)},
			steps: []step{{c1, ""}, {c1, "+new"}}, want: []string{"Succeeded new"},
		},
		"an earlier result of the same container is hard to overturn": {
			probe: thresholds, seed: Stored{Result: Result{State: "Succeeded"}, At: t0},
			steps: []step{{c1, "-"}, {c1, "-"}, {c1, "-x"}}, want: []string{"Failed x"},
		},
		"an earlier result of another container is forgotten": {
			seed:  Stored{Result: Result{State: "Succeeded"}, At: t0.Add(-2 * time.Minute)},
			steps: []step{{c1, ""}}, want: []string{"Unknown "},
		},
		"an earlier result says nothing of a container that does not run": {
			seed:  Stored{Result: Result{State: "Succeeded"}, At: t0},
			steps: []step{{exited, ""}}, want: []string{"Failed Container(main) is Non-running"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tracker, task := Tracker{Seed: tc.seed}, execTask(tc.probe)
			var published []string
			add := func(r *Result) {
				if r != nil {
					published = append(published, string(r.State)+" "+r.Message)
				}
			}
			for _, s := range tc.steps {
				known, probe := tracker.Look(task, s.sight, t0)
				add(known)
				require.False(t, probe && s.result == "never", "it must not be probed now")
				if r := s.of(); r != nil && probe {
					add(tracker.Count(task, *r))
				}
			}
			require.Equal(t, tc.want, published)
		})
	}
}

// Whatever comes, a state is published only after its threshold of equal results in a row of
// one running container; and after that many it is.
func TestTrackerHoldsThresholds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		success, failure := rapid.IntRange(0, 4).Draw(t, "success"), rapid.IntRange(0, 4).Draw(t, "failure")
		task := execTask(func(p *v1alpha1.ContainerProbeSpec) {
			p.SuccessThreshold, p.FailureThreshold = int32(success), int32(failure)
		})
		limit := map[v1alpha1.ProbeState]int{"Succeeded": max(1, success), "Failed": max(1, failure)}
		var tracker Tracker
		published, row, last, id := v1alpha1.ProbeState(""), 0, v1alpha1.ProbeState(""), "c0"
		for range rapid.IntRange(1, 40).Draw(t, "ticks") {
			switch rapid.SampledFrom([]string{"same", "same", "same", "restart", "exit"}).Draw(t, "what") {
			case "restart":
				id += "'"
			case "exit":
				if r, probe := tracker.Look(task, Sight{ID: id}, t0); r == nil || r.State != "Failed" || probe {
					t.Fatalf("an exited container is %v, %v", r, probe)
				}
				published, row, last = "Failed", 0, ""
				continue
			}
			r, probe := tracker.Look(task, running(id, time.Hour), t0)
			if r != nil {
				if r.State != "Unknown" {
					t.Fatalf("a new container is %s", r.State)
				}
				published, row, last = "Unknown", 0, ""
			}
			if !probe {
				t.Fatal("a container that runs for an hour is not probed")
			}
			state := rapid.SampledFrom([]v1alpha1.ProbeState{"Succeeded", "Failed"}).Draw(t, "state")
			if state != last {
				row, last = 0, state
			}
			row++
			if r := tracker.Count(task, Result{State: state}); (r != nil) != (row >= limit[state]) {
				t.Fatalf("result %d of %s in a row, limit %d: published %v", row, state, limit[state], r)
			} else if r != nil {
				published = r.State
			}
		}
		_ = published
	})
}

func TestCut(t *testing.T) {
	for name, text := range map[string]string{
		"short":        "ok",
		"long":         strings.Repeat("x", 5000),
		"of runes":     "x" + strings.Repeat("é", 2000),
		"of big runes": "xy" + strings.Repeat("😀", 2000),
		"not UTF-8":    "a\xff\xfeb" + strings.Repeat("\xff", 2000),
	} {
		got := cut(text)
		require.LessOrEqual(t, len(got), 1024, name)
		require.True(t, utf8.ValidString(got), name)
		if utf8.ValidString(text) {
			require.True(t, strings.HasPrefix(text, got), name)
			require.GreaterOrEqual(t, len(got), min(len(text), 1021), name)
		}
	}
}

func podProbe(uid string, names ...string) v1alpha1.PodProbe {
	p := v1alpha1.PodProbe{Namespace: "shop", Name: "web-" + uid, UID: types.UID(uid)}
	for _, name := range names {
		p.Probes = append(p.Probes, v1alpha1.ContainerProbe{Name: name, ContainerName: "main"})
	}
	return p
}

func state(name string, s v1alpha1.ProbeState, message string, probed, changed time.Time) v1alpha1.ContainerProbeState {
	return v1alpha1.ContainerProbeState{Name: name, State: s, Message: message, LastProbeTime: metav1.NewTime(probed), LastTransitionTime: metav1.NewTime(changed)}
}

func TestMerge(t *testing.T) {
	old, now := t0.Add(-time.Hour), t0
	is := v1alpha1.NodePodProbeStatus{PodProbeStatuses: []v1alpha1.PodProbeStatus{
		{Namespace: "shop", Name: "web-gone", UID: "gone", ProbeStates: []v1alpha1.ContainerProbeState{state("m#a", "Succeeded", "", old, old)}},
		{Namespace: "shop", Name: "web-u1", UID: "u1", ProbeStates: []v1alpha1.ContainerProbeState{
			state("m#a", "Succeeded", "x", old, old), state("m#gone", "Succeeded", "", old, old), state("m#b", "Failed", "", old, old),
		}},
	}}
	npp := &v1alpha1.NodePodProbe{
		Spec:   v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{podProbe("u1", "m#a", "m#b", "m#c", "m#d"), podProbe("u2", "m#a")}},
		Status: is,
	}
	stored := map[Key]Stored{
		{UID: "u1", Name: "m#a"}: {Result: Result{State: "Succeeded", Message: "y"}, At: now.Add(300 * time.Millisecond)},
		{UID: "u1", Name: "m#c"}: {Result: Result{State: "Unknown"}, At: now},
		{UID: "u9", Name: "m#a"}: {Result: Result{State: "Failed"}, At: now},
	}
	got, changes := Merge(npp, stored, now)
	want := v1alpha1.NodePodProbeStatus{PodProbeStatuses: []v1alpha1.PodProbeStatus{
		{Namespace: "shop", Name: "web-u1", UID: "u1", ProbeStates: []v1alpha1.ContainerProbeState{
			state("m#a", "Succeeded", "y", now, old), // the message only: no transition
			state("m#b", "Failed", "", old, old),     // no news
			state("m#c", "Unknown", "", now, now),    // new
		}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Merge() differs (-want +got):\n%s", diff)
	}
	wantChanges := []Change{{Result: Result{State: "Succeeded", Message: "y"}}, {Result: Result{State: "Unknown"}, NewState: true}}
	if diff := cmp.Diff(wantChanges, changes, cmpopts.IgnoreFields(Change{}, "Task")); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	npp.Status = got
	again, changes := Merge(npp, stored, now.Add(time.Minute))
	require.Equal(t, got, again, "twice is once")
	require.Empty(t, changes)
}

func TestTasks(t *testing.T) {
	first, second := podProbe("u1", "m#a"), podProbe("u1", "m#a", "m#b")
	second.Probes[0].ContainerName = "other"
	tasks := Tasks(v1alpha1.NodePodProbeSpec{PodProbes: []v1alpha1.PodProbe{first, second}})
	require.Len(t, tasks, 2)
	require.Equal(t, "main", tasks[Key{UID: "u1", Name: "m#a"}].Container)
}

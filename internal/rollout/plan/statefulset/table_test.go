// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// situation is a StatefulSet web with its Pods, for tables.
type situation struct {
	set fixture.StatefulSetBuilder
	// from is the set before the last change of its template; nil when there was none.
	from   *fixture.StatefulSetBuilder
	pods   []fixture.PodBuilder
	claims []fixture.ClaimBuilder
	gates  Gates
}

// web starts a situation in which nothing was changed.
func web(set fixture.StatefulSetBuilder) situation {
	return situation{set: set, gates: Gates{AutoDeletePVC: true, StartOrdinal: true, PodIndexLabel: true}}
}

// changed starts a situation in which the set was changed.
func changed(from, to fixture.StatefulSetBuilder) situation {
	s := web(to)
	s.from = &from
	return s
}

// ordered is the base of most cases: OrderedReady, ReCreate.
func ordered(replicas int32) fixture.StatefulSetBuilder {
	return fixture.StatefulSet("web").Replicas(replicas)
}

func parallel(replicas int32) fixture.StatefulSetBuilder { return ordered(replicas).Parallel() }

func inPlace(b fixture.StatefulSetBuilder) fixture.StatefulSetBuilder {
	return b.Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
}

// with adds Pods as they are.
func (s situation) with(pods ...fixture.PodBuilder) situation {
	s.pods = append(s.pods[:len(s.pods):len(s.pods)], pods...)
	return s
}

// old and new add Pods that run well, at the revision before the change or at that of now.
func (s situation) old(ordinals ...int) situation {
	for _, n := range ordinals {
		s = s.with(fixture.PodOfStatefulSet(*s.from, n))
	}
	return s
}

func (s situation) new(ordinals ...int) situation {
	for _, n := range ordinals {
		s = s.with(fixture.PodOfStatefulSet(s.set, n))
	}
	return s
}

// claimed adds claims.
func (s situation) claimed(claims ...fixture.ClaimBuilder) situation {
	s.claims = append(s.claims[:len(s.claims):len(s.claims)], claims...)
	return s
}

func (s situation) gate(change func(*Gates)) situation {
	change(&s.gates)
	return s
}

func (s situation) resizes() situation {
	s.set = s.set.ClaimUpdates(v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType)
	return s.gate(func(g *Gates) { g.AutoResizePVC = true })
}

func (s situation) snapshot() Snapshot {
	update := fixture.StatefulSetRevision(s.set, 2)
	current := update
	if s.from != nil {
		current = fixture.StatefulSetRevision(*s.from, 1)
	}
	snap := Snapshot{
		Set: s.set.Obj(), Update: update, Current: current, Revisions: []*appsv1.ControllerRevision{current, update}, Gates: s.gates,
		StorageClasses: map[string]*storagev1.StorageClass{
			"grows": {AllowVolumeExpansion: new(true)}, "fixed": {AllowVolumeExpansion: new(false)}, "silent": {},
		},
	}
	for _, p := range s.pods {
		snap.Pods = append(snap.Pods, p.Obj())
	}
	for _, c := range s.claims {
		snap.Claims = append(snap.Claims, c.Obj())
	}
	return snap
}

// lines is a plan as tables have it, one line per step in the order of the plan.
func lines(s Snapshot, p Plan) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	steps := func(list []Step) {
		for _, step := range list {
			text := strings.ToLower(string(step.Do)) + " " + step.Pod
			if step.Transition.Rule != "" {
				text += " to " + string(step.Transition.To)
			}
			add("%s: %s", text, step.Why)
		}
	}
	steps(p.Refresh)
	for _, c := range p.Claims {
		text := strings.ToLower(string(c.Do)) + " " + c.Claim
		switch {
		case c.SetOwns:
			text += " by set"
		case c.PodOwns:
			text += " by Pod"
		case c.Do == OwnClaim:
			text += " by none"
		}
		add("%s", text)
	}
	for _, c := range p.Create {
		at := "new"
		if c.Revision != s.Update.Name {
			at = "old"
		}
		text := fmt.Sprintf("create %s %s", c.Pod, at)
		if c.State != v1beta1.LifecycleNormal {
			text += " " + string(c.State)
		}
		if len(c.Claims) > 0 {
			text += " with " + strings.Join(c.Claims, " ")
		}
		add("%s", text)
	}
	steps(p.Scale)
	steps(p.Update)
	for _, h := range p.Held {
		add("held %s: %s", h.Pod, h.Why)
	}
	if p.Requeue > 0 {
		add("again in %s", p.Requeue)
	}
	return strings.Join(out, "\n")
}

// row is a situation and the plan for it.
type row struct {
	in   situation
	want string
}

func runTable(t *testing.T, table map[string]row) {
	t.Helper()
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			t.Helper()
			s := tc.in.snapshot()
			plan := Decide(s, now)
			checkPlan(t.Fatalf, s, now, plan)
			want := strings.TrimSpace(strings.ReplaceAll(tc.want, "\t", ""))
			if diff := cmp.Diff(want, lines(s, plan)); diff != "" {
				t.Errorf("the plan differs (-want +got):\n%s", diff)
				for _, h := range plan.Held {
					t.Log(h)
				}
			}
		})
	}
}

// pod starts the Pod of an ordinal of set.
func pod(set fixture.StatefulSetBuilder, n int) fixture.PodBuilder {
	return fixture.PodOfStatefulSet(set, n)
}

func unready(set fixture.StatefulSetBuilder, n int) fixture.PodBuilder {
	return pod(set, n).NotReady(fixture.Created)
}

func failed(set fixture.StatefulSetBuilder, n int) fixture.PodBuilder {
	return unready(set, n).Phase(corev1.PodFailed)
}

func going(set fixture.StatefulSetBuilder, n int) fixture.PodBuilder {
	return pod(set, n).Terminating(now)
}

// young has been ready for two seconds.
func young(set fixture.StatefulSetBuilder, n int) fixture.PodBuilder {
	return pod(set, n).Ready(now.Add(-2 * time.Second))
}

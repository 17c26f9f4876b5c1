// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	stateLabel = "lifecycle.apps.kruise.io/state"
	finalizer  = "example.com/hook"
)

// pod is scheduled and has the state; "" is no label.
func pod(state v1beta1.LifecycleState, hooked ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-abcde", Labels: map[string]string{}}}
	if state != "" {
		p.Labels[stateLabel] = string(state)
	}
	for _, h := range hooked {
		if h == finalizer {
			p.Finalizers = append(p.Finalizers, h)
		} else {
			p.Labels[h] = "true"
		}
	}
	p.Spec.NodeName = "node-1"
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.KruisePodReady}}
	p.Status.Conditions = []corev1.PodCondition{{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue}}
	return p
}

// hook has a finalizer and a label as handlers.
func hook() *v1beta1.LifecycleHook {
	return &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}, FinalizersHandler: []string{finalizer}}
}

func marking() *v1beta1.LifecycleHook {
	h := hook()
	h.MarkPodNotReady = true
	return h
}

func TestHooked(t *testing.T) {
	cases := map[string]struct {
		hook     *v1beta1.LifecycleHook
		pod      *corev1.Pod
		any, all bool
	}{
		"no hook":                         {nil, pod(""), false, true},
		"a hook without handlers":         {&v1beta1.LifecycleHook{MarkPodNotReady: true}, pod(""), false, true},
		"nothing on the Pod":              {hook(), pod(""), false, false},
		"the label only":                  {hook(), pod("", "hook"), true, false},
		"the finalizer only":              {hook(), pod("", finalizer), true, false},
		"both":                            {hook(), pod("", "hook", finalizer), true, true},
		"the label with another value":    {&v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "no"}}, pod("", "hook"), false, false},
		"an empty value is not a missing": {&v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": ""}}, pod(""), false, false},
	}
	for name, tc := range cases {
		if got := HookedAny(tc.hook, tc.pod); got != tc.any {
			t.Errorf("%s: HookedAny() = %t", name, got)
		}
		if got := HookedAll(tc.hook, tc.pod); got != tc.all {
			t.Errorf("%s: HookedAll() = %t", name, got)
		}
	}
}

func TestOnUpdate(t *testing.T) {
	set := &v1beta1.Lifecycle{InPlaceUpdate: hook()}
	mark := &v1beta1.Lifecycle{InPlaceUpdate: marking()}
	cases := map[string]struct {
		pod  *corev1.Pod
		lc   *v1beta1.Lifecycle
		want Decision
	}{
		"no hook":                           {pod(""), nil, Decision{Verdict: Go}},
		"no hook of this kind":              {pod("Normal"), &v1beta1.Lifecycle{PreDelete: hook()}, Decision{Verdict: Go}},
		"a hook that is not on the Pod":     {pod("PreparingNormal"), set, Decision{Verdict: Go}},
		"T2 from no label":                  {pod("", "hook"), set, Decision{Verdict: Patch, Transition: Transition{Rule: "T2", From: "Normal", To: "PreparingUpdate"}}},
		"T2 from PreparingNormal":           {pod("PreparingNormal", finalizer), set, Decision{Verdict: Patch, Transition: Transition{Rule: "T2", From: "PreparingNormal", To: "PreparingUpdate"}}},
		"T2 that marks the Pod not ready":   {pod("Normal", "hook"), mark, Decision{Verdict: Patch, Transition: Transition{Rule: "T2", From: "Normal", To: "PreparingUpdate", Hold: []podready.Holder{{UserAgent: "Lifecycle", Key: "preUpdateHook"}}}}},
		"PreparingUpdate, still hooked":     {pod("PreparingUpdate", "hook"), set, Decision{Verdict: Wait, Message: "hook inPlaceUpdate holds the Pod in state PreparingUpdate"}},
		"T4: PreparingUpdate, let go":       {pod("PreparingUpdate"), set, Decision{Verdict: Go}},
		"PreparingUpdate, hook edited away": {pod("PreparingUpdate", "hook"), nil, Decision{Verdict: Go}},
		"Updating, to a newer revision":     {pod("Updating", "hook"), set, Decision{Verdict: Go}},
		"T7: Updated, with handlers again":  {pod("Updated"), set, Decision{Verdict: Patch, Transition: Transition{Rule: "T7", From: "Updated", To: "PreparingUpdate", Rehook: set.InPlaceUpdate}}},
		"Updated, hook edited away":         {pod("Updated"), nil, Decision{Verdict: Go}},
		"PreparingDelete":                   {pod("PreparingDelete"), set, Decision{Verdict: Refuse, Message: "not allowed to in-place update pod web-abcde in state PreparingDelete"}},
		"a state nobody knows":              {pod("Odd"), nil, Decision{Verdict: Refuse, Message: "not allowed to in-place update pod web-abcde in state Odd"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, OnUpdate(tc.pod, tc.lc)); diff != "" {
				t.Errorf("OnUpdate() differs (-want +got):\n%s", diff)
			}
		})
	}
	if got := Updating(pod("PreparingUpdate")).String(); got != "T4: PreparingUpdate to Updating" {
		t.Error(got)
	}
	if got := Updating(pod("")).String(); got != "T3: Normal to Updating" {
		t.Error(got)
	}
}

func TestOnRefresh(t *testing.T) {
	all := Facts{Complete: true, AtUpdateRevision: true}
	updateHooked := &v1beta1.Lifecycle{InPlaceUpdate: hook()}
	unscheduled := pod("PreparingNormal")
	unscheduled.Spec.NodeName = ""
	cases := map[string]struct {
		pod   *corev1.Pod
		lc    *v1beta1.Lifecycle
		facts Facts
		want  string // "" is no transition
	}{
		"T1 once scheduled":                             {pod("PreparingNormal"), nil, Facts{}, "T1: PreparingNormal to Normal"},
		"T1 waits for a node":                           {unscheduled, &v1beta1.Lifecycle{}, all, ""},
		"T1 with all of the preNormal hook":             {pod("PreparingNormal", "hook", finalizer), &v1beta1.Lifecycle{PreNormal: hook()}, Facts{}, "T1: PreparingNormal to Normal"},
		"T1 waits for all of the hook":                  {pod("PreparingNormal", "hook"), &v1beta1.Lifecycle{PreNormal: hook()}, all, ""},
		"T5 with a hook":                                {pod("Updating"), updateHooked, all, "T5: Updating to Updated"},
		"T5 without this hook":                          {pod("Updating"), &v1beta1.Lifecycle{PreDelete: hook()}, all, "T5: Updating to Updated"},
		"T5 also for an older revision":                 {pod("Updating"), updateHooked, Facts{Complete: true}, "T5: Updating to Updated"},
		"T5 waits for the engine":                       {pod("Updating"), updateHooked, Facts{AtUpdateRevision: true}, ""},
		"T6 without hooks":                              {pod("Updating"), nil, all, "T6: Updating to Normal"},
		"T6 with a hook that has no handlers":           {pod("Updating"), &v1beta1.Lifecycle{InPlaceUpdate: &v1beta1.LifecycleHook{}}, all, "T6: Updating to Normal"},
		"all handlers on the Pod: Updated all the same": {pod("Updating", "hook", finalizer), updateHooked, all, "T5: Updating to Updated"},
		"T8 with all handlers":                          {pod("Updated", "hook", finalizer), updateHooked, all, "T8: Updated to Normal"},
		"T8 waits for all handlers":                     {pod("Updated", "hook"), updateHooked, all, ""},
		"T8 without the hook":                           {pod("Updated"), nil, Facts{}, "T8: Updated to Normal"},
		"T9 with a hook goes through Updated":           {pod("PreparingUpdate", "hook", finalizer), updateHooked, all, "T9: PreparingUpdate to Updated"},
		"T9 without a hook":                             {pod("PreparingUpdate"), nil, all, "T9: PreparingUpdate to Normal"},
		"PreparingUpdate at the old revision":           {pod("PreparingUpdate", "hook"), updateHooked, Facts{Complete: true}, ""},
		"Normal":                                        {pod(""), updateHooked, all, ""},
		"PreparingDelete":                               {pod("PreparingDelete"), updateHooked, all, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := OnRefresh(tc.pod, tc.lc, tc.facts)
			if ok != (tc.want != "") || ok && got.String() != tc.want {
				t.Errorf("OnRefresh() = %v, %t, want %q", got, ok, tc.want)
			}
		})
	}
}

func TestOnDelete(t *testing.T) {
	set := &v1beta1.Lifecycle{PreDelete: hook()}
	cases := map[string]struct {
		pod  *corev1.Pod
		lc   *v1beta1.Lifecycle
		want Decision
	}{
		"no hook":                          {pod("Normal", "hook"), nil, Decision{Verdict: Go}},
		"a hook that is not on the Pod":    {pod("Normal"), set, Decision{Verdict: Go}},
		"T10":                              {pod("Updating", "hook"), set, Decision{Verdict: Patch, Transition: Transition{Rule: "T10", From: "Updating", To: "PreparingDelete"}}},
		"T10 that marks the Pod not ready": {pod("", "hook"), &v1beta1.Lifecycle{PreDelete: marking()}, Decision{Verdict: Patch, Transition: Transition{Rule: "T10", From: "Normal", To: "PreparingDelete", Hold: []podready.Holder{podready.PreDeleteHook}}}},
		"still held":                       {pod("PreparingDelete", finalizer), set, Decision{Verdict: Wait, Message: "hook preDelete holds the Pod in state PreparingDelete"}},
		"T12":                              {pod("PreparingDelete"), set, Decision{Verdict: Go}},
	}
	for name, tc := range cases {
		if diff := cmp.Diff(tc.want, OnDelete(tc.pod, tc.lc)); diff != "" {
			t.Errorf("%s: OnDelete() differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnKeep(t *testing.T) {
	got, ok := OnKeep(pod("PreparingDelete"), &v1beta1.Lifecycle{PreDelete: hook()})
	if !ok || got.String() != "T11: PreparingDelete to PreparingNormal" {
		t.Errorf("OnKeep() = %v, %t", got, ok)
	}
	for name, lc := range map[string]*v1beta1.Lifecycle{
		"preDelete marks not ready":     {PreDelete: marking()},
		"inPlaceUpdate marks not ready": {InPlaceUpdate: marking()},
	} {
		if got, ok := OnKeep(pod("PreparingDelete"), lc); ok {
			t.Errorf("%s: OnKeep() = %v", name, got)
		}
	}
	if _, ok := OnKeep(pod("Normal"), nil); ok {
		t.Error("a Pod that is not to be deleted was kept")
	}
}

func TestApply(t *testing.T) {
	p := pod("Updated", "other")
	p.Finalizers = []string{"example.com/mine"}
	Transition{Rule: "T7", From: "Updated", To: "PreparingUpdate", Rehook: hook(), Hold: []podready.Holder{podready.PreUpdateHook}}.Apply(p, t0.In(time.FixedZone("x", 3600)))
	want := map[string]string{stateLabel: "PreparingUpdate", "hook": "true", "other": "true"}
	if diff := cmp.Diff(want, p.Labels); diff != "" {
		t.Errorf("labels differ (-want +got):\n%s", diff)
	}
	if got := p.Annotations["lifecycle.apps.kruise.io/timestamp"]; got != "2026-01-02T03:04:05Z" {
		t.Errorf("timestamp is %s", got)
	}
	if !slices.Equal(p.Finalizers, []string{"example.com/mine", finalizer}) {
		t.Errorf("finalizers are %v", p.Finalizers)
	}
	if hs := podready.Holders(p); len(hs) != 1 || hs[0] != podready.PreUpdateHook {
		t.Errorf("holders are %v", hs)
	}
	moved := pod("PreparingDelete")
	Transition{Rule: "T6", From: "Updating", To: "Normal"}.Apply(moved, t0)
	if got := State(moved); got != "PreparingDelete" {
		t.Errorf("a Pod that has moved on is now %s", got)
	}
	bare := &corev1.Pod{}
	Rehook(hook(), bare)
	Rehook(nil, bare)
	if !HookedAll(hook(), bare) {
		t.Error("handlers are not on a Pod that had no labels")
	}
}

// A Pod never stays not ready because of preUpdateHook once it is Normal, whatever is
// done to the hook, the Pod's handlers and the template in between.
func TestTheUpdateHoldNeverOutlivesTheUpdate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pod("Normal", "hook", finalizer)
		lc := &v1beta1.Lifecycle{InPlaceUpdate: marking()}
		act := func(tr Transition) {
			if tr.From != State(p) {
				t.Fatalf("%v from state %s", tr, State(p))
			}
			tr.Apply(p, t0)
		}
		t.Repeat(map[string]func(*rapid.T){
			"update": func(*rapid.T) {
				switch d := OnUpdate(p, lc); d.Verdict {
				case Patch:
					act(d.Transition)
				case Go:
					act(Updating(p))
				}
			},
			"refresh": func(t *rapid.T) {
				f := Facts{Complete: rapid.Bool().Draw(t, "complete"), AtUpdateRevision: rapid.Bool().Draw(t, "at target")}
				if tr, ok := OnRefresh(p, lc, f); ok {
					act(tr)
				}
			},
			"delete": func(*rapid.T) {
				if d := OnDelete(p, lc); d.Verdict == Patch {
					act(d.Transition)
				}
			},
			"keep": func(*rapid.T) {
				if tr, ok := OnKeep(p, lc); ok {
					act(tr)
				}
			},
			"edit the hook": func(t *rapid.T) {
				lc = rapid.SampledFrom([]*v1beta1.Lifecycle{
					nil, {}, {InPlaceUpdate: hook()}, {InPlaceUpdate: marking()}, {InPlaceUpdate: marking(), PreDelete: marking()}, {PreDelete: hook()},
				}).Draw(t, "hook")
			},
			"toggle the handler": func(t *rapid.T) {
				if p.Labels["hook"] == "" {
					p.Labels["hook"] = "true"
					p.Finalizers = []string{finalizer}
				} else {
					delete(p.Labels, "hook")
					p.Finalizers = nil
				}
			},
			"": func(t *rapid.T) {
				switch State(p) {
				case v1beta1.LifecycleNormal, v1beta1.LifecycleUpdated, v1beta1.LifecyclePreparingNormal:
					if slices.Contains(podready.Holders(p), podready.PreUpdateHook) {
						t.Fatalf("held by preUpdateHook in state %s", State(p))
					}
				}
			},
		})
	})
}

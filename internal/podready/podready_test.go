// SPDX-License-Identifier: Apache-2.0

package podready

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

var other = Holder{UserAgent: "ContainerRecreateRequest", Key: "shop/crr"}

// ready is a Pod with the readiness gate that is ready, with the conditions given.
func ready(conditions ...corev1.PodCondition) *corev1.Pod {
	p := &corev1.Pod{}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "KruisePodReady"}}
	p.Status.Conditions = append([]corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "ContainersReady", Status: "True"}}, conditions...)
	return p
}

func held(status corev1.ConditionStatus, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: "KruisePodReady", Status: status, Message: message}
}

func TestHoldAndRelease(t *testing.T) {
	hold := func(h Holder) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return Hold(p, h, t0) }
	}
	release := func(h Holder) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool { return Release(p, h, t0) }
	}
	noGate := func() *corev1.Pod { p := ready(held("True", "")); p.Spec.ReadinessGates = nil; return p }
	cases := map[string]struct {
		pod     *corev1.Pod
		do      func(*corev1.Pod) bool
		changed bool
		status  corev1.ConditionStatus // of KruisePodReady; "" is no condition
		message string
		ready   corev1.ConditionStatus
	}{
		"the first holder":                         {ready(held("True", "")), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "False"},
		"a hold without a condition makes one":     {ready(), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "False"},
		"a condition with an empty status":         {ready(held("", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`)), hold(PreDeleteHook), false, "", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "True"},
		"holders are sorted":                       {ready(held("False", `[{"userAgent":"Lifecycle","key":"preUpdateHook"}]`)), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"},{"userAgent":"Lifecycle","key":"preUpdateHook"}]`, "False"},
		"other agents sort first":                  {ready(held("False", `[{"userAgent":"Lifecycle","key":"preUpdateHook"}]`)), hold(other), true, "False", `[{"userAgent":"ContainerRecreateRequest","key":"shop/crr"},{"userAgent":"Lifecycle","key":"preUpdateHook"}]`, "False"},
		"a holder that holds already":              {ready(held("False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`)), hold(PreDeleteHook), false, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "True"},
		"a holder of a condition that is True":     {ready(held("True", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`)), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "False"},
		"a message that is no list":                {ready(held("True", "hello")), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "False"},
		"a message of null":                        {ready(held("True", "null")), hold(PreDeleteHook), true, "False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`, "False"},
		"no gate, no hold":                         {noGate(), hold(PreDeleteHook), false, "True", "", "True"},
		"the last release":                         {ready(held("False", `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`)), release(PreDeleteHook), true, "True", `[]`, "True"},
		"a release that leaves an unknown holder":  {ready(held("False", `[{"userAgent":"X","key":"y"},{"userAgent":"Lifecycle","key":"preDeleteHook"}]`)), release(PreDeleteHook), true, "False", `[{"userAgent":"X","key":"y"}]`, "True"},
		"a release of who does not hold":           {ready(held("False", `[{"userAgent":"X","key":"y"}]`)), release(PreDeleteHook), false, "False", `[{"userAgent":"X","key":"y"}]`, "True"},
		"a release without a condition":            {ready(), release(PreDeleteHook), false, "", "", "True"},
		"a release without the gate":               {noGate(), release(PreDeleteHook), false, "True", "", "True"},
		"a release from a message that is no list": {ready(held("False", "hello")), release(PreDeleteHook), false, "False", "hello", "True"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.do(tc.pod); got != tc.changed {
				t.Errorf("changed is %t, want %t", got, tc.changed)
			}
			var status corev1.ConditionStatus
			var message string
			if c := Condition(tc.pod, "KruisePodReady"); c != nil {
				status, message = c.Status, c.Message
			}
			if status != tc.status || message != tc.message {
				t.Errorf("KruisePodReady is %q with %s, want %q with %s", status, message, tc.status, tc.message)
			}
			if got := Condition(tc.pod, "Ready").Status; got != tc.ready {
				t.Errorf("Ready is %s, want %s", got, tc.ready)
			}
		})
	}
}

func TestTransitionTime(t *testing.T) {
	long := metav1.NewTime(t0.Add(-time.Hour))
	c := held("False", `[{"userAgent":"X","key":"y"}]`)
	c.LastTransitionTime = long
	p := ready(c)
	Hold(p, PreDeleteHook, t0)
	if got := Condition(p, "KruisePodReady").LastTransitionTime; !got.Equal(&long) {
		t.Errorf("another holder moved the transition time to %s", got)
	}
	Release(p, PreDeleteHook, t0)
	Release(p, Holder{"X", "y"}, t0)
	if got := Condition(p, "KruisePodReady").LastTransitionTime; !got.Time.Equal(t0.Truncate(time.Second)) {
		t.Errorf("the last release has transition time %s, want whole seconds of now", got)
	}
}

func TestRecomputeReady(t *testing.T) {
	gates := func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}, {ConditionType: "KruisePodReady"}, {ConditionType: "example.com/gate"}}
	}
	p := ready(held("True", ""), corev1.PodCondition{Type: "InPlaceUpdateReady", Status: "False"})
	Condition(p, "Ready").ObservedGeneration = 7
	gates(p)
	if !RecomputeReady(p, t0) {
		t.Fatal("nothing changed")
	}
	want := corev1.PodCondition{
		Type: "Ready", Status: "False", Reason: "ReadinessGatesNotReady", ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(t0.Truncate(time.Second)),
		Message: `the status of pod readiness gate "InPlaceUpdateReady" is not "True", but False, corresponding condition of pod readiness gate "example.com/gate" does not exist.`,
	}
	if diff := cmp.Diff(want, *Condition(p, "Ready")); diff != "" {
		t.Errorf("Ready differs (-want +got):\n%s", diff)
	}
	if RecomputeReady(p, t0.Add(time.Hour)) {
		t.Error("a second time changes something")
	}
	for name, mutate := range map[string]func(*corev1.Pod){
		"containers are not ready": func(p *corev1.Pod) { Condition(p, "ContainersReady").Status = "False" },
		"no condition Ready":       func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[1:] },
		"no ContainersReady":       func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] },
		"all gates are True":       func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, held("True", "")) },
		"no gates":                 func(p *corev1.Pod) { p.Spec.ReadinessGates = nil },
	} {
		p := ready()
		mutate(p)
		if RecomputeReady(p, t0) {
			t.Errorf("%s: Ready changed", name)
		}
	}
}

func TestInitialize(t *testing.T) {
	p := ready()
	if !Initialize(p, t0) || Condition(p, "KruisePodReady").Status != "True" {
		t.Errorf("conditions are %v", p.Status.Conditions)
	}
	if Initialize(p, t0) {
		t.Error("a second time changes something")
	}
	p = ready()
	p.DeletionTimestamp = new(metav1.NewTime(t0))
	if Initialize(p, t0) {
		t.Error("a terminating Pod got the condition")
	}
	if Initialize(&corev1.Pod{}, t0) {
		t.Error("a Pod without the gate got the condition")
	}
}

// Whatever the order of holds and releases, the Pod is held exactly while someone holds.
func TestHoldersAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, model := ready(held("True", "")), map[Holder]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			h := rapid.SampledFrom([]Holder{PreDeleteHook, PreUpdateHook, other}).Draw(t, "holder")
			if rapid.Bool().Draw(t, "hold") {
				if Hold(p, h, t0) == model[h] {
					t.Fatal("Hold changes something if and only if h does not hold")
				}
				model[h] = true
			} else {
				if Release(p, h, t0) != model[h] {
					t.Fatal("Release changes something if and only if h holds")
				}
				delete(model, h)
			}
			got := map[Holder]bool{}
			for _, h := range Holders(p) {
				got[h] = true
			}
			if diff := cmp.Diff(model, got); diff != "" {
				t.Fatalf("holders differ (-want +got):\n%s", diff)
			}
			if free := Condition(p, "KruisePodReady").Status == "True"; free != (len(model) == 0) {
				t.Fatalf("the condition is True: %t, with holders %v", free, model)
			}
		}
	})
}

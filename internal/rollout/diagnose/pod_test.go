// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"encoding/json"
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
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// set is CloneSet web of three Pods on its way from web:1 to web:2, in place.
func set(change ...func(fixture.CloneSetBuilder) fixture.CloneSetBuilder) fixture.CloneSetBuilder {
	b := fixture.CloneSet("web").Replicas(3).Image("web:2").MaxUnavailable("1").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
	for _, c := range change {
		b = c(b)
	}
	return b
}

func oldRevision() *appsv1.ControllerRevision {
	return fixture.Revision(fixture.CloneSet("web").Image("web:1"), 1)
}

// snapshot is what was read of the set and its Pods.
func snapshot(t *testing.T, b fixture.CloneSetBuilder, pods ...*corev1.Pod) Snapshot {
	t.Helper()
	older, newer := oldRevision(), fixture.Revision(b, 2)
	cs := b.Status(older.Name, newer.Name).Obj()
	cs.Status.ObservedGeneration = cs.Generation
	for _, p := range pods {
		cs.Status.Replicas++
		if strings.HasSuffix(newer.Name, p.Labels["pod-template-hash"]) && p.Labels["pod-template-hash"] != "" {
			cs.Status.UpdatedReplicas++
			if Available(p, 0, now) {
				cs.Status.UpdatedAvailableReplicas++
			}
		}
		if Available(p, 0, now) {
			cs.Status.AvailableReplicas++
		}
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cs)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: m}
	w, err := adapter.Wrap(target.Object{Kind: target.CloneSet, GVK: v1beta1.GroupVersion.WithKind("CloneSet"), Live: u})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := w.Facts()
	if err != nil {
		t.Fatal(err)
	}
	facts.RevisionNumber = 2
	return Snapshot{Workload: w, Facts: facts, Pods: pods, Stored: []*appsv1.ControllerRevision{older, newer}, Gates: DefaultGates()}
}

func old(name string) fixture.PodBuilder {
	return fixture.PodOf(set(), name).At(oldRevision()).Ready(now.Add(-time.Hour)).With(func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "old" })
}

func updated(name string) fixture.PodBuilder {
	r := fixture.Revision(set(), 2)
	return fixture.PodOf(set(), name).At(r).Ready(now.Add(-time.Minute)).Label("pod-template-hash", r.Name[strings.LastIndexByte(r.Name, '-')+1:])
}

func state(t *testing.T, fields map[string]any) string {
	t.Helper()
	base := map[string]any{"revision": fixture.Revision(set(), 2).Name, "updateTimestamp": now.Add(-41 * time.Second).Format(time.RFC3339), "lastContainerStatuses": nil}
	for k, v := range fields {
		base[k] = v
	}
	data, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Ready = false
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
}

func TestPod(t *testing.T) {
	hooks := v1beta1.Lifecycle{
		InPlaceUpdate: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"online": "true"}, MarkPodNotReady: true},
		PreDelete:     &v1beta1.LifecycleHook{FinalizersHandler: []string{"shop/drain"}},
		PreNormal:     &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"warm": "true"}},
	}
	hooked := func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder { return b.Lifecycle(hooks) }
	notReady := now.Add(-2 * time.Minute)
	cases := map[string]struct {
		set  fixture.CloneSetBuilder
		pod  fixture.PodBuilder
		more []fixture.PodBuilder
		want string // code severity, in order
		text string
		next string
	}{
		"a healthy Pod has no finding": {set(), updated("a"), nil, "", "", ""},
		"an old Pod that is next in line gets a note": {
			set(), old("a"), nil, "P02 Note", "number 1 of the next batch", ""},
		"an old Pod of a paused set names the pause and how to end it": {
			set(fixture.CloneSetBuilder.Paused), old("a"), nil, "P02 Cause", "paused is true", "rollout resume cloneset/web"},
		"an old Pod under OnDelete says that it must be deleted": {
			set(fixture.CloneSetBuilder.OnDelete), old("a"), nil, "P02 Cause", "OnDelete", "delete the Pod"},
		"an old Pod kept by partition": {
			set(func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder { return b.Partition("3") }), old("a"), []fixture.PodBuilder{old("b"), old("c")}, "P02 Note", "partition keeps 3 of 3", "rollout partition cloneset/web 0"},
		"an old Pod for which maxUnavailable is used up": {
			set(), old("b"), []fixture.PodBuilder{updated("a").NotReady(notReady), old("c")}, "P02 Cause", "maxUnavailable", "why cloneset/web"},
		"a Pod that waits for its update hook is blocked, with the label to remove": {
			set(hooked), old("a").State(v1beta1.LifecyclePreparingUpdate).Label("online", "true"), nil,
			"P02 Blocker, P03 Blocker", "online=true", "the operator behind the hook must remove label online=true"},
		"an updated Pod that waits for its hook to come back": {
			set(hooked), updated("a").State(v1beta1.LifecycleUpdated).Label("warm", "true"), nil, "P04 Blocker", "put back: label online=true", "must add"},
		"a Pod that waits in PreparingDelete": {
			set(hooked), updated("a").State(v1beta1.LifecyclePreparingDelete).With(func(p *corev1.Pod) { p.Finalizers = []string{"shop/drain"} }), nil,
			"P05 Blocker", "finalizer shop/drain", "must remove"},
		"a Pod that waits in PreparingNormal": {
			set(hooked), updated("a").State(v1beta1.LifecyclePreparingNormal), nil, "P06 Blocker", "label warm=true", "must add"},
		"a Pod in its grace period": {
			set(), updated("a").Annotation(v1beta1.InPlaceUpdateStateAnnotation, state(t, nil)).
				Annotation(v1beta1.InPlaceUpdateGraceAnnotation, fmt.Sprintf(`{"revision":%q,"graceSeconds":60}`, fixture.Revision(set(), 2).Name)), nil,
			"P07 Note", "grace period ends in 19s", ""},
		"an image that the kubelet has not replaced": {
			set(), updated("a").Annotation(v1beta1.InPlaceUpdateStateAnnotation, state(t, map[string]any{"updateImages": true, "lastContainerStatuses": map[string]any{"app": map[string]any{"imageID": "id-of-web:1"}}})).
				With(func(p *corev1.Pod) {
					p.Status.ContainerStatuses[0].Image, p.Status.ContainerStatuses[0].ImageID = "web:1", "id-of-web:1"
				}), nil, "P08 Cause", "image not changed yet", "kubectl describe pod"},
		"the next batch waits for a container to become ready": {
			set(), updated("a").Annotation(v1beta1.InPlaceUpdateStateAnnotation, state(t, map[string]any{
				"updateImages": true, "nextContainerImages": map[string]any{"broker": "kafka:3.7.1"},
				"preCheckBeforeNext":     map[string]any{"containersRequiredReady": []string{"app"}},
				"containerBatchesRecord": []any{map[string]any{"timestamp": now.Add(-30 * time.Second).Format(time.RFC3339), "containers": []string{"app"}}},
			})).With(func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].Ready = false
				p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
			}), nil, "P12 Blocker, P17 Cause", "waiting for containers [app] to be ready before the next batch", "kubectl logs a -n shop -c app"},
		"only resources are left": {
			set(), updated("a").Annotation(v1beta1.InPlaceUpdateStateAnnotation, state(t, map[string]any{
				"nextContainerResources": map[string]any{"app": map[string]any{"limits": map[string]any{"cpu": "2"}}},
			})), nil, "P12 Cause, P13 Note", "next batch of containers [app] is due", ""},
		"state JSON that cannot be read": {
			set(), updated("a").Annotation(v1beta1.InPlaceUpdateStateAnnotation, "{"), nil, "P08 Blocker", "inplace-update-state", ""},
		"a readiness gate that nobody ever set": {
			set(), updated("a").With(func(p *corev1.Pod) {
				p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: "shop/lb"})
			}), nil, "P15 Cause", "readiness gate shop/lb has no condition", ""},
		"a Pod that a hook keeps not ready": {
			set(), updated("a").With(func(p *corev1.Pod) {
				p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1beta1.KruisePodReady})
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: v1beta1.KruisePodReady, Status: "False",
					Message: `[{"userAgent":"Lifecycle","key":"preUpdateHook"}]`, LastTransitionTime: metav1.NewTime(notReady)})
			}), nil, "P16 Cause", "lifecycle hook preUpdateHook", ""},
		"a container that keeps dying": {
			set(), updated("a").NotReady(notReady).With(func(p *corev1.Pod) {
				waiting("CrashLoopBackOff", "back-off 5m0s")(p)
				p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
			}), nil, "P17 Blocker", "exit code 137 (OOMKilled)", "kubectl logs a -n shop -c app --previous"},
		"an image that cannot be pulled": {
			set(), updated("a").NotReady(notReady).With(waiting("ImagePullBackOff", "manifest unknown\nmore")), nil,
			"P17 Blocker", "container app: ImagePullBackOff: manifest unknown", "kubectl describe pod a -n shop"},
		"a launch barrier is no fault": {
			set(), updated("a").NotReady(notReady).With(func(p *corev1.Pod) {
				waiting("CreateContainerConfigError", "couldn't find key p_0")(p)
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "p_0"}}}}
			}), nil, "P18 Cause", "launch barrier (key p_0 of ConfigMap a-barrier)", ""},
		"a Pod marked to be deleted": {
			set(), updated("a").SpecifiedDelete(), nil, "P21 Cause", "marked to be deleted", ""},
		"a Pod without a node": {
			set(), updated("a").Node("").Phase(corev1.PodPending).Condition(corev1.PodReady, corev1.ConditionFalse, notReady).
				With(func(p *corev1.Pod) {
					p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", Message: "0/3 nodes are available"})
				}), nil, "P22 Blocker", "0/3 nodes are available", ""},
		"a terminating Pod that waits for a finalizer of a hook": {
			set(hooked), updated("a").Terminating(now.Add(-time.Minute)).With(func(p *corev1.Pod) { p.Finalizers = []string{"shop/drain"} }), nil,
			"P01 Blocker", "shop/drain belongs to lifecycle hook preDelete", ""},
		"a protected Pod": {
			set(), updated("a").Label(v1beta1.DeleteProtectionLabel, "Always"), nil, "P25 Note", "protected from deletion (Always)", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pods := []*corev1.Pod{tc.pod.Obj()}
			if tc.more == nil { // the set has as many Pods as it wants
				tc.more = []fixture.PodBuilder{updated("y").Label("warm", "true"), updated("z").Label("warm", "true")}
			}
			for _, m := range tc.more {
				pods = append(pods, m.Obj())
			}
			r := Pod(snapshot(t, tc.set, pods...), pods[0], now)
			check(t, r, tc.want, tc.text, tc.next)
			if stuck := len(r.Findings) > 0 && r.Findings[0].Severity != verdict.Note; strings.Contains(r.Headline, "nothing blocks") == stuck {
				t.Errorf("headline %q for %q", r.Headline, tc.want)
			}
		})
	}
}

func check(t *testing.T, r Report, want, text, next string) {
	t.Helper()
	var got []string
	all, nexts := "", ""
	for _, f := range r.Findings {
		got = append(got, f.Code+" "+string(f.Severity))
		all += f.Message + "\n"
		nexts += f.Next + "\n"
		if f.Name == "" || f.Message == "" || f.Evidence == nil || f.Object == "" {
			t.Errorf("incomplete finding %+v", f)
		}
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("findings are %q, want %q\n%s", strings.Join(got, ", "), want, all)
	}
	if !strings.Contains(all, text) || !strings.Contains(nexts, next) {
		t.Errorf("want text %q and next %q in\n%s%s", text, next, all, nexts)
	}
}

func TestNodeDown(t *testing.T) {
	p := updated("a").Obj()
	s := snapshot(t, set(), p)
	s.Nodes = map[string]*corev1.Node{p.Spec.NodeName: {ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "Unknown", Message: "kubelet stopped posting"}}}}}
	check(t, Pod(s, p, now), "P23 Blocker", "is not Ready: kubelet stopped posting", "kubectl describe node")
}

// A Pod that no workload of ours owns is looked at alone.
func TestPodWithoutAWorkload(t *testing.T) {
	p := fixture.Pod("x").Node("n").Ready(now.Add(-time.Hour)).Obj()
	r := Pod(Snapshot{Gates: DefaultGates()}, p, now)
	if len(r.Findings) > 0 || r.Headline != "nothing blocks shop/x: Ready since 1h0m" {
		t.Errorf("report is %+v", r)
	}
}

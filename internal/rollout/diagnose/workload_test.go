// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

func event(reason, message string, ago time.Duration) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "CloneSet", Name: "web"}, Reason: reason, Message: message,
		Type: corev1.EventTypeWarning, Count: 1, LastTimestamp: metav1.NewTime(now.Add(-ago))}
}

func TestWorkload(t *testing.T) {
	type builders = []fixture.PodBuilder
	fresh := builders{updated("a"), updated("b"), updated("c")}
	notReady := now.Add(-2 * time.Minute)
	partition := func(v string) func(fixture.CloneSetBuilder) fixture.CloneSetBuilder {
		return func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder { return b.Partition(v) }
	}
	env := func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder {
		return b.Env("A", "1").Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)
	}
	unschedulable := updated("a").State(v1beta1.LifecyclePreparingNormal).With(func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "3 Insufficient cpu",
		}}}
	})
	cases := map[string]struct {
		set    fixture.CloneSetBuilder
		pods   builders
		change func(*Snapshot)
		want   string
		text   string
		next   string
	}{
		"a complete rollout has no finding": {set: set(), pods: fresh},
		"a controller that has not looked": {set(), fresh, func(s *Snapshot) {
			s.Facts.Generation = 9
			s.Manager = &Manager{Holder: "manager-1", Renewed: now.Add(-time.Hour), Ready: 0, Total: 2}
		}, "W01 Blocker", "0 of 2 manager pods are ready, the leader is manager-1, which renewed its lease 1h0m ago", "status"},
		"a pause":     {set(fixture.CloneSetBuilder.Paused), builders{old("a"), old("b"), updated("c")}, nil, "W02 Cause", "paused", "rollout resume cloneset/web"},
		"a partition": {set(partition("2")), builders{old("a"), old("b"), updated("c")}, nil, "W03 Note", "partition 2 keeps 2 of 3", "rollout partition cloneset/web 0"},
		"unavailable Pods that use up maxUnavailable": {set(), builders{updated("a").NotReady(notReady), old("b"), old("c")}, nil,
			"W04 Cause", "maxUnavailable 1 = 1 is used up; 2 pods waiting; unavailable: a", "why pod/a"},
		"a change that the policy forbids": {set(env), builders{old("a"), old("b"), old("c")}, nil,
			"W07 Blocker", "recreation, which podUpdatePolicy InPlaceOnly forbids, is needed by 3 pods: spec.template.spec.containers[app].env", "rollout undo cloneset/web"},
		"an exceeded deadline": {set(), fresh, func(s *Snapshot) {
			s.Facts.Deadline = &verdict.Deadline{Exceeded: true, Message: "timed out", Since: notReady, Seconds: 600, Field: "spec.progressDeadlineSeconds"}
		}, "W08 Blocker", "timed out", "rollout undo cloneset/web"},
		"a rollback that the partition holds": {set(partition("2")), builders{old("a"), updated("b"), updated("c")}, func(s *Snapshot) {
			s.Facts.CurrentRevision = s.Facts.UpdateRevision
		}, "W09 Blocker", "keeps 1 pod at another one", "rollout partition cloneset/web 0"},
		"Pods that wait for their deletion hook": {set(), builders{updated("a"), updated("b"), updated("c").State(v1beta1.LifecyclePreparingDelete)}, nil,
			"W10 Cause", "in PreparingDelete, waiting for the hook: 1 pod of 3 pods: c", "why pod/c"},
		"an image that is pulled beforehand": {set(), fresh, func(s *Snapshot) {
			s.Jobs = []v1beta1.ImagePullJob{{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Status: v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 1}}}
		}, "W11 Note", "1 of 3 nodes done", "image status j"},
		"creation that is refused": {set(), builders{updated("a"), updated("b")}, func(s *Snapshot) {
			s.Events = []corev1.Event{event("FailedCreate", "pods \"x\" is forbidden: exceeded quota", time.Minute)}
		}, "W12 Blocker", "pods cannot be created: pods \"x\" is forbidden: exceeded quota", ""},
		"creation that a dead webhook refuses": {set(), builders{updated("a"), updated("b")}, func(s *Snapshot) {
			s.Events = []corev1.Event{event("FailedCreate", "failed calling webhook \"x\"", time.Minute)}
		}, "W15 Blocker", "failed calling webhook", "status"},
		"creation that was refused but works again": {set(), builders{updated("a"), updated("b")}, func(s *Snapshot) {
			s.Events = []corev1.Event{
				event("FailedCreate", "quota", 2*time.Minute), event("SuccessfulCreate", "x", time.Minute),
			}
		}, "", "", ""},
		"no Pod may be down": {set(func(b fixture.CloneSetBuilder) fixture.CloneSetBuilder { return b.MaxUnavailable("0") }), builders{old("a"), old("b"), old("c")}, nil,
			"W14 Blocker", "maxUnavailable resolves to 0", "raise maxUnavailable"},
		"a Pod that cannot start": {set(), builders{updated("a").NotReady(notReady).With(waiting("ImagePullBackOff", "manifest unknown")), updated("b"), updated("c")}, nil,
			"W23 Blocker", "1 pod that cannot run; a: container app: ImagePullBackOff", "why pod/a"},
		"a Pod that no node takes": {set(), builders{unschedulable, updated("b"), updated("c")}, nil,
			"W23 Blocker", "1 pod that cannot run; a: no node takes the Pod: 3 Insufficient cpu", "why pod/a"},
		"a status that is behind": {set(), fresh, func(s *Snapshot) { s.Facts.Total = 2 }, "W22 Note", "the status counts 2 pods, and there are 3", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, b := range tc.pods {
				pods = append(pods, b.Obj())
			}
			s := snapshot(t, tc.set, pods...)
			if tc.change != nil {
				tc.change(&s)
			}
			r := Workload(s, now)
			if tc.want == "" && len(r.Findings) == 0 {
				return
			}
			check(t, Report{Object: r.Object, Findings: r.Findings, Headline: "x"}, tc.want, tc.text, tc.next)
		})
	}
}

func TestFaults(t *testing.T) {
	all := map[string]bool{}
	for _, k := range FaultKeys {
		all[k] = true
	}
	at := func(d time.Duration) time.Time { return now.Add(-d) }
	barrier := func(p *corev1.Pod) {
		waiting("CreateContainerConfigError", "no key")(p)
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "p_0"}}}}
	}
	unscheduled := func(d time.Duration) fixture.PodBuilder {
		return updated("a").With(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: "False", LastTransitionTime: metav1.NewTime(at(d))})
		})
	}
	restarted := func(n int32) fixture.PodBuilder {
		return updated("a").With(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = n })
	}
	cases := map[string]struct {
		pod  fixture.PodBuilder
		want string
	}{
		"a healthy Pod":                                       {updated("a"), ""},
		"a fault of an old Pod does not count":                {old("a").NotReady(at(time.Hour)).With(waiting("CrashLoopBackOff", "")), ""},
		"a config error":                                      {updated("a").NotReady(at(time.Minute)).With(waiting("CreateContainerConfigError", "")), "config"},
		"a config error of a moment ago":                      {updated("a").NotReady(at(5 * time.Second)).With(waiting("CreateContainerConfigError", "")), ""},
		"a launch barrier":                                    {updated("a").NotReady(at(time.Minute)).With(barrier), ""},
		"an image fault that lasts":                           {updated("a").NotReady(at(2 * time.Minute)).With(waiting("ImagePullBackOff", "")), "image"},
		"an image fault that may pass":                        {updated("a").NotReady(at(30 * time.Second)).With(waiting("ErrImagePull", "")), ""},
		"a crash loop":                                        {updated("a").NotReady(at(time.Second)).With(waiting("CrashLoopBackOff", "")), "crash"},
		"three more restarts than before":                     {restarted(5), "crash"},
		"two more restarts":                                   {restarted(4), ""},
		"restarts that in-place updates made":                 {restarted(5).Annotation(v1beta1.InPlaceUpdateStateAnnotation, `{"containerBatchesRecord":[{"containers":["app"]}]}`), ""},
		"no node for long":                                    {unscheduled(2 * time.Minute), "schedule"},
		"no node for a moment":                                {unscheduled(10 * time.Second), ""},
		"a Pod that runs without becoming ready for long":     {updated("a").NotReady(at(6 * time.Minute)), "probe"},
		"a Pod that runs without becoming ready for a minute": {updated("a").NotReady(at(time.Minute)), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := tc.pod.Obj()
			s := snapshot(t, set(), p)
			o := FaultOptions{Keys: all, After: time.Minute, Restarts: map[string]int{string(p.UID): 2}}
			got := ""
			for _, f := range Faults(s, o, now) {
				got = f.Code
			}
			if got != tc.want {
				t.Errorf("fault is %q, want %q", got, tc.want)
			}
			if none := Faults(s, FaultOptions{After: time.Minute}, now); len(none) > 0 {
				t.Errorf("without keys there is a fault: %v", none)
			}
		})
	}
	s := snapshot(t, set(), updated("a").Obj())
	s.Events = []corev1.Event{event("FailedUpdatePodInPlace", "failed to update pod a in-place", 0), event("FailedUpdatePodInPlace", "failed to update pod a in-place", 0)}
	if f := Faults(s, FaultOptions{Keys: all, After: time.Minute}, now); !slices.ContainsFunc(f, func(f verdict.Finding) bool { return f.Code == "inplace" }) {
		t.Errorf("two failed updates are no fault: %v", f)
	}
}

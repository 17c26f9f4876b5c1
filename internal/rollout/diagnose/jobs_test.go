// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
)

var jobNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(jobNow.Add(-d)) }

// codes are the findings as "I03 Blocker, I09 Note".
func codes(r Report) string {
	var words []string
	for _, f := range r.Findings {
		words = append(words, f.Code+" "+string(f.Severity))
	}
	return strings.Join(words, ", ")
}

func texts(r Report) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Message+" -> "+f.Next)
	}
	return strings.Join(lines, "\n")
}

// pullSnap is a job under way on nodes a (done), b (pulling) and c (in line).
func pullSnap(change ...func(*PullSnapshot)) PullSnapshot {
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "j", CreationTimestamp: before(time.Minute)}}
	job.Spec.Image = "web:2"
	job.Status = v1beta1.ImagePullJobStatus{Desired: 3, Active: 1, Succeeded: 1, StartTime: new(before(time.Minute))}
	s := PullSnapshot{Object: "imagepulljob/j", Where: "shop/j", Status: pull.Status{Job: job, Verdict: pull.Active, Queued: 1, Message: "1 of 3", Rows: []pull.Row{
		{Node: "a", Phase: "Succeeded", Started: jobNow.Add(-time.Minute), Ended: jobNow.Add(-30 * time.Second)},
		{Node: "b", Phase: "Pulling", Progress: 50, Started: jobNow.Add(-20 * time.Second)}, {Node: "c", Phase: pull.PhaseQueued},
	}}, Agents: map[string]bool{"a": true, "b": true, "c": true}}
	for _, c := range change {
		c(&s)
	}
	return s
}

func ended(v pull.Verdict, change func(*v1beta1.ImagePullJobStatus)) func(*PullSnapshot) {
	return func(s *PullSnapshot) {
		s.Status.Verdict, s.Status.Queued, s.Status.Rows = v, 0, nil
		s.Status.Job.Status.CompletionTime = new(before(time.Second))
		change(&s.Status.Job.Status)
	}
}

func notBegun(s *PullSnapshot) {
	s.Status.Job.Status, s.Status.Rows, s.Status.Queued = v1beta1.ImagePullJobStatus{}, nil, 0
}

func TestPullJobFindings(t *testing.T) {
	notReady := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	cases := map[string]struct {
		s    PullSnapshot
		want string
		says string
	}{
		"it goes its way":             {pullSnap(), "I09 Note, I12 Note", "about 50s left"},
		"the controller is new to it": {pullSnap(notBegun, func(s *PullSnapshot) { s.Status.Job.CreationTimestamp = before(time.Second) }), "I01 Cause", "has not begun"},
		"the controller is away":      {pullSnap(notBegun), "I01 Blocker", "-> status"},
		"the gate is off":             {pullSnap(notBegun, func(s *PullSnapshot) { s.GateOff = true }), "I01 Blocker", "feature-gates enable ImagePullJobGate"},
		"a node failed": {pullSnap(func(s *PullSnapshot) {
			s.Status.Rows[0] = pull.Row{Node: "a", Phase: "Failed", Message: "401 unauthorized"}
		}), "I03 Blocker, I09 Note, I12 Note", "1 node failed (a): 401 unauthorized -> image retry j"},
		"the deadline ended it": {pullSnap(ended(pull.Failed, func(s *v1beta1.ImagePullJobStatus) { s.Message, s.Failed = pull.DeadlineMessage, 2 })), "I02 Blocker", "1 of 3 nodes done"},
		"a node has no agent":   {pullSnap(func(s *PullSnapshot) { delete(s.Agents, "b") }), "I04 Blocker, I09 Note, I12 Note", "nobody pulls there: b"},
		"a node is down":        {pullSnap(func(s *PullSnapshot) { s.Nodes = map[string]*corev1.Node{"b": notReady} }), "I06 Blocker, I09 Note, I12 Note", "not Ready: b"},
		"an agent is silent": {pullSnap(func(s *PullSnapshot) {
			s.Status.Rows[1] = pull.Row{Node: "b", Phase: "Waiting", Started: jobNow.Add(-time.Minute)}
		}), "I10 Cause, I09 Note", "after 10 minutes"},
		"an agent has just been told": {pullSnap(func(s *PullSnapshot) {
			s.Status.Rows[1] = pull.Row{Node: "b", Phase: "Waiting", Started: jobNow.Add(-time.Second)}
		}), "I09 Note", ""},
		"a wanted node has no NodeImage": {pullSnap(func(s *PullSnapshot) { s.Wanted, s.Known = []string{"a", "z"}, map[string]bool{"a": true} }), "I05 Blocker, I09 Note, I12 Note", "leaves out: z"},
		"NodeImages are hidden":          {pullSnap(func(s *PullSnapshot) { s.Wanted = []string{"z"} }), "I09 Note, I12 Note", ""},
		"a secret is missing":            {pullSnap(func(s *PullSnapshot) { s.MissingSecrets = []string{"regcred"} }), "I07 Cause, I09 Note, I12 Note", `"regcred" does not exist`},
		"it is paused":                   {pullSnap(func(s *PullSnapshot) { s.Status.Job.Spec.Parallelism = new(intstr.FromInt32(0)) }), "I08 Blocker, I12 Note", "parallelism is 0"},
		"it selects nothing":             {pullSnap(ended(pull.Succeeded, func(s *v1beta1.ImagePullJobStatus) { *s = v1beta1.ImagePullJobStatus{StartTime: s.StartTime} })), "I11 Cause", "means no node"},
		"all is well":                    {pullSnap(ended(pull.Succeeded, func(s *v1beta1.ImagePullJobStatus) { s.Succeeded = 3 })), "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := PullJob(tc.s, jobNow)
			if codes(r) != tc.want || !strings.Contains(texts(r), tc.says) || r.Headline == "" {
				t.Errorf("findings are %q, want %q with %q:\n%s\n%s", codes(r), tc.want, tc.says, r.Headline, texts(r))
			}
		})
	}
}

// recreateSnap is a request whose container app was killed and runs again, not yet ready.
func recreateSnap(change ...func(*RecreateSnapshot)) RecreateSnapshot {
	crr := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r", CreationTimestamp: before(20 * time.Second)}}
	crr.Spec = v1beta1.ContainerRecreateRequestSpec{PodName: "p", Containers: []v1beta1.RecreateContainer{{Name: "app"}}, ActiveDeadlineSeconds: new(int64(300))}
	crr.Status = v1beta1.ContainerRecreateRequestStatus{Phase: v1beta1.RecreateRecreating, ContainerRecreateStates: []v1beta1.RecreateState{{Name: "app", Phase: v1beta1.RecreateRecreating, IsKilled: true}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "app"}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: before(10 * time.Second)}}}}
	s := RecreateSnapshot{Object: "containerrecreaterequest/r", Where: "shop/r", Request: crr, Pod: pod, Agents: map[string]bool{"n": true}}
	for _, c := range change {
		c(&s)
	}
	return s
}

func phase(p v1beta1.RecreatePhase) func(*RecreateSnapshot) {
	return func(s *RecreateSnapshot) { s.Request.Status = v1beta1.ContainerRecreateRequestStatus{Phase: p} }
}

func over(message string) func(*RecreateSnapshot) {
	return func(s *RecreateSnapshot) {
		s.Request.Status.Phase, s.Request.Status.Message = v1beta1.RecreateCompleted, message
	}
}

func appState(st corev1.ContainerState) func(*RecreateSnapshot) {
	return func(s *RecreateSnapshot) { s.Pod.Status.ContainerStatuses[0].State = st }
}

func TestRecreateFindings(t *testing.T) {
	exited := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: before(time.Second)}}
	crash := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	grace := func(s *RecreateSnapshot) {
		s.Request.Spec.Strategy = &v1beta1.RecreateStrategy{UnreadyGracePeriodSeconds: new(int64(30))}
	}
	cases := map[string]struct {
		s    RecreateSnapshot
		want string
		says string
	}{
		"a container is not ready again": {recreateSnap(), "C06 Cause", "runs and is not ready -> kubectl logs p -n shop -c app"},
		"a container crashes":            {recreateSnap(appState(crash)), "C06 Blocker", "CrashLoopBackOff"},
		"a container has just exited":    {recreateSnap(appState(exited)), "C06 Cause", "the kubelet starts it next"},
		"a container stays dead": {recreateSnap(appState(exited), func(s *RecreateSnapshot) { s.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever }),
			"C07 Blocker", "restart policy is Never"},
		"a container stays dead for ever": {recreateSnap(appState(exited), func(s *RecreateSnapshot) {
			s.Pod.Spec.RestartPolicy, s.Request.Spec.ActiveDeadlineSeconds = corev1.RestartPolicyOnFailure, nil
		}), "C07 Blocker, C13 Note", "container cancel r"},
		"a container must run a while": {recreateSnap(func(s *RecreateSnapshot) {
			s.Pod.Status.ContainerStatuses[0].Ready = true
			s.Request.Spec.Strategy = &v1beta1.RecreateStrategy{MinStartedSeconds: 60}
		}), "C06 Note", "must run for 60s"},
		"the pod was evicted":    {recreateSnap(func(s *RecreateSnapshot) { s.Pod.Status.Phase, s.Pod.Status.Reason = corev1.PodFailed, "Evicted" }), "C08 Blocker, C06 Cause", "Failed Evicted"},
		"nobody has taken it up": {recreateSnap(phase("")), "C01 Cause", "in 40s the request is given up"},
		"there is no agent":      {recreateSnap(phase(""), func(s *RecreateSnapshot) { s.Agents = map[string]bool{"m": true} }), "C02 Blocker", "node n has no node agent"},
		"the node is down":       {recreateSnap(phase(""), func(s *RecreateSnapshot) { s.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}} }), "C03 Blocker, C01 Cause", "not Ready"},
		"another request is before": {recreateSnap(phase(v1beta1.RecreatePending), func(s *RecreateSnapshot) {
			first := *s.Request.DeepCopy()
			first.Name, first.CreationTimestamp, first.Status.Phase = "first", before(time.Hour), v1beta1.RecreateRecreating
			s.Others = []v1beta1.ContainerRecreateRequest{*s.Request, first}
		}), "C04 Cause", "before it: first -> why containerrecreaterequest/first"},
		"the pod is being drained": {recreateSnap(grace, func(s *RecreateSnapshot) {
			s.Pod.Status.ContainerStatuses = nil
			s.Request.Status.Conditions = []metav1.Condition{{Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue, LastTransitionTime: before(10 * time.Second)}}
		}), "C05 Note", "given 20s more"},
		"the manager does not drain it": {recreateSnap(grace, func(s *RecreateSnapshot) { s.Pod.Status.ContainerStatuses = nil }), "C05 Cause", "has not made the pod not ready"},
		"the pod is gone":               {recreateSnap(func(s *RecreateSnapshot) { s.Pod = nil }), "C12 Blocker", "pod p is gone"},
		"the deadline ended it":         {recreateSnap(over(recreate.MessageDeadlineExceeded)), "C09 Blocker", "app (Recreating) -> container restart p"},
		"the agent never answered":      {recreateSnap(over(recreate.MessageNoAnswer)), "C11 Blocker", "within a minute"},
		"the pod went meanwhile":        {recreateSnap(over(recreate.MessagePodGone)), "C12 Blocker", "meanwhile"},
		"a container failed": {recreateSnap(over(""), func(s *RecreateSnapshot) {
			s.Request.Status.ContainerRecreateStates[0] = v1beta1.RecreateState{Name: "app", Phase: v1beta1.RecreateFailed, Message: "boom"}
		}), "C10 Blocker", "app (Failed: boom)"},
		"all came back": {recreateSnap(over(""), func(s *RecreateSnapshot) {
			s.Request.Status.ContainerRecreateStates[0].Phase = v1beta1.RecreateSucceeded
		}), "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := Recreate(tc.s, jobNow)
			if codes(r) != tc.want || !strings.Contains(texts(r), tc.says) || r.Headline == "" {
				t.Errorf("findings are %q, want %q with %q:\n%s\n%s", codes(r), tc.want, tc.says, r.Headline, texts(r))
			}
		})
	}
}

// Every code has its word, and no two tables share one.
func TestJobCodesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, names := range []map[string]string{podNames, workloadNames, pullNames, recreateNames} {
		for code, name := range names {
			if name == "" || seen[code] {
				t.Errorf("code %s has the name %q, or is used twice", code, name)
			}
			seen[code] = true
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// Verdict is how a request stands.
type Verdict string

// The verdicts.
const (
	Running   Verdict = "Running"
	Succeeded Verdict = "Succeeded"
	// Failed: a container could not be killed.
	Failed Verdict = "Failed"
	// DeadlineExceeded: it was completed with containers that have not come back.
	DeadlineExceeded Verdict = "DeadlineExceeded"
	// NoAnswer: the node agent never took it up.
	NoAnswer Verdict = "NoAnswer"
	// PodGone: the Pod was deleted or replaced.
	PodGone Verdict = "PodGone"
)

// Row is one container.
type Row struct {
	Container string                `json:"container"`
	Phase     v1beta1.RecreatePhase `json:"phase"`
	Killed    bool                  `json:"killed"`
	// Old and New are the first 8 characters of the container's ID; New is "" until another
	// one runs.
	Old string `json:"oldContainerID"`
	New string `json:"newContainerID"`
	// Restarts is the restart count now.
	Restarts int32  `json:"restarts"`
	Ready    bool   `json:"ready"`
	Message  string `json:"message"`
}

// Status is a request with its containers.
type Status struct {
	Request *v1beta1.ContainerRecreateRequest
	Verdict Verdict
	// Message is one sentence.
	Message string
	// Rows are in the order of the spec.
	Rows []Row
}

// Of reads a request, together with its Pod as far as that is known: nil is allowed. A
// completed request is judged by its containers: its phase is the same when a deadline ended
// it.
func Of(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod) Status {
	st := Status{Request: crr}
	if pod != nil && !forPod(crr, pod) {
		pod = nil
	}
	done, failed := 0, ""
	for _, c := range crr.Spec.Containers {
		r := row(crr, pod, c)
		switch r.Phase {
		case v1beta1.RecreateSucceeded:
			done++
		case v1beta1.RecreateFailed:
			failed = r.Container
		}
		st.Rows = append(st.Rows, r)
	}
	n := len(st.Rows)
	count := fmt.Sprintf("%d of %d containers restarted", done, n)
	if n == 1 {
		count = fmt.Sprintf("%d of 1 container restarted", done)
	}
	message := crr.Status.Message
	reason := ""
	if c := meta.FindStatusCondition(crr.Status.Conditions, recreate.ConditionFailed); c != nil {
		reason = c.Reason
	}
	switch {
	case crr.Status.Phase != v1beta1.RecreateCompleted:
		st.Verdict, st.Message = Running, count+waits(crr)
	case done == n:
		st.Verdict, st.Message = Succeeded, count
	case message == recreate.MessageNoAnswer:
		st.Verdict, st.Message = NoAnswer, "the node agent did not answer: "+message
	case message == recreate.MessagePodGone:
		st.Verdict, st.Message = PodGone, "the pod was deleted or replaced meanwhile"
	case reason == recreate.ReasonNoRuntime, strings.HasPrefix(message, "failed to find runtime service"):
		st.Verdict, st.Message = Failed, message
	case reason == recreate.ReasonNotRestarted:
		st.Verdict, st.Message = Failed, count+": "+message
	case failed != "":
		st.Verdict, st.Message = Failed, count+", container "+failed+" failed"
	default:
		st.Verdict, st.Message = DeadlineExceeded, count+" when the request ended"
		if message != "" {
			st.Message += ": " + message
		}
	}
	return st
}

// waits says what a request that has not ended waits for.
func waits(crr *v1beta1.ContainerRecreateRequest) string {
	switch crr.Status.Phase {
	case "":
		return ", waits for the node agent"
	case v1beta1.RecreatePending:
		return ", waits for an earlier request for the pod"
	}
	return ""
}

func row(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod, c v1beta1.RecreateContainer) Row {
	r := Row{Container: c.Name, Phase: v1beta1.RecreatePending}
	if s, ok := recreate.StateOf(crr.Status.ContainerRecreateStates, c.Name); ok {
		r.Phase, r.Killed, r.Message = s.Phase, s.IsKilled, s.Message
	}
	old, now := "", ""
	if c.StatusContext != nil {
		old = c.StatusContext.ContainerID
		r.Restarts = c.StatusContext.RestartCount
	}
	for _, s := range crr.Status.ContainerStatusSnapshot {
		if s.Name == c.Name {
			now, r.Restarts, r.Ready = s.ContainerID, s.RestartCount, s.Ready
		}
	}
	if pod != nil {
		if s := recreate.ContainerStatus(pod, c.Name); s != nil && s.ContainerID != "" {
			now, r.Restarts, r.Ready = s.ContainerID, s.RestartCount, s.Ready
		}
	}
	r.Old = short(old)
	if now != old {
		r.New = short(now)
	}
	return r
}

// short is the first 8 characters of an ID, without the runtime before it.
func short(id string) string {
	if _, own := recreate.SplitID(id); own != "" {
		id = own
	}
	return id[:min(8, len(id))]
}

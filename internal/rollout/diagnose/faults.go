// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// FaultKeys are the values of --fail-on (cli.md 3.4). Deadline and blocked come from the
// verdict; the others look at Pods of the update revision.
var FaultKeys = []string{"deadline", "blocked", "config", "image", "crash", "schedule", "probe", "inplace"}

// FaultOptions say what counts as a fault.
type FaultOptions struct {
	Keys map[string]bool
	// After is how long image and schedule faults may last; probe faults five times that.
	After time.Duration
	// Restarts is the number of restarts of each Pod, by UID, when watching began.
	Restarts map[string]int
}

const (
	configAfter   = 10 * time.Second
	restartsGrown = 3
)

// Faults finds Pods of the update revision that will not get well by waiting.
func Faults(s Snapshot, o FaultOptions, now time.Time) []verdict.Finding {
	var list []verdict.Finding
	for _, p := range s.Pods {
		if !revision.SameRevision(p.Labels[appsv1.ControllerRevisionHashLabelKey], s.Facts.UpdateRevision) {
			continue
		}
		key, message, since := fault(s, p, o, now)
		if key == "" {
			continue
		}
		list = append(list, verdict.Finding{
			Code: key, Name: "FailOn" + title(key), Severity: verdict.Blocker, Object: "pod/" + p.Name, Message: p.Name + ": " + message,
			Evidence: map[string]string{"failOn": key}, Since: timeOrNil(since), Next: "why pod/" + p.Name,
		})
	}
	return list
}

func fault(s Snapshot, p *corev1.Pod, o FaultOptions, now time.Time) (key, message string, since time.Time) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if key, message, since = containerFault(p, &list[i], o, now); key != "" {
				return key, message, since
			}
		}
	}
	if grown := Restarts(p) - o.Restarts[string(p.UID)] - plannedRestarts(p); o.Keys["crash"] && grown >= restartsGrown {
		return "crash", fmt.Sprintf("%d more restarts since watching began", grown), notReadySince(p)
	}
	if c := condition(p, corev1.PodScheduled); o.Keys["schedule"] && c != nil && c.Status == corev1.ConditionFalse && now.Sub(c.LastTransitionTime.Time) >= o.After {
		return "schedule", "no node takes the pod: " + c.Message, c.LastTransitionTime.Time
	}
	if c := condition(p, corev1.PodReady); o.Keys["probe"] && p.Status.Phase == corev1.PodRunning && c != nil && c.Status != corev1.ConditionTrue &&
		now.Sub(c.LastTransitionTime.Time) >= 5*o.After {
		return "probe", "runs but is not ready for " + ago(now.Sub(c.LastTransitionTime.Time)), c.LastTransitionTime.Time
	}
	if n := inPlaceFailures(s, p); o.Keys["inplace"] && n >= 2 {
		return "inplace", fmt.Sprintf("the controller could not update it, %d times", n), time.Time{}
	}
	return "", "", time.Time{}
}

func containerFault(p *corev1.Pod, cs *corev1.ContainerStatus, o FaultOptions, now time.Time) (key, message string, since time.Time) {
	w := cs.State.Waiting
	if w == nil {
		return "", "", time.Time{}
	}
	since = notReadySince(p)
	lasted := now.Sub(since)
	text := fmt.Sprintf("container %s: %s", cs.Name, w.Reason)
	if w.Message != "" {
		text += ": " + firstLine(w.Message)
	}
	config := slices.Contains([]string{"CreateContainerConfigError", "InvalidImageName", "CreateContainerError", "RunContainerError"}, w.Reason)
	switch {
	case o.Keys["config"] && config && lasted >= configAfter && barrierKey(p, cs.Name) == "":
		return "config", text, since
	case o.Keys["image"] && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") && lasted >= o.After:
		return "image", text, since
	case o.Keys["crash"] && w.Reason == "CrashLoopBackOff":
		return "crash", text, since
	}
	return "", "", time.Time{}
}

// plannedRestarts are the batches of an in-place update: each restarts containers on
// purpose.
func plannedRestarts(p *corev1.Pod) int {
	st, err := inplace.StateOf(p)
	if err != nil || st == nil {
		return 0
	}
	n := 0
	for _, b := range st.ContainerBatchesRecord {
		n += len(b.Containers)
	}
	return n
}

func inPlaceFailures(s Snapshot, p *corev1.Pod) int {
	n := 0
	for _, e := range s.Events {
		if (e.Reason == "FailedUpdatePodInPlace" || e.Reason == "FailedUpdatePodReCreate") && containsWord(e.Message, p.Name) {
			n += max(1, int(e.Count))
		}
	}
	return n
}

func containsWord(text, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i:i+len(word)] == word && (i+len(word) == len(text) || text[i+len(word)] == ' ') {
			return true
		}
	}
	return false
}

func title(s string) string {
	if s == "" {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// progressing is what condition Progressing says for each of its reasons; the revision is
// the update revision.
func progressing(reason, revision string) (corev1.ConditionStatus, string) {
	switch reason {
	case "CloneSetAvailable":
		return corev1.ConditionTrue, "CloneSet is available"
	case "CloneSetPaused":
		return corev1.ConditionTrue, "CloneSet is paused"
	case "ProgressPartitionAvailable":
		return corev1.ConditionTrue, "CloneSet has been paused due to partition ready"
	case "ProgressDeadlineExceeded":
		return corev1.ConditionFalse, "CloneSet revision " + revision + " has timed out progressing"
	default:
		return corev1.ConditionTrue, "CloneSet is progressing"
	}
}

// conditionIs returns "" if condition Progressing of cs has the reason, and the status and
// the words that go with it.
func conditionIs(cs *v1beta1.CloneSet, reason string) string {
	status, message := progressing(reason, cs.Status.UpdateRevision)
	for _, c := range cs.Status.Conditions {
		if c.Type != v1beta1.CloneSetConditionProgressing {
			continue
		}
		if c.Status == status && c.Reason == reason && c.Message == message {
			return ""
		}
		return fmt.Sprintf("condition is %s, %s: %s", c.Status, c.Reason, c.Message)
	}
	return "no condition Progressing"
}

// waitCondition waits until the last change was seen and condition Progressing has the reason.
func waitCondition(e *harness.Env, reason string) {
	e.T.Helper()
	e.Eventually("condition "+reason, harness.Long, func() string {
		cs := e.CloneSet("web")
		if cs.Status.ObservedGeneration < cs.Generation {
			return "the controller has not seen the last change"
		}
		return conditionIs(cs, reason)
	})
}

// waitStatus waits until the last change was seen and ok holds.
func waitStatus(e *harness.Env, what string, ok func(v1beta1.CloneSetStatus) bool) {
	e.T.Helper()
	e.Eventually(what, harness.Long, func() string {
		cs := e.CloneSet("web")
		if cs.Status.ObservedGeneration < cs.Generation {
			return "the controller has not seen the last change"
		}
		if ok(cs.Status) {
			return ""
		}
		return fmt.Sprintf("status %+v", cs.Status)
	})
}

// waitState waits until the Pod is in a state of its lifecycle.
func waitState(e *harness.Env, pod string, state v1beta1.LifecycleState) {
	e.T.Helper()
	e.Eventually(fmt.Sprintf("Pod %s is in %s", pod, state), harness.Short, func() string {
		if got := getPod(e, pod).Labels[v1beta1.LifecycleStateLabel]; got != string(state) {
			return "state " + got
		}
		return ""
	})
}

func getPod(e *harness.Env, name string) *corev1.Pod {
	e.T.Helper()
	pod := &corev1.Pod{}
	require.NoError(e.T, e.Client.Get(e.Ctx(), e.Key(name), pod))
	return pod
}

// theOnlyPod returns the Pod of web, which must be the only one.
func theOnlyPod(e *harness.Env) corev1.Pod {
	e.T.Helper()
	pods := e.Pods("web")
	require.Len(e.T, pods, 1, "Pods of web")
	return pods[0]
}

// patchPod merges a patch into a Pod.
func patchPod(e *harness.Env, name, patch string) {
	e.T.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = e.Namespace, name
	require.NoError(e.T, e.Client.Patch(e.Ctx(), pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// status returns what the Pod says of a container.
func status(e *harness.Env, p corev1.Pod, container string) corev1.ContainerStatus {
	e.T.Helper()
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	require.GreaterOrEqual(e.T, i, 0, "container %s in the status of Pod %s", container, p.Name)
	return p.Status.ContainerStatuses[i]
}

// envInside reads a variable inside the running container "app".
func envInside(e *harness.Env, pod, name string) string {
	e.T.Helper()
	var out string
	e.Eventually("reading "+name+" inside Pod "+pod, harness.Short, func() string {
		r, err := harness.Run(e.Ctx(), "", harness.Kubectl(), "-n", e.Namespace, "exec", pod, "-c", "app", "--", "sh", "-c", "echo $"+name)
		require.NoError(e.T, err)
		if r.Code != 0 {
			return r.Text()
		}
		out = r.Stdout
		return ""
	})
	return out
}

// record is the part of the in-place state annotation that scenarios look at.
type record struct {
	NextContainerImages    map[string]string `json:"nextContainerImages"`
	ContainerBatchesRecord []struct {
		Containers []string `json:"containers"`
	} `json:"containerBatchesRecord"`
}

func (r record) batches() [][]string {
	var all [][]string
	for _, b := range r.ContainerBatchesRecord {
		all = append(all, b.Containers)
	}
	return all
}

func recordOf(e *harness.Env, p corev1.Pod) record {
	e.T.Helper()
	var r record
	require.NoError(e.T, json.Unmarshal([]byte(p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]), &r))
	return r
}

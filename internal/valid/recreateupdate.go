// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// ContainerRecreateRequestUpdate returns why an UPDATE must be denied with 403, nil when it may go
// ahead: nothing of a request ever changes but what its controller and agent write.
// (container-recreate.md 3, rules 1 and 2 of UPDATE.)
func ContainerRecreateRequestUpdate(old, crr *v1beta1.ContainerRecreateRequest) error {
	if !apiequality.Semantic.DeepEqual(old.Spec, crr.Spec) {
		return fmt.Errorf("spec of ContainerRecreateRequest is immutable; create another one")
	}
	for _, key := range []string{v1beta1.RecreatePodUIDLabel, v1beta1.RecreateNodeNameLabel} {
		if old.Labels[key] != crr.Labels[key] {
			return fmt.Errorf("not allowed to update immutable label %s", key)
		}
	}
	return nil
}

// KeepRecreateFields puts into crr, the new object of an UPDATE, what it leaves out and its author
// could not know: all that CREATE has filled in. So a manifest can be applied again, and clients
// that do not know every field do not change the spec by leaving it out.
func KeepRecreateFields(old, crr *v1beta1.ContainerRecreateRequest) {
	if was := old.Spec.Strategy; was != nil {
		if crr.Spec.Strategy == nil {
			crr.Spec.Strategy = &v1beta1.RecreateStrategy{}
		}
		is := crr.Spec.Strategy
		if is.FailurePolicy == "" {
			is.FailurePolicy = was.FailurePolicy
		}
		if is.TerminationGracePeriodSeconds == nil && was.TerminationGracePeriodSeconds != nil {
			is.TerminationGracePeriodSeconds = new(*was.TerminationGracePeriodSeconds)
		}
	}
	if len(old.Spec.Containers) != len(crr.Spec.Containers) {
		return
	}
	for i := range crr.Spec.Containers {
		was, is := old.Spec.Containers[i].DeepCopy(), &crr.Spec.Containers[i]
		if was.Name != is.Name {
			return
		}
		if is.PreStop == nil || *is.PreStop == (v1beta1.RecreatePreStop{}) {
			is.PreStop = was.PreStop
		}
		if len(is.Ports) == 0 {
			is.Ports = was.Ports
		}
		if is.StatusContext == nil {
			is.StatusContext = was.StatusContext
		}
	}
}

// ContainerRecreateRequestWarnings returns what to tell the author of a valid request for pod,
// after it was filled in.
func ContainerRecreateRequestWarnings(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod) []string {
	spec := field.NewPath("spec")
	var out []string
	if pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		out = append(out, warning(spec.Child("podName"), "this Pod has restartPolicy Never: its containers are stopped and not started again"))
	}
	s := crr.Spec.Strategy
	if s == nil {
		return out
	}
	path := spec.Child("strategy")
	if s.UnreadyGracePeriodSeconds != nil && !podready.HasGate(pod, v1beta1.KruisePodReady) {
		out = append(out, warning(path.Child("unreadyGracePeriodSeconds"),
			"the time passes without effect, as the Pod has no readiness gate %s: it stays in service", v1beta1.KruisePodReady))
	}
	if n := crr.Spec.ActiveDeadlineSeconds; n != nil {
		least := int64(max(s.MinStartedSeconds, 0))
		if s.UnreadyGracePeriodSeconds != nil {
			least += *s.UnreadyGracePeriodSeconds
		}
		if *n <= least {
			out = append(out, warning(spec.Child("activeDeadlineSeconds"),
				"%d is over before the request can succeed: unreadyGracePeriodSeconds and minStartedSeconds are %d together", *n, least))
		}
	}
	if s.MinStartedSeconds < 0 {
		out = append(out, warning(path.Child("minStartedSeconds"), "%d has the effect of 0", s.MinStartedSeconds))
	}
	for i := range crr.Spec.Containers {
		out = append(out, hookWarnings(&crr.Spec.Containers[i], s.TerminationGracePeriodSeconds, spec.Child("containers").Index(i))...)
	}
	return out
}

// ContainerRecreateRequestQueue returns what to tell the author of crr of the others for the same
// Pod that are not done yet.
func ContainerRecreateRequestQueue(crr *v1beta1.ContainerRecreateRequest, others []v1beta1.ContainerRecreateRequest) []string {
	var names []string
	for i := range others {
		if o := &others[i]; o.Name != crr.Name && o.Status.CompletionTime == nil && o.DeletionTimestamp == nil {
			names = append(names, o.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{warning(field.NewPath("spec", "podName"), "the request waits until others for this Pod are done: %s", strings.Join(names, ", "))}
}

func hookWarnings(c *v1beta1.RecreateContainer, grace *int64, path *field.Path) []string {
	var out []string
	switch {
	case c.PreStop == nil:
	case grace != nil && *grace == 0:
		out = append(out, warning(path.Child("preStop"), "does not run, as terminationGracePeriodSeconds is 0"))
	case c.PreStop.TCPSocket != nil:
		out = append(out, warning(path.Child("preStop", "tcpSocket"), "is no hook that can run; the container is stopped without it"))
	case grace != nil && c.PreStop.Sleep != nil && c.PreStop.Sleep.Seconds > *grace:
		out = append(out, warning(path.Child("preStop", "sleep"), "%d seconds are cut to terminationGracePeriodSeconds (%d)", c.PreStop.Sleep.Seconds, *grace))
	}
	return out
}

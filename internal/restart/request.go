// SPDX-License-Identifier: Apache-2.0

// Package restart knows how a person restarts containers with ContainerRecreateRequests:
// which containers of a Pod can be restarted, what a request says of how it ended, and which
// Pods of many come next (cli.md 5.5 and 8, container-recreate.md). It is pure.
package restart

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// RestartIDLabel on requests names the run of many Pods that they belong to.
const RestartIDLabel = "cli.kruise.io/restart-id"

// hotUpgradeAnnotation maps a sidecar to the one of its two containers that works.
const hotUpgradeAnnotation = "kruise.io/sidecarset-working-hotupgrade-container"

// ErrDuplicate is wrapped by the error for a container that is named twice: that is wrong
// with any Pod.
var ErrDuplicate = errors.New("named twice")

// Options become fields of a request.
type Options struct {
	FailurePolicy v1beta1.RecreateFailurePolicy
	Ordered       bool
	// Kill containers once even if they have restarted since the request was made.
	Kill bool
	// Grace is the Pod's where nil; UnreadyGrace nil does not make the Pod not ready. Seconds.
	Grace, UnreadyGrace *int64
	MinStarted          int32
	// Deadline and TTL in seconds; nil is without.
	Deadline *int64
	TTL      *int32
	Labels   map[string]string
}

// Request is the request for containers of pod, in the order in which they are to be killed.
// What the webhook fills in is left out.
func Request(pod *corev1.Pod, name string, containers []string, o Options) *v1beta1.ContainerRecreateRequest {
	crr := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name, Labels: o.Labels},
		Spec: v1beta1.ContainerRecreateRequestSpec{
			PodName: pod.Name,
			Strategy: &v1beta1.RecreateStrategy{
				FailurePolicy: o.FailurePolicy, OrderedRecreate: o.Ordered, ForceRecreate: o.Kill,
				TerminationGracePeriodSeconds: o.Grace, UnreadyGracePeriodSeconds: o.UnreadyGrace, MinStartedSeconds: o.MinStarted,
			},
			ActiveDeadlineSeconds: o.Deadline, TTLSecondsAfterFinished: o.TTL,
		},
	}
	for _, c := range containers {
		crr.Spec.Containers = append(crr.Spec.Containers, v1beta1.RecreateContainer{Name: c})
	}
	return crr
}

// Restartable says why containers of pod cannot be restarted; nil when they can. force
// allows what is possible and rarely wanted.
func Restartable(pod *corev1.Pod, force bool) error {
	switch {
	case pod.DeletionTimestamp != nil:
		return errors.New("it is being deleted")
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return fmt.Errorf("it has ended (%s)", pod.Status.Phase)
	case pod.Spec.NodeName == "":
		return errors.New("it is Pending: no node has it yet")
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return errors.New("it is Pending: its containers have not started yet")
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever && !force:
		return errors.New("its restartPolicy is Never: the containers would stay dead")
	}
	return nil
}

// Choose are the containers of pod to restart: those asked for, in that order, or all app
// containers but the empty ones of hot upgrades.
func Choose(pod *corev1.Pod, asked []string) ([]string, error) {
	if len(asked) == 0 {
		return appContainers(pod), nil
	}
	for i, name := range asked {
		if slices.Contains(asked[:i], name) {
			return nil, fmt.Errorf("container %q is %w", name, ErrDuplicate)
		}
		if err := known(pod, name); err != nil {
			return nil, err
		}
	}
	return asked, nil
}

func appContainers(pod *corev1.Pod) []string {
	idle := idleTwins(pod)
	var names []string
	for _, c := range pod.Spec.Containers {
		if !idle[c.Name] {
			names = append(names, c.Name)
		}
	}
	return names
}

// idleTwins are the containers of hot-upgraded sidecars that only wait for the next upgrade.
func idleTwins(pod *corev1.Pod) map[string]bool {
	working := map[string]string{}
	if json.Unmarshal([]byte(pod.Annotations[hotUpgradeAnnotation]), &working) != nil {
		return nil
	}
	idle := map[string]bool{}
	for sidecar, name := range working {
		for _, twin := range []string{sidecar + "-1", sidecar + "-2"} {
			idle[twin] = twin != name
		}
	}
	return idle
}

func known(pod *corev1.Pod, name string) error {
	var names []string
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			return started(pod, name)
		}
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name != name {
			continue
		}
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return nil // a sidecar: the server decides
		}
		return fmt.Errorf("container %q is an init container: it has done its work and is not restarted", name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			return fmt.Errorf("container %q is an ephemeral container: the kubelet never restarts those", name)
		}
	}
	return fmt.Errorf("no container is named %q; there are %s", name, strings.Join(names, ", "))
}

func started(pod *corev1.Pod, name string) error {
	if s := recreate.ContainerStatus(pod, name); s != nil && s.ContainerID != "" {
		return nil
	}
	return fmt.Errorf("container %q has not started yet", name)
}

// Active are the names of the requests for pod that have not ended, oldest first.
func Active(pod *corev1.Pod, all []v1beta1.ContainerRecreateRequest) []string {
	var mine []v1beta1.ContainerRecreateRequest
	for _, c := range all {
		if c.Spec.PodName == pod.Name && c.Status.Phase != v1beta1.RecreateCompleted && c.DeletionTimestamp == nil && forPod(&c, pod) {
			mine = append(mine, c)
		}
	}
	slices.SortStableFunc(mine, func(a, b v1beta1.ContainerRecreateRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	var names []string
	for _, c := range mine {
		names = append(names, c.Name)
	}
	return names
}

// forPod: the request speaks of this very Pod, not of one of the same name before it.
func forPod(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod) bool {
	uid := crr.Labels[v1beta1.RecreatePodUIDLabel]
	return uid == "" || uid == string(pod.UID)
}

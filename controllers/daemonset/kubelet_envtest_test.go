// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/podready"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// kubelet stands in for scheduler and kubelets: it binds Pods, runs their containers,
// restarts those whose image changed, and ends Pods that are deleted. Images whose name
// begins with "bad" cannot be pulled; Pods of scheduler "nobody" are never bound, and those
// with the label hang do not end.
type kubelet struct{ client client.Client }

func (k *kubelet) run(ctx context.Context) {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var pods corev1.PodList
		if err := k.client.List(ctx, &pods); err != nil {
			continue
		}
		for i := range pods.Items {
			k.sync(ctx, &pods.Items[i]) // errors are conflicts: the next tick tries again
		}
	}
}

func (k *kubelet) sync(ctx context.Context, pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil && pod.Labels["hang"] != "":
	case pod.DeletionTimestamp != nil:
		_ = k.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Spec.SchedulerName == "nobody":
	case pod.Spec.NodeName == "":
		_ = k.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: plan.TargetNode(pod)},
		})
	case pod.Status.Phase == corev1.PodFailed:
	default:
		next := pod.DeepCopy()
		k.status(next)
		if !equality.Semantic.DeepEqual(pod.Status, next.Status) {
			_ = k.client.Status().Update(ctx, next)
		}
	}
}

func (k *kubelet) status(pod *corev1.Pod) {
	now := time.Now()
	old := map[string]corev1.ContainerStatus{}
	for _, s := range pod.Status.ContainerStatuses {
		old[s.Name] = s
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ObservedGeneration = pod.Generation
	pod.Status.ContainerStatuses = nil
	allReady := true
	for _, c := range pod.Spec.Containers {
		s, ran := old[c.Name]
		switch {
		case strings.HasPrefix(c.Image, "bad"):
			s.Name, s.Ready, s.Image = c.Name, false, c.Image
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
		case !ran || s.Image != c.Image:
			if ran {
				s.RestartCount++
			}
			s.Name, s.Ready, s.Image, s.ImageID = c.Name, true, c.Image, "sha256:"+c.Image
			s.ContainerID = fmt.Sprintf("fake://%s-%s-%d", pod.UID, c.Name, s.RestartCount)
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Truncate(time.Second))}}
		}
		allReady = allReady && s.Ready
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	set := func(t corev1.PodConditionType, is bool) {
		status := corev1.ConditionFalse
		if is {
			status = corev1.ConditionTrue
		}
		podready.SetCondition(pod, corev1.PodCondition{Type: t, Status: status}, now)
	}
	set(corev1.ContainersReady, allReady)
	for _, g := range pod.Spec.ReadinessGates {
		c := podready.Condition(pod, g.ConditionType)
		allReady = allReady && c != nil && c.Status == corev1.ConditionTrue
	}
	set(corev1.PodReady, allReady)
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// kubelet stands in for scheduler and kubelets: it binds Pods, runs their containers,
// restarts those whose image, environment from metadata or resources changed, reports as the
// node agent does, and ends Pods that are deleted. Images whose name
// begins with "bad" cannot be pulled; Pods of scheduler "nobody" are never bound.
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
	case pod.DeletionTimestamp != nil:
		_ = k.client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Spec.SchedulerName == "nobody":
	case pod.Spec.NodeName == "":
		_ = k.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node1"},
		})
	case pod.Status.Phase == corev1.PodFailed:
	default:
		next := pod.DeepCopy()
		k.status(next)
		if !equality.Semantic.DeepEqual(pod.Status, next.Status) || !equality.Semantic.DeepEqual(pod.Annotations, next.Annotations) {
			_ = k.client.Status().Update(ctx, next)
		}
	}
}

// restarts tells whether the kubelet, for the image or a resize, or the node agent, for the
// environment of a Pod that is being updated, restarts the container.
func (k *kubelet) restarts(pod *corev1.Pod, c *corev1.Container, rec *runtimehash.ContainerMeta, s *corev1.ContainerStatus) bool {
	if !runtimehash.PlainFits(rec.Hashes.PlainHash, c) {
		return true
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && s.Resources != nil && !equality.Semantic.DeepEqual(*s.Resources, c.Resources) {
			return true
		}
	}
	gate := podready.Condition(pod, v1beta1.InPlaceUpdateReady)
	return gate != nil && gate.Status == corev1.ConditionFalse && rec.Hashes.ExtractedEnvFromMetadataHash != runtimehash.ExpectedEnv(c, pod)
}

func (k *kubelet) status(pod *corev1.Pod) {
	now := time.Now()
	old := map[string]corev1.ContainerStatus{}
	for _, s := range pod.Status.ContainerStatuses {
		old[s.Name] = s
	}
	meta, _ := runtimehash.FromObject(pod)
	report := &runtimehash.ContainersMeta{}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ObservedGeneration = pod.Generation
	pod.Status.ContainerStatuses = nil
	allReady := true
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s, ran := old[c.Name]
		rec := meta.Container(c.Name)
		switch {
		case strings.HasPrefix(c.Image, "bad"):
			s.Name, s.Ready, s.Image = c.Name, false, c.Image
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
		case !ran || rec == nil || k.restarts(pod, c, rec, &s):
			if ran {
				s.RestartCount++
			}
			s.Name, s.Ready, s.ImageID = c.Name, true, "sha256:"+c.Image
			if strings.HasPrefix(c.Image, "same:") { // all tags of one image
				s.ImageID, s.Image = "sha256:same", "same:1"
			} else {
				s.Image = c.Image
			}
			s.ContainerID = fmt.Sprintf("fake://%s-%s-%d", pod.UID, c.Name, s.RestartCount)
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Truncate(time.Second))}}
			rec = &runtimehash.ContainerMeta{Name: c.Name, ContainerID: s.ContainerID, RestartCount: s.RestartCount, Hashes: runtimehash.Hashes{
				PlainHash: runtimehash.Plain(c), ExtractedEnvFromMetadataHash: runtimehash.ExpectedEnv(c, pod),
			}}
		}
		s.Resources = c.Resources.DeepCopy()
		allReady = allReady && s.Ready
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
		if rec != nil {
			report.Containers = append(report.Containers, *rec)
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1beta1.RuntimeContainersMetaAnnotation, report.JSON())
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

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// What tests tell the fake kubelet with annotations of Pods.
const (
	unreadyAnnotation = "test/unready" // the containers run and are not ready
	failedAnnotation  = "test/failed"  // the Pod fails, like one whose port is taken
	unboundAnnotation = "test/unbound" // no node takes the Pod
)

// kubelet stands in for scheduler, kubelets and node daemons: it binds Pods, runs their
// containers, restarts those whose image or environment changed, resizes them, and ends
// Pods that are deleted. Images whose name begins with "bad" cannot be pulled.
type kubelet struct{ client client.Client }

// every calls do until ctx ends.
func every(ctx context.Context, d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

func (k *kubelet) run(ctx context.Context) {
	every(ctx, 40*time.Millisecond, func() {
		var pods corev1.PodList
		if err := k.client.List(ctx, &pods); err != nil {
			return
		}
		for i := range pods.Items {
			k.sync(ctx, &pods.Items[i]) // errors are conflicts: the next tick tries again
		}
	})
}

func (k *kubelet) sync(ctx context.Context, pod *corev1.Pod) {
	switch {
	case pod.DeletionTimestamp != nil:
		_ = k.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Annotations[unboundAnnotation] != "":
	case pod.Spec.NodeName == "":
		_ = k.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		})
	case pod.Status.Phase == corev1.PodFailed:
	default:
		next := pod.DeepCopy()
		meta := k.status(next)
		if !equality.Semantic.DeepEqual(pod.Status, next.Status) {
			_ = k.client.Status().Update(ctx, next)
		} else if meta != nil && meta.JSON() != pod.Annotations[v1beta1.RuntimeContainersMetaAnnotation] {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1beta1.RuntimeContainersMetaAnnotation, meta.JSON())
			_ = k.client.Patch(ctx, next, client.MergeFrom(pod))
		}
	}
}

// nodeName is the node of all Pods. The server looks at it before it accepts a resize.
const nodeName = "node1"

func createNode(ctx context.Context, c client.Client) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := c.Create(ctx, node); err != nil {
		return err
	}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("400"), "memory": resource.MustParse("400Gi"), "pods": resource.MustParse("999")}
	return c.Status().Update(ctx, node)
}

// status brings the status up to date, and returns what the node daemon reports of
// containers with environment from metadata; nil if there are none.
func (k *kubelet) status(pod *corev1.Pod) *runtimehash.ContainersMeta {
	now := time.Now()
	var meta *runtimehash.ContainersMeta
	reported, _ := runtimehash.FromObject(pod)
	old := map[string]corev1.ContainerStatus{}
	for _, s := range pod.Status.ContainerStatuses {
		old[s.Name] = s
	}
	pod.Status.Phase = corev1.PodRunning
	if pod.Annotations[failedAnnotation] != "" {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ObservedGeneration = pod.Generation
	pod.Status.ContainerStatuses = nil
	allReady := pod.Status.Phase == corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		s, ran := old[c.Name]
		switch {
		case strings.HasPrefix(c.Image, "bad"):
			s.Name, s.Image = c.Name, c.Image
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
		case !ran || s.Image != c.Image || k.envChanged(pod, &c, reported.Container(c.Name), s):
			if ran {
				s.RestartCount++
			}
			s.Name, s.Image, s.ImageID = c.Name, c.Image, "sha256:"+c.Image
			s.ContainerID = fmt.Sprintf("fake://%s-%s-%d", pod.UID, c.Name, s.RestartCount)
			s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Truncate(time.Second))}}
		}
		s.Resources, s.AllocatedResources = c.Resources.DeepCopy(), c.Resources.Requests
		if len(runtimehash.MetadataEnvs(&c)) > 0 {
			meta = &runtimehash.ContainersMeta{Containers: []runtimehash.ContainerMeta{{
				Name: c.Name, ContainerID: s.ContainerID, RestartCount: s.RestartCount,
				Hashes: runtimehash.Hashes{PlainHash: runtimehash.Plain(&c), ExtractedEnvFromMetadataHash: runtimehash.ExpectedEnv(&c, pod)},
			}}}
		}
		s.Ready = s.State.Running != nil && pod.Annotations[unreadyAnnotation] == ""
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
	return meta
}

// envChanged tells whether the container that runs has old values of labels.
func (k *kubelet) envChanged(pod *corev1.Pod, c *corev1.Container, reported *runtimehash.ContainerMeta, s corev1.ContainerStatus) bool {
	return reported != nil && reported.ContainerID == s.ContainerID && reported.Hashes.ExtractedEnvFromMetadataHash != runtimehash.ExpectedEnv(c, pod)
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// testStatefulSet creates a set in the old version: its Pods pass the Pod webhook, its
// status is written, and its defaults, which the controller uses, are stored.
func testStatefulSet(t *testing.T, c *cluster) {
	labels := map[string]string{"app": "db"}
	old := &v1alpha1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: v1alpha1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(),
			PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	}
	old.Spec.Template.Labels = labels
	c.create(old)
	c.eventually("two Pods have their names, the readiness gate and its condition", func(ctx context.Context) error {
		for _, name := range []string{"db-0", "db-1"} {
			pod := &corev1.Pod{}
			if err := c.client.Get(ctx, client.ObjectKey{Namespace: "shop", Name: name}, pod); err != nil {
				return err
			}
			ref := metav1.GetControllerOf(pod)
			if !podready.HasGate(pod, v1beta1.KruisePodReady) || podready.Condition(pod, v1beta1.KruisePodReady) == nil || ref.APIVersion != "apps.kruise.io/v1beta1" {
				return fmt.Errorf("Pod %s: gates %v, owner %+v", name, pod.Spec.ReadinessGates, ref)
			}
		}
		return nil
	})
	hub := &v1beta1.StatefulSet{}
	c.eventually("the status tells of them", func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(old), hub); err != nil {
			return err
		}
		if s := hub.Status; s.ObservedGeneration != hub.Generation || s.Replicas != 2 || s.UpdatedReplicas != 2 || s.LabelSelector != "app=db" {
			return fmt.Errorf("status %+v of generation %d", s, hub.Generation)
		}
		return nil
	})
	if r := hub.Spec.UpdateStrategy.RollingUpdate; r == nil || r.Partition == nil || hub.Generation != 1 {
		t.Errorf("generation %d, rolling update %+v", hub.Generation, r)
	}
}

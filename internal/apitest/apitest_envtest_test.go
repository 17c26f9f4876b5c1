// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package apitest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestStartServesKruiseTypes(t *testing.T) {
	c := NewClient(t, Start(t))
	set := &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1beta1.CloneSetSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
			},
		},
	}
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatalf("creating a CloneSet: %v", err)
	}
	var list v1beta1.CloneSetList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("listing CloneSets: %d items, %v", len(list.Items), err)
	}
}

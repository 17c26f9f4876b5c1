// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// template is a Pod template with one container per name; mutate refines it.
func template(mutate func(*corev1.PodTemplateSpec), containers ...string) *corev1.PodTemplateSpec {
	t := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	for _, name := range containers {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: name, Image: name + ":1"})
	}
	if mutate != nil {
		mutate(t)
	}
	return t
}

// revision stores a template as a CloneSet does.
func revision(t testing.TB, name string, template *corev1.PodTemplateSpec) *appsv1.ControllerRevision {
	t.Helper()
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	tree["spec"].(map[string]any)["template"].(map[string]any)["$patch"] = "replace"
	data, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: runtime.RawExtension{Raw: data}}
}

// podOf is a running Pod of the template, all its containers ready, with an injected
// sidecar in front.
func podOf(template *corev1.PodTemplateSpec, revision string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	p.Name, p.Namespace, p.UID, p.ResourceVersion = "web-abcde", "shop", "uid-1", "1"
	setKey(&p.Labels, "controller-revision-hash", revision)
	p.Spec.Containers = append([]corev1.Container{{Name: "injected", Image: "sidecar:1"}}, p.Spec.Containers...)
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, running(c.Name, c.Image))
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "InPlaceUpdateReady", Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	return p
}

func running(name, image string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Image: image, ImageID: "id-of-" + image, ContainerID: "containerd://" + name + "-1", Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0.Add(-time.Hour))}},
	}
}

// withPriority gives a container a launch priority as the webhook does.
func withPriority(c *corev1.Container, key string) {
	c.Env = append(c.Env, corev1.EnvVar{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: key},
	}})
}

func envFrom(name, fieldPath string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: fieldPath}}}
}

func load[T any](t testing.TB, path string) *T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "openkruise-1.9", path))
	if err != nil {
		t.Fatal(err)
	}
	v := new(T)
	if err := yaml.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

func capturedPod(t testing.TB, moment, name string) *corev1.Pod {
	t.Helper()
	for _, p := range load[corev1.PodList](t, moment+"/pods.yaml").Items {
		if p.Name == name {
			return &p
		}
	}
	t.Fatalf("no Pod %s in %s", name, moment)
	return nil
}

func capturedRevision(t testing.TB, name string) *appsv1.ControllerRevision {
	t.Helper()
	for _, r := range load[appsv1.ControllerRevisionList](t, "3-settled/controllerrevisions.yaml").Items {
		if r.Name == name {
			return &r
		}
	}
	t.Fatalf("no revision %s", name)
	return nil
}

func wantEqual(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

// hashLabel names a revision as DaemonSet does.
func hashLabel(r *appsv1.ControllerRevision) string { return r.Labels["controller-revision-hash"] }

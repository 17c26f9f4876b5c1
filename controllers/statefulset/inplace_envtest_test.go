// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestInPlaceUpdateKeepsPodsAndCostsThreeWritesEach(t *testing.T) {
	s := create(t, inPlace, replicas(3))
	st := s.settled(3)
	first := st.UpdateRevision
	before, from := s.uids(), len(writes.in(s.key.Namespace))
	s.change(image("app:2"))
	s.settled(3)
	st = s.status("the new current revision", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentRevision == st.UpdateRevision })
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	perPod := s.podWrites(from)
	for pod, list := range perPod {
		if len(list) > 3 {
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if len(perPod) != 3 {
		t.Errorf("%d Pods were written", len(perPod))
	}
	for _, p := range s.pods() {
		if p.Labels["controller-revision-hash"] != st.UpdateRevision || p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("Pod %s: labels %v, %d restarts", p.Name, p.Labels, p.Status.ContainerStatuses[0].RestartCount)
		}
	}
	s.event("SuccessfulUpdatePodInPlace", "in-place(revision "+st.UpdateRevision+")")
	s.change(image("app:1")) // the revision of before gets its name back
	s.settled(3)
	st = s.status("the first revision", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentRevision == st.UpdateRevision })
	if st.UpdateRevision != first {
		t.Errorf("rolled back to revision %s and not to %s", st.UpdateRevision, first)
	}
}

// S10: what cannot be done in place recreates, or is refused.
func TestInPlacePolicies(t *testing.T) {
	env := func(o *v1beta1.StatefulSet) {
		o.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	}
	s := create(t, inPlace, parallel, replicas(2))
	s.settled(2)
	before := s.uids()
	s.change(env)
	s.settled(2)
	for name, uid := range s.uids() {
		if before[name] == uid {
			t.Errorf("Pod %s was kept", name)
		}
	}
	before = s.uids()
	s.change(func(o *v1beta1.StatefulSet) {
		o.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
		o.Spec.Template.Spec.Containers[0].Env = nil
	})
	s.status("a condition", func(st v1beta1.StatefulSetStatus) bool {
		return len(st.Conditions) == 1 && st.Conditions[0].Type == v1beta1.StatefulSetConditionFailedUpdatePod &&
			strings.Contains(st.Conditions[0].Message, "spec.template.spec.containers[app].env")
	})
	s.event("FailedUpdatePodInPlace", "spec.template.spec.containers[app].env")
	s.change(env, image("app:2"))
	s.settled(2)
	s.status("the condition to go", func(st v1beta1.StatefulSetStatus) bool { return len(st.Conditions) == 0 })
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("InPlaceOnly replaced Pods: %v, %v", before, got)
	}
}

// S8: in place with a grace period, kept back by the partition at first.
func TestInPlaceUpdateWithGrace(t *testing.T) {
	s := create(t, inPlace, replicas(3), partition(3), func(o *v1beta1.StatefulSet) {
		o.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 1}
	})
	first := s.settled(3).UpdateRevision
	for i := range 3 {
		s.deletePod(i)
	}
	s.wait("0=app:1 1=app:1 2=app:1", byImage)
	s.settled(3)
	before := s.uids()
	s.change(image("app:2"))
	s.status("the new revision", func(st v1beta1.StatefulSetStatus) bool { return st.UpdateRevision != first })
	s.wait("0=app:1 1=app:1 2=app:1", byImage)
	s.change(partition(0))
	s.wait("0=app:2 1=app:2 2=app:2", byImage)
	s.settled(3)
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

// S9: environment that comes from a label changes in place, with one restart.
func TestEnvFromMetadataInPlace(t *testing.T) {
	s := create(t, inPlace, replicas(2), templateLabel("test-env", "foo"), func(o *v1beta1.StatefulSet) {
		o.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['test-env']"},
		}}}
	})
	s.settled(2)
	eventually(t, func() error { // the daemon has reported what runs
		for _, p := range s.pods() {
			if p.Annotations[v1beta1.RuntimeContainersMetaAnnotation] == "" {
				return fmt.Errorf("Pod %s has annotations %v", p.Name, p.Annotations)
			}
		}
		return nil
	})
	before := s.uids()
	s.change(templateLabel("test-env", "bar"))
	st := s.settled(2)
	if got := s.uids(); !maps.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	for _, p := range s.pods() {
		if p.Labels["test-env"] != "bar" || p.Labels["controller-revision-hash"] != st.UpdateRevision || p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("Pod %s: labels %v, %d restarts", p.Name, p.Labels, p.Status.ContainerStatuses[0].RestartCount)
		}
	}
}

// The vertical scaling group and S10: resources change in place and back, and a change of
// the QoS class makes the Pods anew.
func TestVerticalScaling(t *testing.T) {
	resources := func(cpu, memory, cpuLimit, memoryLimit string) edit {
		return func(o *v1beta1.StatefulSet) {
			o.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse(cpuLimit), "memory": resource.MustParse(memoryLimit)},
			}
		}
	}
	large, small := resources("200m", "200Mi", "1", "1Gi"), resources("100m", "100Mi", "800m", "800Mi")
	s := create(t, inPlace, replicas(2), claim("data", ""), large)
	first := s.settled(2).UpdateRevision
	before := s.uids()
	s.change(small)
	s.settled(2)
	s.wait("0=100m 1=100m", func(p corev1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() })
	s.change(large)
	s.settled(2)
	st := s.status("the first revision", func(st v1beta1.StatefulSetStatus) bool { return st.CurrentRevision == first })
	if got := s.uids(); !maps.Equal(before, got) || st.UpdateRevision != first {
		t.Errorf("Pods were %v and are %v; status %+v", before, got, st)
	}
	s.change(resources("200m", "200Mi", "200m", "200Mi"))
	s.settled(2)
	for name, uid := range s.uids() {
		if before[name] == uid {
			t.Errorf("Pod %s changed its QoS class", name)
		}
	}
}

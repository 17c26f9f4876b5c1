// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
)

// The scenarios of cloneset.md 13 to which a real node adds nothing; their ids are those of
// docs/conformance.md.

// reason waits until condition Progressing has the reason, and the status it goes with.
func (s *set) reason(reason, status, message string) {
	s.t.Helper()
	eventually(s.t, func() error {
		c := s.condition(v1beta1.CloneSetConditionProgressing)
		if c.Reason != reason || string(c.Status) != status || c.Message != message {
			return fmt.Errorf("condition %+v, want %s", c, reason)
		}
		return nil
	})
}

func (s *set) available() {
	s.t.Helper()
	s.reason("CloneSetAvailable", "True", "CloneSet is available")
}

func (s *set) progressing() {
	s.t.Helper()
	s.reason("CloneSetUpdated", "True", "CloneSet is progressing")
}

func (s *set) exceeded() {
	s.t.Helper()
	s.reason("ProgressDeadlineExceeded", "False", "CloneSet revision "+s.get().Status.UpdateRevision+" has timed out progressing")
}

// patch merges into the Pod.
func (s *set) patch(pod corev1.Pod, patch string) {
	s.t.Helper()
	if err := testClient.Patch(s.t.Context(), &pod, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// state waits until the only Pod, or that at index i by name, is in the lifecycle state.
func (s *set) state(i int, want string) {
	s.t.Helper()
	eventually(s.t, func() error {
		pods := s.pods()
		if i >= len(pods) {
			return fmt.Errorf("%d Pods", len(pods))
		}
		if got := pods[i].Labels["lifecycle.apps.kruise.io/state"]; got != want {
			return fmt.Errorf("Pod %s is in state %s, want %s", pods[i].Name, got, want)
		}
		return nil
	})
}

func restarts(p corev1.Pod) map[string]int32 {
	n := map[string]int32{}
	for _, c := range p.Status.ContainerStatuses {
		n[c.Name] = c.RestartCount
	}
	return n
}

func batches(t *testing.T, p corev1.Pod) (out []string, st *inplace.State) {
	t.Helper()
	st, err := inplace.StateOf(&p)
	if err != nil || st == nil {
		t.Fatalf("state %v: %v", st, err)
	}
	for _, b := range st.ContainerBatchesRecord {
		out = append(out, strings.Join(b.Containers, ","))
	}
	return out, st
}

// C1
func TestHostPortsOfTheHostNetwork(t *testing.T) {
	s := create(t, web().Replicas(1).ProgressDeadlineSeconds(600).With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.HostNetwork = true
		c.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	}))
	s.updatedAvailable(1)
	s.available()
	if p := s.pods()[0].Spec.Containers[0].Ports[0]; p.HostPort != 80 {
		t.Errorf("port %+v", p)
	}
}

// C2
func TestPreNormalFinalizer(t *testing.T) {
	const finalizer = "finalizers.sigs.k8s.io/test"
	s := create(t, web().Replicas(1).ProgressDeadlineSeconds(3).Lifecycle(v1beta1.Lifecycle{PreNormal: &v1beta1.LifecycleHook{FinalizersHandler: []string{finalizer}}}))
	s.status("a ready Pod", func(st v1beta1.CloneSetStatus) bool { return st.ReadyReplicas == 1 && st.AvailableReplicas == 0 })
	s.exceeded()
	s.state(0, "PreparingNormal")
	p := s.pods()[0]
	p.Finalizers = append(p.Finalizers, finalizer)
	if err := testClient.Update(t.Context(), &p); err != nil {
		t.Fatal(err) // settled Pods are not written to
	}
	s.state(0, "Normal")
	s.available()
	s.patch(s.pods()[0], `{"metadata":{"finalizers":null}}`)
	s.updatedAvailable(1)
	s.available()
}

// C4 and C5
func TestLargestSecondsMeanNever(t *testing.T) {
	const never = 2147483647
	s := create(t, web().Replicas(1).ProgressDeadlineSeconds(never).MinReadySeconds(never))
	s.status("a ready Pod", func(st v1beta1.CloneSetStatus) bool { return st.ReadyReplicas == 1 && st.AvailableReplicas == 0 })
	if c := s.condition(v1beta1.CloneSetConditionProgressing); c.Reason != "" {
		t.Errorf("condition %+v", c)
	}
	s.change(func(c *v1beta1.CloneSet) { c.Spec.MinReadySeconds = 1; c.Spec.ProgressDeadlineSeconds = nil })
	s.updatedAvailable(1)
	if c := s.condition(v1beta1.CloneSetConditionProgressing); c.Reason != "" {
		t.Errorf("condition %+v", c)
	}
	s.change(func(c *v1beta1.CloneSet) { c.Spec.ProgressDeadlineSeconds = new(int32(600)) })
	s.available()
}

// S3
func TestPausedSetsScale(t *testing.T) {
	s := create(t, web().Replicas(3).MinReadySeconds(60).Paused().ProgressDeadlineSeconds(600))
	s.status("ready Pods", func(st v1beta1.CloneSetStatus) bool { return st.Replicas == 3 && st.ReadyReplicas == 3 })
	s.reason("CloneSetPaused", "True", "CloneSet is paused")
}

// S5
func TestExcludedPodsInPreparingDelete(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"lifecycle-hook": "true"}}
	s := create(t, web().Replicas(3).ExcludePreparingDelete().TemplateLabel("lifecycle-hook", "true").Lifecycle(v1beta1.Lifecycle{PreDelete: hook}).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	s.available()
	first := s.pods()[0]
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Replicas, c.Spec.ScaleStrategy.PodsToDelete = new(int32(2)), []string{first.Name}
	})
	s.state(0, "PreparingDelete")
	s.status("three Pods", func(st v1beta1.CloneSetStatus) bool { return st.Replicas == 3 })
	s.progressing()
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(3)) })
	s.status("a fourth Pod", func(st v1beta1.CloneSetStatus) bool { return st.Replicas == 4 })
	s.progressing()
	s.patch(first, `{"metadata":{"labels":{"lifecycle-hook":null}}}`)
	s.updatedAvailable(3)
	s.available()
	if slices.Contains(s.uids(), string(first.UID)) {
		t.Error("the Pod is still there")
	}
}

// U1
func TestAnotherTagOfTheSameImage(t *testing.T) {
	s := create(t, inPlace().Replicas(1).Image("same:1").ProgressDeadlineSeconds(600))
	s.updatedAvailable(1)
	before := s.pods()[0]
	s.image("same:2")
	s.updatedAvailable(1)
	s.available()
	p := s.pods()[0]
	was, is := before.Status.ContainerStatuses[0], p.Status.ContainerStatuses[0]
	if p.UID != before.UID || was.ContainerID == is.ContainerID || was.ImageID != is.ImageID {
		t.Errorf("was %+v, is %+v", was, is)
	}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// U2, and the second half of 14.1: a Pod whose annotation was changed by hand is restarted too.
func TestImageAndEnvFromLabel(t *testing.T) {
	s := create(t, inPlace().Replicas(2).TemplateLabel("test-env", "foo").With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{fromField("TEST_ENV", "metadata.labels['test-env']")}
	}))
	s.updatedAvailable(2)
	before := s.uids()
	s.patch(s.pods()[0], `{"metadata":{"labels":{"test-env":"bar"}}}`)
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Labels["test-env"] = "bar"
		c.Spec.Template.Spec.Containers[0].Image = "app:2"
	})
	s.updatedAvailable(2)
	for _, p := range s.pods() {
		if n := restarts(p); n["app"] != 1 || p.Labels["test-env"] != "bar" {
			t.Errorf("Pod %s: restarts %v, labels %v", p.Name, n, p.Labels)
		}
	}
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	// A settled Pod is not touched for what is changed by hand.
	s.patch(s.pods()[0], `{"metadata":{"labels":{"test-env":"odd"}}}`)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(3)) })
	s.updatedAvailable(3)
	for _, p := range s.pods() {
		if n := restarts(p)["app"]; n > 1 {
			t.Errorf("Pod %s was restarted %d times", p.Name, n)
		}
	}
}

// barrier is what the Pod webhook makes of a launch priority.
func barrier(priority string) corev1.EnvVar {
	return corev1.EnvVar{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "barrier"}, Key: "p_" + priority,
	}}}
}

// two has the containers nginx, of priority 0, and redis, of priority 10.
func two(env ...corev1.EnvVar) fixture.CloneSetBuilder {
	return inPlace().Replicas(1).ProgressDeadlineSeconds(600).With(func(c *v1beta1.CloneSet) {
		t := &c.Spec.Template
		t.Annotations = map[string]string{"config": "foo"}
		t.Spec.Containers[0].Name, t.Spec.Containers[0].Image = "nginx", "nginx:1"
		t.Spec.Containers[0].Env = []corev1.EnvVar{barrier("0")}
		redis := t.Spec.Containers[0].DeepCopy()
		redis.Name, redis.Image, redis.Env = "redis", "redis:1", append([]corev1.EnvVar{barrier("10")}, env...)
		t.Spec.Containers = append(t.Spec.Containers, *redis)
	})
}

// U3
func TestTwoImagesFollowTheirPriorities(t *testing.T) {
	s := create(t, two())
	s.updatedAvailable(1)
	uid := s.pods()[0].UID
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image, c.Spec.Template.Spec.Containers[1].Image = "nginx:2", "redis:2"
	})
	s.updatedAvailable(1)
	p := s.pods()[0]
	got, st := batches(t, p)
	if p.UID != uid || !slices.Equal(got, []string{"redis", "nginx"}) || st.PreCheckBeforeNext != nil {
		t.Errorf("batches %v, state %+v", got, st)
	}
	if n := restarts(p); n["nginx"] != 1 || n["redis"] != 1 {
		t.Errorf("restarts %v", n)
	}
}

// U4
func TestAFailingContainerHoldsBackLowerPriorities(t *testing.T) {
	s := create(t, two())
	s.updatedAvailable(1)
	s.available()
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image, c.Spec.Template.Spec.Containers[1].Image = "nginx:2", "bad:2"
	})
	eventually(t, func() error {
		for _, c := range s.pods()[0].Status.ContainerStatuses {
			if c.Name == "redis" && c.State.Waiting != nil {
				return nil
			}
		}
		return fmt.Errorf("redis has not failed yet")
	})
	s.progressing()
	p := s.pods()[0]
	got, st := batches(t, p)
	if !slices.Equal(got, []string{"redis"}) || fmt.Sprint(st.NextContainerImages) != "map[nginx:nginx:2]" || restarts(p)["nginx"] != 0 {
		t.Errorf("batches %v, state %+v, restarts %v", got, st, restarts(p))
	}
	// A repaired image finishes what is left of both updates.
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[1].Image = "redis:3" })
	s.updatedAvailable(1)
	if images := []string{s.pods()[0].Spec.Containers[0].Image, s.pods()[0].Spec.Containers[1].Image}; !slices.Equal(images, []string{"nginx:2", "redis:3"}) {
		t.Errorf("images %v", images)
	}
}

// U5
func TestImageAndEnvFollowTheirPriorities(t *testing.T) {
	s := create(t, two(fromField("CONFIG", "metadata.annotations['config']")))
	s.updatedAvailable(1)
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image = "nginx:2"
		c.Spec.Template.Annotations["config"] = "bar"
	})
	s.updatedAvailable(1)
	p := s.pods()[0]
	if got, _ := batches(t, p); !slices.Equal(got, []string{"redis", "nginx"}) || p.Annotations["config"] != "bar" {
		t.Errorf("batches %v, annotations %v", got, p.Annotations)
	}
	if n := restarts(p); n["nginx"] != 1 || n["redis"] != 1 {
		t.Errorf("restarts %v", n)
	}
}

// U6
func TestPartitionOf99Percent(t *testing.T) {
	s := create(t, inPlace().Replicas(4).MaxUnavailable("50%").Partition("99%").ProgressDeadlineSeconds(600))
	s.updatedAvailable(4) // a new CloneSet has no older revision that a partition could keep
	s.available()
	s.image("app:2")
	s.updatedAvailable(1)
	s.reason("ProgressPartitionAvailable", "True", "CloneSet has been paused due to partition ready")
	if st := s.get().Status; st.UpdatedReplicas != 1 || st.ExpectedUpdatedReplicas != 1 {
		t.Errorf("status %+v", st)
	}
}

// U10
func TestAnotherQOSClassRecreates(t *testing.T) {
	quantity := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")}
	}
	s := create(t, inPlace().Replicas(1).With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantity("200m"), Limits: quantity("1")}
	}))
	s.updatedAvailable(1)
	before := s.pods()[0]
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[0].Resources.Requests = quantity("1") })
	s.updatedAvailable(1)
	if s.pods()[0].UID == before.UID {
		t.Error("the Pod was not recreated")
	}
}

// 14.2: resources in place, with and without a restart, alone and with an image.
func TestResourcesInPlace(t *testing.T) {
	quantity := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	policy := func(cpu, memory corev1.ResourceResizeRestartPolicy) []corev1.ContainerResizePolicy {
		return []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: cpu}, {ResourceName: corev1.ResourceMemory, RestartPolicy: memory}}
	}
	cases := map[string]struct {
		policy   []corev1.ContainerResizePolicy
		image    string
		restarts int32
	}{
		"no restart":                 {policy(corev1.NotRequired, corev1.NotRequired), "app:1", 0},
		"memory restarts":            {policy(corev1.NotRequired, corev1.RestartContainer), "app:1", 1},
		"no restart, and an image":   {policy(corev1.NotRequired, corev1.NotRequired), "app:2", 1},
		"both restart, and an image": {policy(corev1.RestartContainer, corev1.RestartContainer), "app:2", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := create(t, inPlace().Replicas(2).MaxUnavailable("1").With(func(c *v1beta1.CloneSet) {
				container := &c.Spec.Template.Spec.Containers[0]
				container.Resources = corev1.ResourceRequirements{Requests: quantity("200m", "200Mi"), Limits: quantity("1", "1Gi")}
				container.ResizePolicy = tc.policy
			}))
			s.updatedAvailable(2)
			before := s.uids()
			s.change(func(c *v1beta1.CloneSet) {
				container := &c.Spec.Template.Spec.Containers[0]
				container.Image = tc.image
				container.Resources = corev1.ResourceRequirements{Requests: quantity("100m", "100Mi"), Limits: quantity("800m", "1Gi")}
			})
			s.updatedAvailable(2)
			if got := s.uids(); !slices.Equal(before, got) {
				t.Errorf("Pods were %v and are %v", before, got)
			}
			for _, p := range s.pods() {
				if got := p.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
					t.Errorf("Pod %s requests %s", p.Name, got)
				}
				if n := restarts(p)["app"]; n < min(tc.restarts, 1) || n > 2 || tc.restarts == 0 && n > 0 {
					t.Errorf("Pod %s was restarted %d times", p.Name, n)
				}
				if tc.restarts == 0 {
					if st, _ := inplace.StateOf(&p); st == nil || !st.UpdateResources {
						t.Errorf("state %+v", st)
					}
				}
			}
		})
	}
}

// The grace period: the Pod is out of service first, and the image changes after it.
func TestGracePeriodComesBeforeTheImage(t *testing.T) {
	s := create(t, inPlace().Replicas(1).Grace(3))
	s.updatedAvailable(1)
	s.image("app:2")
	eventually(t, func() error {
		p := s.pods()[0]
		if grace, err := inplace.GraceOf(&p); err != nil || grace == nil {
			return fmt.Errorf("no grace annotation: %w", err)
		}
		return nil
	})
	if p := s.pods()[0]; p.Spec.Containers[0].Image != "app:1" || p.Labels["lifecycle.apps.kruise.io/state"] != "Updating" {
		t.Errorf("image %s, state %s", p.Spec.Containers[0].Image, p.Labels["lifecycle.apps.kruise.io/state"])
	}
	s.image("app:3") // a newer template in the grace period
	s.updatedAvailable(1)
	p := s.pods()[0]
	if grace, err := inplace.GraceOf(&p); grace != nil || err != nil || p.Spec.Containers[0].Image != "app:3" {
		t.Errorf("image %s, grace %v: %v", p.Spec.Containers[0].Image, grace, err)
	}
}

// cloneset.md 16.15: a Pod that is Updating to rev2 goes to rev3 directly.
func TestTwoUpdatesInARow(t *testing.T) {
	s := create(t, inPlace().Replicas(2).MaxUnavailable("1"))
	s.updatedAvailable(2)
	before := s.uids()
	s.image("bad:2")
	eventually(t, func() error {
		if images := s.images(); !slices.Contains(images, "bad:2") {
			return fmt.Errorf("images %v", images)
		}
		return nil
	})
	s.image("app:3")
	s.updatedAvailable(2)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

// cloneset.md 16.16 and 16.3: a paused set still deletes and replaces what is specified.
func TestAPausedSetReplacesSpecifiedPods(t *testing.T) {
	s := create(t, web().Replicas(3).MaxUnavailable("1").Paused())
	s.status("all Pods", func(st v1beta1.CloneSetStatus) bool { return st.AvailableReplicas == 3 })
	first, second := s.pods()[0], s.pods()[1]
	s.patch(first, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":""}}}`)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.PodsToDelete = []string{second.Name} })
	eventually(t, func() error {
		if uids := s.uids(); len(uids) != 3 || slices.Contains(uids, string(first.UID)) || slices.Contains(uids, string(second.UID)) {
			return fmt.Errorf("Pods %v", uids)
		}
		return nil
	})
	s.updatedAvailable(3)
}

// cloneset.md 16.13: an evicted Pod is replaced at once, and its object remains.
func TestAnEvictedPodIsReplaced(t *testing.T) {
	s := create(t, web().Replicas(2))
	s.updatedAvailable(2)
	victim := s.pods()[0]
	victim.Status.Phase, victim.Status.Reason = corev1.PodFailed, "Evicted"
	eventually(t, func() error {
		if err := testClient.Get(t.Context(), client.ObjectKeyFromObject(&victim), &victim); err != nil {
			return err
		}
		victim.Status.Phase, victim.Status.Reason = corev1.PodFailed, "Evicted"
		return testClient.Status().Update(t.Context(), &victim)
	})
	// The status still says 2 from before: the third Pod tells that the eviction was seen.
	eventually(t, func() error {
		if pods := s.pods(); len(pods) != 3 {
			return fmt.Errorf("%d Pods", len(pods))
		}
		return nil
	})
	s.updatedAvailable(2)
}

// cloneset.md 16.10: without the Pod's revision the difference is not known.
func TestAPodWhoseRevisionIsGoneIsRecreated(t *testing.T) {
	s := create(t, inPlace().Replicas(1))
	s.updatedAvailable(1)
	before := s.pods()[0]
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = true })
	s.patch(before, `{"metadata":{"labels":{"controller-revision-hash":"web-unknown"}}}`)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = false })
	eventually(t, func() error {
		if uids := s.uids(); len(uids) != 1 || uids[0] == string(before.UID) {
			return fmt.Errorf("the Pod was not recreated: %v", uids)
		}
		return nil
	})
	s.updatedAvailable(1)
}

// cloneset.md 16.11: a set that is being deleted is left alone.
func TestATerminatingSetDoesNothing(t *testing.T) {
	s := create(t, web().Replicas(2).With(func(c *v1beta1.CloneSet) { c.Finalizers = []string{"example.com/wait"} }))
	s.updatedAvailable(2)
	if err := testClient.Delete(t.Context(), s.get()); err != nil {
		t.Fatal(err)
	}
	n := len(writes.in(s.key.Namespace))
	s.patch(s.pods()[0], `{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
	probe := create2(t, s.key.Namespace)
	probe.updatedAvailable(1) // events of later changes were handled
	for _, w := range writes.in(s.key.Namespace)[n:] {
		if strings.Contains(w, "/pods/web-") {
			t.Errorf("write %s", w)
		}
	}
	s.changeAny(func(c *v1beta1.CloneSet) { c.Finalizers = nil })
}

// create2 makes another CloneSet in the namespace, to wait for.
func create2(t *testing.T, namespace string) *set {
	t.Helper()
	cs := fixture.CloneSet("probe").Replicas(1).Namespace(namespace).With(func(c *v1beta1.CloneSet) {
		c.UID, c.Generation = "", 0
		c.Spec.Selector.MatchLabels = map[string]string{"app": "probe"}
		c.Spec.Template.Labels = map[string]string{"app": "probe"}
	}).Obj()
	if err := testClient.Create(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
	return &set{t, client.ObjectKeyFromObject(cs)}
}

// changeAny edits a set that may be terminating.
func (s *set) changeAny(edit func(*v1beta1.CloneSet)) { s.t.Helper(); s.change(edit) }

// PreparingUpdate ends when the partition says that the Pod is not to be updated.
func TestARaisedPartitionReleasesAPodInPreparingUpdate(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}, MarkPodNotReady: false}
	s := create(t, inPlace().Replicas(2).MaxUnavailable("1").TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook}))
	s.updatedAvailable(2)
	s.image("app:2")
	eventually(t, func() error {
		for _, p := range s.pods() {
			if p.Labels["lifecycle.apps.kruise.io/state"] == "PreparingUpdate" {
				return nil
			}
		}
		return fmt.Errorf("no Pod is prepared")
	})
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromInt32(2))
	})
	s.status("all Pods available at the old revision", func(st v1beta1.CloneSetStatus) bool { return st.AvailableReplicas == 2 && st.UpdatedReplicas == 0 })
}

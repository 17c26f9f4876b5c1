// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// set is a CloneSet under test.
type set struct {
	t   *testing.T
	key client.ObjectKey
}

// create makes the CloneSet in a new namespace and waits until all its Pods are available.
func create(t *testing.T, b fixture.CloneSetBuilder) *set {
	t.Helper()
	t.Parallel()
	cs := b.Namespace(namespace(t)).With(func(c *v1beta1.CloneSet) { c.UID, c.Generation = "", 0 }).Obj()
	if err := testClient.Create(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
	return &set{t, client.ObjectKeyFromObject(cs)}
}

func (s *set) get() *v1beta1.CloneSet {
	s.t.Helper()
	cs := &v1beta1.CloneSet{}
	if err := testClient.Get(s.t.Context(), s.key, cs); err != nil {
		s.t.Fatal(err)
	}
	return cs
}

// change edits the spec; conflicts with the controller are retried.
func (s *set) change(edit func(*v1beta1.CloneSet)) {
	s.t.Helper()
	eventually(s.t, func() error {
		cs := s.get()
		edit(cs)
		return testClient.Update(s.t.Context(), cs)
	})
}

func (s *set) image(image string) {
	s.t.Helper()
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[0].Image = image })
}

func (s *set) partition(value string) {
	s.t.Helper()
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy.RollingUpdate.Partition = fixture.CloneSet("x").Partition(value).Obj().Spec.UpdateStrategy.RollingUpdate.Partition
	})
}

// pods are those that do not terminate, by name.
func (s *set) pods() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

func (s *set) uids() (out []string) {
	for _, p := range s.pods() {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return out
}

// status waits until the status of the present generation passes check.
func (s *set) status(what string, check func(v1beta1.CloneSetStatus) bool) {
	s.t.Helper()
	eventually(s.t, func() error {
		cs := s.get()
		if cs.Status.ObservedGeneration == cs.Generation && check(cs.Status) {
			return nil
		}
		return fmt.Errorf("waiting for %s: generation %d, status %+v", what, cs.Generation, cs.Status)
	})
}

func (s *set) updatedAvailable(n int32) {
	s.t.Helper()
	s.status(fmt.Sprintf("%d updated and available Pods", n), func(st v1beta1.CloneSetStatus) bool {
		return st.UpdatedAvailableReplicas == n && st.Replicas == int32(*s.get().Spec.Replicas) && st.AvailableReplicas == st.Replicas
	})
}

func (s *set) condition(t v1beta1.CloneSetConditionType) (c v1beta1.CloneSetCondition) {
	for _, c := range s.get().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return c
}

// podWrites are the manager's writes by Pod, without the first ones.
func (s *set) podWrites(from int) map[string][]string {
	perPod := map[string][]string{}
	for _, w := range writes.in(s.key.Namespace)[from:] {
		if _, pod, found := strings.Cut(w, "/pods/"); found {
			pod, _, _ = strings.Cut(pod, "/")
			perPod[pod] = append(perPod[pod], w)
		}
	}
	return perPod
}

func (s *set) images() (out []string) {
	for _, p := range s.pods() {
		out = append(out, p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return out
}

func (s *set) event(reason, fragment string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var list corev1.EventList
		if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, fragment) && e.Source.Component == "cloneset-controller" {
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", reason, fragment)
	})
}

func web() fixture.CloneSetBuilder { return fixture.CloneSet("web") }

func inPlace() fixture.CloneSetBuilder {
	return web().Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
}

func TestCreateAndScale(t *testing.T) {
	s := create(t, web().Replicas(3).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	if c := s.condition(v1beta1.CloneSetConditionProgressing); c.Reason != "CloneSetAvailable" {
		t.Errorf("condition Progressing is %+v", c)
	}
	for _, p := range s.pods() {
		id := p.Labels["apps.kruise.io/cloneset-instance-id"]
		if p.Name != "web-"+id || p.GenerateName != "web-" || p.Labels["lifecycle.apps.kruise.io/state"] != "Normal" || p.Labels["pod-template-hash"] == "" {
			t.Errorf("Pod %s: generateName %q, labels %v", p.Name, p.GenerateName, p.Labels)
		}
	}
	s.event("SuccessfulCreate", "succeed to create pod web-")
	kept := s.uids()
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(6)) })
	s.updatedAvailable(6)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(2)) })
	s.updatedAvailable(2)
	if len(s.pods()) != 2 {
		t.Errorf("%d Pods are left", len(s.pods()))
	}
	for _, uid := range s.uids() {
		if !slices.Contains(kept, uid) {
			t.Logf("Pod %s of the second generation outlived the first", uid)
		}
	}
	for pod, list := range s.podWrites(0) {
		if len(list) > 3 { // made ready and Normal, and perhaps deleted; the creation is on the collection
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if st := s.get().Status; st.LabelSelector != "app=web" || st.CollisionCount == nil || st.CurrentRevision != st.UpdateRevision {
		t.Errorf("status %+v", st)
	}
}

func TestInPlaceUpdateKeepsPodsAndCostsThreeWritesEach(t *testing.T) {
	const replicas = 5
	s := create(t, inPlace().Replicas(replicas))
	s.updatedAvailable(replicas)
	before, from := s.uids(), len(writes.in(s.key.Namespace))
	s.image("app:2")
	s.updatedAvailable(replicas)
	s.status("the new current revision", func(st v1beta1.CloneSetStatus) bool { return st.CurrentRevision == st.UpdateRevision })
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
	perPod := s.podWrites(from)
	for pod, list := range perPod {
		if len(list) > 3 {
			t.Errorf("Pod %s took %d writes: %v", pod, len(list), list)
		}
	}
	if len(perPod) != replicas {
		t.Errorf("%d Pods were written", len(perPod))
	}
	s.event("SuccessfulUpdatePodInPlace", "in-place(revision "+s.get().Status.UpdateRevision+")")
}

func TestNothingIsWrittenOnceSettled(t *testing.T) {
	s := create(t, inPlace().Replicas(3).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	rv, n := s.get().ResourceVersion, len(writes.in(s.key.Namespace))
	// Any event makes the controller look again.
	pod := s.pods()[0]
	for i := range 5 {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"poke":"%d"}}}`, i))
		if err := testClient.Patch(t.Context(), &pod, patch); err != nil {
			t.Fatal(err)
		}
	}
	s.change(func(c *v1beta1.CloneSet) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, "poke", "1") })
	s.change(func(c *v1beta1.CloneSet) { c.Spec.MinReadySeconds = 1 })
	s.updatedAvailable(3)
	if got := writes.in(s.key.Namespace)[n:]; len(got) > 2 { // the generation, and availability that comes back
		t.Errorf("writes after %s: %v", rv, got)
	}
}

func TestPartitionPauseAndRollback(t *testing.T) {
	s := create(t, inPlace().Replicas(4).MaxUnavailable("2").Partition("3"))
	s.updatedAvailable(4)
	uids := s.uids()
	s.image("app:2")
	s.updatedAvailable(1)
	if got := s.get().Status; got.ExpectedUpdatedReplicas != 1 || got.CurrentRevision == got.UpdateRevision {
		t.Errorf("status %+v", got)
	}
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = true })
	s.partition("1")
	s.updatedAvailable(1)
	s.change(func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = false })
	s.updatedAvailable(3)
	s.partition("3")
	s.updatedAvailable(1) // with the gate a raised partition takes Pods back
	s.partition("1")
	s.updatedAvailable(3)
	old := s.get().Status.CurrentRevision
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image = "app:1"
		c.Spec.UpdateStrategy.RollingUpdate.Partition = nil
	})
	s.updatedAvailable(4)
	if got := s.get().Status.UpdateRevision; got != old {
		t.Errorf("rolled back to revision %s and not to %s", got, old)
	}
	if got := s.uids(); !slices.Equal(uids, got) {
		t.Errorf("Pods were %v and are %v", uids, got)
	}
	if got := s.images(); slices.Contains(got, "app:2") {
		t.Errorf("images %v", got)
	}
}

func TestReCreateReplacesWithinLimits(t *testing.T) {
	s := create(t, web().Replicas(3).MaxUnavailable("1"))
	s.updatedAvailable(3)
	before := s.uids()
	s.image("app:2")
	for range 2000 { // while it goes on, at most one Pod is missing or not ready
		st := s.get().Status
		if st.Replicas < 2 {
			t.Fatalf("only %d Pods", st.Replicas)
		}
		if st.UpdatedAvailableReplicas == 3 && st.ObservedGeneration == 2 {
			break
		}
	}
	s.updatedAvailable(3)
	for _, uid := range s.uids() {
		if slices.Contains(before, uid) {
			t.Errorf("Pod %s was kept", uid)
		}
	}
	s.event("SuccessfulUpdatePodReCreate", "specified-delete for update(revision ")
}

func TestSurgeReplacesWithoutAnyUnavailability(t *testing.T) {
	s := create(t, web().Replicas(3).MaxUnavailable("0").MaxSurge("1"))
	s.updatedAvailable(3)
	s.image("app:2")
	s.updatedAvailable(3)
}

func TestInPlaceOnlyRefusesWithTheField(t *testing.T) {
	s := create(t, web().Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType).Replicas(2))
	s.updatedAvailable(2)
	before := s.uids()
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	})
	eventually(t, func() error {
		if m := s.condition(v1beta1.CloneSetConditionFailedUpdate).Message; strings.Contains(m, "spec.template.spec.containers[app].env") {
			return nil
		}
		return fmt.Errorf("conditions %+v", s.get().Status.Conditions)
	})
	s.event("FailedUpdatePodInPlace", "spec.template.spec.containers[app].env")
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Env = nil
		c.Spec.Template.Spec.Containers[0].Image = "app:2"
	})
	s.updatedAvailable(2)
	s.status("the condition to go", func(st v1beta1.CloneSetStatus) bool { return len(st.Conditions) == 0 })
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestBadImageStopsAndItsFixRepairs(t *testing.T) {
	s := create(t, inPlace().Replicas(4).MaxUnavailable("1"))
	s.updatedAvailable(4)
	before := s.uids()
	s.image("bad:1")
	s.status("one broken Pod", func(st v1beta1.CloneSetStatus) bool { return st.UpdatedReplicas == 1 && st.ReadyReplicas == 3 })
	s.image("app:3")
	s.updatedAvailable(4)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("Pods were %v and are %v", before, got)
	}
}

func TestSpecifiedDeleteWaitsForItsHook(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, web().Replicas(3).TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{PreDelete: hook}).ProgressDeadlineSeconds(600))
	s.updatedAvailable(3)
	first := s.pods()[0]
	label := func(patch string) {
		t.Helper()
		p := first.DeepCopy()
		if err := testClient.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	label(`{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
	eventually(t, func() error {
		if got := s.pods()[0].Labels["lifecycle.apps.kruise.io/state"]; got != "PreparingDelete" {
			return fmt.Errorf("state %s", got)
		}
		return nil
	})
	s.status("progressing again", func(st v1beta1.CloneSetStatus) bool {
		return st.Replicas == 3 && s.condition(v1beta1.CloneSetConditionProgressing).Reason == "CloneSetUpdated"
	})
	label(`{"metadata":{"labels":{"hook":null}}}`)
	eventually(t, func() error {
		if slices.Contains(s.uids(), string(first.UID)) {
			return errors.New("the Pod is still there")
		}
		return nil
	})
	s.updatedAvailable(3)
}

func TestPodsToDeleteAreDeletedAndForgotten(t *testing.T) {
	s := create(t, web().Replicas(3))
	s.updatedAvailable(3)
	victim := s.pods()[1]
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Replicas = new(int32(2))
		c.Spec.ScaleStrategy.PodsToDelete = []string{victim.Name, "web-never"}
	})
	s.updatedAvailable(2)
	eventually(t, func() error {
		if left := s.get().Spec.ScaleStrategy.PodsToDelete; len(left) > 0 {
			return fmt.Errorf("podsToDelete %v", left)
		}
		return nil
	})
	for _, p := range s.pods() {
		if p.Name == victim.Name {
			t.Errorf("Pod %s is still there", p.Name)
		}
	}
}

func TestClaimsAreReused(t *testing.T) {
	s := create(t, web().Replicas(2).Claim("data", "1Gi").With(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = true }))
	s.updatedAvailable(2)
	names := func() (out []string) {
		for _, p := range s.pods() {
			out = append(out, p.Name)
		}
		return out
	}
	before := names()
	for _, p := range s.pods() {
		if err := testClient.Delete(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	s.status("the Pods to be missing", func(st v1beta1.CloneSetStatus) bool { return true })
	eventually(t, func() error {
		if got := names(); !slices.Equal(got, before) || s.get().Status.AvailableReplicas != 2 {
			return fmt.Errorf("Pods %v, want %v", got, before)
		}
		return nil
	})
	// Reuse off: the claims go with Pods that somebody deletes.
	s.change(func(c *v1beta1.CloneSet) { c.Spec.ScaleStrategy.EnablePVCReuse = false })
	for _, p := range s.pods() {
		if err := testClient.Delete(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		got := names()
		if len(got) != 2 || slices.Contains(got, before[0]) || slices.Contains(got, before[1]) {
			return fmt.Errorf("Pods %v, and they were %v", got, before)
		}
		return nil
	})
	var claims corev1.PersistentVolumeClaimList
	eventually(t, func() error {
		if err := testClient.List(t.Context(), &claims, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		for _, c := range claims.Items {
			if owner := metav1.GetControllerOf(&c); owner.Kind == "CloneSet" && (strings.HasSuffix(c.Name, before[0][4:]) || strings.HasSuffix(c.Name, before[1][4:])) && c.DeletionTimestamp == nil {
				return fmt.Errorf("claim %s of a Pod that is gone is still there", c.Name)
			}
		}
		return nil
	})
}

func TestReleaseOfPodsThatTheSelectorLeaves(t *testing.T) {
	s := create(t, web().Replicas(2))
	s.updatedAvailable(2)
	leaver := s.pods()[0]
	if err := testClient.Patch(t.Context(), leaver.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"debug"}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		p := &corev1.Pod{}
		if err := testClient.Get(t.Context(), client.ObjectKeyFromObject(&leaver), p); err != nil {
			return err
		}
		if len(p.OwnerReferences) > 0 || len(s.pods()) != 3 {
			return fmt.Errorf("%d Pods, owners of the leaver %v", len(s.pods()), p.OwnerReferences)
		}
		return nil
	})
	s.updatedAvailable(2)
}

func TestScaleMaxUnavailableCreatesOneAfterTheOther(t *testing.T) {
	s := create(t, web().Replicas(3).ScaleMaxUnavailable("1").MinReadySeconds(1))
	s.updatedAvailable(3)
	pods := s.pods()
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := 1; i < len(pods); i++ {
		for _, c := range pods[i-1].Status.Conditions {
			if c.Type == corev1.PodReady && pods[i].CreationTimestamp.Before(new(metav1.NewTime(c.LastTransitionTime.Add(1e9)))) {
				t.Errorf("Pod %s was created at %s, and %s became ready at %s", pods[i].Name, pods[i].CreationTimestamp, pods[i-1].Name, c.LastTransitionTime)
			}
		}
	}
	s.event("ScaleUpLimited", "limit: 1")
}

func TestInPlaceUpdateHookWithMarkAndRollback(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, inPlace().Replicas(1).TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook}))
	s.updatedAvailable(1)
	state := func(want string) {
		t.Helper()
		eventually(t, func() error {
			if got := s.pods()[0].Labels["lifecycle.apps.kruise.io/state"]; got != want {
				return fmt.Errorf("state %s, want %s", got, want)
			}
			return nil
		})
	}
	s.image("app:2")
	state("PreparingUpdate")
	s.image("app:1") // rolled back while the hook holds the Pod
	state("Normal")
	s.updatedAvailable(1)
	s.image("app:2")
	state("PreparingUpdate")
	pod := s.pods()[0]
	if err := testClient.Patch(t.Context(), &pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":null}}}`))); err != nil {
		t.Fatal(err)
	}
	state("Updated")
	if err := testClient.Patch(t.Context(), &pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":"true"}}}`))); err != nil {
		t.Fatal(err)
	}
	state("Normal")
	s.updatedAvailable(1)
}

func TestOnDeleteUpdatesOnlyWhatIsDeleted(t *testing.T) {
	s := create(t, web().Replicas(3).OnDelete())
	s.updatedAvailable(3)
	s.image("app:2")
	s.updatedAvailable(0)
	pod := s.pods()[0]
	if err := testClient.Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	s.updatedAvailable(1)
}

func TestImagesArePulledBeforehand(t *testing.T) {
	s := create(t, inPlace().Replicas(5).Partition("1").With(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromInt32(2))}
	}))
	s.updatedAvailable(5)
	s.image("app:2")
	var jobs v1beta1.ImagePullJobList
	// Whoever sees the new generation observed sees the job.
	s.status("the new generation", func(v1beta1.CloneSetStatus) bool { return true })
	if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || jobs.Items[0].Spec.Image != "app:2" || jobs.Items[0].OwnerReferences[0].Name != "web" || jobs.Items[0].Spec.Parallelism.IntValue() != 2 {
		t.Fatalf("jobs %+v", jobs.Items)
	}
	s.event("CreatedImagePullJob", "for image: app:2")
	s.updatedAvailable(4)
	s.partition("0")
	s.updatedAvailable(5)
	eventually(t, func() error {
		if err := testClient.List(t.Context(), &jobs, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) > 0 {
			return fmt.Errorf("%d jobs are left", len(jobs.Items))
		}
		return nil
	})
}

func TestUnschedulablePodIsReplacedByTheRepairedTemplate(t *testing.T) {
	s := create(t, web().ProgressDeadlineSeconds(2).With(func(c *v1beta1.CloneSet) {
		c.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{}
		c.Spec.Template.Spec.SchedulerName = "nobody"
	}))
	s.status("one Pod", func(st v1beta1.CloneSetStatus) bool { return st.Replicas == 1 })
	s.status("the deadline to pass", func(v1beta1.CloneSetStatus) bool {
		return s.condition(v1beta1.CloneSetConditionProgressing).Reason == "ProgressDeadlineExceeded"
	})
	if p := s.pods()[0]; p.Labels["lifecycle.apps.kruise.io/state"] != "PreparingNormal" {
		t.Errorf("labels %v", p.Labels)
	}
	s.change(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.SchedulerName = ""
		c.Spec.UpdateStrategy = web().Obj().Spec.UpdateStrategy
	})
	s.updatedAvailable(1)
	s.status("available", func(v1beta1.CloneSetStatus) bool {
		return s.condition(v1beta1.CloneSetConditionProgressing).Reason == "CloneSetAvailable"
	})
}

// The scenario of gate PreparingUpdateAsUpdate: what the first status of the new
// generation says is already so.
func TestPreparingUpdateCountsAsUpdated(t *testing.T) {
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "true"}}
	s := create(t, inPlace().Replicas(2).MaxUnavailable("50%").Partition("99%").TemplateLabel("hook", "true").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook}))
	s.updatedAvailable(2)
	s.image("app:2")
	s.status("the new generation", func(v1beta1.CloneSetStatus) bool { return true })
	st := s.get().Status // the current revision moves in the end
	triple := func() [3]int {
		var n [3]int
		for _, p := range s.pods() {
			switch h := p.Labels["controller-revision-hash"]; {
			case strings.HasSuffix(st.CurrentRevision, h):
				n[0]++
			case strings.HasSuffix(st.UpdateRevision, h):
				n[1]++
			}
			if p.Labels["lifecycle.apps.kruise.io/state"] == "PreparingUpdate" {
				n[2]++
			}
		}
		return n
	}
	if got := triple(); got != [3]int{2, 0, 1} {
		t.Errorf("current, updated, preparing: %v", got)
	}
	for _, p := range s.pods() {
		if p.Labels["lifecycle.apps.kruise.io/state"] != "PreparingUpdate" {
			if err := testClient.Delete(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() error {
		if got := triple(); got != [3]int{2, 0, 1} {
			return fmt.Errorf("current, updated, preparing: %v", got)
		}
		return nil
	})
	s.change(func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(3)) })
	eventually(t, func() error {
		if got := triple(); got != [3]int{3, 0, 1} {
			return fmt.Errorf("current, updated, preparing: %v", got)
		}
		return nil
	})
	unhook := func() {
		t.Helper()
		for _, p := range s.pods() {
			if p.Labels["lifecycle.apps.kruise.io/state"] == "PreparingUpdate" {
				if err := testClient.Patch(t.Context(), &p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"hook":null}}}`))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := func(n [3]int) {
		t.Helper()
		eventually(t, func() error {
			if got := triple(); got != n {
				return fmt.Errorf("current, updated, preparing: %v, want %v", got, n)
			}
			return nil
		})
	}
	unhook()
	want([3]int{2, 1, 0})
	s.change(func(c *v1beta1.CloneSet) {
		r := c.Spec.UpdateStrategy.RollingUpdate
		r.Partition, r.MaxUnavailable = nil, new(intstr.FromString("100%"))
	})
	want([3]int{2, 1, 2})
	unhook()
	want([3]int{0, 3, 0})
}

func TestChangedClaimTemplatesRecreate(t *testing.T) {
	s := create(t, inPlace().Replicas(2).Claim("data", "1Gi"))
	s.updatedAvailable(2)
	before := s.uids()
	size := func(size string) func(*v1beta1.CloneSet) {
		return func(c *v1beta1.CloneSet) {
			c.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		}
	}
	s.change(size("2Gi"))
	s.updatedAvailable(2)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("a change of the claims alone replaced Pods: %v, %v", before, got)
	}
	s.image("app:2")
	s.updatedAvailable(2)
	for _, uid := range s.uids() {
		if slices.Contains(before, uid) {
			t.Errorf("Pod %s was kept", uid)
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := testClient.List(t.Context(), &claims, client.InNamespace(s.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.DeletionTimestamp == nil && c.Spec.Resources.Requests.Storage().String() != "2Gi" {
			t.Errorf("claim %s has %s", c.Name, c.Spec.Resources.Requests.Storage())
		}
	}
	before = s.uids()
	s.change(func(c *v1beta1.CloneSet) {
		size("3Gi")(c)
		c.Spec.Template.Spec.Containers[0].Image = "app:3"
		c.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
	})
	s.updatedAvailable(2)
	if got := s.uids(); !slices.Equal(before, got) {
		t.Errorf("InPlaceOnly replaced Pods: %v, %v", before, got)
	}
}

func TestHistoryIsCut(t *testing.T) {
	s := create(t, inPlace().With(func(c *v1beta1.CloneSet) { c.Spec.RevisionHistoryLimit = new(int32(1)) }))
	s.updatedAvailable(1)
	for i := range 4 {
		s.image(fmt.Sprintf("app:%d", i+2))
		s.updatedAvailable(1)
	}
	eventually(t, func() error {
		var list appsv1.ControllerRevisionList
		if err := testClient.List(t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d revisions", len(list.Items))
		}
		return nil
	})
}

// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

const (
	metaKey = "apps.kruise.io/runtime-containers-meta"
	// Hashes of spec and environment as the kubelet and older versions compute them.
	nginxHash, nginxHex = 436018172, "19fd1bfc" // image nginx:1.25, name main
	fooHash             = 27323935              // TEST_ENV=foo
	noEnvHash           = 86995377
)

// podBuilder builds a Pod of a CloneSet with one running container; methods return copies.
type podBuilder struct{ obj *corev1.Pod }

func newPod() podBuilder {
	return podBuilder{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-x", UID: "uid", Annotations: map[string]string{"test-env": "foo"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx:1.25"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://c1"}}},
	}}
}

func (b podBuilder) with(change func(*corev1.Pod)) podBuilder {
	obj := b.obj.DeepCopy()
	change(obj)
	return podBuilder{obj}
}

// env makes TEST_ENV follow the annotation test-env.
func (b podBuilder) env() podBuilder {
	return b.with(func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TEST_ENV", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['test-env']"}}}}
	})
}

func (b podBuilder) annotation(key, value string) podBuilder {
	return b.with(func(p *corev1.Pod) { p.Annotations[key] = value })
}

func (b podBuilder) updating(status corev1.ConditionStatus) podBuilder {
	return b.with(func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "InPlaceUpdateReady", Status: status})
	})
}

func running(id, hash string) cri.Container {
	return cri.Container{
		ID: id, Name: "main", State: cri.StateRunning,
		Labels:      map[string]string{"io.kubernetes.container.name": "main", "io.kubernetes.pod.uid": "uid"},
		Annotations: map[string]string{"io.kubernetes.container.hash": hash, "io.kubernetes.container.restartCount": "2"},
	}
}

func meta(id string, env uint64) *runtimehash.ContainersMeta {
	return &runtimehash.ContainersMeta{Containers: []runtimehash.ContainerMeta{{
		Name: "main", ContainerID: "containerd://" + id, RestartCount: 2, Hashes: runtimehash.Hashes{PlainHash: nginxHash, ExtractedEnvFromMetadataHash: env},
	}}}
}

func TestDecide(t *testing.T) {
	foo := map[string]map[string]string{"c1": {"TEST_ENV": "foo"}}
	expectedBar := runtimehash.Env([]runtimehash.EnvVar{{Name: "TEST_ENV", Value: "bar"}})
	cases := map[string]struct {
		snap Snapshot
		want Plan
	}{
		"a container is reported with the kubelet's hash": {
			Snapshot{Pod: newPod().obj, Containers: []cri.Container{running("c1", nginxHex)}},
			Plan{Meta: meta("c1", 0)},
		},
		"without variables from metadata the hash is that of none": {
			Snapshot{Pod: newPod().obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{Meta: meta("c1", noEnvHash)},
		},
		"with variables from metadata the environment is asked for": {
			Snapshot{Pod: newPod().env().obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{Meta: meta("c1", 0), AskEnv: []string{"c1"}},
		},
		"and hashed as it is inside, whatever the Pod says now": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true, Envs: foo},
			Plan{Meta: meta("c1", fooHash)},
		},
		"an unchanged report is not written": {
			Snapshot{Pod: newPod().annotation(metaKey, meta("c1", noEnvHash).JSON()).obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{},
		},
		"a report of old stays while the container lives": {
			Snapshot{Pod: newPod().env().annotation(metaKey, meta("c1", fooHash).JSON()).obj, Containers: []cri.Container{running("c1", "1")}, TrackEnv: true},
			Plan{},
		},
		"a new instance is reported anew": {
			Snapshot{Pod: newPod().annotation(metaKey, meta("c0", 5).JSON()).obj, Containers: []cri.Container{running("c1", nginxHex), running("c0", nginxHex)}},
			Plan{Meta: meta("c1", 0)},
		},
		"an unreadable report is written anew": {
			Snapshot{Pod: newPod().annotation(metaKey, "{").obj, Containers: []cri.Container{running("c1", nginxHex)}},
			Plan{Meta: meta("c1", 0)},
		},
		"a container that the runtime does not know is left out": {Snapshot{Pod: newPod().obj}, Plan{}},
		"a changed annotation restarts nothing on a settled Pod": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").annotation(metaKey, meta("c1", fooHash).JSON()).updating("True").obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{},
		},
		"during an in-place update it restarts the container": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").annotation(metaKey, meta("c1", fooHash).JSON()).updating("False").obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{Restart: []Restart{{ID: "c1", Name: "main", Recorded: fooHash, Expected: expectedBar, Delay: 3 * time.Second}}},
		},
		"a container that the kubelet is about to replace gets more time": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").annotation(metaKey, meta("c1", fooHash).JSON()).updating("False").with(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:1.26" }).obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{Restart: []Restart{{ID: "c1", Name: "main", Recorded: fooHash, Expected: expectedBar, Delay: 40 * time.Second}}},
		},
		"an environment that is right restarts nothing": {
			Snapshot{Pod: newPod().env().annotation(metaKey, meta("c1", fooHash).JSON()).updating("False").obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{},
		},
		"an unknown environment restarts nothing": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").annotation(metaKey, meta("c1", 0).JSON()).updating("False").obj, Containers: []cri.Container{running("c1", nginxHex)}, TrackEnv: true},
			Plan{AskEnv: []string{"c1"}},
		},
		"without the gate the environment is neither read nor acted on": {
			Snapshot{Pod: newPod().env().annotation("test-env", "bar").annotation(metaKey, meta("c1", fooHash).JSON()).updating("False").obj, Containers: []cri.Container{running("c1", nginxHex)}},
			Plan{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.snap.Runtime = "containerd"
			if diff := cmp.Diff(tc.want, Decide(tc.snap), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// The kubelet sorts statuses by name; the order of the spec is the user's.
func TestDecideMatchesByName(t *testing.T) {
	pod := newPod().env().with(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "app", Image: "app:1"})
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://c2"}, {Name: "main", ContainerID: "containerd://c1"}}
	}).obj
	app := running("c2", "7")
	app.Name, app.Labels = "app", map[string]string{"io.kubernetes.container.name": "app"}
	plan := Decide(Snapshot{Pod: pod, Runtime: "containerd", TrackEnv: true, Containers: []cri.Container{running("c1", nginxHex), app}, Envs: map[string]map[string]string{"c1": {"TEST_ENV": "foo"}}})
	want := `{"containers":[{"name":"app","containerID":"containerd://c2","restartCount":2,"hashes":{"plainHash":7,"extractedEnvFromMetadataHash":86995377}},` +
		`{"name":"main","containerID":"containerd://c1","restartCount":2,"hashes":{"plainHash":436018172,"extractedEnvFromMetadataHash":27323935}}]}`
	if diff := cmp.Diff(want, plan.Meta.JSON()); diff != "" {
		t.Errorf("annotation differs (-want +got):\n%s", diff)
	}
	reported := podBuilder{pod}.annotation(metaKey, plan.Meta.JSON()).obj
	if relevant(reported, reported, true) {
		t.Error("a complete report asks for another look")
	}
}

func TestRelevant(t *testing.T) {
	reported := newPod().env().annotation(metaKey, meta("c1", fooHash).JSON())
	cases := map[string]struct {
		before, after podBuilder
		added, want   bool
	}{
		"a Pod that appears without report":          {after: newPod(), added: true, want: false},
		"a Pod that appears with a complete report":  {after: reported, added: true, want: false},
		"a Pod that appears with an old report":      {after: newPod().annotation(metaKey, meta("c0", 0).JSON()), added: true, want: true},
		"a change of a Pod without report":           {before: newPod(), after: newPod(), want: true},
		"a change of a Pod with a complete report":   {before: reported, after: reported.annotation("x", "y"), want: false},
		"a new container":                            {before: reported, after: reported.with(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://c2" }), want: true},
		"a container that waits for its first start": {before: newPod(), after: newPod().with(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "" }), want: false},
		"another number of containers":               {before: reported, after: reported.with(func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"}) }), want: true},
		"metadata that the environment reads":        {before: reported, after: reported.annotation("test-env", "bar"), want: true},
		"a Pod of another controller":                {before: newPod(), after: newPod().with(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" }), want: false},
		"a Pod of another controller with a sidecar": {before: newPod(), after: newPod().with(func(p *corev1.Pod) { p.OwnerReferences = nil }).annotation("kruise.io/sidecarset-hash", "{}"), want: true},
		"a Pod that ends":                            {before: newPod(), after: newPod().with(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), want: false},
		"a Pod without statuses":                     {before: newPod(), after: newPod().with(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), want: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.before.obj
			if tc.added {
				before = nil
			}
			if got := relevant(before, tc.after.obj, true); got != tc.want {
				t.Errorf("relevant() = %v, want %v", got, tc.want)
			}
		})
	}
}

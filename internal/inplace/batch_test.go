// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// twoPriorities is a Pod whose redis starts before nginx.
func twoPriorities() *corev1.Pod {
	return podOf(template(func(t *corev1.PodTemplateSpec) {
		withPriority(&t.Spec.Containers[0], "p_0")
		withPriority(&t.Spec.Containers[1], "p_10")
	}, "nginx", "redis"), "web-1")
}

func begin(t testing.TB, pod *corev1.Pod, spec *UpdateSpec, o Options, now time.Time) *corev1.Pod {
	t.Helper()
	w, err := Begin(pod, spec, o, now)
	if err != nil {
		t.Fatal(err)
	}
	setKey(&w.Pod.Labels, "controller-revision-hash", spec.Revision)
	return w.Pod
}

func images(pod *corev1.Pod) map[string]string {
	m := map[string]string{}
	for _, c := range pod.Spec.Containers {
		m[c.Name] = c.Image
	}
	return m
}

// ran makes the status that the kubelet reports once the containers run as in the spec.
func ran(pod *corev1.Pod, names ...string) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, name := range names {
		s := containerStatus(pod, name)
		*s = running(name, container(pod, name).Image)
		s.ContainerID += "+"
	}
	return pod
}

func TestBatchesFollowLaunchPriorities(t *testing.T) {
	spec := &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"nginx": "nginx:2", "redis": "redis:2"}}
	pod := begin(t, twoPriorities(), spec, everything, t0)

	wantEqual(t, map[string]string{"injected": "sidecar:1", "nginx": "nginx:1", "redis": "redis:2"}, images(pod))
	wantEqual(t, `{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"redis":{"imageID":"id-of-redis:1"}},"updateImages":true,"nextContainerImages":{"nginx":"nginx:2"},"preCheckBeforeNext":{"containersRequiredReady":["redis"]},"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["redis"]}]}`,
		pod.Annotations[stateKey])
	wantWaits(t, pod, "container redis: image not changed yet: status still reports redis:1")

	pod = ran(pod, "redis")
	containerStatus(pod, "redis").Ready = false
	wantWaits(t, pod, "waiting for containers [redis] to be ready before the next batch")

	pod = ran(pod, "redis")
	step := Next(pod, everything, t0.Add(time.Minute))
	if step.Action != SendBatch {
		t.Fatalf("Next() = %v, want the second batch", step)
	}
	pod = step.Write.Pod
	wantEqual(t, map[string]string{"injected": "sidecar:1", "nginx": "nginx:2", "redis": "redis:2"}, images(pod))
	wantEqual(t, `{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"nginx":{"imageID":"id-of-nginx:1"},"redis":{"imageID":"id-of-redis:1"}},"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["redis"]},{"timestamp":"2026-01-02T03:05:05Z","containers":["nginx"]}]}`,
		pod.Annotations[stateKey])
	wantWaits(t, pod, "container nginx: image not changed yet: status still reports nginx:1")
	if step := Next(ran(pod, "nginx"), everything, t0.Add(time.Hour)); step.Action != Done {
		t.Errorf("Next() = %v at the end, want Done (the test never made the Pod not ready)", step)
	}
}

func wantWaits(t testing.TB, pod *corev1.Pod, messages ...string) {
	t.Helper()
	step := Next(pod, everything, t0.Add(time.Hour))
	var got []string
	for _, r := range step.Waiting {
		got = append(got, r.Message)
	}
	if diff := cmp.Diff(messages, got); step.Action != Wait || diff != "" {
		t.Errorf("Next() = %s, waits differ (-want +got):\n%s", step.Action, diff)
	}
}

func TestChooseBatch(t *testing.T) {
	ref := func(keys ...string) RefMetadata {
		r := RefMetadata{Annotations: map[string]string{}}
		for _, k := range keys {
			r.Annotations[k] = "new"
		}
		return r
	}
	cases := map[string]struct {
		priorities map[string]string // container to key of the barrier; none: no priority
		spec       *UpdateSpec
		want       []string
	}{
		"without priorities all go at once": {
			spec: &UpdateSpec{ContainerImages: map[string]string{"a": "x", "b": "x"}},
			want: []string{"a", "b"},
		},
		"the highest priority goes first": {
			priorities: map[string]string{"a": "p_0", "b": "p_10", "c": "p_10"},
			spec:       &UpdateSpec{ContainerImages: map[string]string{"a": "x", "b": "x", "c": "x"}},
			want:       []string{"b", "c"},
		},
		"only containers of the update count": {
			priorities: map[string]string{"a": "p_0", "b": "p_10"},
			spec:       &UpdateSpec{ContainerImages: map[string]string{"a": "x"}},
			want:       []string{"a"},
		},
		"priorities may be negative": {
			priorities: map[string]string{"a": "p_-5", "b": "p_-1"},
			spec:       &UpdateSpec{ContainerImages: map[string]string{"a": "x", "b": "x"}},
			want:       []string{"b"},
		},
		"a container without priority never waits": {
			priorities: map[string]string{"b": "p_1", "c": "p_2"},
			spec:       &UpdateSpec{ContainerImages: map[string]string{"a": "x", "b": "x", "c": "x"}},
			want:       []string{"a", "c"},
		},
		"a key that is not a barrier's is none": {
			priorities: map[string]string{"a": "p_x", "b": "priority", "c": "p_1"},
			spec:       &UpdateSpec{ContainerImages: map[string]string{"a": "x", "b": "x", "c": "x"}},
			want:       []string{"a", "b", "c"},
		},
		"who reads the same annotation joins, and so on": {
			priorities: map[string]string{"a": "p_0", "b": "p_1", "c": "p_2", "d": "p_0"},
			spec: &UpdateSpec{
				ContainerImages:      map[string]string{"c": "x", "d": "x"},
				ContainerRefMetadata: map[string]RefMetadata{"a": ref("k1"), "b": ref("k1", "k2"), "c": ref("k2")},
			},
			want: []string{"a", "b", "c"},
		},
		"a removed key is shared like a changed one": {
			priorities: map[string]string{"a": "p_0", "c": "p_2"},
			spec: &UpdateSpec{ContainerRefMetadata: map[string]RefMetadata{
				"a": {RemovedAnnotations: []string{"k"}}, "c": {RemovedAnnotations: []string{"k"}},
			}},
			want: []string{"a", "c"},
		},
		"resources are ordered too": {
			priorities: map[string]string{"a": "p_0", "b": "p_1"},
			spec: &UpdateSpec{
				ContainerImages:    map[string]string{"b": "x"},
				ContainerResources: map[string]corev1.ResourceRequirements{"a": {Requests: quantities("1", "")}},
			},
			want: []string{"b"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(func(tmpl *corev1.PodTemplateSpec) {
				for i := range tmpl.Spec.Containers {
					c := &tmpl.Spec.Containers[i]
					if key := tc.priorities[c.Name]; key != "" {
						withPriority(c, key)
					}
				}
			}, "a", "b", "c", "d"), "web-1")
			var got []string
			chosen := chooseBatch(pod, tc.spec)
			for _, name := range []string{"a", "b", "c", "d"} {
				if chosen[name] {
					got = append(got, name)
				}
			}
			wantEqual(t, tc.want, got)
		})
	}
}

func TestAUserVariableOfTheBarriersNameIsNoPriority(t *testing.T) {
	for _, e := range []corev1.EnvVar{
		{Name: "KRUISE_CONTAINER_BARRIER", Value: "p_1"},
		envFrom("KRUISE_CONTAINER_BARRIER", "metadata.name"),
		{Name: "KRUISE_CONTAINER_BARRIER", ValueFrom: &corev1.EnvVarSource{}},
	} {
		if p, ok := priority(&corev1.Container{Env: []corev1.EnvVar{e}}); ok {
			t.Errorf("priority of %v is %d, want none", e, p)
		}
	}
}

func TestTheWholePodIsPatchedInOneWrite(t *testing.T) {
	pod := podOf(template(func(t *corev1.PodTemplateSpec) {
		t.Annotations = map[string]string{"config": "a", "gone": "x"}
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("100m", "1Gi")}
	}, "app"), "web-1")
	pod.Annotations["other"] = "kept"
	pod.Annotations["inplace-update-state"] = `{"revision":"web-0","updateTimestamp":"2026-01-01T00:00:00Z","lastContainerStatuses":null}`
	pod.Annotations["inplace-update-grace"] = `{"revision":"web-0"}`
	spec := &UpdateSpec{
		Revision:              "web-2",
		ContainerImages:       map[string]string{"app": "app:2"},
		ContainerRefMetadata:  map[string]RefMetadata{"app": {Annotations: map[string]string{"config": "b"}}},
		ContainerResources:    map[string]corev1.ResourceRequirements{"app": {Requests: quantities("200m", "")}},
		MetaDataPatch:         []byte(`{"metadata":{"annotations":{"gone":null,"new":"y"}}}`),
		UpdateEnvFromMetadata: true,
	}
	before := pod.DeepCopy()
	got := begin(t, pod, spec, Options{}, t0)
	wantEqual(t, before, pod) // the input stays
	wantEqual(t, map[string]string{
		"config": "b", "new": "y", "other": "kept",
		stateKey: `{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"app":{"imageID":"id-of-app:1"}},"updateEnvFromMetadata":true,"updateResources":true,"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["app"]}]}`,
	}, got.Annotations)
	app := container(got, "app")
	wantEqual(t, "app:2", app.Image)
	wantEqual(t, quantities("200m", "1Gi"), app.Resources.Requests)

	// With the subresource the quantities go there, and the rest follows when they are in.
	w, err := Begin(pod, spec, everything, t0)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, map[string]corev1.ResourceRequirements{"app": {Requests: quantities("200m", "")}}, w.Resize)
	wantEqual(t, quantities("100m", "1Gi"), container(w.Pod, "app").Resources.Requests)
	resized := pod.DeepCopy()
	container(resized, "app").Resources.Requests = quantities("0.2", "1Gi")
	if w, err = Begin(resized, spec, everything, t0); err != nil || w.Resize != nil {
		t.Errorf("Begin() after the resize wants %v, %v, want no further resize", w.Resize, err)
	}
}

func TestAForeignPatchNeverDeletesAllAnnotations(t *testing.T) {
	pod := podOf(template(nil, "app"), "web-1")
	pod.Annotations = map[string]string{"other": "kept"}
	got := begin(t, pod, &UpdateSpec{Revision: "web-2", MetaDataPatch: []byte(`{"metadata":{"annotations":null,"labels":{"a":"b"}}}`)}, Options{}, t0)
	if got.Annotations["other"] != "kept" || got.Labels["a"] != "b" {
		t.Errorf("annotations %v, labels %v", got.Annotations, got.Labels)
	}
	if _, err := Begin(pod, &UpdateSpec{Revision: "web-2", MetaDataPatch: []byte(`[]`)}, Options{}, t0); err == nil {
		t.Error("an unreadable patch gives no error")
	}
}

func TestGracePeriod(t *testing.T) {
	spec := &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2"}, GraceSeconds: 30}
	pod := begin(t, podOf(template(nil, "app"), "web-1"), spec, Options{}, t0)
	wantEqual(t, "app:1", container(pod, "app").Image)
	wantEqual(t, `{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":null,"updateImages":true}`, pod.Annotations[stateKey])
	wantEqual(t, `{"revision":"web-2","containerImages":{"app":"app:2"},"graceSeconds":30}`, pod.Annotations["apps.kruise.io/inplace-update-grace"])

	step := Next(pod, Options{}, t0.Add(17500*time.Millisecond))
	wantEqual(t, Step{Action: Wait, After: 13 * time.Second, Waiting: []Reason{{Code: WaitGracePeriod, Message: "grace period ends in 13s"}}}, step)
	wantEqual(t, []Reason{{Code: WaitGracePeriod, Message: "grace period of 30s ends at 2026-01-02T03:04:35Z"}}, Waiting(pod, Options{}))

	over := Next(pod, Options{}, t0.Add(30*time.Second))
	if over.Action != SendBatch {
		t.Fatalf("Next() = %v when the grace period is over", over)
	}
	wantEqual(t, "app:2", container(over.Write.Pod, "app").Image)
	wantEqual(t, `{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"app":{"imageID":"id-of-app:1"}},"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:35Z","containers":["app"]}]}`, over.Write.Pod.Annotations[stateKey])
	if _, ok := over.Write.Pod.Annotations["apps.kruise.io/inplace-update-grace"]; ok {
		t.Error("the grace annotation is still there")
	}

	moved := pod.DeepCopy()
	moved.Labels["controller-revision-hash"] = "web-3"
	dropped := Next(moved, Options{}, t0)
	if dropped.Action != DropGrace || container(dropped.Write.Pod, "app").Image != "app:1" || dropped.Write.Pod.Annotations["apps.kruise.io/inplace-update-grace"] != "" {
		t.Errorf("Next() = %v for a Pod of another revision, want only the grace annotation dropped", dropped)
	}

	old := pod.DeepCopy()
	for _, key := range []string{"state", "grace"} {
		old.Annotations["inplace-update-"+key] = old.Annotations["apps.kruise.io/inplace-update-"+key]
		delete(old.Annotations, "apps.kruise.io/inplace-update-"+key)
	}
	step = Next(old, Options{}, t0.Add(time.Minute))
	if step.Action != SendBatch || len(step.Write.Pod.Annotations) != 1 {
		t.Errorf("old keys: Next() = %v with annotations %v, want the state under the new key only", step, step.Write.Pod.Annotations)
	}
}

func TestUnreadableAnnotations(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"a state that is no JSON":   {stateKey: "{"},
		"a grace that is no JSON":   {"apps.kruise.io/inplace-update-grace": "{"},
		"a grace without any state": {"apps.kruise.io/inplace-update-grace": `{"revision":"web-1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(nil, "app"), "web-1")
			pod.Annotations = annotations
			if step := Next(pod, Options{}, t0); step.Action != Invalid || step.Err == nil {
				t.Errorf("Next() = %v, want Invalid", step)
			}
			if waits := Waiting(pod, Options{}); len(waits) != 1 || waits[0].Code != WaitInvalidState {
				t.Errorf("Waiting() = %v", waits)
			}
			if Complete(pod, Options{}) {
				t.Error("the Pod counts as complete")
			}
			if _, err := PendingBatch(pod, Options{}, t0); err == nil {
				t.Error("PendingBatch() gives no error")
			}
			// A new update recovers the Pod.
			again := begin(t, pod, &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2"}}, Options{}, t0)
			if step := Next(again, Options{}, t0); step.Action != Wait {
				t.Errorf("after a new update Next() = %v", step)
			}
		})
	}
}

func TestWhatAnUnfinishedUpdateLeftIsDoneByTheNext(t *testing.T) {
	first := &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"nginx": "nginx:2", "redis": "redis:2"}}
	pod := begin(t, twoPriorities(), first, everything, t0)
	// Revision web-3 differs from web-2 in redis only; nginx:2 is not in the Pod yet.
	second := &UpdateSpec{Revision: "web-3", ContainerImages: map[string]string{"redis": "redis:3"}}
	pod = begin(t, pod, second, everything, t0.Add(time.Minute))
	wantEqual(t, map[string]string{"injected": "sidecar:1", "nginx": "nginx:1", "redis": "redis:3"}, images(pod))
	state, err := StateOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, map[string]string{"nginx": "nginx:2"}, state.NextContainerImages)

	// The same with a grace period that is not over.
	first.GraceSeconds = 30
	first.MetaDataPatch = []byte(`{"metadata":{"labels":{"a":"1","b":"1"}}}`)
	pod = begin(t, twoPriorities(), first, everything, t0)
	second.MetaDataPatch = []byte(`{"metadata":{"labels":{"b":null}}}`)
	pod = begin(t, pod, second, everything, t0.Add(time.Second))
	wantEqual(t, "redis:3", container(pod, "redis").Image)
	_, hasB := pod.Labels["b"]
	if pod.Labels["a"] != "1" || hasB {
		t.Errorf("labels are %v", pod.Labels)
	}

	// Not for another revision than the labels name: that is not this Pod's past.
	pod = begin(t, twoPriorities(), first, everything, t0)
	pod.Labels["controller-revision-hash"] = "web-9"
	pod = begin(t, pod, second, everything, t0.Add(time.Second))
	wantEqual(t, map[string]string{"injected": "sidecar:1", "nginx": "nginx:1", "redis": "redis:3"}, images(pod))
	if state, _ := StateOf(pod); state.Pending() {
		t.Errorf("state is %s", encode(state))
	}
}

func TestAResizeStillWaitsForTheImageOfTheUpdateBefore(t *testing.T) {
	pod := begin(t, podOf(template(nil, "app"), "web-1"), &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2"}}, everything, t0)
	resize := &UpdateSpec{Revision: "web-3", ContainerResources: map[string]corev1.ResourceRequirements{"app": {Requests: quantities("1", "")}}}
	container(pod, "app").Resources.Requests = quantities("1", "")
	containerStatus(pod, "app").Resources = &corev1.ResourceRequirements{Requests: quantities("1", "")}
	early := begin(t, pod, resize, everything, t0)
	wantWaits(t, early, "container app: image not changed yet: status still reports app:1")
	late := begin(t, ran(pod, "app"), resize, everything, t0)
	if state, _ := StateOf(late); state.UpdateImages {
		t.Error("an image that has changed is still waited for")
	}
}

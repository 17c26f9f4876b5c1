// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestTheGraceAnnotationIsTheUpdateSpec(t *testing.T) {
	spec := &UpdateSpec{
		Revision:              "web-2",
		ContainerImages:       map[string]string{"app": "app:2"},
		ContainerRefMetadata:  map[string]RefMetadata{"app": {Labels: map[string]string{"tier": "back"}, Annotations: map[string]string{"config": "b"}, RemovedLabels: []string{"old"}}},
		ContainerResources:    map[string]corev1.ResourceRequirements{"app": {Limits: quantities("1", "")}},
		MetaDataPatch:         []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		UpdateEnvFromMetadata: true,
		GraceSeconds:          30,
	}
	const want = `{"revision":"web-2","containerImages":{"app":"app:2"},"containerRefMetadata":{"app":{"creationTimestamp":null,"labels":{"tier":"back"},"annotations":{"config":"b"},"removedLabels":["old"]}},"containerResources":{"app":{"limits":{"cpu":"1"}}},"metaDataPatch":"eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsiYSI6ImIifX19","updateEnvFromMetadata":true,"graceSeconds":30}`
	pod := &corev1.Pod{}
	setGrace(pod, spec)
	wantEqual(t, want, pod.Annotations["apps.kruise.io/inplace-update-grace"])
	got, err := GraceOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, want, encode(got))
}

func TestRevisionOptions(t *testing.T) {
	rev := revision(t, "web-7d9f", template(nil, "app"))
	pod := &corev1.Pod{}
	Options{}.LabelRevision(pod, rev)
	wantEqual(t, map[string]string{"controller-revision-hash": "web-7d9f"}, pod.Labels)
	o := Options{
		SetRevision: func(p *corev1.Pod, r *appsv1.ControllerRevision) { p.Labels["pod-template-hash"] = r.Name[4:] },
		AtRevision:  func(p *corev1.Pod, revision string) bool { return p.Labels["pod-template-hash"] == revision },
	}
	o.LabelRevision(pod, rev)
	if !o.atRevision(pod, "7d9f") || o.atRevision(pod, "web-7d9f") {
		t.Errorf("labels are %v", pod.Labels)
	}
}

func TestResizes(t *testing.T) {
	pod := podOf(template(func(tmpl *corev1.PodTemplateSpec) {
		tmpl.Spec.Containers[0].Resources.Requests = quantities("100m", "1Gi")
	}, "app", "redis"), "web-1")
	setState(pod, &State{Revision: "web-1", NextContainerResources: map[string]corev1.ResourceRequirements{"redis": {Limits: quantities("1", "")}}})
	spec := &UpdateSpec{ContainerResources: map[string]corev1.ResourceRequirements{
		"app":  {Requests: quantities("200m", "1024Mi")},
		"gone": {Requests: quantities("1", "")},
	}}
	want := map[string]corev1.ResourceRequirements{"app": {Requests: quantities("200m", "")}, "redis": {Limits: quantities("1", "")}}
	wantEqual(t, want, Resizes(pod, spec, everything))
	if got := Resizes(pod, spec, Options{VerticalScaling: true}); got != nil {
		t.Errorf("Resizes() = %v for a server without the subresource", got)
	}
}

func TestContainersThatThePodLacksAreSkipped(t *testing.T) {
	pod := podOf(template(nil, "app"), "web-1")
	spec := &UpdateSpec{
		Revision:           "web-2",
		ContainerImages:    map[string]string{"gone": "gone:2"},
		ContainerResources: map[string]corev1.ResourceRequirements{"gone": {Requests: quantities("1", "")}},
	}
	got := begin(t, pod, spec, everything, t0)
	if step := Next(got, everything, t0); step.Action != Done {
		t.Errorf("Next() = %v", step)
	}
}

func TestAContainerWithoutStatusHasNoLastImage(t *testing.T) {
	pod := podOf(template(nil, "app"), "web-1")
	pod.Status.ContainerStatuses = nil // not started on any node yet
	got := begin(t, pod, &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": "app:2"}}, everything, t0)
	state, err := StateOf(got)
	if err != nil || state.LastContainerStatuses != nil {
		t.Errorf("state is %s, %v", got.Annotations[stateKey], err)
	}
}

func TestWordsForPeople(t *testing.T) {
	wantEqual(t, "spec.x: changed", Reason{Path: "spec.x", Message: "changed"}.String())
	wantEqual(t, "changed", Reason{Message: "changed"}.String())
	wantEqual(t, "Done", Step{Action: Done}.String())
	wantEqual(t, "Wait: a; b", Step{Action: Wait, Waiting: []Reason{{Message: "a"}, {Message: "b"}}}.String())
	wantEqual(t, "Invalid: odd", Step{Action: Invalid, Err: errors.New("odd")}.String())

	spec := &UpdateSpec{
		Revision:             "web-2",
		ContainerImages:      map[string]string{"nginx": "nginx:2", "redis": "redis:2"},
		ContainerRefMetadata: map[string]RefMetadata{"nginx": {Annotations: map[string]string{"a": "b"}}},
		ContainerResources:   map[string]corev1.ResourceRequirements{"nginx": {Requests: quantities("1", "")}},
	}
	pod := begin(t, twoPriorities(), spec, Options{}, t0)
	containerStatus(pod, "redis").Ready = false
	var got []string
	for _, r := range Waiting(pod, Options{}) {
		got = append(got, r.Message)
	}
	wantEqual(t, []string{
		"container redis: image not changed yet: status still reports redis:1",
		"waiting for containers [redis] to be ready before the next batch",
	}, got)
	wantEqual(t, []Reason{{Code: WaitNextBatch, Message: "next batch of containers [nginx] is due"}}, Waiting(ran(pod, "redis"), Options{}))
}

func TestAStateWithoutPrecheckOrBatches(t *testing.T) {
	// As a program of before these fields would leave it.
	pod := podOf(template(nil, "app"), "web-1")
	setState(pod, &State{Revision: "web-1", NextContainerImages: map[string]string{"app": "app:2"}, UpdateResources: true, LastContainerStatuses: map[string]ContainerStatus{"injected": {ImageID: "old"}}})
	step := Next(pod, everything, t0)
	if step.Action != SendBatch || container(step.Write.Pod, "app").Image != "app:2" {
		t.Errorf("Next() = %v", step)
	}
	if got := (&State{}).sentAt("app"); !got.IsZero() {
		t.Errorf("sentAt() = %s", got)
	}
}

func TestARemovalOverridesAnEarlierValue(t *testing.T) {
	under := RefMetadata{Labels: map[string]string{"a": "1", "b": "1"}, RemovedAnnotations: []string{"c"}}
	over := RefMetadata{RemovedLabels: []string{"a"}, Annotations: map[string]string{"c": "2"}}
	want := RefMetadata{Labels: map[string]string{"b": "1"}, Annotations: map[string]string{"c": "2"}, RemovedLabels: []string{"a"}, RemovedAnnotations: []string{}}
	wantEqual(t, want, under.over(over))
	wantEqual(t, RefMetadata{Labels: map[string]string{"a": "1", "b": "1"}, RemovedAnnotations: []string{"c"}}, under)
}

func TestFinalizersOfTwoUpdatesInAGracePeriod(t *testing.T) {
	with := func(finalizers ...string) *corev1.PodTemplateSpec {
		return template(func(tmpl *corev1.PodTemplateSpec) { tmpl.Finalizers = finalizers }, "app")
	}
	o := Options{GracePeriodSeconds: 10}
	pod := podOf(with("example.com/a"), "web-1")
	pod.Finalizers = append(pod.Finalizers, "example.com/other")
	for i, step := range [][2]*corev1.PodTemplateSpec{{with("example.com/a"), with("example.com/b")}, {with("example.com/b"), with("example.com/c")}} {
		name := "web-" + string(rune('2'+i))
		c := Compare(revision(t, "old", step[0]), revision(t, name, step[1]), o)
		pod = begin(t, pod, c.InPlace, o, t0)
	}
	step := Next(pod, o, t0.Add(time.Minute))
	if step.Action != SendBatch {
		t.Fatalf("Next() = %v", step)
	}
	if got := strings.Join(step.Write.Pod.Finalizers, ","); got != "example.com/c,example.com/other" && got != "example.com/other,example.com/c" {
		t.Errorf("finalizers are %s", got)
	}
}

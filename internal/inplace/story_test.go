// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

var update = flag.Bool("update", false, "write the golden file of the story")

// TestStory tells one update with everything in it, step by step, as a reviewer reads it:
// grace period, launch priorities, an annotation in the environment, and a change of mind
// while the first batch is on its way.
func TestStory(t *testing.T) {
	old := template(func(tmpl *corev1.PodTemplateSpec) {
		tmpl.Annotations = map[string]string{"config": "v1"}
		withPriority(&tmpl.Spec.Containers[0], "p_0")
		withPriority(&tmpl.Spec.Containers[1], "p_10")
		tmpl.Spec.Containers[0].Env = append(tmpl.Spec.Containers[0].Env, envFrom("CONFIG", "metadata.annotations['config']"))
	}, "nginx", "redis")
	second := old.DeepCopy()
	second.Spec.Containers[0].Image, second.Spec.Containers[1].Image = "nginx:2", "redis:2"
	second.Annotations["config"] = "v2"
	third := second.DeepCopy()
	third.Spec.Containers[1].Image = "redis:3"

	o := Options{EnvFromMetadata: true, GracePeriodSeconds: 5}
	n := newNode(podOf(old, "web-1"))
	var b strings.Builder
	tell := func(format string, args ...any) {
		fmt.Fprintf(&b, "%5s  %s\n", n.now.Sub(t0).Truncate(time.Second), fmt.Sprintf(format, args...))
	}
	engine := func() {
		step := Next(n.pod, o, n.now)
		tell("engine: %v", step)
		if step.Write.Pod != nil {
			n.write(step.Write.Pod)
			tell("        nginx=%s redis=%s config=%s ready=%s", container(n.pod, "nginx").Image, container(n.pod, "redis").Image, n.pod.Annotations["config"], n.pod.Status.Conditions[0].Status)
		}
		n.now = n.now.Add(max(step.After, time.Second))
	}
	begin := func(from, to *corev1.PodTemplateSpec, name string) {
		c := Compare(revision(t, "old", from), revision(t, name, to), o)
		n.write(NotReady(n.pod, n.now))
		w, err := Begin(n.pod, c.InPlace, o, n.now)
		if err != nil {
			t.Fatal(err)
		}
		setKey(&w.Pod.Labels, "controller-revision-hash", name)
		n.write(w.Pod)
		tell("update to %s: containers %v", name, c.InPlace.containers())
	}
	kubelet := func() {
		n.kubelet()
		n.report()
		tell("kubelet: nginx runs %s, redis runs %s", n.started["nginx"].image, n.started["redis"].image)
	}
	daemon := func() {
		n.daemon()
		report, err := runtimehash.FromObject(n.pod)
		if err != nil {
			t.Fatal(err)
		}
		tell("daemon: reported %d containers", len(report.Containers))
	}

	engine()
	begin(old, second, "web-2")
	engine()
	engine()
	engine()
	begin(second, third, "web-3") // before the kubelet has seen redis:2
	for range 2 {
		engine()
	}
	for range 2 {
		engine()
		kubelet()
		engine()
		daemon()
	}
	kubelet()
	daemon()
	engine()

	const golden = "testdata/story.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, string(want), b.String())
}

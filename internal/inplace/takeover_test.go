// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const stateKey = "apps.kruise.io/inplace-update-state"

var everything = Options{EnvFromMetadata: true, VerticalScaling: true, ResizeSubresource: true}

func TestStateIsWrittenAsItWasRead(t *testing.T) {
	seen := 0
	for _, moment := range []string{"1-created", "2-mid-rollout", "3-settled"} {
		for _, pod := range load[corev1.PodList](t, moment+"/pods.yaml").Items {
			text := pod.Annotations[stateKey]
			if text == "" {
				continue
			}
			seen++
			state, err := StateOf(&pod)
			if err != nil {
				t.Fatalf("%s: %v", pod.Name, err)
			}
			wantEqual(t, text, encode(state))
		}
	}
	if seen < 10 {
		t.Errorf("only %d Pods with a state in the captured objects", seen)
	}
}

func TestNothingIsDoneToCapturedPods(t *testing.T) {
	waiting := map[string]string{
		"2-mid-rollout/clone-a-k6sqp": WaitKubelet,
		"3-settled/clone-a-f4j6z":     WaitKubelet,
	}
	for _, moment := range []string{"1-created", "2-mid-rollout", "3-settled"} {
		for _, pod := range load[corev1.PodList](t, moment+"/pods.yaml").Items {
			step := Next(&pod, everything, t0)
			code := waiting[moment+"/"+pod.Name]
			switch {
			case code == "" && step.Action != Done:
				t.Errorf("%s %s: Next() = %v, want Done", moment, pod.Name, step)
			case code != "" && (step.Action != Wait || step.Waiting[0].Code != code):
				t.Errorf("%s %s: Next() = %v, want to wait for %s", moment, pod.Name, step, code)
			}
		}
	}
}

func TestOlderKubeletsAreJudgedByWhatTheContainersShow(t *testing.T) {
	pod := capturedPod(t, "3-settled", "clone-a-f4j6z")
	pod.Status.ObservedGeneration = 0 // as kubelets before 1.34
	step := Next(pod, everything, t0)
	want := "container helper: image not changed yet: status still reports docker.io/library/busybox:1.32"
	if step.Action != Wait || len(step.Waiting) != 1 || step.Waiting[0].Message != want {
		t.Errorf("Next() = %v, want to wait: %s", step, want)
	}
}

// TestBeginWritesTheCapturedState starts the updates that OpenKruise started, on the Pods
// it started them on, and expects the annotation it wrote.
func TestBeginWritesTheCapturedState(t *testing.T) {
	revisions := func(short string) string { return "clone-a-" + short }
	cases := map[string]struct{ pod, before, after, from string }{
		"images and an annotation, with priorities":  {pod: "clone-a-f4j6z", before: "1-created", after: "3-settled"},
		"a second later, from a revision in between": {pod: "clone-a-k6sqp", before: "1-created", after: "2-mid-rollout", from: "66c7c7548d"},
		"one image of a Pod with injected sidecars":  {pod: "clone-b-trp5f", before: "1-created", after: "3-settled"},
		"one image of a StatefulSet Pod":             {pod: "asts-3", before: "1-created", after: "3-settled"},
		"one image of a DaemonSet Pod with a hash":   {pod: "ads-swb2s", before: "1-created", after: "3-settled"},
		"a StatefulSet Pod with a shorter hash name": {pod: "asts-2", before: "1-created", after: "2-mid-rollout"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := capturedPod(t, tc.before, tc.pod), capturedPod(t, tc.after, tc.pod)
			state, err := StateOf(after)
			if err != nil || state == nil {
				t.Fatalf("no state: %v", err)
			}
			o := everything
			if tc.from != "" {
				before.Labels["controller-revision-hash"] = tc.from
			}
			oldName, newName := before.Labels["controller-revision-hash"], state.Revision
			switch {
			case strings.HasPrefix(tc.pod, "clone-b"):
				oldName = "clone-b-" + oldName
			case strings.HasPrefix(tc.pod, "clone-a"):
				oldName = revisions(oldName)
			case strings.HasPrefix(tc.pod, "ads"):
				oldName, newName = "ads-"+oldName, "ads-"+newName
				o.RevisionKey = hashLabel
			}
			c := Compare(capturedRevision(t, oldName), capturedRevision(t, newName), o)
			if c.InPlace == nil {
				t.Fatalf("Compare() = %v", c.Recreate)
			}
			w, err := Begin(before, c.InPlace, o, state.UpdateTimestamp.Time)
			if err != nil {
				t.Fatal(err)
			}
			got := w.Pod
			if len(state.ContainerBatchesRecord) > 1 { // the second batch of a settled Pod
				for i := range got.Status.ContainerStatuses {
					got.Status.ContainerStatuses[i].Ready = true
				}
				next, err := PendingBatch(got, o, state.ContainerBatchesRecord[1].Timestamp.Time)
				if err != nil {
					t.Fatal(err)
				}
				got = next.Pod
			}
			wantEqual(t, after.Annotations[stateKey], got.Annotations[stateKey])
			for _, c := range got.Spec.Containers {
				if _, touched := state.LastContainerStatuses[c.Name]; touched {
					wantEqual(t, container(after, c.Name).Image, c.Image)
				}
			}
		})
	}
}

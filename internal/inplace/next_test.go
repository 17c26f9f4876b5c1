// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/property"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

func TestNextForPodsThatWereNeverUpdated(t *testing.T) {
	cases := map[string]struct {
		mutate func(*corev1.Pod)
		want   Action
	}{
		"a new Pod gets its first condition": {func(p *corev1.Pod) { p.Status.Conditions = nil }, Ready},
		"a condition that is False is set":   {func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, Ready},
		"a True condition is left alone":     {func(p *corev1.Pod) { p.Status.Conditions[0].Message = "other" }, Done},
		"without the gate nothing is due":    {func(p *corev1.Pod) { p.Spec.ReadinessGates = nil; p.Status.Conditions = nil }, Done},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(nil, "app"), "web-1")
			tc.mutate(pod)
			before := pod.DeepCopy()
			step := Next(pod, Options{}, t0)
			if step.Action != tc.want {
				t.Fatalf("Next() = %v, want %s", step, tc.want)
			}
			wantEqual(t, before, pod)
			if tc.want == Ready {
				again := Next(step.Write.Pod, Options{}, t0)
				wantEqual(t, Done, again.Action)
			}
		})
	}
}

func TestNotReady(t *testing.T) {
	pod := podOf(template(nil, "app"), "web-1")
	got := NotReady(pod, t0)
	want := []corev1.PodCondition{
		{Type: "InPlaceUpdateReady", Status: "False", Reason: "StartInPlaceUpdate", LastTransitionTime: metav1.NewTime(t0)},
		{Type: "ContainersReady", Status: "True"},
		{
			Type: "Ready", Status: "False", Reason: "ReadinessGatesNotReady", LastTransitionTime: metav1.NewTime(t0),
			Message: `the status of pod readiness gate "InPlaceUpdateReady" is not "True", but False`,
		},
	}
	wantEqual(t, want, got.Status.Conditions)
	wantEqual(t, want, NotReady(got, t0.Add(time.Hour)).Status.Conditions)
}

func TestNeedsNotReady(t *testing.T) {
	cpu := map[string]corev1.ResourceRequirements{"app": {Requests: quantities("1", "")}}
	memory := map[string]corev1.ResourceRequirements{"app": {Limits: quantities("", "1Gi")}}
	restart := func(name corev1.ResourceName) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			container(p, "app").ResizePolicy = []corev1.ContainerResizePolicy{
				{ResourceName: "cpu", RestartPolicy: corev1.NotRequired},
				{ResourceName: "memory", RestartPolicy: corev1.NotRequired},
				{ResourceName: name, RestartPolicy: corev1.RestartContainer},
			}
		}
	}
	cases := map[string]struct {
		mutate func(*corev1.Pod)
		spec   *UpdateSpec
		o      Options
		want   bool
	}{
		"an image":                                 {spec: &UpdateSpec{ContainerImages: map[string]string{"app": "x"}}, o: everything, want: true},
		"metadata only":                            {spec: &UpdateSpec{MetaDataPatch: []byte("{}")}, o: everything, want: true},
		"no readiness gate":                        {mutate: func(p *corev1.Pod) { p.Spec.ReadinessGates = nil }, spec: &UpdateSpec{ContainerImages: map[string]string{"app": "x"}}, o: everything},
		"resources without a policy":               {spec: &UpdateSpec{ContainerResources: cpu}, o: everything},
		"resources with the gate off":              {spec: &UpdateSpec{ContainerResources: cpu}, want: true},
		"memory that needs a restart":              {mutate: restart("memory"), spec: &UpdateSpec{ContainerResources: memory}, o: everything, want: true},
		"cpu where only memory needs a restart":    {mutate: restart("memory"), spec: &UpdateSpec{ContainerResources: cpu}, o: everything},
		"cpu that needs a restart":                 {mutate: restart("cpu"), spec: &UpdateSpec{ContainerResources: cpu}, o: everything, want: true},
		"resources and an image":                   {spec: &UpdateSpec{ContainerResources: cpu, ContainerImages: map[string]string{"app": "x"}}, o: everything, want: true},
		"resources and env":                        {spec: &UpdateSpec{ContainerResources: cpu, ContainerRefMetadata: map[string]RefMetadata{"app": {}}}, o: everything, want: true},
		"resources and metadata that no env reads": {spec: &UpdateSpec{ContainerResources: cpu, MetaDataPatch: []byte("{}")}, o: everything},
		"resources after an update not finished": {
			mutate: func(p *corev1.Pod) {
				setState(p, &State{Revision: "web-1", NextContainerImages: map[string]string{"app": "x"}})
			},
			spec: &UpdateSpec{ContainerResources: cpu}, o: everything, want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(nil, "app"), "web-1")
			if tc.mutate != nil {
				tc.mutate(pod)
			}
			if got := NeedsNotReady(pod, tc.spec, tc.o); got != tc.want {
				t.Errorf("NeedsNotReady() = %t, want %t", got, tc.want)
			}
		})
	}
}

// daemonReport writes what the node daemon reports of the Pod's containers.
func daemonReport(pod *corev1.Pod, change func(*runtimehash.ContainerMeta, *corev1.Container)) {
	meta := &runtimehash.ContainersMeta{}
	for _, s := range pod.Status.ContainerStatuses {
		c := container(pod, s.Name)
		rec := runtimehash.ContainerMeta{Name: s.Name, ContainerID: s.ContainerID, Hashes: runtimehash.Hashes{
			PlainHash:                    runtimehash.Plain(c),
			ExtractedEnvFromMetadataHash: runtimehash.ExpectedEnv(c, pod),
		}}
		if change != nil {
			change(&rec, c)
		}
		meta.Containers = append(meta.Containers, rec)
	}
	setKey(&pod.Annotations, "apps.kruise.io/runtime-containers-meta", meta.JSON())
}

func TestImageCompletion(t *testing.T) {
	// The Pod has just got app:2; the daemon's record, if any, is of the old container.
	cases := map[string]struct {
		image  string // default app:2
		mutate func(*corev1.Pod, *corev1.ContainerStatus)
		want   string // code; "" is complete
	}{
		"the status is still of the old container": {mutate: func(*corev1.Pod, *corev1.ContainerStatus) {}, want: WaitImage},
		"no status at all":                         {mutate: func(p *corev1.Pod, _ *corev1.ContainerStatus) { p.Status.ContainerStatuses = nil }, want: WaitStatus},
		"another image ID":                         {mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.ImageID = "id-of-app:2" }},
		"the same image ID and a fitting hash of the running container": {mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.ContainerID = "containerd://app-2"
			daemonReport(p, nil)
		}},
		"another image ID of a container that the daemon has not reported": {mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			daemonReport(p, nil)
			s.ImageID, s.ContainerID = "id-of-app:2", "containerd://app-2"
		}},
		"the same from a new kubelet, where it may be an image in between": {want: WaitRuntimeMeta, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
			daemonReport(p, nil)
			s.ImageID, s.ContainerID = "id-of-app:1.5", "containerd://app-2"
		}},
		"the same, started after the change": {mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
			daemonReport(p, nil)
			s.ImageID, s.ContainerID = "id-of-app:2", "containerd://app-2"
			s.State.Running.StartedAt = metav1.NewTime(t0.Add(time.Second))
		}},
		"a fitting hash in the old form": {mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, c *corev1.Container) {
				m.Hashes.PlainHash = runtimehash.PlainLegacy(c)
			})
		}},
		"a fitting hash of another container": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) { m.ContainerID = "containerd://app-0" })
		}},
		"a hash of the old image": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) { m.Hashes.PlainHash = 1 })
		}},
		"the same image ID and the new name in the status": {mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Image = "docker.io/library/app:2" }},
		"the new name, but a new kubelet hashes it as the old": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
			s.Image = "docker.io/library/app:2"
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) { m.Hashes.PlainHash = 1 })
		}},
		"another image ID of an image in between, by the hash": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
			s.ImageID = "id-of-app:1.5"
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) { m.Hashes.PlainHash = 1 })
		}},
		"a kubelet that has not seen the change": {want: WaitKubelet, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 3, 2
			s.ImageID = "id-of-app:2"
		}},
		"no daemon, same image ID, started after the change": {mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
			s.State.Running.StartedAt = metav1.NewTime(t0.Add(time.Second))
		}},
		"no daemon, started before the change": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Generation, p.Status.ObservedGeneration = 2, 2
		}},
		"unreadable records of the daemon are absent": {want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			setKey(&p.Annotations, "apps.kruise.io/runtime-containers-meta", "{")
		}},
		"an untagged image is latest": {image: "app", mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Image = "docker.io/library/app:latest" }},
		"a port in the registry is no tag": {image: "reg.example.com:5000/app", mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.Image = "reg.example.com:5000/app:latest"
		}},
		"another port is another image": {image: "reg.example.com:5000/app", want: WaitImage, mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) {
			s.Image = "reg.example.com:5001/app:latest"
		}},
		"a digest is found in the image ID": {image: "app@sha256:" + digest, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.ImageID = "docker.io/library/app@sha256:" + digest
			setLast(p, s.ImageID)
		}},
		"another digest is not": {image: "app@sha256:" + digest, want: WaitImage, mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
			s.ImageID = "docker.io/library/app@sha256:0000" + digest[4:]
			setLast(p, s.ImageID)
		}},
		"a name that is no image name is compared as it is": {image: "APP", want: WaitImage, mutate: func(*corev1.Pod, *corev1.ContainerStatus) {}},
		"a status that is no image name":                    {want: WaitImage, mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Image = "" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(nil, "app"), "web-1")
			if tc.image == "" {
				tc.image = "app:2"
			}
			pod = begin(t, pod, &UpdateSpec{Revision: "web-2", ContainerImages: map[string]string{"app": tc.image}}, everything, t0)
			tc.mutate(pod, containerStatus(pod, "app"))
			got := ""
			if step := Next(pod, everything, t0.Add(time.Hour)); step.Action == Wait {
				got = step.Waiting[0].Code
				wantEqual(t, step.Waiting, Waiting(pod, everything))
			}
			if got != tc.want {
				t.Errorf("waits for %q, want %q: %v", got, tc.want, Waiting(pod, everything))
			}
		})
	}
}

const digest = "4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1"

// setLast makes the image ID the one from before the change.
func setLast(pod *corev1.Pod, imageID string) {
	state, _ := StateOf(pod)
	state.LastContainerStatuses["app"] = ContainerStatus{ImageID: imageID}
	setState(pod, state)
}

func TestEnvCompletion(t *testing.T) {
	cases := map[string]struct {
		mutate func(*corev1.Pod)
		want   string
	}{
		"no report of the daemon": {func(*corev1.Pod) {}, WaitRuntimeMeta},
		"the old values are still inside": {func(p *corev1.Pod) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) {
				m.Hashes.ExtractedEnvFromMetadataHash = runtimehash.Env([]runtimehash.EnvVar{{Name: "CONFIG", Value: "a"}})
			})
		}, WaitEnv},
		"the values inside are not known": {func(p *corev1.Pod) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) { m.Hashes.ExtractedEnvFromMetadataHash = 0 })
		}, WaitRuntimeMeta},
		"the report is of another container": {func(p *corev1.Pod) {
			daemonReport(p, nil)
			containerStatus(p, "app").ContainerID = "containerd://app-2"
		}, WaitRuntimeMeta},
		"the container has not started": {func(p *corev1.Pod) {
			daemonReport(p, nil)
			containerStatus(p, "app").ContainerID = ""
		}, WaitStatus},
		"the new values are inside": {func(p *corev1.Pod) { daemonReport(p, nil) }, ""},
		"a container that reads nothing does not count": {func(p *corev1.Pod) {
			daemonReport(p, func(m *runtimehash.ContainerMeta, _ *corev1.Container) {
				if m.Name == "injected" {
					m.ContainerID, m.Hashes.ExtractedEnvFromMetadataHash = "containerd://old", 0
				}
			})
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(func(tmpl *corev1.PodTemplateSpec) {
				tmpl.Annotations = map[string]string{"config": "a"}
				tmpl.Spec.Containers[0].Env = []corev1.EnvVar{envFrom("CONFIG", "metadata.annotations['config']")}
			}, "app"), "web-1")
			pod = begin(t, pod, &UpdateSpec{
				Revision: "web-2", UpdateEnvFromMetadata: true,
				ContainerRefMetadata: map[string]RefMetadata{"app": {Annotations: map[string]string{"config": "b"}}},
			}, everything, t0)
			tc.mutate(pod)
			got := ""
			if step := Next(pod, everything, t0); step.Action == Wait {
				got = step.Waiting[0].Code
			}
			if got != tc.want {
				t.Errorf("waits for %q, want %q", got, tc.want)
			}
		})
	}
}

func TestResizeCompletion(t *testing.T) {
	cases := map[string]struct {
		mutate func(*corev1.Pod, *corev1.ContainerStatus)
		want   []Reason
	}{
		"nothing reported": {
			mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Resources = nil },
			want:   []Reason{{Code: WaitResize, Path: "status.containerStatuses[app].resources", Message: "container app: the kubelet has not reported its resources yet"}},
		},
		"old values reported": {
			mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) { s.Resources.Limits = quantities("1", "") },
			want: []Reason{
				{Code: WaitResize, Path: "status.containerStatuses[app].resources.limits.cpu", Message: "container app: cpu limit not changed yet: status reports 1, not 2"},
				{Code: WaitResize, Path: "status.containerStatuses[app].resources.limits.memory", Message: "container app: memory limit not changed yet: status reports none, not 1Gi"},
			},
		},
		"the same values in another notation": {
			mutate: func(_ *corev1.Pod, s *corev1.ContainerStatus) {
				s.Resources.Limits, s.Resources.Requests = quantities("2000m", "1024Mi"), quantities("0.2", "")
			},
		},
		"an extended resource that the kubelet does not report": {
			mutate: func(p *corev1.Pod, _ *corev1.ContainerStatus) {
				container(p, "app").Resources.Limits["example.com/gpu"] = quantities("1", "")["cpu"]
			},
		},
		"a sidecar of which nothing is reported": {
			mutate: func(p *corev1.Pod, _ *corev1.ContainerStatus) {
				container(p, "injected").Resources.Limits = quantities("1", "1Gi")
			},
		},
		"a resize the node cannot do": {
			mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
				s.Resources.Limits = quantities("1", "1Gi")
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
					Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: "Infeasible", Message: "Node didn't have enough capacity: cpu",
				})
			},
			want: []Reason{{
				Code: WaitResizeFeasible, Path: "status.containerStatuses[app].resources.limits.cpu",
				Message: "container app: cpu limit not changed yet: status reports 1, not 2 (resize infeasible: Node didn't have enough capacity: cpu)",
			}},
		},
		"a resize that must wait": {
			mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
				s.Resources.Limits = quantities("1", "1Gi")
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: "Deferred"})
			},
			want: []Reason{{
				Code: WaitResizeDeferred, Path: "status.containerStatuses[app].resources.limits.cpu",
				Message: "container app: cpu limit not changed yet: status reports 1, not 2 (resize deferred)",
			}},
		},
		"infeasible as older kubelets say it": {
			mutate: func(p *corev1.Pod, s *corev1.ContainerStatus) {
				s.Resources.Limits = quantities("1", "1Gi")
				p.Status.Resize = corev1.PodResizeStatusInfeasible
			},
			want: []Reason{{
				Code: WaitResizeFeasible, Path: "status.containerStatuses[app].resources.limits.cpu",
				Message: "container app: cpu limit not changed yet: status reports 1, not 2 (resize infeasible on this node)",
			}},
		},
		"all values reported": {mutate: func(*corev1.Pod, *corev1.ContainerStatus) {}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf(template(func(tmpl *corev1.PodTemplateSpec) {
				tmpl.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("200m", ""), Limits: quantities("1", "1Gi")}
			}, "app"), "web-1")
			o := Options{VerticalScaling: true} // an old server: the resize is in the Pod write
			pod = begin(t, pod, &UpdateSpec{
				Revision:           "web-2",
				ContainerResources: map[string]corev1.ResourceRequirements{"app": {Limits: quantities("2", "")}},
			}, o, t0)
			s := containerStatus(pod, "app")
			s.Resources = container(pod, "app").Resources.DeepCopy()
			tc.mutate(pod, s)
			wantEqual(t, tc.want, Waiting(pod, o))
		})
	}
}

func TestSupportsResize(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.32.0": true, "v1.37.2": true, "1.32+gke.1": true, "v1.32.3-eks-4096722": true, "v2.0.0": true, "v1.33+": true,
		"v1.31.9": false, "v1.3.2": false, "1": false, "": false, "v1": false, "x.y": false, "v1.x": false, "v.32": false,
	} {
		if got := SupportsResize(version); got != want {
			t.Errorf("SupportsResize(%q) = %t", version, got)
		}
	}
}

// Settled is a shortcut: what it says must be what Next says.
func TestSettledPodsHaveNothingToWrite(t *testing.T) {
	property.Many(t, 3000, func(t *rapid.T) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-a", Annotations: map[string]string{}, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "web-1"}}}
		p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:2"}}
		if rapid.Bool().Draw(t, "gate") {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}}
		}
		switch rapid.IntRange(0, 2).Draw(t, "condition") {
		case 0:
			p.Status.Conditions = []corev1.PodCondition{{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionTrue}}
		case 1:
			p.Status.Conditions = []corev1.PodCondition{{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionFalse}}
		}
		if rapid.Bool().Draw(t, "started") {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app:2", ImageID: "id-of-app:2", ContainerID: "c://1"}}
		}
		state := &State{Revision: "web-1", UpdateImages: true, LastContainerStatuses: map[string]ContainerStatus{"app": {ImageID: "id-of-app:1"}}}
		if rapid.Bool().Draw(t, "pending") {
			state.NextContainerImages = map[string]string{"log": "log:2"}
		}
		if rapid.Bool().Draw(t, "state") {
			setState(p, state)
		}
		if rapid.IntRange(0, 3).Draw(t, "old key") == 0 {
			p.Annotations[v1beta1.InPlaceUpdateStateAnnotationOld] = encode(state)
		}
		if rapid.IntRange(0, 3).Draw(t, "grace") == 0 {
			setGrace(p, &UpdateSpec{Revision: "web-1", GraceSeconds: 5})
		}
		step := Next(p, Options{}, t0)
		if writes := step.Action != Done && step.Action != Wait || step.After > 0; Settled(p) && writes {
			t.Fatalf("%s although the Pod is settled: %v", step, p)
		}
	})
}

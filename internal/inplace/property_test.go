// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

var (
	containerNames = []string{"a", "b", "c"}
	keys           = []string{"k1", "k2", "example.com/k3"}
)

// drawTemplate draws images, labels, annotations and sometimes resources. Which variable
// a container reads, and whether it has resources, depends on base alone, so that two
// templates of one base differ in place.
func drawTemplate(t *rapid.T, base drawnBase, label string) *corev1.PodTemplateSpec {
	tmpl := template(nil, base.names...)
	tmpl.Labels, tmpl.Annotations = map[string]string{"app": "web"}, nil
	for _, k := range keys {
		if v := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, label+" label "+k); v != "" {
			tmpl.Labels[k] = v
		}
		if v := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, label+" annotation "+k); v != "" {
			setKey(&tmpl.Annotations, k, v)
		}
	}
	for i := range tmpl.Spec.Containers {
		c := &tmpl.Spec.Containers[i]
		c.Image = rapid.SampledFrom([]string{"x:1", "x:1-again", "x:2", "y:1"}).Draw(t, label+" image of "+c.Name)
		c.Env = slices.Clone(base.env[c.Name])
		if base.resources[c.Name] {
			c.Resources.Requests = quantities(rapid.SampledFrom([]string{"100m", "200m"}).Draw(t, label+" cpu of "+c.Name), "1Gi")
		}
	}
	return tmpl
}

type drawnBase struct {
	names     []string
	env       map[string][]corev1.EnvVar
	resources map[string]bool
}

func drawBase(t *rapid.T) drawnBase {
	b := drawnBase{env: map[string][]corev1.EnvVar{}, resources: map[string]bool{}}
	b.names = containerNames[:rapid.IntRange(1, len(containerNames)).Draw(t, "containers")]
	priorities := rapid.Bool().Draw(t, "priorities")
	for _, name := range b.names {
		c := &corev1.Container{}
		for i, path := range []string{"metadata.labels['k1']", "metadata.annotations['k2']", "metadata.annotations['example.com/k3']"} {
			if rapid.Bool().Draw(t, name+" reads "+path) {
				c.Env = append(c.Env, envFrom(fmt.Sprint("E", i), path))
			}
		}
		if priorities {
			withPriority(c, rapid.SampledFrom([]string{"p_0", "p_1", "p_-1"}).Draw(t, "priority of "+name))
		}
		b.env[name] = c.Env
		b.resources[name] = rapid.Bool().Draw(t, name+" has resources")
	}
	return b
}

// wantTemplate fails unless the Pod is what the template asks for; what others put on the
// Pod, and only that, may be there besides.
func wantTemplate(t *rapid.T, pod *corev1.Pod, tmpl *corev1.PodTemplateSpec, extraLabels, extraAnnotations map[string]string) {
	want := tmpl.DeepCopy()
	for k, v := range extraLabels {
		setKey(&want.Labels, k, v)
	}
	for k, v := range extraAnnotations {
		setKey(&want.Annotations, k, v)
	}
	labels, annotations := maps.Clone(pod.Labels), maps.Clone(pod.Annotations)
	delete(labels, "controller-revision-hash")
	for _, k := range []string{stateKey, "apps.kruise.io/runtime-containers-meta"} {
		delete(annotations, k)
	}
	if !maps.Equal(want.Labels, labels) || !maps.Equal(want.Annotations, annotations) {
		t.Fatalf("labels are %v, want %v; annotations are %v, want %v", labels, want.Labels, annotations, want.Annotations)
	}
	for _, c := range want.Spec.Containers {
		got := container(pod, c.Name)
		left := differing(got, c.Resources)
		if got.Image != c.Image || len(left.Requests) > 0 {
			t.Fatalf("container %s is %s with %v, want %s with %v", c.Name, got.Image, got.Resources, c.Image, c.Resources)
		}
	}
}

func TestAPatchedPodIsWhatTheTemplateAsksFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := drawBase(rt)
		o := Options{EnvFromMetadata: rapid.Bool().Draw(rt, "env gate"), VerticalScaling: true}
		from := drawTemplate(rt, base, "old")
		pod := podOf(from, "web-0")
		pod.Labels["injected"], pod.Annotations = "yes", mergeMaps(map[string]string{"injected": "yes"}, pod.Annotations, nil)
		now := t0
		for i := range rapid.IntRange(1, 3).Draw(rt, "updates") {
			to := drawTemplate(rt, base, fmt.Sprint("new ", i))
			if rapid.Bool().Draw(rt, "grace") {
				o.GracePeriodSeconds = 10
			} else {
				o.GracePeriodSeconds = 0
			}
			name := fmt.Sprint("web-", i+1)
			c := Compare(revision(t, "old", from), revision(t, name, to), o)
			if c.InPlace == nil {
				rt.Fatalf("not in place: %v", c.Recreate)
			}
			before := pod.DeepCopy()
			w, err := Begin(pod, c.InPlace, o, now)
			if err != nil {
				rt.Fatal(err)
			}
			wantEqual(t, before, pod)
			pod, from = w.Pod, to
			setKey(&pod.Labels, "controller-revision-hash", name)
			// The last update is carried through; the ones before it are cut short.
			for range rapid.IntRange(0, 2).Draw(rt, "batches") {
				pod = sendPending(rt, pod, o, now)
			}
		}
		for range len(base.names) + 1 {
			pod = sendPending(rt, pod, o, now)
		}
		wantTemplate(rt, pod, from, map[string]string{"injected": "yes"}, map[string]string{"injected": "yes"})
	})
}

func sendPending(t *rapid.T, pod *corev1.Pod, o Options, now time.Time) *corev1.Pod {
	state, _ := StateOf(pod)
	if grace, _ := GraceOf(pod); grace == nil && !state.Pending() {
		return pod
	}
	w, err := PendingBatch(pod, o, now)
	if err != nil {
		t.Fatal(err)
	}
	return w.Pod
}

// node is a model of the kubelet, the runtime and the node daemon of one Pod.
type node struct {
	pod     *corev1.Pod
	started map[string]instance // by container name
	now     time.Time
}

// instance is a running container: what it was really started from.
type instance struct {
	id, image string
	env       uint64
	at        time.Time
}

func imageID(image string) string {
	if image == "x:1-again" { // the same content under another tag
		image = "x:1"
	}
	return "id-of-" + image
}

func newNode(pod *corev1.Pod) *node {
	n := &node{pod: pod, started: map[string]instance{}, now: t0}
	pod.Generation, pod.Status.ObservedGeneration = 1, 1
	for _, c := range pod.Spec.Containers {
		n.start(c.Name)
	}
	n.report()
	n.daemon()
	return n
}

// write stores a Pod as the server does: a changed spec is a new generation.
func (n *node) write(pod *corev1.Pod) {
	generation := n.pod.Generation
	for _, c := range pod.Spec.Containers {
		left := differing(container(n.pod, c.Name), c.Resources)
		if container(n.pod, c.Name).Image != c.Image || len(left.Requests) > 0 {
			generation = n.pod.Generation + 1
		}
	}
	n.pod = pod
	n.pod.Generation = generation
}

func (n *node) start(name string) {
	c := container(n.pod, name)
	n.started[name] = instance{id: fmt.Sprintf("containerd://%s-%s", name, n.now.Format("150405.000")), image: c.Image, env: runtimehash.ExpectedEnv(c, n.pod), at: n.now.Truncate(time.Second)}
	n.now = n.now.Add(400 * time.Millisecond)
}

// kubelet restarts the first container whose image differs, or reports if none does.
func (n *node) kubelet() {
	n.pod = n.pod.DeepCopy()
	for _, c := range n.pod.Spec.Containers {
		if n.started[c.Name].image != c.Image {
			n.start(c.Name)
			return
		}
	}
	n.report()
}

// report writes the status; a tag of the same content may be named by another.
func (n *node) report() {
	n.pod = n.pod.DeepCopy()
	n.pod.Status.ObservedGeneration = n.pod.Generation
	n.pod.Status.ContainerStatuses = nil
	for _, c := range n.pod.Spec.Containers {
		in := n.started[c.Name]
		s := running(c.Name, in.image)
		s.ContainerID, s.ImageID, s.State.Running.StartedAt = in.id, imageID(in.image), metav1.NewTime(in.at)
		if in.image == "x:1" {
			s.Image = "x:1-again"
		}
		s.Resources = c.Resources.DeepCopy()
		n.pod.Status.ContainerStatuses = append(n.pod.Status.ContainerStatuses, s)
	}
}

// daemon reports hashes of the containers in the status, and restarts the first one whose
// environment is old while the Pod is updated. Such a restart is in the status at once:
// nothing else could tell it from no restart, as metadata has no generation.
func (n *node) daemon() {
	n.pod = n.pod.DeepCopy()
	updating := n.pod.Status.Conditions[0].Status == corev1.ConditionFalse
	meta := &runtimehash.ContainersMeta{}
	for _, s := range n.pod.Status.ContainerStatuses {
		in, c := n.started[s.Name], container(n.pod, s.Name)
		if in.id != s.ContainerID {
			return // the status is not of this container; come back
		}
		if updating && in.image == c.Image && in.env != runtimehash.ExpectedEnv(c, n.pod) {
			n.start(s.Name)
			n.report()
			return
		}
		meta.Containers = append(meta.Containers, runtimehash.ContainerMeta{
			Name: s.Name, ContainerID: in.id,
			Hashes: runtimehash.Hashes{
				PlainHash:                    runtimehash.Plain(&corev1.Container{Name: s.Name, Image: in.image}),
				ExtractedEnvFromMetadataHash: in.env,
			},
		})
	}
	setKey(&n.pod.Annotations, "apps.kruise.io/runtime-containers-meta", meta.JSON())
}

// upToDate tells whether every container really runs what the Pod says now.
func (n *node) upToDate() error {
	for _, c := range n.pod.Spec.Containers {
		if in := n.started[c.Name]; in.image != c.Image || in.env != runtimehash.ExpectedEnv(&c, n.pod) {
			return fmt.Errorf("container %s runs %s with env %d, the Pod says %s and %d", c.Name, in.image, in.env, c.Image, runtimehash.ExpectedEnv(&c, n.pod))
		}
	}
	return nil
}

// TestUpdatesReachTheirEnd interleaves updates, the engine, kubelet and daemon in any
// order. Safety: the Pod is made ready only when all its containers are what it says.
// Liveness: when the engine and the node go on in turn, the Pod is done after a bounded
// number of turns, and stays done.
func TestUpdatesReachTheirEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := drawBase(rt)
		base.resources = nil // a resize needs no restart; it is covered by tables
		o := Options{EnvFromMetadata: true}
		current := drawTemplate(rt, base, "first")
		n := newNode(podOf(current, "web-0"))
		updates := 0

		engine := func() Step {
			step := Next(n.pod, o, n.now)
			switch step.Action {
			case Invalid:
				rt.Fatalf("Next() = %v", step)
			case Ready:
				if err := n.upToDate(); err != nil {
					rt.Fatalf("made ready too early: %v", err)
				}
				fallthrough
			case SendBatch, DropGrace:
				n.write(step.Write.Pod)
			case Wait:
				n.now = n.now.Add(step.After)
			}
			return step
		}
		update := func(rt *rapid.T) {
			if updates == 3 {
				return
			}
			updates++
			next := drawTemplate(rt, base, fmt.Sprint("template ", updates))
			name := fmt.Sprint("web-", updates)
			o := o
			o.GracePeriodSeconds = rapid.SampledFrom([]int32{0, 5}).Draw(rt, "grace")
			c := Compare(revision(t, "old", current), revision(t, name, next), o)
			if c.InPlace == nil {
				rt.Fatalf("not in place: %v", c.Recreate)
			}
			n.write(NotReady(n.pod, n.now))
			w, err := Begin(n.pod, c.InPlace, o, n.now)
			if err != nil {
				rt.Fatal(err)
			}
			o.LabelRevision(w.Pod, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}})
			n.write(w.Pod)
			current = next
		}
		rt.Repeat(map[string]func(*rapid.T){
			"engine":  func(*rapid.T) { engine() },
			"kubelet": func(*rapid.T) { n.kubelet() },
			"report":  func(*rapid.T) { n.report() },
			"daemon":  func(*rapid.T) { n.daemon() },
			"update":  update,
		})

		rank := -1
		for turn := 0; ; turn++ {
			if turn > 200 {
				rt.Fatalf("not done after 200 turns: %v", Next(n.pod, o, n.now))
			}
			step := engine()
			if step.Action == Done {
				break
			}
			if r := progress(n.pod); r < rank {
				rt.Fatalf("went back from %d to %d", rank, r)
			} else {
				rank = r
			}
			n.kubelet()
			n.report()
			n.daemon()
		}
		wantTemplate(rt, n.pod, current, nil, nil)
		if err := n.upToDate(); err != nil {
			rt.Fatal(err)
		}
		for range 3 {
			n.kubelet()
			n.report()
			n.daemon()
			if step := engine(); step.Action != Done {
				rt.Fatalf("was done, and now is %v", step)
			}
		}
	})
}

// progress is how far the Pod's update is: in grace, batches sent, ready.
func progress(pod *corev1.Pod) int {
	if grace, _ := GraceOf(pod); grace != nil {
		return 0
	}
	state, _ := StateOf(pod)
	if state == nil {
		return 0
	}
	rank := 1 + len(state.ContainerBatchesRecord)
	if pod.Status.Conditions[0].Status == corev1.ConditionTrue {
		rank += 100
	}
	return rank
}

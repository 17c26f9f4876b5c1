// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/property"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// happening is something that happens to a Pod, and for how long it is quiet after it.
type happening struct {
	what, value string
	lasts       time.Duration
}

func drawHappening(d *rapid.T) happening {
	return happening{
		what:  rapid.SampledFrom([]string{"update", "update", "settled change", "finish", "image", "runtime goes", "runtime is back", "crash"}).Draw(d, "what"),
		value: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(d, "value"),
		lasts: rapid.SampledFrom([]time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute}).Draw(d, "lasts"),
	}
}

// Updates, changes of mind, crashes and runtimes that go: in the end the container has the
// environment that the update asks for, what is reported is what runs, and no more containers
// were stopped than environments were asked for.
func TestContainersThroughChaos(t *testing.T) {
	property.Many(t, 300, func(d *rapid.T) {
		happenings := rapid.SliceOfN(rapid.Custom(drawHappening), 1, 15).Draw(d, "happenings")
		last := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(d, "last")
		var err error
		run(t, newPod().env(), func(_ *testing.T, n *node) { err = n.throughChaos(happenings, last) })
		if err != nil {
			d.Fatal(err)
		}
	})
}

func (n *node) throughChaos(happenings []happening, last string) error {
	asked := 0
	n.startAsKubelet()
	for _, h := range append(happenings, happening{what: "runtime is back"}, happening{what: "update", value: last, lasts: 5 * time.Minute}) {
		switch h.what {
		case "update":
			asked++
			n.change(func(p *corev1.Pod) { p.Annotations["test-env"] = h.value; setUpdating(p, "False") })
		case "settled change":
			n.change(func(p *corev1.Pod) { setUpdating(p, "True"); p.Annotations["test-env"] = h.value })
		case "finish":
			n.change(func(p *corev1.Pod) { setUpdating(p, "True") })
		case "image":
			n.change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:" + h.value })
		case "runtime goes", "runtime is back":
			n.runtime.SetDown(h.what == "runtime goes")
		case "crash":
			n.runtime.Exit(n.current(), 1)
		}
		for began := time.Now(); ; after(500 * time.Millisecond) {
			n.kubeletLooks()
			if time.Since(began) >= h.lasts {
				break
			}
		}
	}
	c, _ := n.runtime.Known(n.current())
	pod := n.now()
	if c.State != cri.StateRunning || c.Env["TEST_ENV"] != last {
		return fmt.Errorf("the container is %s with %q, asked for is %q: %q, annotation %s", c.State, c.Env["TEST_ENV"], last, n.runtime.Calls(), pod.Annotations[metaKey])
	}
	meta, err := runtimehash.FromObject(pod)
	if err != nil {
		return err
	}
	record := meta.Container("main")
	if record == nil || record.ContainerID != "containerd://"+c.ID || record.Hashes.ExtractedEnvFromMetadataHash != runtimehash.ExpectedEnv(&pod.Spec.Containers[0], pod) {
		return fmt.Errorf("reported is %+v, running is %s", record, c.ID)
	}
	if stops := n.stopped; stops > asked {
		return fmt.Errorf("%d stops for %d updates", stops, asked)
	}
	return nil
}

func setUpdating(p *corev1.Pod, status corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: "InPlaceUpdateReady", Status: status}}
}

func (n *node) current() string { return "c" + strconv.Itoa(n.started-1) }

// kubeletLooks replaces a container that has exited or whose image has changed.
func (n *node) kubeletLooks() {
	c, _ := n.runtime.Known(n.current())
	if c.State == cri.StateExited && c.ExitCode == 0 {
		n.stopped++
	}
	if c.Annotations[cri.AnnotationHash] != n.plainHash() {
		n.runtime.Exit(c.ID, 137)
		c.State = cri.StateExited
	}
	if c.State == cri.StateExited {
		n.startAsKubelet()
	}
}

// now is the Pod as it is, to be read only.
func (n *node) now() *corev1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pod
}

func (n *node) plainHash() string {
	return strconv.FormatUint(runtimehash.Plain(&n.now().Spec.Containers[0]), 16)
}

// startAsKubelet starts a container from what the Pod says now.
func (n *node) startAsKubelet() {
	n.started++
	c := running(n.current(), n.plainHash())
	c.Annotations[cri.AnnotationGracePeriod], c.Created = "5", time.Now()
	c.Attempt = uint32(n.started)
	n.runtime.AddContainer(fakecri.Container{Status: cri.Status{Container: c, Env: map[string]string{"TEST_ENV": n.now().Annotations["test-env"]}}})
	id := n.current()
	n.change(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://" + id })
}

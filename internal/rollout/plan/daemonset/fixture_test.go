// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

var now = fixture.Created.Add(time.Hour)

// situation is a cluster in which set has replaced old as the template.
type situation struct {
	old, set fixture.DaemonSetBuilder
	nodes    []fixture.NodeBuilder
	pods     []fixture.PodBuilder
	backoffs map[string]Backoff
	gates    Gates
}

// nodes makes plain nodes, one for each letter.
func nodes(names string) (out []fixture.NodeBuilder) {
	for _, n := range strings.Split(names, "") {
		out = append(out, fixture.Node(n))
	}
	return out
}

// agent is the set of most tests, in its first and its second version.
func agent() fixture.DaemonSetBuilder { return fixture.DaemonSet("agent") }

// oldOn and newOn make available Pods of the first and second version, one for each letter.
func oldOn(set fixture.DaemonSetBuilder, names string) (out []fixture.PodBuilder) {
	for _, n := range strings.Split(names, "") {
		out = append(out, fixture.PodOfDaemonSet(set, n).With(func(p *corev1.Pod) { p.Name = n + "-old" }))
	}
	return out
}

func newOn(set fixture.DaemonSetBuilder, names string) (out []fixture.PodBuilder) {
	for _, n := range strings.Split(names, "") {
		out = append(out, fixture.PodOfDaemonSet(set.Image("app:2"), n).With(func(p *corev1.Pod) { p.Name = n + "-new" }))
	}
	return out
}

func join(lists ...[]fixture.PodBuilder) (out []fixture.PodBuilder) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// each applies change to all.
func each(list []fixture.PodBuilder, change func(fixture.PodBuilder) fixture.PodBuilder) (out []fixture.PodBuilder) {
	for _, p := range list {
		out = append(out, change(p))
	}
	return out
}

func notReady(p fixture.PodBuilder) fixture.PodBuilder { return p.NotReady(now.Add(-time.Minute)) }
func terminating(p fixture.PodBuilder) fixture.PodBuilder {
	return p.Terminating(now.Add(-time.Minute))
}
func failed(p fixture.PodBuilder) fixture.PodBuilder { return notReady(p).Phase(corev1.PodFailed) }
func preparing(p fixture.PodBuilder) fixture.PodBuilder {
	return p.State(v1beta1.LifecyclePreparingDelete)
}

// update is a situation in which image app:2 follows app:1 on these nodes.
func update(set fixture.DaemonSetBuilder, names string, pods ...fixture.PodBuilder) situation {
	return situation{old: set, set: set.Image("app:2"), nodes: nodes(names), pods: pods}
}

func (c situation) snapshot() Snapshot {
	old, next := fixture.DaemonSetRevision(c.old, 1), fixture.DaemonSetRevision(c.set, 2)
	s := Snapshot{
		Set: c.set.Obj(), Gates: c.gates, Backoffs: c.backoffs, Update: next,
		Revisions: []*appsv1.ControllerRevision{old, next}, InPlace: inplace.Options{EnvFromMetadata: true},
	}
	if revision.Equal(old, next) {
		s.Update, s.Revisions = old, s.Revisions[:1]
	}
	for _, n := range c.nodes {
		s.Nodes = append(s.Nodes, n.Obj())
	}
	for _, p := range c.pods {
		s.Pods = append(s.Pods, p.Obj())
	}
	return s
}

// brief is a plan as one line per step.
func brief(p Plan) string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, list := range [][]Step{p.Create, p.Delete, p.Update, p.Refresh} {
		for _, s := range list {
			subject := s.Pod
			if subject == "" {
				subject = "on " + s.Node
			}
			line("%s %s: %s", s.Do, subject, s.Why)
		}
	}
	for _, h := range p.Held {
		subject := h.Pod
		if subject == "" {
			subject = h.Node
		}
		line("held %s: %s", subject, h.Why)
	}
	if p.Requeue > 0 {
		line("again in %s", p.Requeue)
	}
	return strings.Join(lines, "\n")
}

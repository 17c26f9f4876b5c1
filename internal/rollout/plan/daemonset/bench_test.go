// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"testing"

	"github.com/kruisectl/kruisectl/internal/fixture"
)

// large is a cluster of 5,000 nodes; every Pod is new, or old when an update is to come.
func large(old bool) Snapshot {
	const n = 5000
	set := agent().InPlace().MaxUnavailable("10%")
	s := update(set, "a").snapshot()
	from := set.Image("app:2")
	if old {
		from = set
	}
	pod := fixture.PodOfDaemonSet(from, "n").Obj()
	node := fixture.Node("n").Obj()
	s.Nodes = nil
	for i := range n {
		name := fmt.Sprintf("node-%05d", i*7919%n)
		p, o := *pod, *node
		p.Name, p.Spec.NodeName, o.Name = "agent-"+name, name, name
		s.Pods, s.Nodes = append(s.Pods, &p), append(s.Nodes, &o)
	}
	return s
}

func BenchmarkDecide(b *testing.B) {
	for name, s := range map[string]Snapshot{"idle": large(false), "update": large(true)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p := Decide(s, now); p.Idle() != (name == "idle") {
					b.Fatal(brief(p))
				}
			}
		})
	}
}

func BenchmarkStatus(b *testing.B) {
	s := large(false)
	for b.Loop() {
		if st := Status(s, now); st.NumberAvailable != 5000 {
			b.Fatal(st)
		}
	}
}

func BenchmarkPreview(b *testing.B) {
	s := large(true)
	s.Set = agent().InPlace().MaxUnavailable("10").Image("app:2").Obj()
	for b.Loop() {
		var _ []PodPreview = Preview(s, now)
	}
}

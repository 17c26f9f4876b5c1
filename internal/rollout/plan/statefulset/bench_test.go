// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"
	"time"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// BenchmarkDecide decides for 5,000 Pods. Idle is what every event of such a set costs.
func BenchmarkDecide(b *testing.B) {
	const pods = 5000
	large := func(set fixture.StatefulSetBuilder, with func(fixture.PodBuilder) fixture.PodBuilder) Snapshot {
		s := web(set)
		template, claims := with(pod(set, 0)).Obj(), len(set.Obj().Spec.VolumeClaimTemplates)
		snap := s.snapshot()
		for n := range pods {
			p := template.DeepCopy()
			p.Name = PodName("web", n)
			Identity(p, n, s.gates)
			for i := range p.Spec.Volumes {
				p.Spec.Volumes[i].PersistentVolumeClaim.ClaimName = ClaimName(p.Spec.Volumes[i].Name, "web", n)
			}
			snap.Pods = append(snap.Pods, p)
			if claims > 0 {
				c := claim(set, 0).Obj()
				c.Name = ClaimName("data", "web", n)
				snap.Claims = append(snap.Claims, c)
			}
		}
		return snap
	}
	base := inPlace(parallel(pods)).MaxUnavailable("10%")
	plain := func(p fixture.PodBuilder) fixture.PodBuilder { return p }
	outdated := large(base, plain)
	next := fixture.StatefulSetRevision(base.Image("app:2"), 2)
	outdated.Set, outdated.Update, outdated.Revisions = base.Image("app:2").Obj(), next, append(outdated.Revisions, next)
	state := `{"revision":"` + fixture.StatefulSetRevision(base, 2).Name + `","updateTimestamp":"2026-01-02T03:04:05Z",` +
		`"lastContainerStatuses":{"app":{"imageID":"id-of-app:0"}},"updateImages":true,` +
		`"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["app"]}]}`
	for name, s := range map[string]Snapshot{
		"idle":             large(base, plain),
		"idle with claims": large(base.Claim("data", "1Gi").Retention(retain, retain), plain),
		"idle after in-place update": large(base, func(p fixture.PodBuilder) fixture.PodBuilder {
			return p.Annotation(v1beta1.InPlaceUpdateStateAnnotation, state)
		}),
		"idle and OrderedReady": large(ordered(pods), plain),
		"begin of an update":    outdated,
	} {
		b.Run(name, func(b *testing.B) {
			plan := Decide(s, now)
			if plan.Idle() != (name != "begin of an update") {
				b.Fatalf("%+v", plan)
			}
			for b.Loop() {
				Decide(s, now)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(time.Millisecond)/float64(b.N), "ms/op")
		})
	}
	s := large(base, plain)
	b.Run("status", func(b *testing.B) {
		for b.Loop() {
			Status(s, now)
		}
	})
}

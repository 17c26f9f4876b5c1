// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func TestPreview(t *testing.T) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(4).MaxUnavailable("2")
	label := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	hooked := web.TemplateLabel("hook", "on").Lifecycle(v1beta1.Lifecycle{PreDelete: label, InPlaceUpdate: label})
	four := func(b fixture.CloneSetBuilder) (out []fixture.PodBuilder) {
		for _, n := range []string{"a", "b", "c", "d"} {
			out = append(out, fixture.PodOf(b, n))
		}
		return out
	}
	cases := map[string]struct {
		old, set fixture.CloneSetBuilder
		pods     []fixture.PodBuilder
		want     string
	}{
		"nothing changes": {web, web, four(web), "a Keep\nb Keep\nc Keep\nd Keep"},
		"an image, two Pods at a time": {web, web.Image("app:2"), four(web),
			"a InPlace in batch 1\nb InPlace in batch 1\nc InPlace in batch 2\nd InPlace in batch 2"},
		"with a partition": {web, web.Image("app:2").Partition("75%"), four(web),
			"a InPlace in batch 1\nb Keep (InPlace) held by Partition\nc Keep (InPlace) held by Partition\nd Keep (InPlace) held by Partition"},
		"paused": {web, web.Image("app:2").Paused(), four(web),
			"a Keep (InPlace) held by Paused\nb Keep (InPlace) held by Paused\nc Keep (InPlace) held by Paused\nd Keep (InPlace) held by Paused"},
		"a change that recreates": {web, web.Env("A", "1"), four(web),
			"a Recreate in batch 1: spec.template.spec.containers[app].env\nb Recreate in batch 1: spec.template.spec.containers[app].env\n" +
				"c Recreate in batch 2: spec.template.spec.containers[app].env\nd Recreate in batch 2: spec.template.spec.containers[app].env"},
		"a change that is refused": {web, web.Env("A", "1").Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType), four(web)[:2],
			"a Blocked held by InPlaceOnly: spec.template.spec.containers[app].env\nb Blocked held by InPlaceOnly: spec.template.spec.containers[app].env"},
		"hooks are expected to let go": {hooked, hooked.Image("app:2"), four(hooked),
			"a InPlace in batch 1\nb InPlace in batch 1\nc InPlace in batch 2\nd InPlace in batch 2"},
		"a scale-in before the update": {web, web.Image("app:2").Replicas(3), four(web),
			"a Delete (InPlace) in batch 1\nb InPlace in batch 2\nc InPlace in batch 2\nd InPlace in batch 3"},
		"a broken Pod holds the others up until it is updated": {web, web.Image("app:2").MaxUnavailable("1"),
			append(four(web)[:3], fixture.PodOf(web, "d").NotReady(fixture.Created)),
			"a InPlace in batch 2\nb InPlace in batch 3\nc InPlace in batch 4\nd InPlace in batch 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, p := range Preview(situationOf(tc.old, tc.set, tc.pods...), now) {
				line := p.Pod + " " + string(p.Action)
				if p.Way != "" && p.Way != p.Action {
					line += " (" + string(p.Way) + ")"
				}
				if p.Batch > 0 {
					line += fmt.Sprintf(" in batch %d", p.Batch)
				}
				if p.HeldBy != "" {
					line += " held by " + string(p.HeldBy)
				}
				for _, r := range p.Reasons {
					line += ": " + r.Path
				}
				lines = append(lines, line)
			}
			assert.Empty(t, cmp.Diff(tc.want, strings.Join(lines, "\n")))
		})
	}
}

func TestPreviewOfALongRolloutIsExtrapolated(t *testing.T) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(400).MaxUnavailable("1").Partition("10")
	var pods []fixture.PodBuilder
	for i := range 400 {
		pods = append(pods, fixture.PodOf(web, fmt.Sprintf("web-%04d", i)))
	}
	got := Preview(situationOf(web, web.Image("app:2"), pods...), now)
	for i, p := range got {
		want := PodPreview{Pod: p.Pod, Action: PodInPlace, Way: PodInPlace, Batch: i + 1}
		if i >= 390 {
			want.Action, want.Batch, want.HeldBy, want.Held = PodKeep, 0, HeldPartition, p.Held
		}
		assert.Equal(t, want, p)
	}
}

// A large rollout is previewed while a user waits for it.
func BenchmarkPreview1000Pods(b *testing.B) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(1000).MaxUnavailable("2%")
	var pods []fixture.PodBuilder
	for i := range 1000 {
		pods = append(pods, fixture.PodOf(web, fmt.Sprintf("web-%04d", i)))
	}
	s := situationOf(web, web.Image("app:2"), pods...)
	for b.Loop() {
		Preview(s, now)
	}
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/property"
)

func previewLines(list []PodPreview) string {
	var out []string
	for _, p := range list {
		text := fmt.Sprintf("%s %s %d", p.Pod, p.Action, p.Batch)
		if len(p.Expands) > 0 {
			text += " expands " + strings.Join(p.Expands, " ")
		}
		if p.HeldBy != "" {
			text += " " + string(p.HeldBy)
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

func TestPreview(t *testing.T) {
	three := ordered(3)
	grown := parallel(2).MaxUnavailable("2").Claim("data", "1Gi")
	cases := map[string]row{
		"in order, one by one": {newImage(three).old(0, 1, 2), `
			web-0 Recreate 3
			web-1 Recreate 2
			web-2 Recreate 1`},
		"in place, two at a time": {newImage(inPlace(parallel(3)).MaxUnavailable("2")).old(0, 1, 2), `
			web-0 InPlace 2
			web-1 InPlace 1
			web-2 InPlace 1`},
		"a partition": {newImage(three.Partition(2)).old(0, 1, 2), `
			web-0 Keep 0 Partition
			web-1 Keep 0 Partition
			web-2 Recreate 1`},
		"a fix in the making: what is broken comes first": {newImage(parallel(3)).with(unready(three, 0)).old(1, 2), `
			web-0 Recreate 1
			web-1 Recreate 3
			web-2 Recreate 2`},
		"paused": {newImage(three.Paused()).old(0, 1, 2), `
			web-0 Keep 0 Paused
			web-1 Keep 0 Paused
			web-2 Keep 0 Paused`},
		"not possible in place": {newEnv(parallel(2).Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)).old(0, 1), `
			web-0 Blocked 0 InPlaceOnly
			web-1 Blocked 0 InPlaceOnly`},
		"scaled in on the way": {newImage(parallel(1)).old(0, 1), `
			web-0 Recreate 1
			web-1 Delete 1`},
		"claims grow and Pods follow": {changed(grown, grown.Claim("data", "2Gi").Image("app:2")).old(0, 1).claimed(claim(grown, 0), claim(grown, 1)).resizes(), `
			web-0 Recreate 1 expands data-web-0
			web-1 Recreate 1 expands data-web-1`},
		"hooks let go": {newImage(inPlace(three).TemplateLabel(hookLabel, "on").Lifecycle(v1beta1.Lifecycle{InPlaceUpdate: hook(false)})).old(0, 1, 2), `
			web-0 InPlace 3
			web-1 InPlace 2
			web-2 InPlace 1`},
		"nothing to do": {web(three).new(0, 1, 2), `
			web-0 Keep 0
			web-1 Keep 0
			web-2 Keep 0`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := strings.TrimSpace(strings.ReplaceAll(tc.want, "\t", ""))
			if diff := cmp.Diff(want, previewLines(Preview(tc.in.snapshot(), now))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPreviewOfALargeSetIsExtrapolated(t *testing.T) {
	base := ordered(400)
	s := newImage(base)
	for n := range 400 {
		s = s.old(n)
	}
	preview := Preview(s.snapshot(), now)
	batches := AllBatches(preview)
	assert.Len(t, batches, 400)
	for i, b := range batches {
		require.Len(t, b, 1)
		require.Equal(t, PodName("web", 399-i), b[0].Pod)
	}
}

// TestPreviewTellsWhatHappens: what the preview says of each Pod is what the rollout does.
func TestPreviewTellsWhatHappens(t *testing.T) {
	property.Many(t, 200, func(t *rapid.T) {
		w := newWorld(drawSet(t), t.Fatalf)
		w.settle()
		before := map[string]string{}
		for name, p := range w.pods.live {
			before[name] = string(p.UID)
		}
		if rapid.Bool().Draw(t, "needsRecreate") {
			w.change("env A=1", func(s *v1beta1.StatefulSet) { *s = *fixtureOf(s).Env("A", "1").Obj() })
		} else {
			w.change("image app:2", func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "app:2" })
		}
		w.syncAll()
		said := Preview(w.snapshot(), w.now)
		w.settle()
		for _, p := range said {
			live := w.pods.live[p.Pod]
			want := PodKeep
			switch {
			case live == nil:
				want = PodDelete
			case string(live.UID) != before[p.Pod]:
				want = PodRecreate
			case (&view{pod: live}).at(w.snapshot().Update):
				want = PodInPlace
			}
			if p.Action != want || (p.Batch == 0) != (p.Action == PodKeep) || p.Action == PodKeep && p.Held == "" {
				t.Fatalf("Pod %s: said %+v, and it was %s\n%s", p.Pod, p, want, w.tale())
			}
		}
		if len(said) != len(before) {
			t.Fatalf("%d Pods, %d told of", len(before), len(said))
		}
	})
}

// fixtureOf makes a builder of a set that exists.
func fixtureOf(s *v1beta1.StatefulSet) fixture.StatefulSetBuilder {
	return fixture.StatefulSet(s.Name).With(func(b *v1beta1.StatefulSet) { *b = *s.DeepCopy() })
}

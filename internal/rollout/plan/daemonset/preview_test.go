// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func told(list []PodPreview) string {
	var lines []string
	for _, p := range list {
		line := fmt.Sprintf("%s %s", p.Node, p.Action)
		if p.Batch > 0 {
			line += fmt.Sprintf(" in %d", p.Batch)
		}
		if p.HeldBy != "" {
			line += " held by " + string(p.HeldBy)
		}
		if p.Way != "" && p.Way != p.Action {
			line += ", would be " + string(p.Way)
		}
		for _, r := range p.Reasons {
			line += ", " + r.Code
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestPreview(t *testing.T) {
	set, inPlace := agent().MaxUnavailable("2"), agent().InPlace()
	hooked := agent().Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: hook}})
	many := "abcdefghijklmnopqrstuvwxyz"
	env := func(c situation) situation { c.set = c.set.Env("A", "1"); return c }
	for name, c := range map[string]struct {
		in   situation
		want string
	}{
		"recreated by twos": {update(set, "abc", oldOn(set, "abc")...), "a Recreate in 2\nb Recreate in 1\nc Recreate in 1"},
		"in place, one after the other": {update(inPlace, "abc", oldOn(inPlace, "abc")...),
			"a InPlace in 3\nb InPlace in 2\nc InPlace in 1"},
		"not possible in place": {env(update(inPlace, "a", oldOn(inPlace, "a")...)), "a Recreate in 1, FieldNotUpdatable"},
		"with surge":            {update(agent().MaxSurge("1"), "ab", oldOn(set, "ab")...), "a Recreate in 2\nb Recreate in 1"},
		"partition keeps the rest": {update(inPlace.Partition("1"), "ab", oldOn(inPlace, "ab")...),
			"a Keep held by Partition, would be InPlace\nb InPlace in 1"},
		"paused": {update(set.Paused(), "a", oldOn(set, "a")...), "a Keep held by Paused, would be Recreate"},
		"hooks are expected to let go": {update(hooked, "ab", each(oldOn(set, "ab"), func(p fixture.PodBuilder) fixture.PodBuilder { return p.Label("hook", "on") })...),
			"a Recreate in 2\nb Recreate in 1"},
		"a node without Pod gets one first": {update(set, "ab", oldOn(set, "a")...), "a Recreate in 2\nb Create in 1"},
		"partitionedScaling keeps a node without": {steady(set.PartitionedScaling().Partition("1"), "ab"),
			"a Create in 1\nb Keep held by PartitionedScaling"},
		"a misplaced Pod goes": {steady(set.NodeSelector("c", "1"), "a", oldOn(set, "a")...), "a Delete in 1, would be Recreate"},
		"nothing to do":        {update(set, "a", newOn(set, "a")...), "a Keep"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "misplaced") {
				c.in.old = set // the template differs by the selector alone
			}
			assert.Empty(t, cmp.Diff(c.want, told(Preview(c.in.snapshot(), now))))
		})
	}
	t.Run("every Pod has its batch", func(t *testing.T) {
		got := Preview(update(agent(), many, oldOn(agent(), many)...).snapshot(), now)
		seen := map[int]bool{}
		for _, p := range got {
			seen[p.Batch] = true
		}
		assert.Len(t, seen, len(many))
	})
}

// TestPreviewTellsWhatHappens: what the preview says of each Pod is what the rollout does.
func TestPreviewTellsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawSet(t), "abcd", t.Fatalf)
		w.settle()
		if rapid.Bool().Draw(t, "needsRecreate") {
			w.change("env A=1", env("1"))
		} else {
			w.change("image app:2", image("app:2"))
		}
		w.change(drawSpec(t))
		if strings.HasPrefix(w.set.Spec.Template.Spec.Containers[0].Image, "bad") {
			t.Skip("the preview expects images to run")
		}
		w.syncAll()
		uids := map[string]string{}
		for name, p := range w.pods {
			uids[name] = p.Labels["controller-revision-hash"]
		}
		said := Preview(w.snapshot(), w.now)
		w.settle()
		for _, p := range said {
			live, kept := w.pods[p.Pod]
			want := PodKeep
			switch {
			case !kept:
				want = PodRecreate
			case live.Labels["controller-revision-hash"] != uids[p.Pod]:
				want = PodInPlace
			}
			if p.Action != want {
				t.Fatalf("Pod %s: said %+v, was %s\n%s", p.Pod, p, want, strings.Join(w.story, "\n"))
			}
			if (p.Batch == 0) != (p.Action == PodKeep) || p.Action == PodKeep && p.Way != "" && p.Held == "" {
				t.Fatalf("Pod %s: %+v", p.Pod, p)
			}
		}
	})
}

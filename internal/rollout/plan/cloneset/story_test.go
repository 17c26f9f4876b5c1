// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

var update = flag.Bool("update", false, "write the golden stories anew")

// TestStories runs whole rollouts in a fixed order and compares what happened, as text.
func TestStories(t *testing.T) {
	inPlace := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
	hook := &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"hook": "on"}}
	partition := func(n string) func(*v1beta1.CloneSet) {
		return func(c *v1beta1.CloneSet) {
			c.Spec.UpdateStrategy.RollingUpdate.Partition = inPlace.Partition(n).Obj().Spec.UpdateStrategy.RollingUpdate.Partition
		}
	}
	cases := map[string]struct {
		set  fixture.CloneSetBuilder
		tale func(*world)
	}{
		"in place, two at a time": {inPlace.Replicas(4).MaxUnavailable("2"), func(w *world) {
			w.change("image app:2", image("app:2"))
		}},
		"recreated with a surge Pod": {fixture.CloneSet("web").Replicas(2).MaxUnavailable("0").MaxSurge("1"), func(w *world) {
			w.change("image app:2", image("app:2"))
		}},
		"a canary, then the rest": {inPlace.Replicas(3).MaxUnavailable("1").Partition("2"), func(w *world) {
			w.change("image app:2", image("app:2"))
			w.settle()
			w.change("partition 0", partition("0"))
		}},
		"a bad image is repaired": {inPlace.Replicas(3).MaxUnavailable("1"), func(w *world) {
			w.change("image bad:1", image("bad:1"))
			for range 8 {
				w.round()
			}
			w.change("image app:3", image("app:3"))
		}},
		"what cannot be done in place is recreated": {inPlace.Replicas(2).MaxUnavailable("1"), func(w *world) {
			w.change("env A=1", env("1"))
		}},
		"scaled in while a hook holds, and taken back": {inPlace.Replicas(2).TemplateLabel("hook", "on").Lifecycle(v1beta1.Lifecycle{PreDelete: hook}), func(w *world) {
			w.change("replicas 1", func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(1)) })
			w.settle()
			w.change("replicas 2", func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(2)) })
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.set, t.Fatalf)
			w.settle()
			w.story = nil
			tc.tale(w)
			w.settle()
			got := strings.Join(w.story, "\n") + "\n"
			file := filepath.Join("testdata", "stories", strings.NewReplacer(" ", "-", ",", "").Replace(name)+".txt")
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the story differs (-want +got):\n%s", diff)
			}
		})
	}
}

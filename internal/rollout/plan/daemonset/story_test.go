// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

var rewrite = flag.Bool("update", false, "write the golden stories anew")

// TestStories runs whole rollouts in a fixed order and compares what happened, as text.
func TestStories(t *testing.T) {
	partition := func(v string) func(*v1beta1.DaemonSet) {
		return func(d *v1beta1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.Parse(v)) }
	}
	node := func(w *world, b fixture.NodeBuilder, what string) {
		w.nodes[b.Obj().Name] = b.Obj()
		w.tell("node %s %s", b.Obj().Name, what)
	}
	newImage := func(w *world) { w.change("image app:2", image("app:2")) }
	cases := map[string]struct {
		set  fixture.DaemonSetBuilder
		tale func(*world)
	}{
		"in place, two at a time":              {inPlaceSet().MaxUnavailable("2"), newImage},
		"recreated, one after the other":       {agent(), newImage},
		"with surge and minReadySeconds":       {agent().MaxSurge("1").MinReadySeconds(3), newImage},
		"what cannot be done in place":         {inPlaceSet(), func(w *world) { w.change("env A=1", env("1")) }},
		"hooks hold one Pod after the other":   {agent().TemplateLabel("hook", "on").Lifecycle(v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: hook}}), newImage},
		"two templates within minReadySeconds": {agent().MinReadySeconds(10), func(w *world) { newImage(w); w.round(); w.round(); w.change("image app:3", image("app:3")) }},
		"a node is shut down while it is updated": {inPlaceSet(), func(w *world) {
			newImage(w)
			w.round()
			delete(w.nodes, "c")
			w.tell("node c leaves")
		}},
		"a canary, then the rest": {inPlaceSet().Partition("2"), func(w *world) {
			newImage(w)
			w.settle()
			w.change("partition 0", partition("0"))
		}},
		"a bad image is repaired": {inPlaceSet(), func(w *world) {
			w.change("image bad:1", image("bad:1"))
			for range 8 {
				w.round()
			}
			w.change("image app:3", image("app:3"))
		}},
		"a Pod that fails again and again": {agent(), func(w *world) {
			for range 4 {
				w.end(w.on("b", false)[0].Name)
				for len(w.on("b", false)) == 0 || isOver(w.on("b", false)[0]) {
					w.round()
				}
				w.round()
			}
		}},
		"nodes join, are tainted, and leave": {agent(), func(w *world) {
			node(w, fixture.Node("d"), "joins")
			w.settle()
			node(w, fixture.Node("a").Taint("t", corev1.TaintEffectNoSchedule), "admits no Pod any more")
			node(w, fixture.Node("b").Taint("t", corev1.TaintEffectNoExecute), "drives Pods away")
			w.settle()
			delete(w.nodes, "d")
			w.tell("node d leaves")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.set, "abc", t.Fatalf)
			w.settle()
			w.story = nil
			tc.tale(w)
			w.settle()
			got := strings.Join(w.story, "\n") + "\n"
			file := filepath.Join("testdata", "stories", strings.NewReplacer(" ", "-", ",", "").Replace(name)+".txt")
			if *rewrite {
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

func inPlaceSet() fixture.DaemonSetBuilder { return agent().InPlace() }

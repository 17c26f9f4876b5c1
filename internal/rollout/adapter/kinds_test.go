// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// read makes a workload of what a user would write.
func read(t *testing.T, k *target.Kind, text string) Workload {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const db = `
apiVersion: apps.kruise.io/v1beta1
kind: StatefulSet
metadata: {name: db, namespace: data, generation: 4}
spec:
  replicas: 6
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {partition: 2, maxUnavailable: 50%, podUpdatePolicy: InPlaceOnly, paused: true}
status:
  observedGeneration: 4
  replicas: 6
  readyReplicas: 6
  availableReplicas: 5
  currentReplicas: 2
  updatedReplicas: 4
  updatedReadyReplicas: 4
  updatedAvailableReplicas: 3
  currentRevision: db-a
  updateRevision: db-b
`

const agent = `
apiVersion: apps.kruise.io/v1beta1
kind: DaemonSet
metadata: {name: agent, namespace: infra, generation: 2}
spec:
  updateStrategy:
    rollingUpdate: {partition: 50%, maxUnavailable: 30%, rollingUpdateType: InPlaceIfPossible}
status:
  observedGeneration: 2
  desiredNumberScheduled: 5
  currentNumberScheduled: 5
  numberReady: 5
  numberAvailable: 5
  updatedNumberScheduled: 3
  updateRevision: 5d897fb58d
`

func TestStatefulSetFacts(t *testing.T) {
	want := verdict.Facts{
		Object: "asts/db", Generation: 4, ObservedGeneration: 4, Desired: 6, Total: 6, Ready: 6, Available: 5,
		Updated: 4, UpdatedReady: 4, UpdatedAvailable: 3, Partition: verdict.Partition{Raw: "2", Keep: 2, Target: 4},
		MaxUnavailable: 3, MaxUnavailableRaw: "50%", Paused: true, InPlaceOnly: true, UpdateRevision: "db-b", CurrentRevision: "db-a",
	}
	got, err := read(t, target.StatefulSet, db).Facts()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Facts() differs (-want +got):\n%s", diff)
	}
	old := strings.NewReplacer("v1beta1", "v1alpha1", "  updatedReadyReplicas: 4\n", "", "  updatedAvailableReplicas: 3\n", "").Replace(db)
	want.UpdatedAvailable = 4 // of readyReplicas: this version does not tell updated Pods apart
	got, err = read(t, target.StatefulSet, old).Facts()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("v1alpha1: Facts() differs (-want +got):\n%s", diff)
	}
}

func TestDaemonSetFacts(t *testing.T) {
	want := verdict.Facts{
		Object: "ads/agent", Generation: 2, ObservedGeneration: 2, Desired: 5, Total: 5, Ready: 5, Available: 5,
		Updated: 3, UpdatedReady: 3, UpdatedAvailable: 3, Partition: verdict.Partition{Raw: "50%", Keep: 2, Target: 3},
		MaxUnavailable: 2, MaxUnavailableRaw: "30%", AllAvailable: true, UpdateRevision: "agent-5d897fb58d",
	}
	old := strings.NewReplacer("v1beta1", "v1alpha1", "updateRevision", "daemonSetHash").Replace(agent)
	for name, text := range map[string]string{"v1beta1": agent, "v1alpha1": old} {
		got, err := read(t, target.DaemonSet, text).Facts()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: Facts() differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestVerdictsOfBothKinds(t *testing.T) {
	cases := map[string]struct {
		kind   *target.Kind
		text   string
		change []string // old, new, old, new...
		want   verdict.Verdict
	}{
		"a StatefulSet that is paused and waits for an updated Pod goes on": {target.StatefulSet, db, nil, verdict.Progressing},
		"a StatefulSet paused before its target is paused":                  {target.StatefulSet, db, []string{"updatedReplicas: 4", "updatedReplicas: 3"}, verdict.Paused},
		"a StatefulSet with all but the kept Pods is at its partition": {target.StatefulSet, db,
			[]string{"updatedAvailableReplicas: 3", "updatedAvailableReplicas: 4"}, verdict.PartitionReached},
		"a StatefulSet put back under a partition is held": {target.StatefulSet, db,
			[]string{"updatedAvailableReplicas: 3", "updatedAvailableReplicas: 4", "currentRevision: db-a", "currentRevision: db-b"}, verdict.Blocked},
		"a StatefulSet that updates by hand is manual": {target.StatefulSet, db, []string{"type: RollingUpdate", "type: OnDelete"}, verdict.Manual},
		"a StatefulSet without a rollingUpdate is whole": {target.StatefulSet, db,
			[]string{"    rollingUpdate: {partition: 2, maxUnavailable: 50%, podUpdatePolicy: InPlaceOnly, paused: true}\n", "",
				"updatedReplicas: 4", "updatedReplicas: 6", "updatedAvailableReplicas: 3", "updatedAvailableReplicas: 6"}, verdict.Complete},
		"a DaemonSet with three of five is at its partition":        {target.DaemonSet, agent, nil, verdict.PartitionReached},
		"a DaemonSet with two of five goes on":                      {target.DaemonSet, agent, []string{"updatedNumberScheduled: 3", "updatedNumberScheduled: 2"}, verdict.Progressing},
		"a DaemonSet waits for all of its Pods":                     {target.DaemonSet, agent, []string{"numberAvailable: 5", "numberAvailable: 4"}, verdict.Progressing},
		"a DaemonSet whose Pods are all updated ignores the bound":  {target.DaemonSet, agent, []string{"updatedNumberScheduled: 3", "updatedNumberScheduled: 5"}, verdict.Complete},
		"a DaemonSet that updates by hand is manual":                {target.DaemonSet, agent, []string{"updateStrategy:\n", "updateStrategy:\n    type: OnDelete\n"}, verdict.Manual},
		"a DaemonSet that nobody looked at is not observed":         {target.DaemonSet, agent, []string{"observedGeneration: 2", "observedGeneration: 1"}, verdict.NotObserved},
		"a DaemonSet on no node at all is complete":                 {target.DaemonSet, agent, []string{": 5\n", ": 0\n", "updatedNumberScheduled: 3", "updatedNumberScheduled: 0"}, verdict.Complete},
		"a DaemonSet that was observed and has no node is complete": {target.DaemonSet, agent[:strings.Index(agent, "  desired")], nil, verdict.Complete},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := read(t, tc.kind, strings.NewReplacer(tc.change...).Replace(tc.text)).Facts()
			if err != nil {
				t.Fatal(err)
			}
			if got := verdict.Of(f); got.Verdict != tc.want {
				t.Errorf("Of() = %s (%s: %s), want %s", got.Verdict, got.Reason, got.Message, tc.want)
			}
		})
	}
}

func TestDaemonSetRounding(t *testing.T) {
	for _, tc := range []struct {
		partition            string
		keep, target         int
		down, surge          string
		unavailable, surging int
	}{
		{"50%", 2, 3, "1", "0", 1, 0}, {"99%", 4, 1, "1%", "0", 1, 0}, {"7", 5, 0, "0", "41%", 0, 3}, {"0", 0, 5, "0", "0", 1, 0},
	} {
		text := strings.Replace(agent, "partition: 50%, maxUnavailable: 30%", "partition: "+tc.partition+", maxUnavailable: "+tc.down+", maxSurge: "+tc.surge, 1)
		f, err := read(t, target.DaemonSet, text).Facts()
		if err != nil {
			t.Fatal(err)
		}
		if f.Partition.Keep != tc.keep || f.Partition.Target != tc.target || f.MaxUnavailable != tc.unavailable || f.MaxSurge != tc.surging {
			t.Errorf("%+v: got %+v, maxUnavailable %d, maxSurge %d", tc, f.Partition, f.MaxUnavailable, f.MaxSurge)
		}
	}
}

// An object of which any part is missing or odd gives facts or an error, never a panic.
func TestFactsOfBothKindsAreTotal(t *testing.T) {
	for _, full := range []Workload{read(t, target.StatefulSet, db), read(t, target.DaemonSet, agent)} {
		rapid.Check(t, func(rt *rapid.T) {
			w := full
			w.Live = full.Live.DeepCopy()
			for range rapid.IntRange(1, 6).Draw(rt, "removals") {
				remove(rt, w.Live.Object)
			}
			if f, err := w.Facts(); err == nil {
				_ = verdict.Of(f)
			}
			_, _ = w.NodeSelector()
			_, _, _ = w.Lifecycle(), w.Conditions(), w.Revisions(nil, nil)
		})
	}
}

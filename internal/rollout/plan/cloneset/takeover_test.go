// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// takeover reads sets, revisions and Pods as OpenKruise 1.9 left them, and makes the
// snapshot of one set.
func takeover(t *testing.T, moment, name string) Snapshot {
	t.Helper()
	raw, err := os.ReadFile("testdata/openkruise-1.9/" + moment + ".yaml")
	require.NoError(t, err)
	js, err := yaml.YAMLToJSON(raw)
	require.NoError(t, err)
	var list struct{ Items []json.RawMessage }
	require.NoError(t, json.Unmarshal(js, &list))
	s := Snapshot{Gates: Gates{ShortHash: true, PartitionRollback: true, PreparingUpdateAsUpdate: true}}
	s.InPlace = inplace.Options{EnvFromMetadata: true, VerticalScaling: true, RecreateOnVolumeClaimTemplateChange: true, ResizeSubresource: true}
	for _, item := range list.Items {
		var o metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(item, &o))
		ref := metav1.GetControllerOfNoCopy(&o)
		switch {
		case o.Kind == "CloneSet" && o.Name == name:
			s.Set = &v1beta1.CloneSet{}
			require.NoError(t, json.Unmarshal(item, s.Set))
		case o.Kind == "Pod" && ref.Name == name:
			p := &corev1.Pod{}
			require.NoError(t, json.Unmarshal(item, p))
			s.Pods = append(s.Pods, p)
		case o.Kind == "ControllerRevision" && ref.Name == name:
			r := &appsv1.ControllerRevision{}
			require.NoError(t, json.Unmarshal(item, r))
			s.Revisions = append(s.Revisions, r)
		}
	}
	found, err := revision.Find(revision.OfCloneSet(s.Set), s.Revisions)
	require.NoError(t, err)
	require.Equal(t, revision.ActionNone, found.Action, "the template has its revision")
	s.Update, s.Current, s.Pods = found.Update, found.Current, Sorted(s.Pods)
	return s
}

// Taking over a cluster that OpenKruise ran writes nothing where nothing is to be done,
// and goes on where something is.
func TestTakeOver(t *testing.T) {
	cases := map[string]struct{ moment, set, want string }{
		"created: with hooks, priorities and env from metadata": {"1-created", "clone-a", ""},
		"created: v1beta1 with partition":                       {"1-created", "clone-b", ""},
		"created: ReCreate, in a WorkloadSpread":                {"1-created", "clone-ws", ""},
		"mid-rollout: an update in its first batch holds the rest": {"2-mid-rollout", "clone-a",
			"held clone-a-f4j6z: MaxUnavailable\nheld clone-a-bc5bh: MaxUnavailable"},
		"settled: the partition is reached": {"3-settled", "clone-b", "held clone-b-ngrl2: Partition"},
		"settled: one Pod after the other":  {"3-settled", "clone-a", "held clone-a-bc5bh: MaxUnavailable"},
		"settled: untouched":                {"3-settled", "clone-ws", ""},
	}
	now := time.Date(2026, 11, 30, 14, 30, 0, 0, time.UTC)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := takeover(t, tc.moment, tc.set)
			got := Decide(s, now)
			assert.Empty(t, cmp.Diff(tc.want, brief(got)))
			assert.True(t, got.Idle())
			if !strings.HasPrefix(tc.moment, "2") { // there the status was about to be written
				status := Status(s, now)
				assert.Empty(t, cmp.Diff(s.Set.Status, status))
			}
		})
	}
}

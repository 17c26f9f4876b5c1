// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"encoding/json"
	"os"
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
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// takeover reads the set, its revisions and Pods as OpenKruise 1.9 left them.
func takeover(t *testing.T, moment string) Snapshot {
	t.Helper()
	raw, err := os.ReadFile("testdata/openkruise-1.9/" + moment + ".yaml")
	require.NoError(t, err)
	js, err := yaml.YAMLToJSON(raw)
	require.NoError(t, err)
	var list struct{ Items []json.RawMessage }
	require.NoError(t, json.Unmarshal(js, &list))
	s := Snapshot{InPlace: inplace.Options{EnvFromMetadata: true, VerticalScaling: true, ResizeSubresource: true}}
	for _, item := range list.Items {
		var o metav1.TypeMeta
		require.NoError(t, json.Unmarshal(item, &o))
		switch o.Kind {
		case "DaemonSet":
			s.Set = &v1beta1.DaemonSet{}
			require.NoError(t, json.Unmarshal(item, s.Set))
		case "Pod":
			p := &corev1.Pod{}
			require.NoError(t, json.Unmarshal(item, p))
			s.Pods = append(s.Pods, p)
			s.Nodes = append(s.Nodes, fixture.Node(p.Spec.NodeName).Obj())
		case "ControllerRevision":
			r := &appsv1.ControllerRevision{}
			require.NoError(t, json.Unmarshal(item, r))
			s.Revisions = append(s.Revisions, r)
		}
	}
	found, err := revision.FindDaemonSet(s.Set, s.Revisions)
	require.NoError(t, err)
	require.Equal(t, revision.ActionNone, found.Action, "the template has its revision")
	require.Empty(t, found.Duplicates)
	s.Update = found.Update
	return s
}

// Taking over a cluster that OpenKruise ran writes nothing where nothing is to be done, and
// goes on where something is.
func TestTakeOver(t *testing.T) {
	at := time.Date(2026, 11, 30, 14, 30, 0, 0, time.UTC)
	for _, moment := range []string{"1-created", "2-mid-rollout", "3-settled"} {
		t.Run(moment, func(t *testing.T) {
			s := takeover(t, moment)
			got := Decide(s, at)
			assert.Empty(t, brief(got))
			assert.Empty(t, cmp.Diff(s.Set.Status, Status(s, at)))
		})
	}
	t.Run("a new image goes on in place", func(t *testing.T) {
		s := takeover(t, "3-settled")
		s.Set.Spec.Template.Spec.Containers[0].Image = "nginx:1.18"
		found, err := revision.FindDaemonSet(s.Set, s.Revisions)
		require.NoError(t, err)
		require.Equal(t, int64(3), found.Update.Revision)
		s.Update, s.Revisions = found.Update, append(s.Revisions, found.Update)
		got := Decide(s, at)
		assert.Len(t, got.Update, 1)
		assert.Empty(t, got.Delete)
	})
	t.Run("a rollback finds the old revision", func(t *testing.T) {
		s := takeover(t, "3-settled")
		s.Set.Spec.Template.Spec.Containers[0].Image = "nginx:1.16"
		found, err := revision.FindDaemonSet(s.Set, s.Revisions)
		require.NoError(t, err)
		require.Equal(t, revision.ActionRenumber, found.Action)
		assert.Equal(t, "ads-b8f67c9bd", found.Update.Name)
		assert.Equal(t, int64(3), found.Update.Revision)
		assert.NotContains(t, found.Update.Labels, "apps.kruise.io/image-predownload-ignored", "images are pulled for a rollback, too")
	})
}

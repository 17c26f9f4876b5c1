// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

func readList(t *testing.T, file string, list any) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, list))
}

// A job that OpenKruise ran on three nodes is seen as it saw it: done everywhere, and
// nothing is handed out again.
func TestTakeover(t *testing.T) {
	var jobs v1beta1.ImagePullJobList
	var nodes v1beta1.NodeImageList
	readList(t, "testdata/openkruise-1.9-imagepulljobs.yaml", &jobs)
	readList(t, "testdata/openkruise-1.9-nodeimages.yaml", &nodes)
	job := &jobs.Items[0]
	image, err := imageref.Parse(job.Spec.Image)
	require.NoError(t, err)
	snap := Snapshot{Job: job, Image: image}
	for i := range nodes.Items {
		snap.Nodes = append(snap.Nodes, &nodes.Items[i])
	}
	want := job.Status
	// A moment before OpenKruise noticed the end of the job.
	job.Status = v1beta1.ImagePullJobStatus{StartTime: want.StartTime}
	plan := Decide(snap, want.CompletionTime.Time)
	if diff := cmp.Diff(Plan{Status: want}, plan, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Decide() differs (-want +got):\n%s", diff)
	}
	for _, node := range snap.Nodes {
		if _, changed := assign(node, snap, taskOptions{Jitter: func(int32) int32 { return 0 }}, time.Now()); changed {
			t.Errorf("NodeImage %s would be written", node.Name)
		}
	}
}

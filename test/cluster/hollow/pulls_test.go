// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

const pullTime = 2 * time.Second

func at(seconds int) *metav1.Time {
	return new(metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)))
}

func asks(name string, tags ...TagSpec) *NodeImage {
	return &NodeImage{Spec: NodeImageSpec{Images: map[string]ImageSpec{name: {Tags: tags}}}}
}

func (n *NodeImage) says(name string, tags ...TagStatus) *NodeImage {
	n.Status.ImageStatuses = map[string]ImageStatus{name: {Tags: tags}}
	return n
}

func TestNextPulls(t *testing.T) {
	pulling := TagStatus{Tag: "1.17", Phase: "Pulling", StartTime: at(0)}
	succeeded := TagStatus{
		Tag: "1.17", Phase: "Succeeded", Progress: 100, StartTime: at(0), CompletionTime: at(2),
		ImageID: "nginx@" + ImageID("nginx:1.17")[len("docker.io/library/nginx@"):],
	}
	failedByManager := TagStatus{Tag: "1.17", Phase: "Failed", CompletionTime: at(1), Message: "no answer"}
	cases := map[string]struct {
		ni    *NodeImage
		now   int // seconds
		want  *NodeImageStatus
		again time.Duration
	}{
		"a NodeImage that asks for nothing has nothing to say": {ni: &NodeImage{}},
		"a new tag is being pulled": {
			ni:    asks("nginx", TagSpec{Tag: "1.17"}),
			want:  &NodeImageStatus{Desired: 1, Pulling: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{pulling}}}},
			again: pullTime,
		},
		"a tag that waits without a start is being pulled": {
			ni:    asks("nginx", TagSpec{Tag: "1.17"}).says("nginx", TagStatus{Tag: "1.17", Phase: "Waiting"}),
			want:  &NodeImageStatus{Desired: 1, Pulling: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{pulling}}}},
			again: pullTime,
		},
		"half way nothing is written but the numbers": {
			ni: asks("nginx", TagSpec{Tag: "1.17"}).says("nginx", pulling), now: 1,
			want:  &NodeImageStatus{Desired: 1, Pulling: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{pulling}}}},
			again: time.Second,
		},
		"in the end it has succeeded, with an identity": {
			ni: asks("nginx", TagSpec{Tag: "1.17"}).says("nginx", pulling), now: 2,
			want: &NodeImageStatus{Desired: 1, Succeeded: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{succeeded}}}},
		},
		"what has succeeded is not pulled again": {
			ni: asks("nginx", TagSpec{Tag: "1.17"}).says("nginx", succeeded), now: 100,
			want: &NodeImageStatus{Desired: 1, Succeeded: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{succeeded}}}},
		},
		"what the manager gave up stays failed": {
			ni: asks("nginx", TagSpec{Tag: "1.17"}).says("nginx", failedByManager), now: 100,
			want: &NodeImageStatus{Desired: 1, Failed: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{failedByManager}}}},
		},
		"a new version is pulled anew": {
			ni: asks("nginx", TagSpec{Tag: "1.17", Version: 1}).says("nginx", succeeded), now: 5,
			want: &NodeImageStatus{Desired: 1, Pulling: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{
				{Tag: "1.17", Version: 1, Phase: "Pulling", StartTime: at(5)},
			}}}},
			again: pullTime,
		},
		"of a tag that is listed twice the last entry counts": {
			ni: asks("nginx", TagSpec{Tag: "1.17"}, TagSpec{Tag: "1.17", Version: 3}),
			want: &NodeImageStatus{Desired: 1, Pulling: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{
				{Tag: "1.17", Version: 3, Phase: "Pulling", StartTime: at(0)},
			}}}},
			again: pullTime,
		},
		"a digest is its own identity": {
			ni: asks("nginx", TagSpec{Tag: "sha256:ab"}).says("nginx", TagStatus{Tag: "sha256:ab", Phase: "Pulling", StartTime: at(0)}), now: 3,
			want: &NodeImageStatus{Desired: 1, Succeeded: 1, ImageStatuses: map[string]ImageStatus{"nginx": {Tags: []TagStatus{
				{Tag: "sha256:ab", Phase: "Succeeded", Progress: 100, StartTime: at(0), CompletionTime: at(3), ImageID: "nginx@sha256:ab"},
			}}}},
		},
		"a host that does not exist fails": {
			ni: asks("invalid.test/app", TagSpec{Tag: "1"}).says("invalid.test/app", TagStatus{Tag: "1", Phase: "Pulling", StartTime: at(0)}), now: 2,
			want: &NodeImageStatus{Desired: 1, Failed: 1, ImageStatuses: map[string]ImageStatus{"invalid.test/app": {Tags: []TagStatus{
				{Tag: "1", Phase: "Failed", StartTime: at(0), CompletionTime: at(2), Message: "pulling invalid.test/app:1: the host does not exist"},
			}}}},
		},
		"what nobody asks for any more is forgotten": {
			ni:   (&NodeImage{}).says("nginx", succeeded),
			want: &NodeImageStatus{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, err := json.Marshal(tc.ni)
			require.NoError(t, err)
			got := NextPulls(tc.ni, t0.Add(time.Duration(tc.now)*time.Second), pullTime)
			require.Equal(t, tc.want, got.Status)
			require.Equal(t, tc.again, got.Again)
			after, err := json.Marshal(tc.ni)
			require.NoError(t, err)
			require.JSONEq(t, string(before), string(after), "the input is not changed")
		})
	}
}

func TestPullsKeepWhatIsNotOurs(t *testing.T) {
	stored := map[string]any{
		"spec": map[string]any{"images": map[string]any{"nginx": map[string]any{"tags": []any{map[string]any{"tag": "1", "createdAt": "2026-11-30T12:00:00Z"}}}}},
		"status": map[string]any{
			"desired": int64(0), "succeeded": int64(0), "failed": int64(0), "pulling": int64(0), "waiting": int64(0),
			"firstSyncStatus": map[string]any{"status": "Succeeded"},
		},
	}
	var ni NodeImage
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(stored, &ni))
	got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(NextPulls(&ni, t0, pullTime).Status)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"status": "Succeeded"}, got["firstSyncStatus"])
	require.EqualValues(t, 0, got["succeeded"], "zeros are written")
}

// Whatever a NodeImage asks for, the agent comes to an end, in as many writes as there are changes to tell.
func TestPullsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ni := &NodeImage{Spec: NodeImageSpec{Images: rapid.MapOfN(
			rapid.SampledFrom([]string{"nginx", "busybox", "invalid.test/app"}),
			rapid.Custom(func(t *rapid.T) ImageSpec {
				return ImageSpec{Tags: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) TagSpec {
					return TagSpec{Tag: rapid.SampledFrom([]string{"1", "2", "sha256:ab"}).Draw(t, "tag"), Version: rapid.Int64Range(0, 2).Draw(t, "version")}
				}), 0, 4).Draw(t, "tags")}
			}), 0, 3).Draw(t, "images")}}
		now, delay := t0, time.Duration(rapid.IntRange(0, 5000).Draw(t, "delay"))*time.Millisecond
		for writes := 0; ; {
			next := NextPulls(ni, now, delay)
			if next.Status == nil && next.Again == 0 {
				break
			}
			if next.Status != nil {
				writes++
				ni.Status = *next.Status
				require.LessOrEqual(t, writes, 2, "all start together and end together")
			}
			now = now.Add(next.Again)
			require.Less(t, now.Sub(t0), time.Minute)
		}
		require.Zero(t, ni.Status.Pulling)
		require.Equal(t, ni.Status.Desired, ni.Status.Succeeded+ni.Status.Failed)
		for name, image := range ni.Status.ImageStatuses {
			for _, tag := range image.Tags {
				require.Equal(t, unpullable(name), tag.Phase == phaseFailed)
			}
		}
	})
}

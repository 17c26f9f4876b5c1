// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// TestStatus is statefulset.md 3 and 7.3, step 3.
func TestStatus(t *testing.T) {
	base := ordered(3)
	image := newImage(base)
	before, after := image.snapshot().Current.Name, image.snapshot().Update.Name
	type counts struct {
		replicas, ready, available, current, updated, updatedReady, updatedAvailable int32
		done                                                                         bool
	}
	slow := base.MinReadySeconds(10)
	cases := map[string]struct {
		in   situation
		want counts
	}{
		"half way":                              {image.old(0, 1).new(2), counts{3, 3, 3, 2, 1, 1, 1, false}},
		"an unready one":                        {image.old(0).with(unready(base, 1)).new(2), counts{3, 2, 2, 2, 1, 1, 1, false}},
		"terminating Pods exist":                {image.old(0).with(going(base, 1)).new(2), counts{3, 3, 3, 1, 1, 1, 1, false}},
		"Pods out of range, too":                {image.old(0, 1, 5).new(2), counts{4, 4, 4, 3, 1, 1, 1, false}},
		"ready for too short is not available":  {newImage(slow).old(0, 1).with(young(slow.Image("app:2"), 2)), counts{3, 3, 2, 2, 1, 1, 0, false}},
		"a lifecycle state is not available":    {image.old(0, 1).with(pod(base.Image("app:2"), 2).State(v1beta1.LifecycleUpdating)), counts{3, 3, 2, 2, 1, 1, 0, false}},
		"all updated and ready: complete":       {image.new(0, 1, 2), counts{3, 3, 3, 3, 3, 3, 3, true}},
		"all updated, one unready: not yet":     {image.new(0, 1).with(unready(base.Image("app:2"), 2)), counts{3, 2, 2, 0, 3, 2, 2, false}},
		"all that exist updated, one missing":   {newImage(base.Partition(2)).new(2), counts{1, 1, 1, 0, 1, 1, 1, false}},
		"no replicas and no Pods: complete":     {newImage(ordered(0)), counts{0, 0, 0, 0, 0, 0, 0, true}},
		"OnDelete is never complete":            {newImage(base.OnDelete()).new(0, 1, 2), counts{3, 3, 3, 0, 3, 3, 3, false}},
		"revisions are equal: counted as both":  {web(base).new(0, 1), counts{2, 2, 2, 2, 2, 2, 2, true}},
		"a label with the hash only counts":     {image.old(0, 1).with(pod(base, 2).Label("controller-revision-hash", revision.ShortHash(after))), counts{3, 3, 3, 2, 1, 1, 1, false}},
		"Pods of no ordinal are not counted":    {image.old(0, 1).with(fixture.Pod("web-x").Ready(fixture.Created)), counts{2, 2, 2, 2, 0, 0, 0, false}},
		"a failed Pod exists, and is not ready": {image.old(0, 1).with(failed(base, 2)), counts{3, 2, 2, 3, 0, 0, 0, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Status(tc.in.snapshot(), now)
			got := counts{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas, s.CurrentRevision == s.UpdateRevision}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(counts{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	s := Status(image.old(0).snapshot(), now)
	assert.Equal(t, before, s.CurrentRevision)
	assert.Equal(t, after, s.UpdateRevision)
	assert.Equal(t, int64(1), s.ObservedGeneration)
	assert.Equal(t, "app=web", s.LabelSelector)
	assert.Equal(t, int32(0), *s.CollisionCount)
}

// TestStatusOfClaims is statefulset.md 10.4: always told, gate or not.
func TestStatusOfClaims(t *testing.T) {
	was := ordered(3).Claim("data", "1Gi").Claim("logs", "1Gi")
	grown := was.Claim("data", "2Gi")
	logs := func(n int) fixture.ClaimBuilder { return fixture.ClaimOf(was, "logs", n) }
	s := web(grown).new(0, 1, 2).claimed(
		claim(was, 0),                // asks for less
		claim(was, 1).Request("2Gi"), // grows
		claim(grown, 2),              // has grown
		logs(0), logs(1).With(terminating), logs(2), logs(7))
	assert.Equal(t, []v1beta1.VolumeClaimStatus{
		{VolumeClaimName: "data", CompatibleReplicas: 2, CompatibleReadyReplicas: 1},
		{VolumeClaimName: "logs", CompatibleReplicas: 2, CompatibleReadyReplicas: 2},
	}, Status(s.snapshot(), now).VolumeClaims)
	assert.Nil(t, Status(web(ordered(1)).snapshot(), now).VolumeClaims)
}

func TestConditions(t *testing.T) {
	const create, update = v1beta1.StatefulSetConditionFailedCreatePod, v1beta1.StatefulSetConditionFailedUpdatePod
	var s v1beta1.StatefulSetStatus
	SetFailure(&s, create, "no quota", now)
	SetFailure(&s, update, "", now)
	assert.Equal(t, []v1beta1.StatefulSetCondition{{Type: create, Status: corev1.ConditionTrue, Message: "no quota", LastTransitionTime: metav1.NewTime(now)}}, s.Conditions)
	before := *s.DeepCopy()

	later := now.Add(60e9)
	SetFailure(&s, create, "no quota", later)
	assert.False(t, StatusDiffers(&before, &s), "the same failure is the same status")
	SetFailure(&s, create, "no node", later)
	assert.Equal(t, "no node", s.Conditions[0].Message)
	assert.Equal(t, metav1.NewTime(now), s.Conditions[0].LastTransitionTime, "it has been failing since then")
	assert.True(t, StatusDiffers(&before, &s))
	assert.Equal(t, "no quota", before.Conditions[0].Message)
	SetFailure(&s, update, "denied", later)
	SetFailure(&s, create, "", later)
	assert.Equal(t, []v1beta1.StatefulSetCondition{{Type: update, Status: corev1.ConditionTrue, Message: "denied", LastTransitionTime: metav1.NewTime(later)}}, s.Conditions)
}

func TestConditionsAreCarriedOver(t *testing.T) {
	s := web(ordered(1)).snapshot()
	SetFailure(&s.Set.Status, v1beta1.StatefulSetConditionFailedCreatePod, "no quota", now)
	assert.Equal(t, s.Set.Status.Conditions, Status(s, now).Conditions)
}

func TestLiveHashes(t *testing.T) {
	s := newImage(ordered(2)).old(0).with(pod(ordered(2), 1).Label("controller-revision-hash", "web-ancient")).snapshot()
	status := Status(s, now)
	assert.Equal(t, map[string]bool{revision.ShortHash(s.Current.Name): true, revision.ShortHash(s.Update.Name): true, "ancient": true}, LiveHashes(s, &status))
}

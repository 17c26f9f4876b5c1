// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func TestStatusCounts(t *testing.T) {
	old := fixture.CloneSet("web").Replicas(6).Partition("2").MinReadySeconds(60)
	set := old.Image("app:2")
	recently := now.Add(-30 * time.Second)
	s := situationOf(old, set,
		fixture.PodOf(old, "a"),
		fixture.PodOf(old, "b").NotReady(fixture.Created),
		fixture.PodOf(set, "c"),
		fixture.PodOf(set, "d").Ready(recently),
		fixture.PodOf(set, "e").State(v1beta1.LifecycleUpdated),
		fixture.PodOf(set, "f").Condition(v1beta1.InPlaceUpdateReady, corev1.ConditionFalse, recently), // the kubelet has not followed yet
		fixture.PodOf(set, "g").State(v1beta1.LifecyclePreparingDelete),
		// The short label form counts as well.
		fixture.PodOf(set, "h").Label("controller-revision-hash", shortHash(fixture.Revision(set, 2).Name)),
	)
	want := v1beta1.CloneSetStatus{
		ObservedGeneration: 1,
		Replicas:           8, ReadyReplicas: 6, AvailableReplicas: 3,
		UpdatedReplicas: 6, UpdatedReadyReplicas: 5, UpdatedAvailableReplicas: 2,
		ExpectedUpdatedReplicas: 4,
		CurrentRevision:         fixture.Revision(old, 1).Name,
		UpdateRevision:          fixture.Revision(set, 2).Name,
		CollisionCount:          new(int32(0)),
		LabelSelector:           "app=web",
	}
	assert.Empty(t, cmp.Diff(want, Status(s, now)))
}

func TestMinReadySecondsOfTheLargestIntNeverPass(t *testing.T) {
	set := fixture.CloneSet("web").MinReadySeconds(2147483647)
	s := situationOf(set, set, fixture.PodOf(set, "a"))
	assert.Zero(t, Status(s, now).AvailableReplicas)
	assert.Positive(t, Decide(s, now).Requeue)
}

func TestCurrentRevisionMovesOnlyWhenNoPodIsMissing(t *testing.T) {
	old := fixture.CloneSet("web").Replicas(2).Partition("1")
	set := old.Image("app:2")
	was, is := fixture.Revision(old, 1).Name, fixture.Revision(set, 2).Name
	updated := func(n string) fixture.PodBuilder { return fixture.PodOf(set, n).NotReady(fixture.Created) }
	cases := map[string]struct {
		pods []fixture.PodBuilder
		want string
	}{
		"all Pods that exist are updated, but one is missing": {[]fixture.PodBuilder{updated("a")}, was},
		"one is old":                          {[]fixture.PodBuilder{updated("a"), fixture.PodOf(old, "b")}, was},
		"all are updated, ready or not":       {[]fixture.PodBuilder{updated("a"), updated("b")}, is},
		"all are updated, and one is surplus": {[]fixture.PodBuilder{updated("a"), updated("b"), updated("c")}, was},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, Status(situationOf(old, set, tc.pods...), now).CurrentRevision)
		})
	}
}

// condition builds a Progressing condition that was last updated so long ago.
func condition(reason string, status corev1.ConditionStatus, ago time.Duration) v1beta1.CloneSetCondition {
	at := metav1.NewTime(now.Add(-ago))
	return v1beta1.CloneSetCondition{
		Type: "Progressing", Status: status, Reason: reason, Message: "as it was", LastUpdateTime: at, LastTransitionTime: at,
	}
}

func TestProgressing(t *testing.T) {
	old := fixture.CloneSet("web").Replicas(2).MaxUnavailable("1").ProgressDeadlineSeconds(600)
	set := old.Image("app:2")
	hour, minute := time.Hour, time.Minute
	updated := []fixture.PodBuilder{fixture.PodOf(set, "a"), fixture.PodOf(set, "b")}
	half := []fixture.PodBuilder{fixture.PodOf(set, "a"), fixture.PodOf(old, "b")}
	broken := []fixture.PodBuilder{fixture.PodOf(set, "a").NotReady(fixture.Created), fixture.PodOf(set, "b")}
	exceeded := "CloneSet revision " + fixture.Revision(set, 2).Name + " has timed out progressing"
	was := func(c v1beta1.CloneSetCondition) *v1beta1.CloneSetCondition { return &c }
	type want struct {
		status, reason, message string
		updated, moved          bool // the times are now
	}
	cases := map[string]struct {
		set      fixture.CloneSetBuilder
		pods     []fixture.PodBuilder
		existing *v1beta1.CloneSetCondition
		former   string // update revision of the old status; default: the present one
		want     *want
	}{
		"no deadline, no condition": {
			set.With(func(c *v1beta1.CloneSet) { c.Spec.ProgressDeadlineSeconds = nil }), half, was(condition("CloneSetUpdated", "True", minute)), "", nil},
		"the largest deadline is none": {set.ProgressDeadlineSeconds(2147483647), half, nil, "", nil},
		"available":                    {set, updated, was(condition("CloneSetUpdated", "True", minute)), "", &want{"True", "CloneSetAvailable", "CloneSet is available", true, false}},
		"available from exceeded":      {set, updated, was(condition("ProgressDeadlineExceeded", "False", hour)), "", &want{"True", "CloneSetAvailable", "CloneSet is available", true, true}},
		"available stays untouched":    {set, updated, was(condition("CloneSetAvailable", "True", hour)), "", &want{"True", "CloneSetAvailable", "as it was", false, false}},
		"paused":                       {set.Paused(), half, nil, "", &want{"True", "CloneSetPaused", "CloneSet is paused", true, true}},
		"partition ready":              {set.Partition("1"), half, nil, "", &want{"True", "ProgressPartitionAvailable", "CloneSet has been paused due to partition ready", true, true}},
		"the clock starts":             {set, half, nil, "", &want{"True", "CloneSetUpdated", "CloneSet is progressing", true, true}},
		"within the deadline":          {set, half, was(condition("CloneSetUpdated", "True", 599*time.Second)), "", &want{"True", "CloneSetUpdated", "as it was", false, false}},
		"over the deadline":            {set, half, was(condition("CloneSetUpdated", "True", 601*time.Second)), "", &want{"False", "ProgressDeadlineExceeded", exceeded, true, true}},
		"exceeded sticks":              {set, broken, was(condition("ProgressDeadlineExceeded", "False", minute)), "", &want{"False", "ProgressDeadlineExceeded", "as it was", false, false}},
		"a new template starts anew":   {set, half, was(condition("ProgressDeadlineExceeded", "False", hour)), "web-before", &want{"True", "CloneSetUpdated", "CloneSet is progressing", true, true}},
		"a new template restarts a running clock": {
			set, half, was(condition("CloneSetUpdated", "True", hour)), "web-before", &want{"True", "CloneSetUpdated", "CloneSet is progressing", true, false}},
		"a Pod lost long after the rollout is progress, not a timeout": {
			set, broken, was(condition("CloneSetAvailable", "True", hour)), "", &want{"True", "CloneSetUpdated", "CloneSet is progressing", true, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := situationOf(old, tc.set, tc.pods...)
			if tc.existing != nil {
				s.Set.Status.Conditions = []v1beta1.CloneSetCondition{*tc.existing}
			}
			if tc.former != "" {
				s.Set.Status.UpdateRevision = tc.former
			}
			got := Status(s, now).Conditions
			if tc.want == nil {
				assert.Empty(t, got)
				return
			}
			assert.Len(t, got, 1)
			c := got[0]
			assert.Equal(t, *tc.want, want{string(c.Status), c.Reason, c.Message, c.LastUpdateTime.Time.Equal(now), c.LastTransitionTime.Time.Equal(now)})
		})
	}
}

func TestDeadlineAsksToBeCalledAfterIt(t *testing.T) {
	set := fixture.CloneSet("web").ProgressDeadlineSeconds(600).Obj()
	status := func(reason string, ago time.Duration) *v1beta1.CloneSetStatus {
		return &v1beta1.CloneSetStatus{Conditions: []v1beta1.CloneSetCondition{condition(reason, "True", ago)}}
	}
	assert.Equal(t, 541*time.Second, Deadline(set, status("CloneSetUpdated", time.Minute), now))
	assert.Positive(t, Deadline(set, status("CloneSetUpdated", time.Hour), now))
	assert.Zero(t, Deadline(set, status("CloneSetAvailable", time.Minute), now))
	assert.Zero(t, Deadline(fixture.CloneSet("web").Obj(), status("CloneSetUpdated", time.Minute), now))
}

func TestFailuresAreSetRefreshedAndCleared(t *testing.T) {
	var status v1beta1.CloneSetStatus
	SetFailure(&status, v1beta1.CloneSetConditionFailedScale, "", now)
	assert.Empty(t, status.Conditions)
	SetFailure(&status, v1beta1.CloneSetConditionFailedScale, "quota", now)
	before := status
	assert.Equal(t, "quota", status.Conditions[0].Message)
	SetFailure(&status, v1beta1.CloneSetConditionFailedScale, "quota", now.Add(time.Minute))
	assert.False(t, StatusDiffers(&before, &status), "the same failure is not news")
	SetFailure(&status, v1beta1.CloneSetConditionFailedScale, "webhook", now.Add(time.Minute))
	assert.True(t, StatusDiffers(&before, &status))
	assert.Equal(t, now, status.Conditions[0].LastTransitionTime.Time)
	SetFailure(&status, v1beta1.CloneSetConditionFailedScale, "", now)
	assert.Empty(t, status.Conditions)
	assert.Equal(t, "quota", before.Conditions[0].Message, "the former status is not changed")
}

// SPDX-License-Identifier: Apache-2.0

package expectation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/expectation"
)

var (
	owner = types.NamespacedName{Namespace: "shop", Name: "web"}
	pod   = expectation.Object{Kind: "Pod", Name: "web-a"}
)

type world map[expectation.Object]expectation.Seen

func (w world) lookup(o expectation.Object) (expectation.Seen, bool) { s, ok := w[o]; return s, ok }

func (w world) read(_ context.Context, o expectation.Object) (expectation.Seen, bool, error) {
	s, ok := w[o]
	return s, ok, nil
}

func TestSatisfied(t *testing.T) {
	live := func(rv string) expectation.Seen { return expectation.Seen{UID: "1", ResourceVersion: rv} }
	terminating := expectation.Seen{UID: "1", ResourceVersion: "9", Terminating: true}
	create := func(tr *expectation.Tracker) { tr.ExpectCreate(owner, pod) }
	remove := func(tr *expectation.Tracker) { tr.ExpectDelete(owner, pod, "1") }
	version := func(tr *expectation.Tracker) { tr.ExpectVersion(owner, pod, "1", "7") }
	cases := map[string]struct {
		expect      func(*expectation.Tracker)
		cache, api  world
		early, late bool // satisfied at once; satisfied after the probe time
	}{
		"a created object that the cache shows":                {create, world{pod: live("5")}, world{pod: live("5")}, true, true},
		"a created object that the cache will show":            {create, world{}, world{pod: live("5")}, false, false},
		"an object created and deleted between two events":     {create, world{}, world{}, false, true},
		"a deleted object that the cache still shows":          {remove, world{pod: live("5")}, world{}, false, false},
		"a deleted object that the cache shows terminating":    {remove, world{pod: terminating}, world{pod: terminating}, true, true},
		"a deleted object whose name another has":              {remove, world{pod: {UID: "2"}}, world{pod: {UID: "2"}}, true, true},
		"a deletion that did not happen":                       {remove, world{pod: live("5")}, world{pod: live("5")}, false, true},
		"an update that the cache shows":                       {version, world{pod: live("7")}, world{pod: live("7")}, true, true},
		"an update with more digits is newer":                  {version, world{pod: live("10")}, world{pod: live("10")}, true, true},
		"an update that the cache will show":                   {version, world{pod: live("6")}, world{pod: live("7")}, false, false},
		"an update of an object that is gone since":            {version, world{}, world{}, true, true},
		"an update of an object that was replaced since":       {version, world{pod: {UID: "2", ResourceVersion: "8"}}, world{pod: {UID: "2", ResourceVersion: "8"}}, true, true},
		"versions that cannot be compared are not waited for":  {version, world{pod: live("x")}, world{pod: live("x")}, true, true},
		"a create that was cancelled":                          {func(tr *expectation.Tracker) { create(tr); tr.CancelCreate(owner, pod) }, world{}, world{}, true, true},
		"a delete that was cancelled":                          {func(tr *expectation.Tracker) { remove(tr); tr.CancelDelete(owner, pod) }, world{pod: live("5")}, world{}, true, true},
		"nothing is expected of a workload that was forgotten": {func(tr *expectation.Tracker) { create(tr); tr.Forget(owner) }, world{}, world{}, true, true},
		"expectations of other workloads do not matter":        {func(tr *expectation.Tracker) { tr.ExpectCreate(types.NamespacedName{Name: "other"}, pod) }, world{}, world{}, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			tracker := expectation.NewTracker(clock, time.Minute, nil)
			tc.expect(tracker)
			got := tracker.Satisfied(t.Context(), owner, tc.cache.lookup, tc.api.read)
			assert.Equal(t, tc.early, len(got.Objects) == 0, "at once: %v", got)
			assert.Equal(t, !tc.early, got.Wait > 0, "something pending always has a time to look again")
			clock.Step(expectation.ProbeAfter)
			got = tracker.Satisfied(t.Context(), owner, tc.cache.lookup, tc.api.read)
			assert.Equal(t, tc.late, len(got.Objects) == 0, "later: %v", got)
		})
	}
}

func TestReadErrorsKeepTheExpectationAndAreRetried(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	tracker := expectation.NewTracker(clock, time.Minute, nil)
	tracker.ExpectCreate(owner, pod)
	reads := 0
	failing := func(context.Context, expectation.Object) (expectation.Seen, bool, error) {
		reads++
		return expectation.Seen{}, false, errors.New("server down")
	}
	for range 3 { // no time passes: one read at most
		clock.Step(expectation.ProbeAfter / 3)
		assert.NotEmpty(t, tracker.Satisfied(t.Context(), owner, world{}.lookup, failing).Objects)
	}
	clock.Step(time.Second)
	assert.NotEmpty(t, tracker.Satisfied(t.Context(), owner, world{}.lookup, failing).Objects)
	assert.Equal(t, 1, reads)
	clock.Step(expectation.ProbeAfter)
	assert.Empty(t, tracker.Satisfied(t.Context(), owner, world{}.lookup, world{}.read).Objects)
}

func TestTimeoutIsReportedOncePerExpectation(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	var timedOut []types.NamespacedName
	tracker := expectation.NewTracker(clock, time.Minute, func(o types.NamespacedName) { timedOut = append(timedOut, o) })
	tracker.ExpectCreate(owner, pod)
	onServer := world{pod: {UID: "1"}}
	for range 5 {
		clock.Step(30 * time.Second)
		assert.NotEmpty(t, tracker.Satisfied(t.Context(), owner, world{}.lookup, onServer.read).Objects)
	}
	assert.Equal(t, []types.NamespacedName{owner}, timedOut)
}

// Whatever happened to the objects, once the cache equals the API server and the probe
// time has passed, nothing is pending: no expectation can block a workload for ever.
func TestNothingStaysPendingOnceTheCacheIsRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
		tracker := expectation.NewTracker(clock, time.Minute, nil)
		object := func() expectation.Object {
			return expectation.Object{Kind: "Pod", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")}
		}
		uid := func() types.UID { return types.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid")) }
		for range rapid.IntRange(0, 10).Draw(t, "expectations") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				tracker.ExpectCreate(owner, object())
			case 1:
				tracker.ExpectDelete(owner, object(), uid())
			case 2:
				tracker.ExpectVersion(owner, object(), uid(), rapid.SampledFrom([]string{"5", "6"}).Draw(t, "version"))
			}
		}
		// The server has at least every version it handed out.
		truth := world{}
		for _, n := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, "exists") {
				truth[expectation.Object{Kind: "Pod", Name: n}] = expectation.Seen{UID: uid(), ResourceVersion: "7", Terminating: rapid.Bool().Draw(t, "terminating")}
			}
		}
		clock.Step(expectation.ProbeAfter)
		if p := tracker.Satisfied(t.Context(), owner, truth.lookup, truth.read); len(p.Objects) > 0 {
			t.Fatalf("still pending: %v", p)
		}
	})
}

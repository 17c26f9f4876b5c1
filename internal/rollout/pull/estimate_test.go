// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var now = time.Unix(10_000, 0)

// stand is a job with nodes done in so many seconds, running as progress/elapsed, and queued.
func stand(parallelism int32, done []int, running [][2]int, queued int32) Status {
	j := job(v1beta1.ImagePullJobStatus{Desired: int32(len(done)+len(running)) + queued, Succeeded: int32(len(done)), Active: int32(len(running))})
	j.Spec.Parallelism = new(intstr.FromInt32(parallelism))
	st := Status{Job: j, Verdict: Active, Queued: queued}
	for i, s := range done {
		st.Rows = append(st.Rows, Row{Node: fmt.Sprintf("d%d", i), Phase: "Succeeded", Started: now.Add(-time.Hour), Ended: now.Add(-time.Hour + time.Duration(s)*time.Second)})
	}
	for i, r := range running {
		st.Rows = append(st.Rows, Row{Node: fmt.Sprintf("r%d", i), Phase: "Pulling", Progress: int32(r[0]), Started: now.Add(-time.Duration(r[1]) * time.Second)})
	}
	return st
}

func TestEstimateOf(t *testing.T) {
	ended := stand(1, []int{10, 20}, nil, 0)
	ended.Verdict = Succeeded
	cases := map[string]struct {
		st   Status
		want string
	}{
		"nothing is known":                      {stand(2, nil, [][2]int{{0, 5}, {0, 3}}, 4), "0% 0s 0s 0s"},
		"a node's own pace":                     {stand(1, nil, [][2]int{{50, 20}}, 0), "50% 0s 0s 20s"},
		"too little progress to tell a pace":    {stand(1, []int{30}, [][2]int{{5, 10}}, 0), "52% 30s 30s 20s"},
		"later than the median is due any time": {stand(1, []int{30}, [][2]int{{0, 50}}, 0), "50% 30s 30s 0s"},
		"a queue of four with two places":       {stand(2, []int{10, 10}, [][2]int{{50, 5}, {50, 5}}, 4), "37% 10s 10s 25s"},
		"a free place is taken at once":         {stand(3, []int{10}, [][2]int{{50, 5}}, 2), "37% 10s 10s 10s"},
		"a paused job does not end":             {stand(0, []int{10}, nil, 2), "33% 10s 10s 0s"},
		"median and p95":                        {stand(1, []int{1, 2, 3, 4, 100}, [][2]int{{0, 3}}, 0), "83% 3s 1m40s 0s"},
		"ended":                                 {ended, "100% 10s 20s 0s"},
		"a job that has not begun":              {stand(1, nil, nil, 0), "0% 0s 0s 0s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := EstimateOf(tc.st, now)
			if got := fmt.Sprintf("%d%% %s %s %s", e.Percent, e.Median, e.P95, e.Left); got != tc.want {
				t.Errorf("EstimateOf() = %s, want %s", got, tc.want)
			}
		})
	}
}

// An estimate is never negative nor over 100 per cent, more in the queue never makes it
// shorter, and more places never longer.
func TestEstimatesAreSane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ints := func(name string, lo, hi, n int) []int {
			return rapid.SliceOfN(rapid.IntRange(lo, hi), 0, n).Draw(t, name)
		}
		done := ints("done", 0, 300, 10)
		var running [][2]int
		for _, p := range ints("progress", -5, 120, 6) {
			running = append(running, [2]int{p, rapid.IntRange(0, 500).Draw(t, "elapsed")})
		}
		places := rapid.Int32Range(0, 8).Draw(t, "places")
		queued := rapid.Int32Range(0, 30).Draw(t, "queued")
		e := EstimateOf(stand(places, done, running, queued), now)
		if e.Percent < 0 || e.Percent > 100 || e.Left < 0 || e.Median < 0 || e.P95 < e.Median {
			t.Fatalf("estimate %+v", e)
		}
		more := EstimateOf(stand(places, done, running, queued+1), now)
		if more.Left != 0 && more.Left < e.Left {
			t.Fatalf("one more in the queue: %s, was %s", more.Left, e.Left)
		}
		if wider := EstimateOf(stand(places+1, done, running, queued), now); e.Left != 0 && wider.Left > e.Left {
			t.Fatalf("one more place: %s, was %s", wider.Left, e.Left)
		}
	})
}

func TestRetry(t *testing.T) {
	j := job(v1beta1.ImagePullJobStatus{})
	j.Name, j.Namespace = "pull-web", "shop"
	j.Spec.PodSelector = &v1beta1.ImagePullJobPodSelector{}
	j.Spec.PullSecrets = []string{"s"}
	taken := func(names ...string) func(string) bool {
		return func(n string) bool { return strings.Contains(strings.Join(names, " ")+" ", n+" ") }
	}
	next, err := Retry(j, []string{"b", "a"}, taken("pull-web-retry-1"))
	if err != nil || next.Name != "pull-web-retry-2" || strings.Join(next.Spec.Selector.Names, ",") != "a,b" || next.Spec.PodSelector != nil || len(next.Spec.PullSecrets) != 1 {
		t.Errorf("Retry() = %+v, %v", next, err)
	}
	j.Name = next.Name
	if again, _ := Retry(j, []string{"a"}, taken("pull-web-retry-1", "pull-web-retry-2")); again.Name != "pull-web-retry-3" {
		t.Errorf("the retry of a retry is %s", again.Name)
	}
	if _, err := Retry(j, nil, taken()); err == nil {
		t.Error("a job without failures is repeated")
	}
	if v := PredownloadFor("CloneSet", strings.Repeat("x", 100)); len(v) > 63 {
		t.Errorf("label value of %d characters", len(v))
	}
}

// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

func TestPodsOfOneBatchStandTogetherTheLatestBatchFirst(t *testing.T) {
	t0 := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	pod := func(name string, group Group, seconds int) Pod {
		return Pod{Name: name, Group: group, Updated: group == GroupUpdated, How: HowInPlace, Since: t0.Add(time.Duration(seconds) * time.Second)}
	}
	r := Rollout{Facts: verdict.Facts{MaxUnavailable: 2}, Pods: []Pod{
		pod("a", GroupUpdated, 30), pod("b", GroupUpdated, 10), pod("c", GroupUpdated, 20), pod("d", GroupUpdated, 11), pod("e", GroupKept, 0),
		pod("f", GroupFailing, 5),
	}}
	r.order()
	var got []string
	for _, p := range r.Pods {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"f", "a", "c", "b", "d", "e"}, got); diff != "" {
		t.Errorf("order of Pods (-want +got):\n%s", diff)
	}
}

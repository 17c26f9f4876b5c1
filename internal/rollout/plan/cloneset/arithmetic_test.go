// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func TestLimits(t *testing.T) {
	set := func(r int32) fixture.CloneSetBuilder { return fixture.CloneSet("web").Replicas(r) }
	one, two := 1, 2
	cases := map[string]struct {
		set  fixture.CloneSetBuilder
		want Limits
	}{
		"defaults":      {set(10), Limits{Replicas: 10, MaxUnavailable: 2}},
		"partition 30%": {set(10).Partition("30%"), Limits{Replicas: 10, Partition: 3, MaxUnavailable: 2}},
		"partition 95% of 10 leaves one to update": {set(10).Partition("95%"), Limits{Replicas: 10, Partition: 9, MaxUnavailable: 2}},
		"partition 99% of 4 leaves one to update":  {set(4).Partition("99%"), Limits{Replicas: 4, Partition: 3, MaxUnavailable: 1}},
		"partition 99% of 1 keeps it":              {set(1).Partition("99%"), Limits{Replicas: 1, Partition: 1, MaxUnavailable: 1}},
		"partition 100% keeps all":                 {set(4).Partition("100%"), Limits{Replicas: 4, Partition: 4, MaxUnavailable: 1}},
		"partition 7 of 3 is 3":                    {set(3).Partition("7"), Limits{Replicas: 3, Partition: 3, MaxUnavailable: 1}},
		"fractions are computed, not dropped":      {set(8).Partition("12.5%").MaxUnavailable("37.5%"), Limits{Replicas: 8, Partition: 1, MaxUnavailable: 3}},
		"binary fractions do not round up a whole": {set(1000).Partition("0.7%"), Limits{Replicas: 1000, Partition: 7, MaxUnavailable: 200}},
		"maxUnavailable rounds up without surge":   {set(4).MaxUnavailable("20%"), Limits{Replicas: 4, MaxUnavailable: 1}},
		"maxUnavailable rounds down with surge":    {set(4).MaxUnavailable("20%").MaxSurge("1"), Limits{Replicas: 4, MaxSurge: 1}},
		"surge rounds up":                          {set(5).MaxUnavailable("0").MaxSurge("21%"), Limits{Replicas: 5, MaxSurge: 2}},
		"paused has no surge, so it rounds up":     {set(4).MaxSurge("1").Paused(), Limits{Replicas: 4, MaxUnavailable: 1}},
		"OnDelete rounds 20% down":                 {set(4).OnDelete(), Limits{Replicas: 4}},
		"scale maxUnavailable rounds up":           {set(4).ScaleMaxUnavailable("30%"), Limits{Replicas: 4, MaxUnavailable: 1, ScaleMaxUnavailable: &two}},
		"what is no number or percentage moves nothing": {set(4).With(func(c *v1beta1.CloneSet) {
			bad := intstr.FromString("5")
			c.Spec.UpdateStrategy.RollingUpdate.Partition, c.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &bad, &bad
		}), Limits{Replicas: 4, Partition: 4}},
		"scale maxUnavailable as a number": {set(4).ScaleMaxUnavailable("1"), Limits{Replicas: 4, MaxUnavailable: 1, ScaleMaxUnavailable: &one}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { assert.Empty(t, cmp.Diff(tc.want, LimitsOf(tc.set.Obj()))) })
	}
}

// many repeats one kind of Pod.
func many(n int, p PodFacts) []PodFacts { return slices.Repeat([]PodFacts{p}, n) }

func TestArithmeticExamples(t *testing.T) {
	old, upd := PodFacts{Available: true}, PodFacts{New: true, Available: true}
	with := func(lists ...[]PodFacts) []PodFacts { return slices.Concat(lists...) }
	scale := func(s Situation, sm int) Situation { s.ScaleMaxUnavailable = &sm; return s }
	at := func(set fixture.CloneSetBuilder) Situation { return Situation{Limits: LimitsOf(set.Obj())} }
	same := func(s Situation) Situation { s.SameRevision = true; return s }
	rollback := func(s Situation) Situation { s.PartitionRollback = true; return s }
	exclude := func(s Situation) Situation { s.ExcludePreparingDelete = true; return s }
	web := fixture.CloneSet("web")
	r := func(n int32) fixture.CloneSetBuilder { return web.Replicas(n) }

	cases := map[string]struct {
		situation Situation
		pods      []PodFacts
		want      Numbers
	}{
		"1: no Pods, six wanted": {
			same(at(r(6))), nil,
			Numbers{ScaleUp: 6, ScaleUpLimit: 6, UpdateMaxUnavailable: 2 - 6},
		},
		"2: creation is limited to two": {
			scale(same(at(r(6))), 2), nil,
			Numbers{ScaleUp: 6, ScaleUpLimit: 2, UpdateMaxUnavailable: 2 - 6},
		},
		"3: one unavailable Pod uses up creation budget": {
			scale(same(at(r(8))), 3), with(many(4, upd), many(1, PodFacts{New: true})),
			Numbers{ScaleUp: 3, ScaleUpLimit: 2, Unavailable: 1, UpdateMaxUnavailable: 2 - 3},
		},
		"4: ten old Pods, two at a time": {
			at(r(10)), many(10, old),
			Numbers{UpdateNum: 10, UpdateMaxUnavailable: 2},
		},
		"5: partition 30%": {
			at(r(10).Partition("30%")), many(10, old),
			Numbers{UpdateNum: 7, UpdateMaxUnavailable: 2},
		},
		"5: partition 95%": {
			at(r(10).Partition("95%")), many(10, old),
			Numbers{UpdateNum: 1, UpdateMaxUnavailable: 2},
		},
		"6: surge comes first": {
			at(r(6).MaxUnavailable("0").MaxSurge("2")), many(6, old),
			Numbers{UseSurge: 2, ScaleUp: 2, ScaleUpLimit: 2, UpdateNum: 6},
		},
		"6: surge Pods allow two updates": {
			at(r(6).MaxUnavailable("0").MaxSurge("2")), with(many(6, old), many(2, upd)),
			Numbers{UseSurge: 2, UpdateNum: 4, UpdateMaxUnavailable: 2},
		},
		"6: two marked Pods may be deleted": {
			at(r(6).MaxUnavailable("0").MaxSurge("2")), with(many(4, old), many(2, PodFacts{Specified: true, Available: true}), many(2, upd)),
			Numbers{UseSurge: 2, DeleteReadyLimit: 2, UpdateNum: 4, UpdateMaxUnavailable: 2},
		},
		"6: and two more surge Pods are made": {
			at(r(6).MaxUnavailable("0").MaxSurge("2")), with(many(4, old), many(2, upd)),
			Numbers{UseSurge: 2, ScaleUp: 2, ScaleUpLimit: 2, UpdateNum: 4},
		},
		"7: no more surge than the partition leaves to update": {
			at(r(6).Partition("5").MaxUnavailable("0").MaxSurge("3")), many(6, old),
			Numbers{UseSurge: 1, ScaleUp: 1, ScaleUpLimit: 1, UpdateNum: 1},
		},
		"8: surge drives the update when maxUnavailable rounds down to nothing": {
			at(r(4).MaxSurge("1")), many(4, old),
			Numbers{UseSurge: 1, ScaleUp: 1, ScaleUpLimit: 1, UpdateNum: 4},
		},
		"9: a raised partition rolls back with the gate": {
			rollback(at(r(6).Partition("5").MaxUnavailable("2"))), with(many(2, old), many(4, upd)),
			Numbers{UpdateNum: -3, UpdateMaxUnavailable: 2},
		},
		"9: and does nothing without": {
			at(r(6).Partition("5").MaxUnavailable("2")), with(many(2, old), many(4, upd)),
			Numbers{UpdateMaxUnavailable: 2},
		},
		"with too many of both nothing is updated": {
			rollback(at(r(1).Partition("1"))), with(many(2, old), many(1, upd)),
			Numbers{ScaleDown: 2, ScaleDownOld: 1, DeleteReadyLimit: 3, UpdateMaxUnavailable: 3},
		},
		"with too few of both nothing is updated": {
			rollback(at(r(4).Partition("2").MaxUnavailable("1"))), with(many(1, upd)),
			Numbers{ScaleUp: 3, ScaleUpOld: 2, ScaleUpLimit: 3, UpdateMaxUnavailable: 1 - 3},
		},
		"10: a ready specified Pod waits for the unavailable one": {
			same(at(r(5).MaxUnavailable("1"))), with(many(3, upd), many(1, PodFacts{New: true}), many(1, PodFacts{New: true, Specified: true, Available: true})),
			Numbers{Unavailable: 1, UpdateMaxUnavailable: 1},
		},
		"11: with surge the replacement comes first": {
			same(at(r(5).MaxUnavailable("1").MaxSurge("1"))), with(many(3, upd), many(1, PodFacts{New: true}), many(1, PodFacts{New: true, Specified: true, Available: true})),
			Numbers{UseSurge: 1, ScaleUp: 1, ScaleUpLimit: 1, Unavailable: 1, UpdateMaxUnavailable: 1},
		},
		"12: excluded PreparingDelete Pods are replaced": {
			exclude(same(at(r(3)))), with(many(2, upd), many(1, PodFacts{New: true, PreparingDelete: true})),
			Numbers{ScaleUp: 1, ScaleUpLimit: 1, Unavailable: 1, UpdateMaxUnavailable: 1, UpdateNum: 0},
		},
		"12: counted ones are not": {
			same(at(r(3))), with(many(2, upd), many(1, PodFacts{New: true, PreparingDelete: true})),
			Numbers{Unavailable: 1, UpdateMaxUnavailable: 1},
		},
		"13: the surplus is old": {
			at(r(5).Partition("2").MaxUnavailable("2")), with(many(5, old), many(3, upd)),
			Numbers{ScaleDown: 3, ScaleDownOld: 3, DeleteReadyLimit: 5, UpdateMaxUnavailable: 5},
		},
		"14: no budget for available Pods while all are unavailable": {
			same(at(r(3))), many(5, PodFacts{New: true}),
			Numbers{ScaleDown: 2, Unavailable: 5, UpdateMaxUnavailable: 3},
		},
		"15: OnDelete replaces with new Pods": {
			at(r(5).OnDelete()), many(3, old),
			Numbers{ScaleUp: 2, ScaleUpLimit: 2, UpdateNum: 3, UpdateMaxUnavailable: 1 - 2},
		},
		"16: OnDelete takes old Pods first": {
			at(r(3).OnDelete()), with(many(3, old), many(2, upd)),
			Numbers{ScaleDown: 2, ScaleDownOld: 3, DeleteReadyLimit: 2, UpdateNum: 1, UpdateMaxUnavailable: 2},
		},
		"17: missing Pods make the update limit negative": {
			scale(same(at(r(5).MaxUnavailable("1"))), 1), with(many(2, upd), many(1, PodFacts{New: true})),
			Numbers{ScaleUp: 2, ScaleUpLimit: 0, Unavailable: 1, UpdateMaxUnavailable: 1 - 2},
		},
		"18: a PreparingUpdate Pod counts as the new one": {
			at(r(3).Partition("67%")), with(many(1, PodFacts{New: true}), many(1, old)),
			Numbers{ScaleUp: 1, ScaleUpOld: 1, ScaleUpLimit: 1, Unavailable: 1, UpdateMaxUnavailable: 0},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { assert.Empty(t, cmp.Diff(tc.want, Compute(tc.situation, tc.pods))) })
	}
}

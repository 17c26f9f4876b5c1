// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// defaultMaxUnavailable is what an absent maxUnavailable means.
const defaultMaxUnavailable = "20%"

// Limits are the numbers of Pods that a CloneSet's spec sets, rounded (cloneset.md 2.3).
type Limits struct {
	// Replicas is spec.replicas, 1 when absent.
	Replicas int
	// Partition is how many Pods stay at the current revision, within [0, Replicas].
	Partition int
	// MaxSurge is how many Pods may exist above Replicas; 0 while paused.
	MaxSurge int
	// MaxUnavailable is how many Pods may be unavailable during an update.
	MaxUnavailable int
	// ScaleMaxUnavailable is how many Pods may be unavailable while Pods are created;
	// nil is no limit.
	ScaleMaxUnavailable *int
}

// LimitsOf computes the limits of set. A string that is neither a number nor a
// percentage, which admission refuses, counts as the value that moves nothing.
func LimitsOf(set *v1beta1.CloneSet) Limits {
	l := Limits{
		Replicas:       Replicas(set),
		Partition:      Partition(set),
		MaxSurge:       MaxSurge(set),
		MaxUnavailable: MaxUnavailable(set),
	}
	if sm := set.Spec.ScaleStrategy.MaxUnavailable; sm != nil {
		l.ScaleMaxUnavailable = new(orElse(sm, l.Replicas, percent.Up, 0))
	}
	return l
}

// Replicas is spec.replicas; 1 when absent.
func Replicas(set *v1beta1.CloneSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// rolling is the rollingUpdate block; nil under OnDelete, also when it is there.
func rolling(set *v1beta1.CloneSet) *v1beta1.RollingUpdateCloneSetStrategy {
	if OnDelete(set) {
		return nil
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}

// OnDelete tells whether Pods are updated only when somebody deletes them.
func OnDelete(set *v1beta1.CloneSet) bool {
	return set.Spec.UpdateStrategy.Type == v1beta1.OnDeleteCloneSetUpdateStrategyType
}

// Paused tells whether updates are paused.
func Paused(set *v1beta1.CloneSet) bool {
	r := rolling(set)
	return r != nil && r.Paused
}

// Policy is the way one Pod is updated; ReCreate when nothing is said.
func Policy(set *v1beta1.CloneSet) v1beta1.PodUpdatePolicyType {
	if r := rolling(set); r != nil && r.PodUpdatePolicy != "" {
		return r.PodUpdatePolicy
	}
	return v1beta1.RecreatePodUpdatePolicyType
}

// Partition is how many Pods stay at the current revision. A percentage that rounds up
// to all Pods, without being "100%", leaves one Pod to update.
func Partition(set *v1beta1.CloneSet) int {
	r, replicas := rolling(set), Replicas(set)
	if r == nil || r.Partition == nil {
		return 0
	}
	share, err := percent.Of(*r.Partition, int32(replicas), percent.Up)
	n := int(share)
	if err != nil {
		return replicas
	}
	if r.Partition.Type == intstr.String && replicas > 1 && n == replicas && r.Partition.StrVal != "100%" {
		n = replicas - 1
	}
	return max(0, min(n, replicas))
}

// MaxSurge is how many Pods may exist above the replicas; 0 while paused.
func MaxSurge(set *v1beta1.CloneSet) int {
	r := rolling(set)
	if r == nil || r.Paused || r.MaxSurge == nil {
		return 0
	}
	return max(0, orElse(r.MaxSurge, Replicas(set), percent.Up, 0))
}

// MaxUnavailable is how many Pods may be unavailable during an update: rounded up, but
// down with surge and under OnDelete.
func MaxUnavailable(set *v1beta1.CloneSet) int {
	r, replicas := rolling(set), Replicas(set)
	value, round := new(intstr.FromString(defaultMaxUnavailable)), percent.Up
	if r != nil && r.MaxUnavailable != nil {
		value = r.MaxUnavailable
	}
	if r == nil || MaxSurge(set) > 0 {
		round = percent.Down
	}
	return max(0, orElse(value, replicas, round, 0))
}

func orElse(v *intstr.IntOrString, replicas int, r percent.Rounding, fallback int) int {
	n, err := percent.Of(*v, int32(replicas), r)
	if err != nil {
		return fallback
	}
	return int(n)
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// Limits are the numbers of Pods that a StatefulSet's spec sets (statefulset.md 2).
type Limits struct {
	// Replicas is spec.replicas, 1 when absent.
	Replicas int
	// Partition is how many Pods stay at the current revision, within [0, Replicas].
	Partition int
	// MaxUnavailable is how many Pods may be unavailable during an update, at least 1.
	MaxUnavailable int
	// ScaleMaxUnavailable is how many Pods may be unavailable while Pods are created, at
	// least 1; nil is no limit.
	ScaleMaxUnavailable *int
}

// LimitsOf computes the limits of set. Percentages are of the replicas, rounded down, then
// raised to 1; a string that is no percentage, which admission refuses, counts as 1.
func LimitsOf(set *v1beta1.StatefulSet) Limits {
	l := Limits{Replicas: Replicas(set), Partition: Partition(set), MaxUnavailable: MaxUnavailable(set)}
	if s := set.Spec.ScaleStrategy; s != nil && s.MaxUnavailable != nil {
		l.ScaleMaxUnavailable = new(share(s.MaxUnavailable, l.Replicas))
	}
	return l
}

// Replicas is spec.replicas; 1 when absent.
func Replicas(set *v1beta1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return max(0, int(*set.Spec.Replicas))
}

// OnDelete tells whether Pods are updated only when somebody deletes them.
func OnDelete(set *v1beta1.StatefulSet) bool {
	t := set.Spec.UpdateStrategy.Type
	return t != "" && t != appsv1.RollingUpdateStatefulSetStrategyType
}

// Rolling is the rollingUpdate block; nil under OnDelete, also when it is there.
func Rolling(set *v1beta1.StatefulSet) *v1beta1.RollingUpdateStatefulSetStrategy {
	if OnDelete(set) {
		return nil
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}

// Paused tells whether updates are paused.
func Paused(set *v1beta1.StatefulSet) bool {
	r := Rolling(set)
	return r != nil && r.Paused
}

// Parallel tells whether Pods do not wait for each other when the set is scaled.
func Parallel(set *v1beta1.StatefulSet) bool {
	return set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
}

// Unordered is the strategy of an unordered update; nil when the update goes by ordinal.
func Unordered(set *v1beta1.StatefulSet) *v1beta1.UnorderedUpdateStrategy {
	if r := Rolling(set); r != nil && Parallel(set) {
		return r.UnorderedUpdate
	}
	return nil
}

// Policy is the way one Pod is updated; ReCreate when nothing is said.
func Policy(set *v1beta1.StatefulSet) v1beta1.PodUpdatePolicyType {
	if r := Rolling(set); r != nil && r.PodUpdatePolicy != "" {
		return r.PodUpdatePolicy
	}
	return v1beta1.RecreatePodUpdatePolicyType
}

// Partition is how many Pods stay at the current revision, at most all.
func Partition(set *v1beta1.StatefulSet) int {
	r := Rolling(set)
	if r == nil || r.Partition == nil {
		return 0
	}
	return max(0, min(int(*r.Partition), Replicas(set)))
}

// MaxUnavailable is how many Pods may be unavailable during an update.
func MaxUnavailable(set *v1beta1.StatefulSet) int {
	r := Rolling(set)
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	return share(r.MaxUnavailable, Replicas(set))
}

// MinReadySeconds is how long a Pod must have been ready to be available; 0 under OnDelete.
func MinReadySeconds(set *v1beta1.StatefulSet) int32 {
	r := Rolling(set)
	if r == nil || r.MinReadySeconds == nil {
		return 0
	}
	return *r.MinReadySeconds
}

func share(v *intstr.IntOrString, replicas int) int {
	n, err := percent.Of(*v, int32(replicas), percent.Down)
	if err != nil {
		return 1
	}
	return max(1, int(n))
}

// ExpandsClaims tells whether claims grow with their templates (statefulset.md 10).
func ExpandsClaims(set *v1beta1.StatefulSet, g Gates) bool {
	return g.AutoResizePVC && set.Spec.VolumeClaimUpdateStrategy.Type == v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
}

// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// defaultBurst is what an absent burstReplicas means.
const defaultBurst = 250

// Limits are the numbers of nodes that a DaemonSet's spec sets, rounded. All percentages
// are of the nodes that should have a Pod now: those of the status lag behind nodes that
// join, and are zero in the beginning (daemonset.md 7.4 and 12, no. 9).
type Limits struct {
	// Desired is how many nodes should have a Pod.
	Desired int
	// Partition is how many nodes stay at the old revision.
	Partition int
	// MaxUnavailable is how many nodes may be without an available Pod during an update.
	MaxUnavailable int
	// MaxSurge is how many nodes may have a new Pod beside the old one; 0 is that Pods are
	// deleted first.
	MaxSurge int
	// Burst is how many Pods one pass creates, deletes and updates in place, each for
	// itself; at least 1.
	Burst int
}

// LimitsOf computes the limits of set on so many desired nodes. What admission refuses
// counts as the value that moves nothing, but never as one that stops the controller.
func LimitsOf(set *v1beta1.DaemonSet, desired int) Limits {
	l := Limits{Desired: desired, Burst: defaultBurst}
	if b := set.Spec.BurstReplicas; b != nil {
		l.Burst = max(1, orElse(b, desired, percent.Down, defaultBurst))
	}
	r := rolling(set)
	if r == nil {
		return l
	}
	if r.Partition != nil {
		l.Partition = max(0, orElse(r.Partition, desired, percent.Down, math.MaxInt32))
	}
	if r.MaxSurge != nil {
		l.MaxSurge = max(0, orElse(r.MaxSurge, desired, percent.Up, 0))
	}
	if r.MaxUnavailable != nil {
		l.MaxUnavailable = max(0, orElse(r.MaxUnavailable, desired, percent.Up, 0))
	}
	if l.MaxSurge == 0 && l.MaxUnavailable == 0 {
		l.MaxUnavailable = 1
	}
	return l
}

func orElse(v *intstr.IntOrString, desired int, r percent.Rounding, fallback int) int {
	n, err := percent.Of(*v, int32(desired), r)
	if err != nil {
		return fallback
	}
	return int(n)
}

// OnDelete tells whether Pods are updated only when somebody deletes them.
func OnDelete(set *v1beta1.DaemonSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

// rolling is the rollingUpdate block, empty when absent; nil under OnDelete, also when it
// is there.
func rolling(set *v1beta1.DaemonSet) *v1beta1.RollingUpdateDaemonSet {
	switch r := set.Spec.UpdateStrategy.RollingUpdate; {
	case OnDelete(set):
		return nil
	case r == nil:
		return &v1beta1.RollingUpdateDaemonSet{}
	default:
		return r
	}
}

// Paused tells whether updates are paused; Pods are created and deleted all the same.
func Paused(set *v1beta1.DaemonSet) bool {
	r := rolling(set)
	return r != nil && r.Paused
}

// InPlace tells whether Pods are updated in place where that is possible.
func InPlace(set *v1beta1.DaemonSet) bool {
	r := rolling(set)
	return r != nil && r.RollingUpdateType == v1beta1.InplaceRollingUpdateType
}

func partitionedScaling(set *v1beta1.DaemonSet) bool {
	return set.Spec.ScaleStrategy != nil && set.Spec.ScaleStrategy.PartitionedScaling
}

// Backoff is the wait between deletions of Pods that fail on one node: the controller and
// the kubelet would fight otherwise (daemonset.md 12, no. 7).
type Backoff struct {
	// Since is the last deletion.
	Since time.Time
	// Delay is how long after it the next one is due.
	Delay time.Duration
}

const (
	firstBackoff = time.Second
	maxBackoff   = 15 * time.Minute
)

// Left is how long the next deletion has to wait; 0 when it may come now.
func (b Backoff) Left(now time.Time) time.Duration {
	return max(0, b.Since.Add(b.Delay).Sub(now))
}

// Next is the backoff after a deletion at now. It starts anew when the node was quiet for
// twice the longest delay.
func (b Backoff) Next(now time.Time) Backoff {
	if b.Delay == 0 || now.Sub(b.Since) > 2*maxBackoff {
		return Backoff{Since: now, Delay: firstBackoff}
	}
	return Backoff{Since: now, Delay: min(2*b.Delay, maxBackoff)}
}

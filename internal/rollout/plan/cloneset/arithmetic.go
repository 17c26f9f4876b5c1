// SPDX-License-Identifier: Apache-2.0

package cloneset

// PodFacts is what the arithmetic needs to know of one active Pod.
type PodFacts struct {
	// New: at the update revision. In the scale flavour, with gate PreparingUpdateAsUpdate,
	// a Pod in PreparingUpdate counts as new too.
	New bool
	// PreparingDelete: in that lifecycle state.
	PreparingDelete bool
	// Specified: marked by label or named in podsToDelete.
	Specified bool
	// Available: state Normal, and ready for minReadySeconds.
	Available bool
}

// Situation is the rest of the input.
type Situation struct {
	Limits
	// SameRevision: current and update revision are equal.
	SameRevision bool
	// PartitionRollback is the gate CloneSetPartitionRollback.
	PartitionRollback bool
	// ExcludePreparingDelete keeps Pods in PreparingDelete out of the count.
	ExcludePreparingDelete bool
	// InPlace: every Pod to update can be updated in place. Surge is then left to Pods that
	// are deleted, unless nothing moves without it: OpenKruise makes surge Pods and deletes
	// old ones at the end instead.
	InPlace bool
}

// Numbers is the outcome: how many Pods to create, delete and update (cloneset.md 10.1).
type Numbers struct {
	// UseSurge is how many surge Pods are wanted now, UseSurgeOld how many of them at the
	// current revision.
	UseSurge, UseSurgeOld int
	// ScaleUp Pods are missing, ScaleUpOld of them at the current revision; only
	// ScaleUpLimit of them may be created now.
	ScaleUp, ScaleUpOld, ScaleUpLimit int
	// ScaleDown Pods are too many, besides those specified; up to ScaleDownOld of them
	// are taken from those at the current revision.
	ScaleDown, ScaleDownOld int
	// DeleteReadyLimit is how many available Pods may be deleted now.
	DeleteReadyLimit int
	// UpdateNum Pods are to be updated; when negative, so many go back to the current
	// revision.
	UpdateNum int
	// UpdateMaxUnavailable is how many Pods may be unavailable during the update: negative
	// while Pods are missing.
	UpdateMaxUnavailable int
	// Unavailable is how many Pods are unavailable, those specified to be deleted aside.
	Unavailable int
}

// tally counts Pods by kind; index 1 is new, 0 is old.
type tally struct {
	all, preparing, specified, unavailable [2]int
}

func countPods(pods []PodFacts) (t tally) {
	for _, p := range pods {
		side := 0
		if p.New {
			side = 1
		}
		t.all[side]++
		switch {
		case p.PreparingDelete:
			t.preparing[side]++
		case p.Specified:
			t.specified[side]++
		case !p.Available:
			t.unavailable[side]++
		}
	}
	return t
}

func sum(a [2]int) int { return a[0] + a[1] }

// Compute is the arithmetic of cloneset.md 10.1.
func Compute(s Situation, pods []PodFacts) Numbers {
	t := countPods(pods)
	active := sum(t.all)
	deleted := sum(t.specified)
	oldDiff := t.all[0] - t.preparing[0] - s.Partition
	newDiff := t.all[1] - t.preparing[1] - (s.Replicas - s.Partition)
	if s.SameRevision || !s.PartitionRollback {
		oldDiff, newDiff = max(oldDiff, 0), min(newDiff, 0)
	}

	n := Numbers{
		Unavailable:          sum(t.preparing) + sum(t.unavailable),
		UpdateMaxUnavailable: s.MaxUnavailable + active - s.Replicas,
	}
	switch {
	case oldDiff*newDiff > 0:
		// Too many, or too few, of both: that is for scaling. Updating would move a Pod
		// away from where it is wanted.
	case abs(oldDiff) <= abs(newDiff):
		n.UpdateNum = oldDiff
	default:
		n.UpdateNum = -newDiff
	}
	n.UseSurge, n.UseSurgeOld = surge(s, t, oldDiff, newDiff, n.Unavailable)

	count, oldCount := active, t.all[0]
	if s.ExcludePreparingDelete {
		count, oldCount = count-sum(t.preparing), oldCount-t.preparing[0]
	}
	want, wantOld := s.Replicas+n.UseSurge, s.Partition+n.UseSurgeOld
	if up := want - count; up > 0 {
		n.ScaleUp, n.ScaleUpLimit = up, up
		n.ScaleUpOld = max(wantOld-oldCount, 0)
		if s.ScaleMaxUnavailable != nil {
			n.ScaleUpLimit = min(up, max(*s.ScaleMaxUnavailable-n.Unavailable, 0))
		}
	}
	if down := count - deleted - want; down > 0 {
		n.ScaleDown = down
		n.ScaleDownOld = max(oldCount-t.specified[0]-wantOld, 0)
	}
	if deleted > 0 || n.ScaleDown > 0 {
		n.DeleteReadyLimit = max(n.UpdateMaxUnavailable-n.Unavailable, 0)
	}
	return n
}

// surge returns how many surge Pods are of use now, and how many of them at the current
// revision: for Pods that cannot be deleted within maxUnavailable, or for the update.
func surge(s Situation, t tally, oldDiff, newDiff, unavailable int) (use, old int) {
	if s.MaxSurge <= 0 {
		return 0, 0
	}
	deleted := sum(t.specified)
	forDelete, forDeleteOld := 0, 0
	if deleted > 0 {
		forDelete = min(max(unavailable+deleted-s.MaxUnavailable, 0), deleted)
		forDeleteOld = max(forDelete-t.specified[1], 0)
	}
	forUpdate, forUpdateOld := 0, 0
	if oldDiff*newDiff < 0 && !(s.InPlace && s.MaxUnavailable > 0) {
		forUpdate = min(abs(oldDiff), abs(newDiff))
		if abs(oldDiff) <= abs(newDiff) && oldDiff < 0 || abs(oldDiff) > abs(newDiff) && newDiff > 0 {
			forUpdateOld = forUpdate
		}
	}
	if forDelete >= forUpdate {
		use, old = forDelete, forDeleteOld
	} else {
		use, old = forUpdate, forUpdateOld
	}
	use = min(s.MaxSurge, use)
	return use, min(use, old)
}

func abs(n int) int { return max(n, -n) }

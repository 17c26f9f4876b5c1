// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

// AbortedAnnotation names the revision that an abort took back; a retry puts it on again.
const AbortedAnnotation = "cli.kruise.io/aborted-revision"

// PartitionFor turns how many Pods are to be updated, N or P%, into the partition of w's
// kind. replicas is how many Pods it wants.
func PartitionFor(w adapter.Workload, text string, replicas int) (intstr.IntOrString, error) {
	if text == "0" && w.PercentPartition {
		return intstr.FromString("100%"), nil // no Pod, also after scaling
	}
	v, err := Updated(text, replicas)
	if err != nil || w.PercentPartition {
		return v, err
	}
	return Fixed(v, replicas)
}

// Advance sets the partition and clears the pause, in one patch with the changes before it.
func Advance(partition intstr.IntOrString, changes ...Change) Change {
	return func(w adapter.Workload) ([]Op, error) {
		lists := make([][]Op, 0, len(changes)+2)
		for _, c := range changes {
			ops, err := c(w)
			if err != nil {
				return nil, err
			}
			lists = append(lists, ops)
		}
		ops, err := Partition(partition)(w)
		if err != nil {
			return nil, err
		}
		lists = append(lists, ops)
		if w.Paused() {
			lists = append(lists, Unset(w, w.At.Paused))
		}
		return Join(lists...), nil
	}
}

// Abort returns every Pod to the revision to: its template, partition 0 and no pause, in
// one patch that also notes which revision was taken back.
func Abort(to adapter.Revision) Change {
	return func(w adapter.Workload) ([]Op, error) {
		back, err := Undo(to, UndoOptions{Resume: true})(w)
		if err != nil {
			return nil, err
		}
		none, err := Partition(intstr.FromInt32(0))(w)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(back, func(o Op) bool { return o.Path == w.At.Partition.Pointer() }) {
			none = nil // undo clears it already
		}
		ops := Join(back, none)
		if aborted := w.UpdateRevision(); len(ops) > 0 && aborted != "" && aborted != to.Name {
			ops = Join(ops, Annotate(w, AbortedAnnotation, aborted))
		}
		return ops, nil
	}
}

// Retry puts the template of an aborted revision on again, for as many Pods as partition
// lets, and forgets that it was aborted.
func Retry(to adapter.Revision, partition intstr.IntOrString) Change {
	template := func(w adapter.Workload) ([]Op, error) { return Undo(to, UndoOptions{KeepPartition: true})(w) }
	forget := func(w adapter.Workload) ([]Op, error) {
		return Unset(w, adapter.Path{"metadata", "annotations", AbortedAnnotation}), nil
	}
	return Advance(partition, template, forget)
}

// AbortTarget is the revision that an abort returns Pods to: the current one, or where the
// status names none, that at which most Pods are that are not at the update revision.
func AbortTarget(w adapter.Workload, list []adapter.Revision) (adapter.Revision, error) {
	if current := w.CurrentRevision(); current != "" {
		if current == w.UpdateRevision() {
			return adapter.Revision{}, nil
		}
		if r, ok := adapter.FindRevision(list, current); ok {
			return r, nil
		}
		return adapter.Revision{}, fmt.Errorf("its current revision %s is not stored any more", current)
	}
	best := adapter.Revision{}
	for _, r := range list {
		if !r.Has(adapter.RoleUpdate) && r.Pods > 0 && r.Pods >= best.Pods {
			best = r
		}
	}
	return best, nil
}

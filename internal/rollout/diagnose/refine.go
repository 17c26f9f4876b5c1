// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
)

// Refine adds to the facts of s what the workload alone does not tell: the number of its
// update revision, the Pods that a node selector leaves out, and the Pods that a partition
// holds at a revision which was taken back (cli.md 3.4).
func Refine(s *Snapshot) {
	update, _ := stored(*s, s.Facts.UpdateRevision, "")
	if update == nil {
		return
	}
	s.Facts.RevisionNumber = update.Revision
	selected(s)
	counted(s)
	if s.Facts.CurrentRevision != "" || s.Facts.Partition.Keep == 0 {
		return
	}
	for _, p := range s.Pods {
		at := p.Labels[appsv1.ControllerRevisionHashLabelKey]
		for _, r := range s.Stored {
			if r != update && revision.SameRevision(at, r.Name) && r.CreationTimestamp.After(update.CreationTimestamp.Time) {
				s.Facts.HeldNewer++
			}
		}
	}
}

// counted replaces the estimate of how many updated Pods are ready and available by their
// number, where the status does not have it.
func counted(s *Snapshot) {
	f := &s.Facts
	if !f.AllAvailable || s.Pods == nil {
		return
	}
	ready := 0
	for _, p := range s.Pods {
		if PodReady(p) && revision.SameRevision(p.Labels[appsv1.ControllerRevisionHashLabelKey], f.UpdateRevision) {
			ready++
		}
	}
	f.UpdatedReady = min(ready, f.Updated)
	if f.Ready == f.Available { // nobody waits for minReadySeconds
		f.UpdatedAvailable = f.UpdatedReady
	}
}

// selected lowers the target to the Pods on nodes that the update is limited to.
func selected(s *Snapshot) {
	sel, err := s.Workload.NodeSelector()
	if err != nil || sel == nil || s.Pods == nil || !s.AllNodes {
		return
	}
	count := 0
	for _, p := range s.Pods {
		if n := s.Nodes[daemonset.TargetNode(p)]; n != nil && sel.Matches(labels.Set(n.Labels)) {
			count++
		}
	}
	f := &s.Facts
	if count < f.Partition.Target {
		f.Partition.Selector, f.Partition.Target, f.Partition.Keep = sel.String(), count, f.Desired-count
	}
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"github.com/kruisectl/kruisectl/internal/events"
)

// Reasons of events that only this kind has (statefulset.md 12); tools match them.
const (
	eventResized      = "SuccessfulResize"
	eventResizeFailed = "FailedResize"
	eventClaimBlocked = "FailedUpdatePVC"
)

// event sends an event about the StatefulSet of snap.
func (r *Reconciler) event(snap *snapshot, kind, reason, format string, args ...any) {
	events.Send(r.events, snap.Set, kind, reason, format, args...)
}

// deed is something done to a child: the verb of its events and their two reasons.
type deed struct{ verb, done, failed string }

var (
	creating  = deed{"create", events.Created, events.CreateFailed}
	repairing = deed{"update", events.Updated, events.UpdateFailed}
	deleting  = deed{"delete", events.Deleted, events.DeleteFailed}
	resizing  = deed{"resize", eventResized, eventResizeFailed}
)

// podEvent reports what became of a Pod.
func (r *Reconciler) podEvent(snap *snapshot, d deed, pod string, err error) {
	if err == nil {
		r.event(snap, events.Normal, d.done, "%s Pod %s in StatefulSet %s successful", d.verb, pod, snap.Set.Name)
		return
	}
	r.event(snap, events.Warning, d.failed, "%s Pod %s in StatefulSet %s failed error: %v", d.verb, pod, snap.Set.Name, err)
}

// claimEvent reports what became of a claim of a Pod.
func (r *Reconciler) claimEvent(snap *snapshot, d deed, claim, pod string, err error) {
	if err == nil {
		r.event(snap, events.Normal, d.done, "%s Claim %s Pod %s in StatefulSet %s success", d.verb, claim, pod, snap.Set.Name)
		return
	}
	r.event(snap, events.Warning, d.failed, "%s Claim %s for Pod %s in StatefulSet %s failed error: %v", d.verb, claim, pod, snap.Set.Name, err)
}

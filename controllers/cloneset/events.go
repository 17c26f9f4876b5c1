// SPDX-License-Identifier: Apache-2.0

package cloneset

import "github.com/kruisectl/kruisectl/internal/events"

// event sends an event about the CloneSet of snap (cloneset.md 14).
func (r *Reconciler) event(snap *snapshot, kind, reason, format string, args ...any) {
	events.Send(r.events, snap.Set, kind, reason, format, args...)
}

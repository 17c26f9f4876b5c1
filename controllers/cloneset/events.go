// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events (cloneset.md 14); tools match them.
const (
	eventCreated            = "SuccessfulCreate"
	eventCreateFailed       = "FailedCreate"
	eventDeleted            = "SuccessfulDelete"
	eventDeleteFailed       = "FailedDelete"
	eventClaimUpdateFailed  = "FailedUpdate"
	eventScaleUpLimited     = "ScaleUpLimited"
	eventUpdatedInPlace     = "SuccessfulUpdatePodInPlace"
	eventInPlaceFailed      = "FailedUpdatePodInPlace"
	eventMarked             = "SuccessfulUpdatePodReCreate"
	eventMarkFailed         = "FailedUpdatePodReCreate"
	eventJobCreated         = "CreatedImagePullJob"
	eventJobCreationFailed  = "FailedCreateImagePullJob"
	maxEventMessage         = 1000 // the API server refuses more than 1024 bytes
	eventNormal, eventWarns = corev1.EventTypeNormal, corev1.EventTypeWarning
)

// event sends an event about the CloneSet of snap.
func (r *Reconciler) event(snap *snapshot, kind, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxEventMessage {
		message = message[:maxEventMessage] + "…"
	}
	r.events.Event(snap.Set, kind, reason, message)
}

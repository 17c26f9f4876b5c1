// SPDX-License-Identifier: Apache-2.0

// Package events holds what the controllers share about Kubernetes events: the reasons that
// tools match, the cut of messages, and recorders whose spam filter counts per reason.
package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Reasons of events of workloads (cloneset.md 14, statefulset.md 12, daemonset.md 10).
const (
	Created           = "SuccessfulCreate"
	CreateFailed      = "FailedCreate"
	Updated           = "SuccessfulUpdate"
	UpdateFailed      = "FailedUpdate"
	Deleted           = "SuccessfulDelete"
	DeleteFailed      = "FailedDelete"
	ScaleUpLimited    = "ScaleUpLimited"
	UpdatedInPlace    = "SuccessfulUpdatePodInPlace"
	InPlaceFailed     = "FailedUpdatePodInPlace"
	MarkedForDeletion = "SuccessfulUpdatePodReCreate"
	MarkFailed        = "FailedUpdatePodReCreate"
	JobCreated        = "CreatedImagePullJob"
	JobCreationFailed = "FailedCreateImagePullJob"
)

// The types of events.
const (
	Normal  = corev1.EventTypeNormal
	Warning = corev1.EventTypeWarning
)

// maxMessage keeps below the 1024 bytes that the API server takes.
const maxMessage = 1000

// Send sends an event about object; kind is Normal or Warning. A message that is too long
// is cut.
func Send(to record.EventRecorder, object runtime.Object, kind, reason, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	to.Event(object, kind, reason, message)
}

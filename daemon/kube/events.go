// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// Events makes recorders of events. Each reason of an object has its own allowance, so that
// a flood of one does not silence another.
type Events struct {
	client      *Client
	broadcaster record.EventBroadcaster
}

// NewEvents starts sending what its recorders get. Stop ends it.
func NewEvents(ctx context.Context, c *Client) *Events {
	e := &Events{client: c, broadcaster: record.NewBroadcaster(
		record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}))}
	e.broadcaster.StartRecordingToSink(&sink{ctx: ctx, core: c.groups[corev1.SchemeGroupVersion]})
	return e
}

// Recorder returns the recorder of one component on a node.
func (e *Events) Recorder(component, node string) record.EventRecorder {
	return e.broadcaster.NewRecorder(e.client.scheme, corev1.EventSource{Component: component, Host: node})
}

// Stop ends all recorders; what they get afterwards is dropped.
func (e *Events) Stop() { e.broadcaster.Shutdown() }

// spamKey is what the filter counts by: one reason of one object.
func spamKey(e *corev1.Event) string {
	o := e.InvolvedObject
	return strings.Join([]string{
		e.Source.Component, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, o.FieldPath, e.Type, e.Reason,
	}, "\x00")
}

// sink writes events. The interface that it implements has no contexts.
type sink struct {
	ctx  context.Context //nolint:containedctx // record.EventSink passes none.
	core rest.Interface
}

// Create implements record.EventSink.
func (s *sink) Create(e *corev1.Event) (*corev1.Event, error) {
	written := &corev1.Event{}
	return written, s.core.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(s.ctx).Into(written)
}

// Update implements record.EventSink.
func (s *sink) Update(e *corev1.Event) (*corev1.Event, error) {
	written := &corev1.Event{}
	return written, s.core.Put().Namespace(e.Namespace).Resource("events").Name(e.Name).Body(e).Do(s.ctx).Into(written)
}

// Patch implements record.EventSink.
func (s *sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	written := &corev1.Event{}
	return written, s.core.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(data).Do(s.ctx).Into(written)
}

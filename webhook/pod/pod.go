// SPDX-License-Identifier: Apache-2.0

// Package pod is the admission chain of Pods: steps that run in a fixed order on a Pod that
// is created (pod-webhook.md 2). Each step is a file; the order is the slice in Register.
package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// MutatePath is where the API server asks about new Pods.
const MutatePath = "/mutate-pod"

// request is what a step sees. Steps change Pod, which is theirs, and must be idempotent:
// the API server retries, and users submit copies of Pods that have been here before.
type request struct {
	Pod    *corev1.Pod
	DryRun bool
}

// step is one rule of the chain. An error fails the admission of the Pod, and no later step
// runs.
type step struct {
	name  string
	apply func(ctx context.Context, r *request) error
}

// Register serves the chain, unless the gate PodWebhook is off. The order of the steps is
// part of the contract: the readiness gate first, as nothing later depends on it and no
// injected container may miss it; the probes last, as they may be for an injected container.
// markers reads PodProbeMarkers; it is asked only with EnablePodProbeMarkerOnServerless.
func Register(hs admit.Handlers, set *features.Set, markers client.Reader) {
	if !set.Enabled(features.PodWebhook) {
		return
	}
	steps := chain{readinessGate(set.Enabled(features.KruisePodReadinessGate))}
	if set.Enabled(features.EnablePodProbeMarkerOnServerless) {
		steps = append(steps, podProbes(markers))
	}
	hs.Add(steps, MutatePath)
}

type chain []step

// Handle implements admission.Handler.
func (c chain) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" || req.Kind.Group != "" || req.Kind.Kind != "Pod" {
		return admission.Allowed("")
	}
	before := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, before); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the Pod: %w", err))
	}
	after := before.DeepCopy()
	if after.Namespace == "" { // a client may leave it to the request path
		before.Namespace, after.Namespace = req.Namespace, req.Namespace
	}
	r := &request{Pod: after, DryRun: req.DryRun != nil && *req.DryRun}
	for _, s := range c {
		if err := s.apply(ctx, r); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return admit.PatchResponse(req.Object.Raw, before, after)
}

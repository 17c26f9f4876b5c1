// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"context"
	"encoding/json"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func nameOf(r *v1beta1.ContainerRecreateRequest) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// writePhase brings the status of r to want if r is still what the API server has: a request
// that has ended in the meantime must not begin again. If it is not, the newer version is
// remembered, no error is returned, and the caller looks again.
func (w *Worker) writePhase(ctx context.Context, r *v1beta1.ContainerRecreateRequest, want v1beta1.ContainerRecreateRequestStatus) error {
	status := map[string]any{"phase": want.Phase}
	if want.CompletionTime != nil {
		status["completionTime"] = want.CompletionTime
		status["conditions"] = want.Conditions
	}
	if want.Message != "" {
		status["message"] = want.Message
	}
	if !apiequality.Semantic.DeepEqual(want.ContainerRecreateStates, r.Status.ContainerRecreateStates) {
		status["containerRecreateStates"] = want.ContainerRecreateStates
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": r.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encoding the status of request %s: %w", nameOf(r), err)
	}
	written, err := w.o.Store.PatchStatus(ctx, nameOf(r), types.MergePatchType, patch)
	switch {
	case err == nil:
		w.known.Saw(written, w.now())
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		_, _, err = w.refresh(ctx, r)
		return err
	}
	return fmt.Errorf("writing phase %s of request %s: %w", want.Phase, nameOf(r), err)
}

// writeStates replaces the states of the containers, which nobody else writes, whatever else
// has changed: what was done on the node is also told to a request that has ended.
func (w *Worker) writeStates(ctx context.Context, r *v1beta1.ContainerRecreateRequest, states []v1beta1.RecreateState) error {
	patch, err := json.Marshal([]map[string]any{
		// Another request may have taken the name while a container was being stopped.
		{"op": "test", "path": "/metadata/uid", "value": r.UID},
		{"op": "add", "path": "/status/containerRecreateStates", "value": states},
	})
	if err != nil {
		return fmt.Errorf("encoding the states of request %s: %w", nameOf(r), err)
	}
	written, err := w.o.Store.PatchStatus(ctx, nameOf(r), types.JSONPatchType, patch)
	switch {
	case err == nil:
		w.known.Saw(written, w.now())
		return nil
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		_, exists, liveErr := w.refresh(ctx, r)
		if liveErr != nil {
			return liveErr
		}
		if !exists {
			return nil
		}
	}
	return fmt.Errorf("writing the states of request %s: %w", nameOf(r), err)
}

// refresh learns what the API server knows of r; false when it does not exist any more.
func (w *Worker) refresh(ctx context.Context, r *v1beta1.ContainerRecreateRequest) (*v1beta1.ContainerRecreateRequest, bool, error) {
	live, err := w.o.Store.Request(ctx, nameOf(r))
	if apierrors.IsNotFound(err) || err == nil && live.UID != r.UID {
		w.known.Gone(r, w.now())
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading request %s: %w", nameOf(r), err)
	}
	w.known.Saw(live, w.now())
	return live, true, nil
}

// reportStops tells requests which of their containers were stopped. Nothing else is done for
// the Pod before that has succeeded.
func (w *Worker) reportStops(ctx context.Context, key Key) error {
	for {
		w.mu.Lock()
		if len(w.stopped[key]) == 0 {
			delete(w.stopped, key)
			w.mu.Unlock()
			return nil
		}
		s := w.stopped[key][0]
		w.mu.Unlock()
		r, exists, err := w.newest(ctx, s.request)
		if err != nil {
			return err
		}
		if exists {
			states := Ended(r.Status.ContainerRecreateStates, s.target.Name, s.err)
			if !apiequality.Semantic.DeepEqual(states, r.Status.ContainerRecreateStates) {
				if err := w.writeStates(ctx, r, states); err != nil {
					return err
				}
			}
		} else {
			klog.FromContext(ctx).Info("A request is gone that a container was stopped for", "request", nameOf(s.request), "container", s.target.Name)
		}
		w.mu.Lock()
		w.stopped[key] = w.stopped[key][1:]
		w.mu.Unlock()
	}
}

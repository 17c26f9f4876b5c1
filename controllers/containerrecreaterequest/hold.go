// SPDX-License-Identifier: Apache-2.0

package containerrecreaterequest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

// drain takes the Pod out of service for the request and says so in its status. The
// finalizer comes first: whatever happens afterwards, the Pod is let go at the end.
func (r *Reconciler) drain(ctx context.Context, request *v1beta1.ContainerRecreateRequest, pod *corev1.Pod, seen []v1beta1.ContainerSnapshot) error {
	if holds(pod) {
		var err error
		if request, err = r.addFinalizer(ctx, request); err != nil {
			return err
		}
		if _, err := r.pods.Hold(ctx, pod, recreate.Holder(request)); apierrors.IsNotFound(err) {
			return nil // the event about the Pod ends the request
		} else if err != nil {
			return fmt.Errorf("taking the Pod out of service: %w", err)
		}
	} else {
		log.FromContext(ctx).Info("The Pod cannot be taken out of service: it lacks the readiness gate", "pod", pod.Name, "gate", v1beta1.KruisePodReady)
	}
	// The time must never move once it is written: that would make the grace period endless.
	// The lock makes sure of it.
	fields := map[string]any{"conditions": drained(request.Status.Conditions, request.Generation, r.clock.Now())}
	if seen != nil {
		fields["containerStatusSnapshot"] = seen
	}
	if err := r.patchStatus(ctx, request, fields, true); err != nil {
		return fmt.Errorf("writing condition %s: %w", v1beta1.PreRecreateGraceCondition, err)
	}
	return nil
}

// drained adds the condition that starts the grace period.
func drained(conditions []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == v1beta1.PreRecreateGraceCondition })
	return append(conditions, metav1.Condition{
		Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue,
		Reason: v1beta1.PreRecreateGraceCondition, Message: v1beta1.PreRecreateGraceMessage,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), ObservedGeneration: generation,
	})
}

func (r *Reconciler) addFinalizer(ctx context.Context, request *v1beta1.ContainerRecreateRequest) (*v1beta1.ContainerRecreateRequest, error) {
	if slices.Contains(request.Finalizers, v1beta1.RecreateUnreadyFinalizer) {
		return request, nil
	}
	written, err := r.patchMetadata(ctx, request, map[string]any{
		"finalizers": append(slices.Clone(request.Finalizers), v1beta1.RecreateUnreadyFinalizer),
	})
	if err != nil {
		return nil, fmt.Errorf("adding the finalizer: %w", err)
	}
	return written, nil
}

// cleanUp lets the Pod be ready again, then takes finalizer and active label off in one write.
func (r *Reconciler) cleanUp(ctx context.Context, request *v1beta1.ContainerRecreateRequest, plan Plan) error {
	metadata := map[string]any{}
	if plan.Release {
		if err := r.release(ctx, request); err != nil {
			return err
		}
		metadata["finalizers"] = slices.DeleteFunc(slices.Clone(request.Finalizers), func(f string) bool { return f == v1beta1.RecreateUnreadyFinalizer })
	}
	if plan.Deactivate {
		metadata["labels"] = map[string]any{v1beta1.RecreateActiveLabel: nil}
	}
	if _, err := r.patchMetadata(ctx, request, metadata); err != nil {
		return fmt.Errorf("cleaning the request up: %w", err)
	}
	return nil
}

// release reads the Pod from the API server: a cache that does not show our own hold yet
// would make it stay for ever.
func (r *Reconciler) release(ctx context.Context, request *v1beta1.ContainerRecreateRequest) error {
	pod := &corev1.Pod{}
	err := r.live.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}, pod)
	if err == nil && pod.DeletionTimestamp == nil && string(pod.UID) == request.Labels[v1beta1.RecreatePodUIDLabel] {
		_, err = r.pods.Release(ctx, pod, recreate.Holder(request))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("putting the Pod back into service: %w", err)
	}
	return nil
}

// patchMetadata writes to the version seen alone, as a list of finalizers is replaced as a whole.
func (r *Reconciler) patchMetadata(ctx context.Context, request *v1beta1.ContainerRecreateRequest, metadata map[string]any) (*v1beta1.ContainerRecreateRequest, error) {
	metadata["resourceVersion"] = request.ResourceVersion
	raw, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata: %w", err)
	}
	written := &v1beta1.ContainerRecreateRequest{}
	written.Namespace, written.Name = request.Namespace, request.Name
	if err := r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return nil, err
	}
	r.known.Saw(written, r.clock.Now())
	return written, nil
}

// remove deletes the request after its time.
func (r *Reconciler) remove(ctx context.Context, request *v1beta1.ContainerRecreateRequest) error {
	err := r.client.Delete(ctx, request, client.Preconditions{UID: &request.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the request after its TTL: %w", err)
	}
	r.known.Gone(request, r.clock.Now())
	log.FromContext(ctx).Info("Deleted a request after its TTL")
	return nil
}

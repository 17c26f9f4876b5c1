// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write brings base, as the server has it, to want, and returns the Pod as written.
// Conditions, labels and annotations go in one request to pods/status; whatever the
// server did not take from there, and a changed spec, goes in a request to pods.
func (u *Updater) write(ctx context.Context, base, want *corev1.Pod) (*corev1.Pod, error) {
	cur := base
	if !equality.Semantic.DeepEqual(base.Status, want.Status) {
		next := cur.DeepCopy()
		next.Status = *want.Status.DeepCopy()
		if equality.Semantic.DeepEqual(base.Spec, want.Spec) && equality.Semantic.DeepEqual(base.Finalizers, want.Finalizers) {
			next.Labels, next.Annotations = maps.Clone(want.Labels), maps.Clone(want.Annotations)
		}
		var err error
		if cur, err = u.patchStatus(ctx, cur, next); err != nil {
			return nil, err
		}
	}
	if sameBesidesStatus(cur, want) {
		return cur, nil
	}
	next := cur.DeepCopy()
	next.Labels, next.Annotations, next.Finalizers = maps.Clone(want.Labels), maps.Clone(want.Annotations), append([]string(nil), want.Finalizers...)
	next.Spec = *want.Spec.DeepCopy()
	if err := u.Client.Patch(ctx, next, patchFrom(cur)); err != nil {
		return nil, fmt.Errorf("patching Pod %s: %w", client.ObjectKeyFromObject(base), err)
	}
	return next, nil
}

func sameBesidesStatus(a, b *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// patchStatus sends next to pods/status, also when it equals base: the answer then says
// whether the server still has that version.
func (u *Updater) patchStatus(ctx context.Context, base, next *corev1.Pod) (*corev1.Pod, error) {
	next = next.DeepCopy()
	if err := u.Client.Status().Patch(ctx, next, patchFrom(base)); err != nil {
		return nil, fmt.Errorf("patching the status of Pod %s: %w", client.ObjectKeyFromObject(base), err)
	}
	return next, nil
}

// patchFrom makes patches relative to base that the server refuses with a conflict if it
// has another version. A patch, unlike an update, keeps fields that this program's types
// do not know.
func patchFrom(base *corev1.Pod) client.Patch {
	return client.StrategicMergeFrom(base.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

// Rejected is the error of a change that the API server will never accept for this Pod,
// such as a resize it forbids. A workload that may recreate Pods should do so.
type Rejected struct {
	Doing string
	Cause error
}

func (e *Rejected) Error() string { return e.Doing + ": " + e.Cause.Error() }
func (e *Rejected) Unwrap() error { return e.Cause }

// IsRejected tells whether err is, or wraps, a Rejected.
func IsRejected(err error) bool {
	var r *Rejected
	return errors.As(err, &r)
}

// resize sends quantities to pods/resize and returns the Pod as the server has it then.
func (u *Updater) resize(ctx context.Context, base *corev1.Pod, wanted map[string]corev1.ResourceRequirements, opts ...client.SubResourcePatchOption) (*corev1.Pod, error) {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var patch struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			Containers []container `json:"containers"`
		} `json:"spec"`
	}
	patch.Metadata.ResourceVersion = base.ResourceVersion
	for i := range base.Spec.Containers {
		if r, ok := wanted[base.Spec.Containers[i].Name]; ok {
			patch.Spec.Containers = append(patch.Spec.Containers, container{base.Spec.Containers[i].Name, r})
		}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding the resize of Pod %s: %w", base.Name, err)
	}
	next := base.DeepCopy()
	err = u.Client.SubResource("resize").Patch(ctx, next, client.RawPatch(types.StrategicMergePatchType, data), opts...)
	doing := fmt.Sprintf("resizing Pod %s", client.ObjectKeyFromObject(base))
	switch {
	case err == nil:
		return next, nil
	case apierrors.IsInvalid(err), refusedByNode(err):
		return nil, &Rejected{Doing: doing, Cause: err}
	case apierrors.IsNotFound(err):
		if _, liveErr := u.live(ctx, base); liveErr == nil {
			return nil, &Rejected{Doing: doing, Cause: err} // the Pod is there, the subresource is not
		}
	}
	return nil, fmt.Errorf("%s: %w", doing, err)
}

// refusedByNode tells whether a resize was forbidden because the Pod's node cannot do it,
// as newer servers say at once. A missing permission and a quota are forbidden
// too, but a new Pod would meet them as well: those are errors to try again.
func refusedByNode(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "cannot patch resource") && !strings.Contains(err.Error(), "exceeded quota")
}

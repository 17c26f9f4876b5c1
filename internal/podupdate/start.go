// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

// Start begins the update that spec describes (inplace-update.md 5): it makes the Pod not
// ready where needed, then writes revision labels, state and the first batch, or the
// grace annotation, with the mutations in the same write. pod may be from a cache and is
// not changed.
//
// It returns the Pod as last written, whose resourceVersion the caller expects to see,
// and the grace period after which to look again (0: no need). A Pod that is gone is
// reported as not found, which is no error for a workload. A change that the server
// refuses for good is a Rejected.
func (u *Updater) Start(ctx context.Context, pod *corev1.Pod, spec *inplace.UpdateSpec, target *appsv1.ControllerRevision, o inplace.Options, mutate ...Mutation) (*corev1.Pod, time.Duration, error) {
	this := *u
	got, err := this.onFresh(ctx, pod, func(cur *corev1.Pod) (*corev1.Pod, error) {
		if cur.DeletionTimestamp != nil {
			return nil, fmt.Errorf("updating Pod %s: %w", client.ObjectKeyFromObject(cur), apierrors.NewNotFound(corev1.Resource("pods"), cur.Name))
		}
		now := u.Clock.Now()
		if inplace.NeedsNotReady(cur, spec, o) {
			if r := inplace.Resizes(cur, spec, o); len(r) > 0 {
				// A Pod is not drained for a resize that the server refuses.
				if _, err := u.resize(ctx, cur, r, client.DryRunAll); err != nil {
					return nil, err
				}
			}
			// Always sent: that the cached Pod shows False already proves nothing, and a
			// Pod updated while it serves loses requests.
			var err error
			if cur, err = u.patchStatus(ctx, cur, inplace.NotReady(cur, now)); err != nil {
				return nil, err
			}
			this.once = false // it is out of service now, and the kubelet writes that
		}
		begin := func(p *corev1.Pod) (inplace.Write, error) {
			w, err := inplace.Begin(p, spec, o, now)
			if err == nil {
				o.LabelRevision(w.Pod, target)
				apply(w.Pod, mutate)
			}
			return w, err
		}
		w, err := begin(cur)
		if err != nil {
			return nil, err
		}
		return u.writeDecided(ctx, cur, w, begin)
	})
	if err != nil {
		return nil, 0, err
	}
	return got, time.Duration(spec.GraceSeconds) * time.Second, nil
}

// writeDecided writes w, the resize first: that changes the Pod's version, so the rest is
// decided again on the Pod that comes back.
func (u *Updater) writeDecided(ctx context.Context, cur *corev1.Pod, w inplace.Write, again func(*corev1.Pod) (inplace.Write, error)) (*corev1.Pod, error) {
	if len(w.Resize) > 0 {
		var err error
		if cur, err = u.resize(ctx, cur, w.Resize); err != nil {
			return nil, err
		}
		if w, err = again(cur); err != nil {
			return nil, err
		}
	}
	got, err := u.write(ctx, cur, w.Pod)
	if apierrors.IsInvalid(err) {
		return nil, &Rejected{Doing: "updating in place", Cause: err}
	}
	return got, err
}

// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

// Result is what Refresh found and did.
type Result struct {
	// Pod is the newest version known: as written, or as it was given.
	Pod *corev1.Pod
	// Changed: something was written, so the cache is behind Pod.ResourceVersion.
	Changed bool
	// Complete: nothing is left of the in-place update, and the Pod may become ready.
	Complete bool
	// RequeueAfter is when time alone brings the next step; 0 is never.
	RequeueAfter time.Duration
	// Waiting says what the update waits for.
	Waiting []inplace.Reason
}

// Refresh takes the Pod's in-place update one step further (inplace-update.md 7). It is
// to be called for every Pod in every pass, also for new Pods and paused workloads: it
// gives new Pods their first condition InPlaceUpdateReady. pod may be from a cache and is
// not changed.
//
// When nothing is left of the update, the mutations of onComplete run in the same write
// that makes the Pod ready, or in a write of their own if it is ready already and they
// change something. That write is tried once, on exactly the version of the Pod that was
// found complete: on conflict the error is returned and the next pass decides again. A
// Pod whose next update started in between is thus never declared ready.
func (u *Updater) Refresh(ctx context.Context, pod *corev1.Pod, o inplace.Options, onComplete ...Mutation) (Result, error) {
	res := Result{Pod: pod}
	got, err := u.onFreshBatch(ctx, pod, o, &res, onComplete)
	if err != nil {
		return Result{Pod: pod}, err
	}
	res.Changed = got.ResourceVersion != pod.ResourceVersion
	res.Pod = got
	return res, nil
}

// onFreshBatch does the step that is due, on conflict of a batch again on the live Pod.
func (u *Updater) onFreshBatch(ctx context.Context, pod *corev1.Pod, o inplace.Options, res *Result, onComplete []Mutation) (*corev1.Pod, error) {
	final := error(nil) // of a write that is not repeated
	got, err := u.onFresh(ctx, pod, func(cur *corev1.Pod) (*corev1.Pod, error) {
		now := u.Clock.Now()
		step := inplace.Next(cur, o, now)
		*res = Result{RequeueAfter: step.After, Waiting: step.Waiting}
		switch step.Action {
		case inplace.Invalid:
			return nil, fmt.Errorf("refreshing Pod %s: %w", client.ObjectKeyFromObject(cur), step.Err)
		case inplace.Wait:
			return cur, nil
		case inplace.DropGrace, inplace.SendBatch:
			return u.writeDecided(ctx, cur, step.Write, func(p *corev1.Pod) (inplace.Write, error) {
				return inplace.PendingBatch(p, o, now)
			})
		}
		want := cur.DeepCopy()
		if step.Action == inplace.Ready {
			want = step.Write.Pod
		}
		apply(want, onComplete)
		res.Complete = true
		next, err := u.write(ctx, cur, want)
		if err != nil {
			final = err
			return cur, nil //nolint:nilerr // final carries it past the retry
		}
		return next, nil
	})
	if final != nil {
		return nil, final
	}
	return got, err
}

// SPDX-License-Identifier: Apache-2.0

// Package podupdate carries out in-place updates of Pods: it writes what package inplace
// decides, in as few requests as possible, each of them conditional on the version of the
// Pod that was decided on.
//
// An update in one batch costs three writes: status not ready; Pod with new image, state
// and labels; status ready together with the lifecycle label. The conditions make reads
// before the writes unnecessary: the cached Pod serves for the first try, and only a
// conflict leads to a read of the API server (inplace-update.md 5 and 7).
package podupdate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/podready"
)

// attempts limits the tries of one write; each but the first starts with a live read.
const attempts = 5

// Updater writes Pods. It has no state of its own and may be used concurrently.
type Updater struct {
	// Client writes; its reads are not used.
	Client client.Client
	// Live reads Pods from the API server, not from a cache.
	Live client.Reader
	// Clock gives the times in conditions and annotations.
	Clock clock.PassiveClock

	once bool
}

// Once returns an Updater that writes only to the version of the Pod that it is given: a
// conflict is returned. It is for writes that are right only while the Pod is as it was
// seen, such as taking one out of service because it does not serve.
func (u *Updater) Once() *Updater {
	once := *u
	once.once = true
	return &once
}

// Mutation changes a copy of a Pod in the same write as the engine's own change. It may
// run more than once, each time on another version of the Pod, and may change labels,
// annotations, finalizers and conditions.
type Mutation = func(*corev1.Pod)

// Patch applies the mutations to the Pod in one write if they touch only metadata or only
// conditions and labels; nothing is sent if they change nothing. On conflict it starts
// over with the Pod as the API server has it, so mutations must decide on the Pod they are
// given. It returns the Pod as written; pod itself is not changed. A Pod that was replaced
// by another of the same name is reported as not found.
func (u *Updater) Patch(ctx context.Context, pod *corev1.Pod, mutate ...Mutation) (*corev1.Pod, error) {
	return u.onFresh(ctx, pod, func(cur *corev1.Pod) (*corev1.Pod, error) {
		want := cur.DeepCopy()
		apply(want, mutate)
		return u.write(ctx, cur, want)
	})
}

// Hold keeps the Pod not ready on behalf of h (podready.Hold).
func (u *Updater) Hold(ctx context.Context, pod *corev1.Pod, h podready.Holder) (*corev1.Pod, error) {
	return u.Patch(ctx, pod, func(p *corev1.Pod) { podready.Hold(p, h, u.Clock.Now()) })
}

// Release ends a Hold (podready.Release).
func (u *Updater) Release(ctx context.Context, pod *corev1.Pod, h podready.Holder) (*corev1.Pod, error) {
	return u.Patch(ctx, pod, func(p *corev1.Pod) { podready.Release(p, h, u.Clock.Now()) })
}

func apply(pod *corev1.Pod, mutate []Mutation) {
	for _, m := range mutate {
		m(pod)
	}
}

// onFresh runs do on pod and, after a conflict, on the live Pod.
func (u *Updater) onFresh(ctx context.Context, pod *corev1.Pod, do func(*corev1.Pod) (*corev1.Pod, error)) (*corev1.Pod, error) {
	cur := pod
	for try := 1; ; try++ {
		got, err := do(cur)
		if !apierrors.IsConflict(err) || try == attempts || u.once {
			return got, err
		}
		if cur, err = u.live(ctx, pod); err != nil {
			return nil, err
		}
	}
}

// live reads the Pod from the API server.
func (u *Updater) live(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	cur := &corev1.Pod{}
	if err := u.Live.Get(ctx, client.ObjectKeyFromObject(pod), cur); err != nil {
		return nil, fmt.Errorf("reading Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	if pod.UID != "" && cur.UID != pod.UID {
		return nil, fmt.Errorf("reading Pod %s: %w", client.ObjectKeyFromObject(pod), apierrors.NewNotFound(corev1.Resource("pods"), pod.Name))
	}
	return cur, nil
}

// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	defaultGrace = 30 * time.Second
	// minimumGrace is what remains for the process itself, however long its hook took.
	minimumGrace = 2 * time.Second
)

// KillOptions say how a container is stopped. The zero value has no hook and a grace period
// of 30 s.
type KillOptions struct {
	// Hook runs before the process gets its stop signal; nil is none.
	Hook *corev1.LifecycleHandler
	// Ports are those that a hook over HTTP may name.
	Ports []corev1.ContainerPort
	// Grace is for the hook and the process together. Zero kills the process at once and
	// without the hook; in all other cases the process has 2 s at least. Nil is 30 s.
	Grace *time.Duration
	// PodIP is for hooks over HTTP that name no host.
	PodIP string
}

// Kill stops a container the way the kubelet does: the hook, then the stop signal, all within
// the grace period. It returns when the container has exited. hookErr is that of the hook;
// the container is stopped all the same. A hook that outlives the grace period is not waited
// for, and ends with the container; a container that does not run gets none. Rules:
// container-recreate.md 6.3.
func Kill(ctx context.Context, rt Runtime, c Status, o KillOptions) (hookErr, err error) {
	grace := defaultGrace
	if o.Grace != nil {
		grace = *o.Grace
	}
	if grace <= 0 {
		return nil, rt.Stop(ctx, c.ID, 0)
	}
	if o.Hook != nil && c.State == StateRunning {
		started := time.Now()
		hook := startHook(ctx, rt, c.ID, o, grace)
		defer hook.end()
		hookErr = hook.within(grace)
		grace -= time.Since(started).Truncate(time.Second)
	}
	return hookErr, rt.Stop(ctx, c.ID, max(grace, minimumGrace))
}

// AnnotatedKill are the options that the kubelet wrote on the container for itself. The error
// is that of an unreadable hook, which is left out then.
func AnnotatedKill(c Status) (KillOptions, error) {
	o := KillOptions{Grace: new(gracePeriod(c.Annotations))}
	var err error
	if o.Hook, err = preStop(c.Annotations); err != nil || o.Hook == nil || o.Hook.HTTPGet == nil {
		return o, err
	}
	o.Ports, err = ports(c.Annotations)
	if err != nil {
		err = fmt.Errorf("looking for the ports of the hook: %w", err)
	}
	return o, err
}

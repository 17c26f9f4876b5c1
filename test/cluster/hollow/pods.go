// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// syncPod does what Next says about one Pod.
func (s *simulation) syncPod(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	pod, err := s.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	number := s.nodes[pod.Spec.NodeName]
	if _, down := s.down.Load(pod.Spec.NodeName); number == 0 || down {
		return nil
	}
	rec := s.recall(key, pod)
	if rec.written != nil {
		pod = rec.written // the cache does not know our last write yet
	}
	host := Host{IP: hostIP(number).String()}
	if pod.Status.PodIP == "" {
		host.PodIP = s.ips.next()
	}
	out := Next(pod, host, rec.memory, time.Now(), s.options.Behaviour)
	if out.Status != nil {
		written, err := s.writeStatus(ctx, pod, out.Status)
		if err != nil {
			return ignoreGone(err)
		}
		rec.written = written
	}
	if out.Delete {
		err := s.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if err := ignoreGone(err); err != nil {
			return err
		}
	}
	rec.memory = out.Memory
	s.remember(key, rec)
	if out.Again > 0 {
		s.podWork.AddAfter(key, out.Again)
	}
	return nil
}

// ignoreGone drops errors that say that the Pod is not the one we mean any more: its event is on the way.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// recall returns what is known about the Pod, without our last write if the cache has caught up with it.
func (s *simulation) recall(key string, pod *corev1.Pod) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.known[key]
	if rec.uid != pod.UID {
		return record{uid: pod.UID}
	}
	if rec.written != nil && !older(pod.ResourceVersion, rec.written.ResourceVersion) {
		rec.written = nil
	}
	return rec
}

func (s *simulation) remember(key string, rec record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[key] = rec
}

// older compares resource versions, which are numbers that grow. One that is no number is never older.
func older(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x < y
}

// writeStatus patches only what changed: conditions of others, readiness gates above all, stay as they are.
func (s *simulation) writeStatus(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	patch, err := statusPatch(pod, status)
	if err != nil {
		return nil, err
	}
	written, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("patching the status of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	written.ManagedFields = nil
	return written, nil
}

// statusPatch is the strategic merge patch that turns the status of pod into status. Next only adds or replaces.
func statusPatch(pod *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	changed := map[string]any{}
	have := &pod.Status
	set := func(field string, old, new any) {
		if !apiequality.Semantic.DeepEqual(old, new) {
			changed[field] = new
		}
	}
	set("phase", have.Phase, status.Phase)
	set("observedGeneration", have.ObservedGeneration, status.ObservedGeneration)
	set("hostIP", have.HostIP, status.HostIP)
	set("hostIPs", have.HostIPs, status.HostIPs)
	set("podIP", have.PodIP, status.PodIP)
	set("podIPs", have.PodIPs, status.PodIPs)
	set("startTime", have.StartTime, status.StartTime)
	set("initContainerStatuses", have.InitContainerStatuses, status.InitContainerStatuses)
	set("containerStatuses", have.ContainerStatuses, status.ContainerStatuses)
	set("ephemeralContainerStatuses", have.EphemeralContainerStatuses, status.EphemeralContainerStatuses)
	var conditions []map[string]any
	for i, c := range status.Conditions {
		if i >= len(have.Conditions) || !apiequality.Semantic.DeepEqual(c, have.Conditions[i]) {
			conditions = append(conditions, conditionPatch(c))
		}
	}
	if len(conditions) > 0 {
		changed["conditions"] = conditions
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": changed})
}

// conditionPatch spells out empty fields: leaving them out of a patch would keep what they were.
func conditionPatch(c corev1.PodCondition) map[string]any {
	patch := map[string]any{
		"type": c.Type, "status": c.Status, "reason": nil, "message": nil,
		"lastTransitionTime": c.LastTransitionTime, "observedGeneration": c.ObservedGeneration,
	}
	if c.Reason != "" {
		patch["reason"] = c.Reason
	}
	if c.Message != "" {
		patch["message"] = c.Message
	}
	return patch
}

// addresses hands out addresses for Pods, each once.
type addresses struct {
	mu   sync.Mutex
	last netip.Addr
}

// podNetwork is large enough for four million Pods in the life of a simulation.
var podNetwork = netip.MustParsePrefix("100.64.0.0/10")

// newAddresses starts behind the addresses that Pods have already.
func newAddresses(pods []any) *addresses {
	a := &addresses{last: podNetwork.Addr()}
	for _, obj := range pods {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		if ip, err := netip.ParseAddr(pod.Status.PodIP); err == nil && podNetwork.Contains(ip) && a.last.Less(ip) {
			a.last = ip
		}
	}
	return a
}

func (a *addresses) next() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last = a.last.Next(); !podNetwork.Contains(a.last) {
		a.last = podNetwork.Addr().Next() // around: the first ones are long gone
	}
	return a.last.String()
}

// SPDX-License-Identifier: Apache-2.0

package podupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// server is one Pod behind the API server's rules for patches: versions are checked, a
// patch that changes nothing makes no new version, and pods/status takes the status and,
// as servers do, labels, annotations and finalizers.
type server struct {
	pod      *corev1.Pod // nil: deleted
	requests []string    // subresource of each patch: "pods", "status", "resize", "try resize"
	writes   int         // patches that made a new version
	reads    int
	// statusOnly: pods/status ignores metadata.
	statusOnly bool
	// before is called with the number of a patch, from 1, before it is served.
	before func(n int)
	// refuse answers a patch to the subresource with an error.
	refuse map[string]error
}

func (s *server) updater() *Updater {
	base := fake.NewClientBuilder().Build()
	c := interceptor.NewClient(base, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			s.reads++
			if s.pod == nil {
				return notFound()
			}
			s.pod.DeepCopyInto(obj.(*corev1.Pod))
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return s.patch("pods", obj, patch, false)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			var o client.SubResourcePatchOptions
			o.ApplyOptions(opts)
			return s.patch(sub, obj, patch, len(o.DryRun) > 0)
		},
	})
	return &Updater{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(t0)}
}

func notFound() error { return apierrors.NewNotFound(corev1.Resource("pods"), "web-abcde") }

func (s *server) patch(sub string, obj client.Object, patch client.Patch, dryRun bool) error {
	if dryRun {
		s.requests = append(s.requests, "try "+sub)
	} else {
		s.requests = append(s.requests, sub)
	}
	if s.before != nil {
		s.before(len(s.requests))
	}
	if err := s.refuse[sub]; err != nil {
		return err
	}
	if s.pod == nil {
		return notFound()
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	var meta struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(data, &meta); err != nil {
		return err
	}
	if meta.Metadata.ResourceVersion == "" {
		return apierrors.NewBadRequest("a patch without the version it was decided on")
	}
	if meta.Metadata.ResourceVersion != s.pod.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("pods"), s.pod.Name, fmt.Errorf("version is %s", s.pod.ResourceVersion))
	}
	old, err := json.Marshal(s.pod)
	if err != nil {
		return err
	}
	patched, err := strategicpatch.StrategicMergePatch(old, data, &corev1.Pod{})
	if err != nil {
		return err
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(patched, next); err != nil {
		return err
	}
	if dryRun {
		return nil
	}
	switch sub {
	case "status":
		next.Spec = s.pod.Spec
		if s.statusOnly {
			next.ObjectMeta = s.pod.ObjectMeta
		}
	case "pods":
		next.Status = s.pod.Status
	case "resize":
		next.Status, next.ObjectMeta = s.pod.Status, s.pod.ObjectMeta
	}
	if !reflect.DeepEqual(next, roundTrip(s.pod)) {
		s.writes++
		s.store(next)
	}
	s.pod.DeepCopyInto(obj.(*corev1.Pod))
	return nil
}

// roundTrip is the Pod as it comes out of JSON.
func roundTrip(pod *corev1.Pod) *corev1.Pod {
	data, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(data, next); err != nil {
		panic(err)
	}
	return next
}

// store gives the Pod a new version.
func (s *server) store(pod *corev1.Pod) {
	version, err := strconv.Atoi(s.pod.ResourceVersion)
	if err != nil {
		panic(err)
	}
	s.pod = pod.DeepCopy()
	s.pod.ResourceVersion = strconv.Itoa(version + 1)
}

// touch is a write of somebody else.
func (s *server) touch(mutate func(*corev1.Pod)) {
	next := s.pod.DeepCopy()
	mutate(next)
	s.store(next)
}

// ran is the kubelet: all containers run as in the spec.
func (s *server) ran() {
	s.touch(func(p *corev1.Pod) {
		for i, c := range p.Spec.Containers {
			p.Status.ContainerStatuses[i] = running(c)
		}
	})
}

func running(c corev1.Container) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "id-of-" + c.Image, Ready: true, ContainerID: "containerd://" + c.Image,
		Resources: c.Resources.DeepCopy(),
	}
}

// readyPod has the readiness gate and runs one container per name.
func readyPod(names ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-abcde", Namespace: "shop", UID: "uid-1", ResourceVersion: "10",
		Labels: map[string]string{"controller-revision-hash": "web-1", "lifecycle.apps.kruise.io/state": "Normal"},
	}}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "InPlaceUpdateReady"}, {ConditionType: "KruisePodReady"}}
	for _, name := range names {
		c := corev1.Container{Name: name, Image: name + ":1"}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, running(c))
	}
	for _, t := range []corev1.PodConditionType{"InPlaceUpdateReady", "KruisePodReady", "ContainersReady", "Ready"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
	return p
}

func (s *server) condition(t corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range s.pod.Status.Conditions {
		if c.Type == t {
			return c.Status
		}
	}
	return ""
}

func (s *server) wantRequests(t testing.TB, want ...string) {
	t.Helper()
	if !slices.Equal(s.requests, want) {
		t.Errorf("requests are %v, want %v", s.requests, want)
	}
	s.requests = nil
}

// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// state is everything that the server has at one time. Objects in it are never changed.
type state struct {
	requests map[string]*v1beta1.ContainerRecreateRequest // by name
	pods     map[string]*corev1.Pod
}

// server is an API server in memory: it knows patches, versions, conflicts, finalizers and
// the status subresource, and remembers each state that it was in, for caches that lag.
type server struct {
	state
	now     func() time.Time
	version int
	history []state
	writes  map[string]int // by who wrote
	// onRequest is told each new version of a request.
	onRequest func(before, after *v1beta1.ContainerRecreateRequest)
}

const namespace = "shop"

func newServer(now func() time.Time) *server {
	s := &server{now: now, state: state{requests: map[string]*v1beta1.ContainerRecreateRequest{}, pods: map[string]*corev1.Pod{}}, writes: map[string]int{}}
	s.remember()
	return s
}

func (s *server) remember() {
	s.history = append(s.history, state{requests: maps.Clone(s.requests), pods: maps.Clone(s.pods)})
}

func (s *server) next() string {
	s.version++
	return strconv.Itoa(s.version)
}

var (
	requestResource = schema.GroupResource{Group: "apps.kruise.io", Resource: "containerrecreaterequests"}
	podResource     = schema.GroupResource{Resource: "pods"}
	errLost         = apierrors.NewServerTimeout(requestResource, "patch", 1)
)

func (s *server) createRequest(r *v1beta1.ContainerRecreateRequest) {
	r.UID, r.ResourceVersion, r.Generation = types.UID("request-"+s.next()), s.next(), 1
	r.CreationTimestamp = metav1.NewTime(s.now().Truncate(time.Second))
	s.storeRequest(r)
}

func (s *server) storeRequest(r *v1beta1.ContainerRecreateRequest) {
	before := s.requests[r.Name]
	if r.DeletionTimestamp != nil && len(r.Finalizers) == 0 {
		delete(s.requests, r.Name)
	} else {
		s.requests[r.Name] = r
	}
	if s.onRequest != nil {
		s.onRequest(before, r)
	}
	s.remember()
}

func (s *server) deleteRequest(name string) {
	r, ok := s.requests[name]
	if !ok || r.DeletionTimestamp != nil {
		return
	}
	r = r.DeepCopy()
	r.DeletionTimestamp, r.ResourceVersion = &metav1.Time{Time: s.now()}, s.next()
	s.storeRequest(r)
}

func (s *server) storePod(p *corev1.Pod) {
	p.ResourceVersion = s.next()
	s.pods[p.Name] = p
	s.remember()
}

func (s *server) deletePod(name string) {
	delete(s.pods, name)
	s.remember()
}

func (s *server) request(name string) (*v1beta1.ContainerRecreateRequest, error) {
	r, ok := s.requests[name]
	if !ok {
		return nil, apierrors.NewNotFound(requestResource, name)
	}
	return r, nil
}

// patchRequest patches a request or its status on behalf of who.
func (s *server) patchRequest(who, name string, status bool, kind types.PatchType, patch []byte) (*v1beta1.ContainerRecreateRequest, error) {
	current, err := s.request(name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	var after []byte
	if kind == types.JSONPatchType {
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		if after, err = decoded.Apply(before); err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "patch", requestResource, name, err.Error(), 0, false)
		}
	} else if after, err = jsonpatch.MergePatch(before, patch); err != nil {
		return nil, err
	}
	next := &v1beta1.ContainerRecreateRequest{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	if next.ResourceVersion != current.ResourceVersion {
		return nil, apierrors.NewConflict(requestResource, name, errors.New("another version"))
	}
	if status {
		meta := *current.ObjectMeta.DeepCopy()
		next.ObjectMeta, next.Spec = meta, *current.Spec.DeepCopy()
	} else {
		next.Status = *current.Status.DeepCopy()
	}
	if same, err := json.Marshal(next); err == nil && bytes.Equal(same, before) {
		return next, nil
	}
	s.writes[who]++
	next.ResourceVersion = s.next()
	s.storeRequest(next)
	return next.DeepCopy(), nil
}

func (s *server) patchPod(who, name string, patch []byte) (*corev1.Pod, error) {
	current, ok := s.pods[name]
	if !ok {
		return nil, apierrors.NewNotFound(podResource, name)
	}
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	next := &corev1.Pod{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	if next.UID != current.UID || next.ResourceVersion != current.ResourceVersion {
		return nil, apierrors.NewConflict(podResource, name, errors.New("another version"))
	}
	s.writes[who+" pod"]++
	s.storePod(next)
	return next.DeepCopy(), nil
}

// managerClient is the server as the manager sees it: reads come from the past, and writes
// may fail, before or after they had an effect.
type managerClient struct {
	client.Client
	server *server
	cache  func() state
	fail   func() (before, after bool)
	live   bool
}

func (c managerClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	seen := c.server.state
	if !c.live {
		seen = c.cache()
	}
	switch into := into.(type) {
	case *v1beta1.ContainerRecreateRequest:
		if r, ok := seen.requests[key.Name]; ok {
			r.DeepCopyInto(into)
			return nil
		}
		return apierrors.NewNotFound(requestResource, key.Name)
	case *corev1.Pod:
		if p, ok := seen.pods[key.Name]; ok {
			p.DeepCopyInto(into)
			return nil
		}
		return apierrors.NewNotFound(podResource, key.Name)
	}
	return fmt.Errorf("unexpected type %T", into)
}

func (c managerClient) write(do func() error) error {
	before, after := c.fail()
	if before {
		return errLost
	}
	if err := do(); err != nil || !after {
		return err
	}
	return errLost
}

func (c managerClient) patch(obj client.Object, status bool, patch client.Patch) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return c.write(func() error {
		switch obj := obj.(type) {
		case *v1beta1.ContainerRecreateRequest:
			written, err := c.server.patchRequest("manager", obj.Name, status, patch.Type(), data)
			if err == nil {
				written.DeepCopyInto(obj)
			}
			return err
		case *corev1.Pod:
			written, err := c.server.patchPod("manager", obj.Name, data)
			if err == nil {
				written.DeepCopyInto(obj)
			}
			return err
		}
		return fmt.Errorf("unexpected type %T", obj)
	})
}

func (c managerClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(obj, false, patch)
}

func (c managerClient) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	return c.write(func() error {
		if _, err := c.server.request(obj.GetName()); err != nil {
			return err
		}
		c.server.writes["manager"]++
		c.server.deleteRequest(obj.GetName())
		return nil
	})
}

func (c managerClient) Status() client.SubResourceWriter { return statusWriter{c: c} }

type statusWriter struct {
	client.SubResourceWriter
	c managerClient
}

func (w statusWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.c.patch(obj, true, patch)
}

// agentStore is the server as the agent sees it.
type agentStore struct {
	server *server
	cache  func() state
	fail   func() (before, after bool)
}

var _ Store = agentStore{}

func active(r *v1beta1.ContainerRecreateRequest) bool {
	return r.Labels[v1beta1.RecreateActiveLabel] == "true"
}

func (s agentStore) Requests(key Key) ([]*v1beta1.ContainerRecreateRequest, error) {
	var found []*v1beta1.ContainerRecreateRequest
	seen := s.cache().requests
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if r := seen[name]; active(r) && KeyOf(r) == key {
			found = append(found, r)
		}
	}
	return found, nil
}

func (s agentStore) Request(_ context.Context, key types.NamespacedName) (*v1beta1.ContainerRecreateRequest, error) {
	if before, _ := s.fail(); before {
		return nil, errLost
	}
	return s.server.request(key.Name)
}

func (s agentStore) PatchStatus(_ context.Context, key types.NamespacedName, kind types.PatchType, patch []byte) (*v1beta1.ContainerRecreateRequest, error) {
	before, after := s.fail()
	if before {
		return nil, errLost
	}
	written, err := s.server.patchRequest("agent", key.Name, true, kind, patch)
	if err == nil && after {
		return nil, errLost
	}
	return written, err
}

func (s agentStore) Pod(_ context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	if p, ok := s.cache().pods[key.Name]; ok {
		return p, nil
	}
	return nil, apierrors.NewNotFound(podResource, key.Name)
}

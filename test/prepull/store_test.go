// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/owned"
)

// kind is a kind of object, as Go names its type.
type kind string

const (
	nodes      kind = "Node"
	secrets    kind = "Secret"
	nodeImages kind = "NodeImage"
	pullJobs   kind = "ImagePullJob"
	listJobs   kind = "ImageListPullJob"
)

var kinds = []kind{nodes, secrets, nodeImages, pullJobs, listJobs}

func kindOf(obj any) kind {
	if _, is := obj.(*metav1.PartialObjectMetadata); is {
		return secrets // the only one that is read so
	}
	return kind(strings.TrimSuffix(reflect.TypeOf(obj).Elem().Name(), "List"))
}

type objects map[types.NamespacedName]client.Object

// change is an object as it became, or nil when it went.
type change struct {
	key types.NamespacedName
	obj client.Object
}

// server is the API server: optimistic locks, finalizers, status apart from spec. Nobody
// writes to the objects that it holds.
type server struct {
	mu      sync.Mutex // of calls of clients, which controllers make at the same time
	now     func() time.Time
	version int
	live    map[kind]objects
	log     map[kind][]change
	writes  int // that changed something
	// onWrite is told of every NodeImage that is written.
	onWrite func(before, after *v1beta1.NodeImage)
}

func newServer(now func() time.Time) *server {
	s := &server{now: now, live: map[kind]objects{}, log: map[kind][]change{}}
	for _, k := range kinds {
		s.live[k] = objects{}
	}
	return s
}

func (s *server) put(k kind, obj client.Object) {
	s.version++
	s.writes++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	stored := obj.DeepCopyObject().(client.Object)
	key := client.ObjectKeyFromObject(obj)
	before, _ := s.live[k][key].(*v1beta1.NodeImage)
	s.live[k][key] = stored
	s.log[k] = append(s.log[k], change{key, stored})
	if after, is := stored.(*v1beta1.NodeImage); is && s.onWrite != nil {
		s.onWrite(before, after)
	}
}

func (s *server) drop(k kind, key types.NamespacedName) {
	s.version++
	s.writes++
	delete(s.live[k], key)
	s.log[k] = append(s.log[k], change{key, nil})
}

// collectGarbage deletes jobs whose list job is gone, as the cluster does some time.
func (s *server) collectGarbage() {
	for key, obj := range s.live[pullJobs] {
		ref := metav1.GetControllerOf(obj)
		if ref == nil {
			continue
		}
		owner, exists := s.live[listJobs][types.NamespacedName{Namespace: key.Namespace, Name: ref.Name}]
		if !exists || owner.GetUID() != ref.UID {
			s.remove(pullJobs, key)
		}
	}
}

func (s *server) remove(k kind, key types.NamespacedName) {
	obj := s.live[k][key]
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return
	}
	if len(obj.GetFinalizers()) == 0 {
		s.drop(k, key)
		return
	}
	going := obj.DeepCopyObject().(client.Object)
	going.SetDeletionTimestamp(&metav1.Time{Time: s.now()})
	s.put(k, going)
}

// cached is a client of the server whose reads lag behind.
type cached struct {
	client.Client // nil: what is not implemented here, nobody calls
	server        *server
	seen          map[kind]objects
	position      map[kind]int // in the server's log
	// fail makes the next writes fail, with a conflict or before they happen.
	fail func(verb string, k kind) error
}

func newCached(s *server) *cached {
	c := &cached{server: s, seen: map[kind]objects{}, position: map[kind]int{}}
	c.restart()
	return c
}

// restart lists everything anew.
func (c *cached) restart() {
	for _, k := range kinds {
		c.seen[k], c.position[k] = maps.Clone(c.server.live[k]), len(c.server.log[k])
	}
}

// follow shows the cache some more of what happened to a kind.
func (c *cached) follow(k kind, changes int) {
	log := c.server.log[k]
	for ; changes > 0 && c.position[k] < len(log); changes-- {
		e := log[c.position[k]]
		if c.position[k]++; e.obj == nil {
			delete(c.seen[k], e.key)
		} else {
			c.seen[k][e.key] = e.obj
		}
	}
}

func (c *cached) followAll() {
	for _, k := range kinds {
		c.follow(k, len(c.server.log[k]))
	}
}

func notFound(k kind, key types.NamespacedName) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: string(k)}, key.String())
}

func conflict(k kind, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: string(k)}, name, fmt.Errorf("changed meanwhile"))
}

func read(from objects, key types.NamespacedName, into client.Object) error {
	k := kindOf(into)
	obj := from[key]
	if obj == nil {
		return notFound(k, key)
	}
	if meta, is := into.(*metav1.PartialObjectMetadata); is {
		meta.ObjectMeta = *obj.(*corev1.Secret).ObjectMeta.DeepCopy()
		return nil
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
	return nil
}

func list(from objects, into client.ObjectList, options []client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	keys := slices.SortedFunc(maps.Keys(from), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		obj := from[key]
		if o.Namespace != "" && key.Namespace != o.Namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labelsOf(obj)) {
			continue
		}
		if o.FieldSelector != nil {
			uid, has := o.FieldSelector.RequiresExactMatch(owned.Index)
			if !has {
				return fmt.Errorf("no index for %s", o.FieldSelector)
			}
			if ref := metav1.GetControllerOf(obj); ref == nil || string(ref.UID) != uid {
				continue
			}
		}
		items.Set(reflect.Append(items, reflect.ValueOf(obj.DeepCopyObject()).Elem()))
	}
	return nil
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return read(c.seen[kindOf(obj)], key, obj)
}

func (c *cached) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return list(c.seen[kindOf(into)], into, options)
}

func (c *cached) failed(verb string, obj client.Object) error {
	if c.fail == nil {
		return nil
	}
	return c.fail(verb, kindOf(obj))
}

func (c *cached) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.failed("create", obj); err != nil {
		return err
	}
	s, k := c.server, kindOf(obj)
	if obj.GetName() == "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.version))
	}
	key := client.ObjectKeyFromObject(obj)
	if s.live[k][key] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: string(k)}, key.String())
	}
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	obj.SetCreationTimestamp(metav1.Time{Time: s.now()})
	obj.SetGeneration(1)
	s.put(k, obj)
	return nil
}

// store writes obj if it is of the version that is there, without what others write: the
// status of an object, or all but that.
func (c *cached) store(obj client.Object, status bool) error {
	s, k, key := c.server, kindOf(obj), client.ObjectKeyFromObject(obj)
	have := s.live[k][key]
	switch {
	case have == nil:
		return notFound(k, key)
	case obj.GetResourceVersion() != have.GetResourceVersion():
		return conflict(k, obj.GetName())
	}
	next := obj.DeepCopyObject().(client.Object)
	if k != secrets {
		from, to := have, next
		if status {
			next = have.DeepCopyObject().(client.Object)
			from, to = obj, next
		}
		reflect.ValueOf(to).Elem().FieldByName("Status").Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName("Status"))
		spec := func(o client.Object) any { return reflect.ValueOf(o).Elem().FieldByName("Spec").Interface() }
		if !equality.Semantic.DeepEqual(spec(have), spec(next)) {
			next.SetGeneration(have.GetGeneration() + 1)
		}
	}
	switch {
	case next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0:
		s.drop(k, key)
	case !equality.Semantic.DeepEqual(have, next):
		s.put(k, next)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(next.DeepCopyObject()).Elem())
	return nil
}

func (c *cached) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.failed("update", obj); err != nil {
		return err
	}
	return c.store(obj, false)
}

func (c *cached) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.failed("patch", obj); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(obj)
	have := c.server.live[kindOf(obj)][key]
	if have == nil {
		return notFound(kindOf(obj), key)
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(have)
	if err != nil {
		return err
	}
	if raw, err = jsonpatch.MergePatch(raw, data); err != nil {
		return err
	}
	patched := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(raw, patched); err != nil {
		return err
	}
	if err := c.store(patched, false); err != nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(patched).Elem())
	return nil
}

func (c *cached) Delete(_ context.Context, obj client.Object, options ...client.DeleteOption) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.failed("delete", obj); err != nil {
		return err
	}
	o := client.DeleteOptions{}
	o.ApplyOptions(options)
	k, key := kindOf(obj), client.ObjectKeyFromObject(obj)
	have := c.server.live[k][key]
	if have == nil {
		return notFound(k, key)
	}
	if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != have.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != have.GetResourceVersion()) {
		return conflict(k, obj.GetName())
	}
	c.server.remove(k, key)
	return nil
}

func (c *cached) Status() client.SubResourceWriter { return statusWriter{c: c} }

type statusWriter struct {
	client.SubResourceWriter
	c *cached
}

func (w statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	w.c.server.mu.Lock()
	defer w.c.server.mu.Unlock()
	if err := w.c.failed("status", obj); err != nil {
		return err
	}
	return w.c.store(obj, true)
}

// live reads what the server has.
type live struct{ server *server }

func (l live) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return read(l.server.live[kindOf(obj)], key, obj)
}

func (l live) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return list(l.server.live[kindOf(into)], into, options)
}

type labelMap map[string]string

func (m labelMap) Has(key string) bool              { _, ok := m[key]; return ok }
func (m labelMap) Get(key string) string            { return m[key] }
func (m labelMap) Lookup(key string) (string, bool) { v, ok := m[key]; return v, ok }

func labelsOf(obj client.Object) labelMap { return obj.GetLabels() }

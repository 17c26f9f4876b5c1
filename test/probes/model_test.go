// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/controllers/podprobemarker"
)

// id names an object in the model.
type id struct{ kind, namespace, name string }

func (i id) String() string { return strings.Join([]string{i.kind, i.namespace, i.name}, " ") }

func idOf(obj client.Object) id {
	return id{reflect.TypeOf(obj).Elem().Name(), obj.GetNamespace(), obj.GetName()}
}

// change is one watch event; a nil object is a deletion.
type change struct {
	id  id
	obj client.Object
}

// server is an API server of four kinds, with what its watchers have not seen yet.
type server struct {
	objects map[id]client.Object
	version int
	pending map[string][]change // by kind
	failing int                 // writes of controllers that are to fail
}

func newServer() *server {
	return &server{objects: map[id]client.Object{}, pending: map[string][]change{}}
}

var (
	t0      = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	errDown = apierrors.NewInternalError(errors.New("injected"))
)

func notFound(i id) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: i.kind}, i.name)
}

func conflict(i id) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: i.kind}, i.name, errors.New("changed"))
}

func clone[T client.Object](obj T) T { return obj.DeepCopyObject().(T) }

func into(dst, src client.Object) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(clone(src)).Elem())
}

// put stores a version of an object, and removes one that is being deleted and that nobody
// holds.
func (s *server) put(obj client.Object) {
	s.version++
	obj = clone(obj)
	obj.SetResourceVersion(strconv.Itoa(s.version))
	i := idOf(obj)
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 && i.kind == "PodProbeMarker" {
		s.drop(i)
		return
	}
	s.objects[i] = obj
	s.pending[i.kind] = append(s.pending[i.kind], change{i, clone(obj)})
}

func (s *server) drop(i id) {
	if s.objects[i] != nil {
		delete(s.objects, i)
		s.pending[i.kind] = append(s.pending[i.kind], change{i, nil})
	}
}

// sortedIDs makes runs with one seed equal.
func sortedIDs(objects map[id]client.Object) []id {
	return slices.SortedFunc(maps.Keys(objects), func(a, b id) int { return strings.Compare(a.String(), b.String()) })
}

// of returns the objects of a kind by name.
func of[T client.Object](objects map[id]client.Object) []T {
	var out []T
	for _, i := range sortedIDs(objects) {
		if obj, ok := objects[i].(T); ok {
			out = append(out, obj)
		}
	}
	return out
}

// specOf is the part of an object that its generation counts.
func specOf(obj client.Object) any {
	switch o := obj.(type) {
	case *v1alpha1.PodProbeMarker:
		return o.Spec
	case *v1alpha1.NodePodProbe:
		return o.Spec
	}
	return nil
}

// view is a client of one controller: it writes to the server and reads from objects.
type view struct {
	client.Client
	server  *server
	objects func() map[id]client.Object
	// fragile kinds are those whose writes may be made to fail.
	fragile []string
}

func (v view) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	i := idOf(obj)
	i.namespace, i.name = key.Namespace, key.Name
	found := v.objects()[i]
	if found == nil {
		return notFound(i)
	}
	into(obj, found)
	return nil
}

func (v view) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	fits := func(obj client.Object) bool {
		if o.FieldSelector != nil {
			for _, r := range o.FieldSelector.Requirements() {
				if r.Field != podprobemarker.MarkerIndex {
					panic("no index " + r.Field)
				}
				if !slices.Contains(podprobemarker.MarkersOf(obj), r.Value) {
					return false
				}
			}
		}
		return (o.Namespace == "" || o.Namespace == obj.GetNamespace()) && (o.LabelSelector == nil || o.LabelSelector.Matches(labelSet(obj.GetLabels())))
	}
	switch l := list.(type) {
	case *corev1.PodList:
		for _, obj := range of[*corev1.Pod](v.objects()) {
			if fits(obj) {
				l.Items = append(l.Items, *clone(obj))
			}
		}
	case *v1alpha1.PodProbeMarkerList:
		for _, obj := range of[*v1alpha1.PodProbeMarker](v.objects()) {
			if fits(obj) {
				l.Items = append(l.Items, *clone(obj))
			}
		}
	case *v1alpha1.NodePodProbeList:
		for _, obj := range of[*v1alpha1.NodePodProbe](v.objects()) {
			if fits(obj) {
				l.Items = append(l.Items, *clone(obj))
			}
		}
	default:
		panic(fmt.Sprintf("no list of %T", list))
	}
	return nil
}

type labelSet map[string]string

func (s labelSet) Has(key string) bool              { _, ok := s[key]; return ok }
func (s labelSet) Get(key string) string            { return s[key] }
func (s labelSet) Lookup(key string) (string, bool) { v, ok := s[key]; return v, ok }

// write fails if it is to, or if there is no such object or version.
func (v view) write(obj client.Object) (client.Object, error) {
	i := idOf(obj)
	if v.server.failing > 0 && slices.Contains(v.fragile, i.kind) {
		v.server.failing--
		return nil, errDown
	}
	is := v.server.objects[i]
	if is == nil {
		return nil, notFound(i)
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != is.GetResourceVersion() || obj.GetUID() != "" && obj.GetUID() != is.GetUID() {
		return nil, conflict(i)
	}
	return is, nil
}

func (v view) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if v.server.objects[idOf(obj)] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, obj.GetName())
	}
	obj.SetUID(types.UID(fmt.Sprint("uid-", v.server.version)))
	obj.SetGeneration(1)
	v.server.put(obj)
	return nil
}

func (v view) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	is, err := v.write(obj)
	if err != nil {
		return err
	}
	next := clone(obj)
	if npp, ok := next.(*v1alpha1.NodePodProbe); ok {
		npp.Status = is.(*v1alpha1.NodePodProbe).Status
	}
	return v.store(is, next, obj)
}

// store counts the generation and writes back what was stored.
func (v view) store(is, next, out client.Object) error {
	next.SetGeneration(is.GetGeneration())
	if !apiequality.Semantic.DeepEqual(specOf(is), specOf(next)) {
		next.SetGeneration(is.GetGeneration() + 1)
	}
	v.server.put(next)
	if stored := v.server.objects[idOf(next)]; stored != nil {
		into(out, stored)
	}
	return nil
}

func (v view) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	bare := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	bare.SetName(obj.GetName())
	bare.SetNamespace(obj.GetNamespace())
	is, err := v.write(bare)
	if err != nil {
		return err
	}
	original, err := json.Marshal(is)
	if err != nil {
		return err
	}
	var merged []byte
	if patch.Type() == types.StrategicMergePatchType {
		merged, err = strategicpatch.StrategicMergePatch(original, data, bare)
	} else {
		merged, err = jsonpatch.MergePatch(original, data)
	}
	if err != nil {
		return err
	}
	next := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(merged, next); err != nil {
		return err
	}
	if next.GetUID() != is.GetUID() || next.GetResourceVersion() != is.GetResourceVersion() {
		return conflict(idOf(obj))
	}
	return v.store(is, next, obj)
}

func (v view) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	is := v.server.objects[idOf(obj)]
	if is == nil {
		return notFound(idOf(obj))
	}
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != is.GetUID() {
		return conflict(idOf(obj))
	}
	v.server.remove(is)
	return nil
}

// remove deletes an object as the API server does: finalizers hold it.
func (s *server) remove(is client.Object) {
	if len(is.GetFinalizers()) == 0 {
		s.drop(idOf(is))
		return
	}
	if is.GetDeletionTimestamp() == nil {
		next := clone(is)
		next.SetDeletionTimestamp(new(metav1.NewTime(t0)))
		next.SetGeneration(is.GetGeneration() + 1)
		s.put(next)
	}
}

func (v view) Status() client.SubResourceWriter { return statusView{view: v} }

type statusView struct {
	client.SubResourceWriter
	view view
}

func (s statusView) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	is, err := s.view.write(obj)
	if err != nil {
		return err
	}
	next := clone(is)
	if npp, ok := next.(*v1alpha1.NodePodProbe); ok {
		npp.Status = *obj.(*v1alpha1.NodePodProbe).Status.DeepCopy()
	}
	return s.view.store(is, next, obj)
}

func (s statusView) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.view.Patch(ctx, obj, patch)
}

// queue is the set of requests of one controller; delays are over when it likes.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	items map[reconcile.Request]bool
}

func (q queue) Add(r reconcile.Request)                       { q.items[r] = true }
func (q queue) AddAfter(r reconcile.Request, _ time.Duration) { q.items[r] = true }

func (q queue) sorted() []reconcile.Request {
	return slices.SortedFunc(maps.Keys(q.items), func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
}

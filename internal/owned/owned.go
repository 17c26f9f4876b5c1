// SPDX-License-Identifier: Apache-2.0

// Package owned is what every workload controller does with the objects that belong to a
// workload: finding them by owner, waking the workload when they change, creating and
// deleting them so that a stale cache leads to no second write, adopting and releasing
// them. It knows no kind of workload.
package owned

import (
	"context"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/expectation"
)

// Kinds of objects that expectations speak of.
const (
	KindPod      = "Pod"
	KindClaim    = "PersistentVolumeClaim"
	KindRevision = "ControllerRevision"
)

// Index is the name of the field index of objects by the UID of their controller.
const Index = "ownerRefUID"

// AddIndexes adds Index for the kinds of objects, where no other controller has done so
// before.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer, objects ...client.Object) error {
	for _, o := range objects {
		err := indexer.IndexField(ctx, o, Index, byOwner)
		if err != nil && !strings.Contains(err.Error(), "indexer conflict") {
			return fmt.Errorf("indexing %T by owner: %w", o, err)
		}
	}
	return nil
}

func byOwner(o client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// By selects, in a List of a kind that has Index, what the workload with uid controls.
func By(uid types.UID) client.MatchingFields { return client.MatchingFields{Index: string(uid)} }

// ControllerOf is the workload of kind that controls o. Owner references are compared by
// group and kind, never by version: earlier releases wrote v1alpha1.
func ControllerOf(o client.Object, kind schema.GroupKind) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != kind.Kind {
		return types.NamespacedName{}, false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != kind.Group {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}, true
}

// object names o for expectations.
func object(o client.Object) expectation.Object {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	switch o.(type) {
	case *corev1.Pod:
		kind = KindPod
	case *corev1.PersistentVolumeClaim:
		kind = KindClaim
	case *appsv1.ControllerRevision:
		kind = KindRevision
	}
	return expectation.Object{Kind: kind, Name: o.GetName()}
}

// Seen is what expectations compare of o.
func Seen(o client.Object) expectation.Seen {
	return expectation.Seen{UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Terminating: o.GetDeletionTimestamp() != nil}
}

// Read asks from, the cache or the API server, for Pods, PersistentVolumeClaims and
// ControllerRevisions of a namespace.
func Read(from client.Reader, namespace string) expectation.Read {
	return func(ctx context.Context, o expectation.Object) (expectation.Seen, bool, error) {
		var obj client.Object
		switch o.Kind {
		case KindPod:
			obj = &corev1.Pod{}
		case KindClaim:
			obj = &corev1.PersistentVolumeClaim{}
		case KindRevision:
			obj = &appsv1.ControllerRevision{}
		default:
			return expectation.Seen{}, false, fmt.Errorf("reading %s: unknown kind", o)
		}
		err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: o.Name}, obj)
		if apierrors.IsNotFound(err) {
			return expectation.Seen{}, false, nil
		}
		if err != nil {
			return expectation.Seen{}, false, fmt.Errorf("reading %s: %w", o, err)
		}
		return Seen(obj), true, nil
	}
}

// Lookup looks objects up among those that list returns, and in cache for those that are
// not owned any more. It asks list once, when the first expectation is checked: mostly
// there is none.
func Lookup(ctx context.Context, cache client.Reader, namespace string, list func(Listed)) expectation.Lookup {
	read := Read(cache, namespace)
	listed := sync.OnceValue(func() Listed {
		l := Listed{}
		list(l)
		return l
	})
	return func(o expectation.Object) (expectation.Seen, bool) {
		if obj, ok := listed()[o]; ok {
			return Seen(obj), true
		}
		s, found, err := read(ctx, o)
		return s, found && err == nil
	}
}

// Listed are the objects that one pass has listed, for expectations.
type Listed map[expectation.Object]client.Object

// List adds objects of one kind to l.
func List[T client.Object](l Listed, objects []T) {
	for _, o := range objects {
		l[object(o)] = o
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package admit is the one adapter between admission requests and the pure rules of a kind.
// It decodes, converts what was written in an older version to the hub, computes patches
// and picks status codes, so that a kind's own package only names paths and functions.
//
// Which paths exist is platform.md 3.5; who may be rejected with which code is in the file
// of each kind.
package admit

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsjson "sigs.k8s.io/json"

	"github.com/kruisectl/kruisectl/internal/features"
)

// Request is an admission request as the rules of a kind see it.
type Request[T client.Object] struct {
	// Version is the API version that the client wrote, such as "v1alpha1".
	Version string
	// Old is the stored object, nil on CREATE. New is the object after defaulting, nil on
	// DELETE. Both are in the hub version.
	Old, New T
	// Written and OldWritten are New and Old before their conversion, for rules about what
	// conversion does not keep.
	Written, OldWritten client.Object
	// User is the name of who asks, for logs and metrics of denials.
	User string
}

// Rules are the admission rules of one kind, written against its hub version T.
type Rules[T client.Object] struct {
	Kind schema.GroupVersionKind // of the hub
	// Versions are all served versions, the hub among them.
	Versions []Version[T]
	// Gates are needed to create and change objects of this kind; nil features means none.
	Gates    []features.Gate
	Features *features.Set
	// Validate returns all faults of a CREATE or UPDATE. It is not called for an UPDATE
	// that leaves everything but metadata as it is. An error that is an API status is
	// answered as it is, any other one is a 500.
	Validate func(context.Context, Request[T]) (field.ErrorList, error)
	// Deny returns why an UPDATE is answered with 403 and the text as it is, before any fault
	// of the new object. Both webhooks ask it: the API server checks the schema, which may know
	// the same rule and answers with 422, after the mutating and before the validating one.
	Deny func(Request[T]) error
	// Warn returns sentences for the author of an object that Validate has let pass. Nil: none.
	Warn func(context.Context, Request[T]) []string
	// Delete returns why an object must not be deleted, answered with 403. It is not
	// called for an object that is being deleted already. Nil: deletion is free.
	Delete func(context.Context, Request[T]) error
	// Code is the status of a rejection by Validate; 0 means 422.
	Code int32
}

// Version is how one served version of a kind enters the rules.
type Version[T client.Object] struct {
	name string
	// decode returns the object in the hub version, and as it was written.
	decode func(ctx context.Context, raw []byte) (T, client.Object, error)
	// defaulted decodes obj and, on an UPDATE, old; it returns obj before and after
	// defaulting in its own version, and whether the outcome is old but for its metadata.
	defaulted func(old, obj []byte) (before, after client.Object, same bool, err error)
	// write returns an object of the hub in this version. Only TwoWay sets it.
	write func(ctx context.Context, hub T) (client.Object, error)
}

// Hub is the hub version. setDefaults gets nil as old on CREATE.
func Hub[T client.Object](name string, setDefaults func(old, obj T)) Version[T] {
	return Spoke[T, T](name, nil, setDefaults)
}

// Spoke is a version S that converts to the hub. Defaults are applied in the version that
// the client wrote, so that the answer names fields of that version.
func Spoke[T, S client.Object](name string, toHub func(ctx context.Context, src S, dst T) error, setDefaults func(old, obj S)) Version[T] {
	return Version[T]{
		name: name,
		decode: func(ctx context.Context, raw []byte) (T, client.Object, error) {
			src, err := decode[S](raw)
			if err != nil {
				var none T
				return none, nil, err
			}
			if toHub == nil {
				return any(src).(T), src, nil
			}
			dst := fresh[T]()
			if err := toHub(ctx, src, dst); err != nil {
				return dst, nil, fmt.Errorf("converting from %s: %w", name, err)
			}
			return dst, src, nil
		},
		defaulted: func(old, raw []byte) (client.Object, client.Object, bool, error) {
			before, err := decode[S](raw)
			if err != nil {
				return nil, nil, false, err
			}
			after := before.DeepCopyObject().(S)
			if len(old) == 0 {
				var none S
				setDefaults(none, after)
				return before, after, false, nil
			}
			prior, err := decode[S](old)
			if err != nil {
				return nil, nil, false, err
			}
			setDefaults(prior, after)
			return before, after, metadataOnly(prior, after), nil
		},
	}
}

// TwoWay is a version S of a kind whose rules for a new object answer in the hub version, see
// Resolver. The hub itself has nil for both functions.
func TwoWay[T, S client.Object](name string, toHub func(ctx context.Context, src S, dst T) error, fromHub func(ctx context.Context, src T, dst S) error) Version[T] {
	v := Spoke(name, toHub, func(S, S) {})
	v.write = func(ctx context.Context, hub T) (client.Object, error) {
		if fromHub == nil {
			return hub, nil
		}
		dst := fresh[S]()
		if err := fromHub(ctx, hub, dst); err != nil {
			return nil, fmt.Errorf("converting to %s: %w", name, err)
		}
		return dst, nil
	}
	return v
}

// fresh returns a pointer to a new zero value of the struct that T points to.
func fresh[T client.Object]() T {
	return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
}

func decode[T client.Object](raw []byte) (T, error) {
	obj := fresh[T]()
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return obj, fmt.Errorf("decoding: %w", err)
	}
	return obj, nil
}

// Deny returns an error that is answered with 403 and the text as it is.
func Deny(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf(format, args...),
	}}
}

// gate returns the rejection by the first gate that is off, or nil.
func (r Rules[T]) gate() error {
	for _, g := range r.Gates {
		if !r.Features.Enabled(g) {
			return Deny("feature-gate %s is not enabled", g)
		}
	}
	return nil
}

// denied returns the rejection of an UPDATE by the gates or by Deny, or nil.
func (r Rules[T]) denied(in Request[T]) error {
	if err := r.gate(); err != nil {
		return err
	}
	if r.Deny == nil || reflect.ValueOf(in.Old).IsNil() {
		return nil
	}
	if err := r.Deny(in); err != nil {
		return Deny("%s", err.Error())
	}
	return nil
}

// invalid returns nil, or a status whose causes name every wrong field at once.
func (r Rules[T]) invalid(name string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	err := apierrors.NewInvalid(r.Kind.GroupKind(), name, errs)
	if r.Code == http.StatusBadRequest {
		err.ErrStatus.Code, err.ErrStatus.Reason = r.Code, metav1.StatusReasonBadRequest
	}
	return err
}

// metadataOnly reports whether an UPDATE leaves the spec as it is. Such an update passes:
// removing a finalizer from, or labelling, an object that no rule of today would admit must
// stay possible, and the API server checks metadata itself. The status in the request does
// not count, as only the subresource writes it. Fields that a version keeps in annotations
// are fields of the hub, where the comparison is made.
func metadataOnly[T client.Object](old, obj T) bool {
	return apiequality.Semantic.DeepEqual(bare(old), bare(obj))
}

func bare[T client.Object](obj T) T {
	out := obj.DeepCopyObject().(T)
	for _, name := range []string{"ObjectMeta", "TypeMeta", "Status"} {
		if f := reflect.ValueOf(out).Elem().FieldByName(name); f.IsValid() {
			f.SetZero()
		}
	}
	return out
}

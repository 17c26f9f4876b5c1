// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Handlers are the HTTP handlers of a webhook server by path.
type Handlers map[string]http.Handler

// Add serves h at every path. A path that is taken is a mistake of the program: it panics.
func (hs Handlers) Add(h admission.Handler, paths ...string) {
	for _, path := range paths {
		hs.Handle(path, &admission.Webhook{Handler: h})
	}
}

// Handle is Add for a handler that does not answer admission reviews.
func (hs Handlers) Handle(path string, h http.Handler) {
	if hs[path] != nil {
		panic(fmt.Sprintf("webhook path %s is registered twice", path))
	}
	hs[path] = h
}

// Mutator answers with the defaults of the kind, as a patch that only holds what changed.
func (r Rules[T]) Mutator() admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return admission.Allowed("")
		}
		v, in, err := r.read(ctx, req)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		before, after, same, err := v.defaulted(req.OldObject.Raw, req.Object.Raw)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		untouched := req.Operation == admissionv1.Update && metadataOnly(in.Old, in.New)
		if r.Deny != nil && !untouched {
			if err := r.denied(in); err != nil {
				return errorResponse(err)
			}
		}
		if untouched {
			before = after // an update of metadata gets no defaults
		}
		if untouched || same {
			if kept, ok := inOldWords(req.OldObject.Raw, req.Object.Raw, before, after); ok {
				return admission.PatchResponseFromRaw(req.Object.Raw, kept)
			}
		}
		return PatchResponse(req.Object.Raw, before, after)
	})
}

// Validator answers with every fault of the object.
func (r Rules[T]) Validator() admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if req.SubResource != "" {
			return admission.Allowed("")
		}
		var warnings []string
		var err error
		switch req.Operation {
		case admissionv1.Create, admissionv1.Update:
			warnings, err = r.check(ctx, req)
		case admissionv1.Delete:
			err = r.checkDelete(ctx, req)
		}
		if err != nil {
			return errorResponse(err)
		}
		return admission.Allowed("").WithWarnings(warnings...)
	})
}

func (r Rules[T]) check(ctx context.Context, req admission.Request) (warnings []string, err error) {
	_, in, err := r.read(ctx, req)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if req.Operation == admissionv1.Update && metadataOnly(in.Old, in.New) {
		return nil, nil
	}
	if err := r.denied(in); err != nil {
		return nil, err
	}
	errs, err := r.Validate(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := r.invalid(req.Name, errs); err != nil || r.Warn == nil {
		return nil, err
	}
	return r.Warn(ctx, in), nil
}

func (r Rules[T]) checkDelete(ctx context.Context, req admission.Request) error {
	if r.Delete == nil || len(req.OldObject.Raw) == 0 {
		return nil
	}
	_, in, err := r.read(ctx, req)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if in.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := r.Delete(ctx, in); err != nil {
		return Deny("%s", err.Error())
	}
	return nil
}

// Resolver is the whole admission of a kind in one mutating webhook, for objects that are filled
// in with what the cluster says. resolve changes r.New, which is its own, and returns what the
// author should be told; an error that is an API status is answered as it is, and any other one
// with 500. It is called for updates of metadata as well, and then also while a gate is off.
func (r Rules[T]) Resolver(resolve func(context.Context, Request[T]) (warnings []string, errs field.ErrorList, err error)) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if req.SubResource != "" || req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return admission.Allowed("")
		}
		v, in, err := r.read(ctx, req)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		given := in.New
		in.New = given.DeepCopyObject().(T)
		if req.Operation != admissionv1.Update || !metadataOnly(in.Old, in.New) {
			if err := r.gate(); err != nil {
				return errorResponse(err)
			}
		}
		warnings, errs, err := resolve(ctx, in)
		if err == nil {
			err = r.invalid(req.Name, errs)
		}
		if err != nil {
			return errorResponse(err)
		}
		before, err := v.write(ctx, given)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		after, err := v.write(ctx, in.New)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if req.Operation == admissionv1.Update && metadataOnly(in.Old, in.New) {
			if kept, ok := inOldWords(req.OldObject.Raw, req.Object.Raw, before, after); ok {
				return admission.PatchResponseFromRaw(req.Object.Raw, kept).WithWarnings(warnings...)
			}
		}
		return PatchResponse(req.Object.Raw, before, after).WithWarnings(warnings...)
	})
}

// read decodes the objects of req and converts them to the hub, once.
func (r Rules[T]) read(ctx context.Context, req admission.Request) (Version[T], Request[T], error) {
	in := Request[T]{Version: req.Kind.Version, User: req.UserInfo.Username}
	for _, v := range r.Versions {
		if v.name != req.Kind.Version {
			continue
		}
		var err error
		if len(req.Object.Raw) > 0 {
			if in.New, in.Written, err = v.decode(ctx, req.Object.Raw); err != nil {
				return v, in, fmt.Errorf("object: %w", err)
			}
			if in.New.GetNamespace() == "" { // a client may leave it to the request path
				in.New.SetNamespace(req.Namespace)
			}
		}
		if len(req.OldObject.Raw) > 0 {
			if in.Old, in.OldWritten, err = v.decode(ctx, req.OldObject.Raw); err != nil {
				return v, in, fmt.Errorf("old object: %w", err)
			}
		}
		return v, in, nil
	}
	return Version[T]{}, in, fmt.Errorf("version %q of kind %s is not known", req.Kind.Version, r.Kind.Kind)
}

func errorResponse(err error) admission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: new(status.Status())}}
}

// PatchResponse admits the object raw with the difference between before and after, its
// typed form without and with the changes. Going through the difference keeps everything
// else of raw as the client wrote it: fields our types do not know, and absent ones that
// the types would write as empty. Without a difference there is no patch at all.
func PatchResponse(raw []byte, before, after client.Object) admission.Response {
	if reflect.DeepEqual(before, after) {
		return admission.Allowed("")
	}
	merged, err := merge(raw, before, after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("computing a patch: %w", err))
	}
	return admission.PatchResponseFromRaw(raw, merged)
}

func merge(raw []byte, before, after client.Object) ([]byte, error) {
	b, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	a, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	diff, err := jsonpatch.CreateMergePatch(b, a)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(raw, diff)
}

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
		if err := r.check(ctx, req); err != nil {
			return errorResponse(err)
		}
		return admission.Allowed("")
	})
}

func (r Rules[T]) check(ctx context.Context, req admission.Request) error {
	if req.SubResource != "" {
		return nil
	}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
		_, in, err := r.read(ctx, req)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if req.Operation == admissionv1.Update && metadataOnly(in.Old, in.New) {
			return nil
		}
		if err := r.gate(); err != nil {
			return err
		}
		errs, err := r.Validate(ctx, in)
		if err != nil {
			return err
		}
		return r.invalid(req.Name, errs)
	case admissionv1.Delete:
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
	}
	return nil
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
			if in.Old, _, err = v.decode(ctx, req.OldObject.Raw); err != nil {
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

// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/property"
)

// Whatever a client sends, of the right type or not, admission answers: it lets the object pass
// and then has nothing to add to it, or refuses it and blames the client. It neither panics, which
// would be a 500, nor asks for a second round.
func TestAdmissionAnswersToAnything(t *testing.T) {
	everything, hs := all(t), served(t, "")
	property.Many(t, 400, func(rt *rapid.T) {
		obj := everything.draw(rt)
		for range rapid.IntRange(1, 3).Draw(rt, "changes") {
			obj.Object["spec"] = spoil(rt, obj.Object["spec"])
		}
		old := everything.draw(rt)
		old.SetGroupVersionKind(obj.GroupVersionKind())
		ask := asker(t, hs, obj)
		for op, was := range map[admissionv1.Operation]string{admissionv1.Create: "", admissionv1.Update: encode(t, old)} {
			stored, answer := ask(mutate, op, was, encode(t, obj))
			if !answer.Allowed {
				blameless(rt, obj, answer)
				continue
			}
			if _, again := ask(mutate, op, was, stored); !again.Allowed || len(again.Patch) > 0 {
				rt.Fatalf("%s of %s is changed to %s, and again: %s %v", op, encode(t, obj), stored, again.Patch, again.Result)
			}
			if _, answer := ask(validate, op, was, stored); !answer.Allowed {
				blameless(rt, obj, answer)
			}
		}
	})
}

// blameless fails unless the refusal of obj is the fault of the client.
func blameless(rt *rapid.T, obj *unstructured.Unstructured, answer *admissionv1.AdmissionResponse) {
	codes := []int32{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity}
	if !slices.Contains(codes, answer.Result.Code) || strings.Contains(answer.Result.Message, "panic") {
		rt.Fatalf("%v is answered with %v", obj.Object, answer.Result)
	}
}

// spoil returns v with one value below it, or v itself, replaced by something else.
func spoil(rt *rapid.T, v any) any {
	here := rapid.IntRange(0, 5).Draw(rt, "depth") == 0
	switch v := v.(type) {
	case map[string]any:
		if here || len(v) == 0 {
			break
		}
		out := maps.Clone(v)
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(rt, "field")
		out[key] = spoil(rt, v[key])
		return out
	case []any:
		if here || len(v) == 0 {
			break
		}
		out := slices.Clone(v)
		i := rapid.IntRange(0, len(v)-1).Draw(rt, "item")
		out[i] = spoil(rt, v[i])
		return out
	}
	return rapid.SampledFrom([]any{
		nil, "", "x", "a b", "10%", "-1", "99999999999999999999", "{{", "2026-01-01T00:00:00Z", "::", "#",
		int64(0), int64(-1), int64(1), int64(1) << 40, 1.5, true, false,
		[]any{}, []any{nil}, []any{""}, []any{map[string]any{}}, []any{"a", "a"}, []any{int64(1)},
		map[string]any{}, map[string]any{"": nil}, map[string]any{"a": "b"}, map[string]any{"a": map[string]any{}}, map[string]any{"tags": []any{nil}},
	}).Draw(rt, "value")
}

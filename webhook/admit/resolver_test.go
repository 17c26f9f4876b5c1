// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
)

func TestWarningsAndDenials(t *testing.T) {
	r := rules()
	r.Warn = func(_ context.Context, r Request[set]) []string {
		return []string{"told to " + r.New.Name + " in " + r.Version}
	}
	r.Deny = func(r Request[set]) error {
		if *r.Old.Spec.Replicas != 1 {
			return errors.New("only one may change")
		}
		return nil
	}
	good, bad := `{"metadata":{"name":"web"},"spec":{"replicas":1}}`, `{"metadata":{"name":"web"},"spec":{"replicas":10}}`
	off, err := features.Parse("KruiseDaemon=false")
	if err != nil {
		t.Fatal(err)
	}
	gated := r
	gated.Gates, gated.Features = []features.Gate{features.KruiseDaemon}, off
	for name, tc := range map[string]struct {
		handler  admission.Handler
		req      admission.Request
		code     int32 // 0: allowed
		message  string
		warnings []string
	}{
		"a good object is warned of":                        {r.Validator(), request("CREATE", "v1alpha1", "", good), 0, "", []string{"told to web in v1alpha1"}},
		"a bad one is refused and no more":                  {r.Validator(), request("CREATE", "v1beta1", "", bad), 422, "at most 9", nil},
		"labels are no reason to warn":                      {r.Validator(), request("UPDATE", "v1beta1", good, `{"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":1}}`), 0, "", nil},
		"nor is a deletion":                                 {r.Validator(), request("DELETE", "v1beta1", good, ""), 0, "", nil},
		"a denial comes before the faults":                  {r.Validator(), request("UPDATE", "v1beta1", `{"spec":{"replicas":2}}`, bad), 403, "only one may change", nil},
		"and before the schema, by the mutating webhook":    {r.Mutator(), request("UPDATE", "v1beta1", `{"spec":{"replicas":2}}`, bad), 403, "only one may change", nil},
		"which leaves faults to the other one":              {r.Mutator(), request("UPDATE", "v1beta1", good, bad), 0, "", nil},
		"a new object is not denied":                        {r.Mutator(), request("CREATE", "v1beta1", "", good), 0, "", nil},
		"a gate that is off is told by the mutating one":    {gated.Mutator(), request("CREATE", "v1beta1", "", good), 403, "feature-gate KruiseDaemon is not enabled", nil},
		"metadata is nobody's business while a gate is off": {gated.Mutator(), request("UPDATE", "v1beta1", good, `{"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":1}}`), 0, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			resp := tc.handler.Handle(t.Context(), tc.req)
			if resp.Allowed != (tc.code == 0) || tc.code != 0 && (resp.Result.Code != tc.code || !strings.Contains(resp.Result.Message, tc.message)) {
				t.Fatalf("response = %v, want %d %s", resp, tc.code, tc.message)
			}
			if diff := cmp.Diff(tc.warnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// A Resolver fills objects in, in the version they are written in, and speaks for both webhooks.
func TestResolver(t *testing.T) {
	off, err := features.Parse("KruiseDaemon=false")
	if err != nil {
		t.Fatal(err)
	}
	rules := Rules[set]{
		Kind:     v1beta1.GroupVersion.WithKind("CloneSet"),
		Versions: []Version[set]{TwoWay[set, set]("v1beta1", nil, nil), TwoWay("v1alpha1", v1alpha1.CloneSetToHub, v1alpha1.CloneSetFromHub)},
		Code:     http.StatusBadRequest, Gates: []features.Gate{features.KruiseDaemon}, Features: features.New(),
	}
	resolve := func(_ context.Context, r Request[set]) ([]string, field.ErrorList, error) {
		switch r.New.Name {
		case "wrong":
			return nil, field.ErrorList{field.Required(field.NewPath("spec", "replicas"), "say how many")}, nil
		case "broken":
			return nil, nil, errors.New("no answer")
		case "denied":
			return nil, nil, Deny("not you")
		}
		if r.Old != nil && r.OldWritten == nil {
			t.Error("the old object is not there as it was written")
		}
		if r.New.Spec.Replicas == nil {
			r.New.Spec.Replicas = new(int32(7))
		}
		return []string{"done"}, nil, nil
	}
	gated := rules
	gated.Features = off
	for name, tc := range map[string]struct {
		rules Rules[set]
		req   admission.Request
		code  int32
		want  string // the object afterwards, or a part of the refusal
	}{
		"the hub":                 {rules, request("CREATE", "v1beta1", "", `{"metadata":{"name":"web"},"spec":{"future":1}}`), 0, `{"metadata":{"name":"web"},"spec":{"future":1,"replicas":7}}`},
		"another version":         {rules, request("CREATE", "v1alpha1", "", `{"metadata":{"name":"web"},"spec":{"updateStrategy":{"type":"InPlaceOnly"}}}`), 0, `{"metadata":{"name":"web"},"spec":{"updateStrategy":{"type":"InPlaceOnly"},"replicas":7}}`},
		"what needs nothing":      {rules, request("CREATE", "v1beta1", "", `{"spec":{"replicas":2}}`), 0, `{"spec":{"replicas":2}}`},
		"the same in fewer words": {rules, request("UPDATE", "v1beta1", `{"spec":{"replicas":7,"scaleStrategy":{}}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{}}`), 0, `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":7,"scaleStrategy":{}}}`},
		"a fault":                 {rules, request("CREATE", "v1beta1", "", `{"metadata":{"name":"wrong"}}`), 400, "spec.replicas: Required value: say how many"},
		"an error":                {rules, request("CREATE", "v1beta1", "", `{"metadata":{"name":"broken"}}`), 500, "no answer"},
		"a denial":                {rules, request("UPDATE", "v1beta1", `{}`, `{"metadata":{"name":"denied"}}`), 403, "not you"},
		"a gate":                  {gated, request("CREATE", "v1beta1", "", `{"metadata":{"name":"web"}}`), 403, "feature-gate KruiseDaemon is not enabled"},
		"no gate for metadata":    {gated, request("UPDATE", "v1beta1", `{"spec":{"replicas":1}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1}}`), 0, `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":1}}`},
		"what is no object":       {rules, request("CREATE", "v1beta1", "", `{"spec":1}`), 400, "decoding"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := tc.rules.Resolver(resolve).Handle(t.Context(), tc.req)
			if tc.code != 0 {
				if resp.Allowed || resp.Result.Code != tc.code || !strings.Contains(resp.Result.Message, tc.want) {
					t.Fatalf("response = %v", resp)
				}
				return
			}
			if !resp.Allowed || len(resp.Warnings) != 1 {
				t.Fatalf("response = %v", resp)
			}
			ops, err := json.Marshal(resp.Patches)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(ops)
			if err != nil {
				t.Fatal(err)
			}
			got, err := patch.Apply(tc.req.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(got, []byte(tc.want)) {
				t.Errorf("object = %s, want %s", got, tc.want)
			}
		})
	}
	for _, req := range []admission.Request{request("DELETE", "v1beta1", `{}`, "")} {
		if resp := rules.Resolver(resolve).Handle(t.Context(), req); !resp.Allowed || len(resp.Warnings) > 0 {
			t.Errorf("response = %v", resp)
		}
	}
}

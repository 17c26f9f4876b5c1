// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
)

type set = *v1beta1.CloneSet

// rules default replicas to 7, refuse more than 9 and protect what is called "precious".
func rules() Rules[set] {
	return Rules[set]{
		Kind: v1beta1.GroupVersion.WithKind("CloneSet"),
		Versions: []Version[set]{
			Hub("v1beta1", func(_, obj set) {
				if obj.Spec.Replicas == nil {
					obj.Spec.Replicas = new(int32(7))
				}
			}),
			Spoke("v1alpha1", v1alpha1.CloneSetToHub, func(old, obj *v1alpha1.CloneSet) {
				if obj.Spec.Replicas == nil {
					obj.Spec.Replicas = new(int32(7))
				}
				if old == nil {
					obj.Spec.MinReadySeconds++
				}
			}),
		},
		Validate: func(_ context.Context, r Request[set]) (field.ErrorList, error) {
			if r.New.Name == "explode" {
				return nil, errors.New("no answer from the store")
			}
			var errs field.ErrorList
			if *r.New.Spec.Replicas > 9 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "replicas"), *r.New.Spec.Replicas, "at most 9, said "+r.Version))
			}
			if r.New.Namespace != "shop" {
				errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), r.New.Namespace, "must be shop"))
			}
			return errs, nil
		},
		Delete: func(_ context.Context, r Request[set]) error {
			if r.Old.Name == "precious" {
				return errors.New("it is precious to " + r.User)
			}
			return nil
		},
	}
}

func request(op admissionv1.Operation, version, old, obj string) admission.Request {
	req := admissionv1.AdmissionRequest{Operation: op, Namespace: "shop", Name: "web"}
	req.Kind = metav1.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "CloneSet"}
	req.UserInfo.Username = "alice"
	if old != "" {
		req.OldObject = runtime.RawExtension{Raw: []byte(old)}
	}
	if obj != "" {
		req.Object = runtime.RawExtension{Raw: []byte(obj)}
	}
	return admission.Request{AdmissionRequest: req}
}

func TestMutator(t *testing.T) {
	cases := map[string]struct {
		req  admission.Request
		want string // the object afterwards; empty: no patch
		code int32
	}{
		"a default is the only change to what the client wrote": {
			req:  request("CREATE", "v1beta1", "", `{"spec":{"unknown":{"a":1},"minReadySeconds":0}}`),
			want: `{"spec":{"unknown":{"a":1},"minReadySeconds":0,"replicas":7}}`,
		},
		"an older version is defaulted in its own terms": {
			req:  request("CREATE", "v1alpha1", "", `{"metadata":{"name":"web"},"spec":{"updateStrategy":{"type":"InPlaceOnly"}}}`),
			want: `{"metadata":{"name":"web"},"spec":{"updateStrategy":{"type":"InPlaceOnly"},"replicas":7,"minReadySeconds":1}}`,
		},
		"an object that lacks the spec gets one": {
			req: request("CREATE", "v1beta1", "", `{}`), want: `{"spec":{"replicas":7}}`,
		},
		"nothing to default means no patch": {
			req: request("CREATE", "v1beta1", "", `{"spec":{"replicas":1}}`),
		},
		"an update may gain defaults": {
			req:  request("UPDATE", "v1beta1", `{"spec":{"minReadySeconds":1}}`, `{"spec":{"minReadySeconds":2}}`),
			want: `{"spec":{"minReadySeconds":2,"replicas":7}}`,
		},
		"an update of metadata is left alone": {
			req: request("UPDATE", "v1beta1", `{"metadata":{"finalizers":["a"]},"spec":{}}`, `{"metadata":{},"spec":{}}`),
		},
		"an update that says the same in other words keeps the old ones": {
			req:  request("UPDATE", "v1beta1", `{"metadata":{},"spec":{"replicas":7,"scaleStrategy":{}}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"minReadySeconds":0}}`),
			want: `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":7,"scaleStrategy":{}}}`,
		},
		"an update of metadata keeps the old words, too": {
			req:  request("UPDATE", "v1alpha1", `{"metadata":{"finalizers":["a"]},"spec":{"scaleStrategy":{}}}`, `{"metadata":{},"spec":{}}`),
			want: `{"metadata":{},"spec":{"scaleStrategy":{}}}`,
		},
		"but not when it changes what our types do not know": {
			req:  request("UPDATE", "v1beta1", `{"spec":{"replicas":7,"unknown":{"a":1},"scaleStrategy":{}}}`, `{"spec":{"replicas":7,"unknown":{"a":2}}}`),
			want: `{"spec":{"replicas":7,"unknown":{"a":2}}}`,
		},
		"nor when an empty field means something": {
			req:  request("UPDATE", "v1beta1", `{"spec":{"replicas":7,"lifecycle":{}}}`, `{"spec":{"replicas":7}}`),
			want: `{"spec":{"replicas":7}}`,
		},
		"deletion and subresources are left alone": {req: request("DELETE", "v1beta1", `{}`, "")},
		"what cannot be decoded is a bad request":  {req: request("CREATE", "v1beta1", "", `{"spec":{"replicas":"x"}}`), code: 400},
		"a version nobody serves is a bad request": {req: request("CREATE", "v1", "", `{}`), code: 400},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp := rules().Mutator().Handle(t.Context(), tc.req)
			if tc.code != 0 {
				if resp.Allowed || resp.Result.Code != tc.code {
					t.Fatalf("response = %v", resp)
				}
				return
			}
			if !resp.Allowed {
				t.Fatalf("denied: %v", resp.Result)
			}
			if tc.want == "" {
				if len(resp.Patches) > 0 {
					t.Fatalf("patches = %v", resp.Patches)
				}
				return
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
				t.Fatalf("patch %s does not apply: %v", ops, err)
			}
			if !jsonpatch.Equal(got, []byte(tc.want)) {
				t.Errorf("object = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestValidator(t *testing.T) {
	off, err := features.Parse("KruiseDaemon=false")
	if err != nil {
		t.Fatal(err)
	}
	gated := rules()
	gated.Gates, gated.Features = []features.Gate{features.KruiseDaemon}, off
	bad400 := rules()
	bad400.Code = http.StatusBadRequest
	deleting := `{"metadata":{"name":"precious","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"replicas":10}}`
	cases := map[string]struct {
		rules   Rules[set]
		req     admission.Request
		code    int32 // 0: allowed
		message string
		causes  []string
	}{
		"a good object passes, whose namespace is that of the request": {
			rules: rules(), req: request("CREATE", "v1beta1", "", `{"spec":{"replicas":1}}`),
		},
		"every fault is named, in one 422": {
			rules: rules(), req: request("CREATE", "v1beta1", "", `{"metadata":{"namespace":"other"},"spec":{"replicas":10}}`), code: 422,
			message: `CloneSet.apps.kruise.io "web" is invalid: [spec.replicas: Invalid value: 10: at most 9, said v1beta1, metadata.namespace: Invalid value: "other": must be shop]`,
			causes:  []string{"spec.replicas", "metadata.namespace"},
		},
		"an older version meets the same rules": {
			rules: rules(), req: request("CREATE", "v1alpha1", "", `{"spec":{"replicas":10}}`), code: 422,
			message: `CloneSet.apps.kruise.io "web" is invalid: spec.replicas: Invalid value: 10: at most 9, said v1alpha1`,
			causes:  []string{"spec.replicas"},
		},
		"a kind may answer 400": {
			rules: bad400, req: request("CREATE", "v1beta1", "", `{"spec":{"replicas":10}}`), code: 400,
			message: `CloneSet.apps.kruise.io "web" is invalid: spec.replicas: Invalid value: 10: at most 9, said v1beta1`,
			causes:  []string{"spec.replicas"},
		},
		"a finalizer can be removed from an object that is no longer valid": {
			rules: rules(), req: request("UPDATE", "v1beta1", `{"metadata":{"finalizers":["a"]},"spec":{"replicas":10}}`, `{"metadata":{},"spec":{"replicas":10}}`),
		},
		"whatever status the request carries": {
			rules: rules(), req: request("UPDATE", "v1beta1", `{"metadata":{"finalizers":["a"]},"spec":{"replicas":10},"status":{"replicas":1}}`, `{"metadata":{},"spec":{"replicas":10}}`),
		},
		"also when the feature is off": {
			rules: gated, req: request("UPDATE", "v1beta1", `{"metadata":{"finalizers":["a"]},"spec":{"replicas":1}}`, `{"metadata":{},"spec":{"replicas":1}}`),
		},
		"an annotation that is a field of the hub is not mere metadata": {
			rules: rules(), code: 422,
			req: request("UPDATE", "v1alpha1", `{"metadata":{"namespace":"other"},"spec":{"replicas":1}}`,
				`{"metadata":{"namespace":"other","annotations":{"apps.kruise.io/image-predownload-timeout-seconds":"7"}},"spec":{"replicas":1}}`),
			message: `CloneSet.apps.kruise.io "web" is invalid: metadata.namespace: Invalid value: "other": must be shop`,
			causes:  []string{"metadata.namespace"},
		},
		"a feature that is off forbids new objects": {
			rules: gated, req: request("CREATE", "v1beta1", "", `{"spec":{"replicas":1}}`), code: 403,
			message: "feature-gate KruiseDaemon is not enabled",
		},
		"a protected object is not deleted": {
			rules: rules(), req: request("DELETE", "v1alpha1", `{"metadata":{"name":"precious"}}`, ""), code: 403,
			message: "it is precious to alice",
		},
		"a repeated delete passes":                        {rules: rules(), req: request("DELETE", "v1beta1", deleting, "")},
		"a delete that names no object passes":            {rules: rules(), req: request("DELETE", "v1beta1", "", "")},
		"a delete passes while the feature is off":        {rules: gated, req: request("DELETE", "v1beta1", `{"metadata":{"name":"web"}}`, "")},
		"a stored object that cannot be read is a 400":    {rules: rules(), req: request("DELETE", "v1beta1", `{"metadata":3}`, ""), code: 400},
		"an operation that webhooks do not get is let by": {rules: rules(), req: request("CONNECT", "v1beta1", "", "{}")},
		"a look-up that fails is a 500": {
			rules: rules(), req: request("CREATE", "v1beta1", "", `{"metadata":{"name":"explode"},"spec":{"replicas":1}}`), code: 500,
			message: "no answer from the store",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp := tc.rules.Validator().Handle(t.Context(), tc.req)
			if tc.code == 0 {
				if !resp.Allowed {
					t.Fatalf("denied: %v", resp.Result)
				}
				return
			}
			if resp.Allowed || resp.Result.Code != tc.code {
				t.Fatalf("response = %v, want code %d", resp, tc.code)
			}
			if tc.message != "" && resp.Result.Message != tc.message {
				t.Errorf("message = %s\nwant      %s", resp.Result.Message, tc.message)
			}
			var causes []string
			if d := resp.Result.Details; d != nil {
				for _, c := range d.Causes {
					causes = append(causes, c.Field)
				}
			}
			if diff := cmp.Diff(tc.causes, causes); diff != "" {
				t.Errorf("causes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHandlersRefuseToShareAPath(t *testing.T) {
	hs := Handlers{}
	hs.Add(rules().Mutator(), "/a", "/b")
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	hs.Add(rules().Mutator(), "/b")
}

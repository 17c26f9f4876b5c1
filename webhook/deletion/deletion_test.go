// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

// owned is what a fake cluster holds; broken fails every count.
type owned struct {
	pods, claims, customs int
	broken                bool
}

func (o owned) count(n int) (int, error) {
	if o.broken {
		return 0, errors.New("no answer")
	}
	return n, nil
}

func (o owned) ActivePods(context.Context, string) (int, error)  { return o.count(o.pods) }
func (o owned) BoundClaims(context.Context, string) (int, error) { return o.count(o.claims) }
func (o owned) CustomResources(_ context.Context, crd CRD) (int, error) {
	if crd.Resource != (schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}) {
		return 0, errors.New("asked for " + crd.Resource.String())
	}
	return o.count(o.customs)
}

const (
	on      = "ResourcesDeletionProtection=true"
	allOn   = on + ",DeletionProtectionForCRDCascadingGate=true"
	denied  = "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection="
	crdSpec = `{"group":"example.com","names":{"plural":"things"},"versions":[{"name":"v2","served":true},{"name":"v1","served":true,"storage":true}]}`
)

func obj(value, spec string) string {
	return `{"metadata":{"name":"web","namespace":"shop","labels":{"policy.kruise.io/delete-protection":"` + value + `"}},"spec":` + spec + `}`
}

func TestProtection(t *testing.T) {
	cases := map[string]struct {
		gates, path, old string
		cluster          owned
		want             string // empty: allowed
	}{
		"a Deployment is always kept":                       {on, "/validate-apps-deployment", obj("Always", `{"replicas":0}`), owned{}, denied + "Always"},
		"a ReplicaSet is kept while it wants Pods":          {on, "/validate-apps-replicaset", obj("Cascading", `{"replicas":2}`), owned{}, denied + "Cascading and replicas 2>0"},
		"a StatefulSet goes when it wants none":             {on, "/validate-apps-statefulset", obj("Cascading", `{"replicas":0}`), owned{}, ""},
		"unknown replicas let it go":                        {on, "/validate-apps-deployment", obj("Cascading", `{}`), owned{}, ""},
		"a value in another case protects nothing":          {on, "/validate-apps-deployment", obj("always", `{"replicas":2}`), owned{}, ""},
		"nor does anything while the feature is off":        {"", "/validate-apps-deployment", obj("Always", `{"replicas":2}`), owned{}, ""},
		"a repeated delete passes":                          {on, "/validate-apps-deployment", strings.Replace(obj("Always", `{}`), `"name"`, `"deletionTimestamp":"2026-01-01T00:00:00Z","name"`, 1), owned{}, ""},
		"a request without the object passes":               {on, "/validate-apps-deployment", "", owned{}, ""},
		"a namespace is always kept":                        {on, "/validate-namespace", obj("Always", `{}`), owned{}, denied + "Always"},
		"a namespace is kept for its Pods, looked at first": {on, "/validate-namespace", obj("Cascading", `{}`), owned{pods: 3, claims: 1}, denied + "Cascading and active pods 3>0"},
		"a namespace is kept for its claims":                {on, "/validate-namespace", obj("Cascading", `{}`), owned{claims: 1}, denied + `Cascading and "Bound" status pvc 1>0`},
		"a namespace that is empty goes":                    {on, "/validate-namespace", obj("Cascading", `{}`), owned{}, ""},
		"a namespace that cannot be looked into is kept":    {on, "/validate-namespace", obj("Cascading", `{}`), owned{broken: true}, denied + "Cascading for list pods error: no answer"},
		"a CRD is kept for its objects":                     {allOn, "/validate-customresourcedefinition", obj("Cascading", crdSpec), owned{customs: 4}, denied + "Cascading and active CRs 4>0"},
		"a CRD without objects goes":                        {allOn, "/validate-customresourcedefinition", obj("Cascading", crdSpec), owned{}, ""},
		"a CRD that cannot be looked into is kept":          {allOn, "/validate-customresourcedefinition", obj("Cascading", crdSpec), owned{broken: true}, "failed to list CRs of web: no answer"},
		"cascading on CRDs needs its gate":                  {on, "/validate-customresourcedefinition", obj("Cascading", crdSpec), owned{}, "feature-gate DeletionProtectionForCRDCascadingGate is not enabled"},
		"always on CRDs does not":                           {on, "/validate-customresourcedefinition", obj("Always", crdSpec), owned{}, denied + "Always"},
		"a Service is always kept":                          {on, "/validate-service", obj("Always", `{}`), owned{}, denied + "Always"},
		"cascading means nothing for an Ingress":            {on, "/validate-ingress", obj("Cascading", `{}`), owned{}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, err := features.Parse(tc.gates)
			if err != nil {
				t.Fatal(err)
			}
			hs := admit.Handlers{}
			Register(hs, Options{Features: set, Counter: tc.cluster})
			got := admittest.Ask(t, hs, tc.path, admittest.Review{Operation: admissionv1.Delete, Old: tc.old})
			if got.Allowed != (tc.want == "") {
				t.Fatalf("response = %v", got)
			}
			if !got.Allowed && (got.Result.Code != 403 || got.Result.Message != tc.want) {
				t.Errorf("result = %v\nwant 403 %s", got.Result, tc.want)
			}
		})
	}
}

func TestPathsFollowTheGate(t *testing.T) {
	hs := admit.Handlers{}
	Register(hs, Options{Features: features.New()})
	if hs["/validate-service"] != nil || hs["/validate-ingress"] != nil || hs["/validate-namespace"] == nil {
		t.Errorf("%d paths are served while the gate is off", len(hs))
	}
	if got := admittest.Ask(t, hs, "/validate-namespace", admittest.Review{Operation: admissionv1.Delete, Old: `"no object"`}); !got.Allowed {
		t.Errorf("response while the gate is off = %v", got)
	}
}

func TestParseCRD(t *testing.T) {
	gvr := func(version string) CRD {
		return CRD{Resource: schema.GroupVersionResource{Group: "g", Version: version, Resource: "things"}}
	}
	for name, tc := range map[string]struct {
		spec string
		want CRD
		err  bool
	}{
		"the stored version":                    {`{"group":"g","names":{"plural":"things"},"versions":[{"name":"a","served":true},{"name":"b","served":true,"storage":true}]}`, gvr("b"), false},
		"a served one when that is not":         {`{"group":"g","names":{"plural":"things"},"versions":[{"name":"a","served":true},{"name":"b","storage":true}]}`, gvr("a"), false},
		"the only one of apiextensions v1beta1": {`{"group":"g","version":"a","names":{"plural":"things"}}`, gvr("a"), false},
		"nothing is served":                     {`{"group":"g","names":{"plural":"things"},"versions":[{"name":"b","storage":true}]}`, CRD{}, true},
		"no spec":                               {`3`, CRD{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseCRD([]byte(tc.spec))
			if (err != nil) != tc.err {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

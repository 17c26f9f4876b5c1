// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"bytes"
	"io"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

const (
	mutate   = "/mutate-apps-kruise-io-cloneset"
	validate = "/validate-apps-kruise-io-cloneset"
)

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

// ask sends a review of a CloneSet to path.
func ask(t *testing.T, hs admit.Handlers, path, version string, op admissionv1.Operation, old, obj string) *admissionv1.AdmissionResponse {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "CloneSet"}
	return admittest.Ask(t, hs, path, admittest.Review{Kind: gvk, Operation: op, Old: old, New: obj})
}

func handlers(t *testing.T, gates string, log io.Writer, pods ...client.Object) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	buffer, _ := log.(*bytes.Buffer)
	if buffer == nil {
		buffer = &bytes.Buffer{}
	}
	hs := admit.Handlers{}
	Register(hs, Options{
		Features: set, Denials: protection.New(nopCloser{buffer}),
		Cached: fake.NewClientBuilder().WithScheme(scheme).Build(),
		Live:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(pods...).Build(),
	})
	return hs
}

const (
	selector    = `"selector":{"matchLabels":{"app":"web"}}`
	container   = `{"name":"main","image":"busybox:1.36"}`
	strategy    = `"replicas":1,"revisionHistoryLimit":10,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"ReCreate","partition":0,"maxUnavailable":"20%","maxSurge":0}}`
	undefaulted = `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + selector + `,"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[` + container + `]}}}}`
)

func spec(parts ...string) string {
	return `{"metadata":{"name":"web","namespace":"shop"},"spec":{` + strings.Join(parts, ",") + `}}`
}

func tmpl(image string) string {
	return `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"` + image + `"}]}}`
}

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		gates, version string
		op             admissionv1.Operation
		old, obj       string
		has, lacks     []string // in the object afterwards
		none           bool     // no patch
	}{
		"a new template gets the defaults of the API server": {
			version: "v1beta1", op: "CREATE", obj: undefaulted,
			has: []string{`"imagePullPolicy":"Always"`, `"restartPolicy":"Always"`, `"maxUnavailable":"20%"`, `"podUpdatePolicy":"ReCreate"`},
		},
		"in its own version": {
			version: "v1alpha1", op: "CREATE", obj: undefaulted,
			has: []string{`"imagePullPolicy":"Always"`, `"type":"ReCreate"`, `"maxUnavailable":"20%"`}, lacks: []string{"rollingUpdate"},
		},
		"not with TemplateNoDefaults": {
			gates: "TemplateNoDefaults=true", version: "v1beta1", op: "CREATE", obj: undefaulted,
			has: []string{`"maxUnavailable":"20%"`}, lacks: []string{"imagePullPolicy", "restartPolicy"},
		},
		"an unchanged template stays as it is, byte for byte": {
			version: "v1beta1", op: "UPDATE", none: true,
			old: spec(selector, tmpl("a"), strategy), obj: spec(selector, tmpl("a"), strings.Replace(strategy, `"replicas":1`, `"replicas":2`, 1)),
		},
		"a changed template gets the defaults": {
			version: "v1beta1", op: "UPDATE", old: spec(selector, tmpl("a"), strategy), obj: spec(selector, tmpl("b"), strategy),
			has: []string{`"imagePullPolicy":"Always"`},
		},
		"host ports only with their gate": {
			version: "v1beta1", op: "CREATE",
			obj:   spec(selector, `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"hostNetwork":true,"containers":[{"name":"main","image":"a","ports":[{"containerPort":80}]}]}}`),
			lacks: []string{"hostPort"},
		},
		"host ports with their gate": {
			gates: "DefaultHostNetworkHostPortsInPodTemplates=true", version: "v1beta1", op: "CREATE",
			obj: spec(selector, `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"hostNetwork":true,"containers":[{"name":"main","image":"a","ports":[{"containerPort":80}]}]}}`),
			has: []string{`"hostPort":80`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp := ask(t, handlers(t, tc.gates, nil), mutate, tc.version, tc.op, tc.old, tc.obj)
			if !resp.Allowed {
				t.Fatalf("denied: %v", resp.Result)
			}
			if tc.none != (len(resp.Patch) == 0) {
				t.Fatalf("patch = %s", resp.Patch)
			}
			if tc.none {
				return
			}
			got := admittest.Patched(t, admittest.Review{New: tc.obj}, resp)
			for _, want := range tc.has {
				if !strings.Contains(got, want) {
					t.Errorf("%s lacks %s", got, want)
				}
			}
			for _, not := range tc.lacks {
				if strings.Contains(got, not) {
					t.Errorf("%s has %s", got, not)
				}
			}
			if again := ask(t, handlers(t, tc.gates, nil), mutate, tc.version, "CREATE", "", got); len(again.Patch) > 0 {
				t.Errorf("defaulting twice changes %s", again.Patch)
			}
		})
	}
}

func TestPodsToDelete(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "u1", Controller: new(true)}
	mine := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-a", OwnerReferences: []metav1.OwnerReference{owner}}}
	obj := func(names string) string {
		return `{"metadata":{"name":"web","namespace":"shop","uid":"u1"},"spec":{` + strings.Join([]string{selector, tmpl("a"), strategy, `"scaleStrategy":{"podsToDelete":[` + names + `]}`}, ",") + `}}`
	}
	hs := handlers(t, "", nil, mine)
	if resp := ask(t, hs, validate, "v1beta1", "UPDATE", obj(``), obj(`"web-a"`)); !resp.Allowed {
		t.Errorf("a Pod that only the API server knows yet is refused: %v", resp.Result)
	}
	if resp := ask(t, hs, validate, "v1beta1", "UPDATE", obj(`"gone"`), obj(`"gone","web-a"`)); !resp.Allowed {
		t.Errorf("a name from before is refused: %v", resp.Result)
	}
	resp := ask(t, hs, validate, "v1alpha1", "UPDATE", strings.Replace(obj(``), "RollingUpdate", "ReCreate", 1), strings.Replace(obj(`"web-x"`), "RollingUpdate", "ReCreate", 1))
	if resp.Allowed || resp.Result.Code != 422 || !strings.Contains(resp.Result.Message, "spec.scaleStrategy.podsToDelete[0]") {
		t.Errorf("a name of nobody: %v", resp)
	}
}

func TestRulesSeeDefaults(t *testing.T) {
	for _, gates := range []string{"", "TemplateNoDefaults=true"} {
		hs := handlers(t, gates, nil)
		if resp := ask(t, hs, validate, "v1beta1", "CREATE", "", undefaulted); !resp.Allowed {
			t.Errorf("%q: an object without defaults is refused: %v", gates, resp.Result)
		}
		if resp := ask(t, hs, validate, "v1alpha1", "UPDATE", undefaulted, strings.Replace(undefaulted, "busybox:1.36", "busybox:1.37", 1)); !resp.Allowed {
			t.Errorf("%q: an update of an object without defaults is refused: %v", gates, resp.Result)
		}
	}
}

func TestUnknownTypeInV1alpha1(t *testing.T) {
	odd := spec(selector, tmpl("a"), `"updateStrategy":{"type":"RollingUpdate"}`)
	resp := ask(t, handlers(t, "", nil), validate, "v1alpha1", "CREATE", "", odd)
	if resp.Allowed || resp.Result.Code != 422 || !strings.Contains(resp.Result.Message, "spec.updateStrategy.type") {
		t.Errorf("a type that only v1beta1 has: %v", resp)
	}
}

func TestDeleteProtection(t *testing.T) {
	protected := func(value, replicas string) string {
		return `{"metadata":{"name":"web","namespace":"shop","labels":{"policy.kruise.io/delete-protection":"` + value + `"}},"spec":{"replicas":` + replicas + `}}`
	}
	const on = "ResourcesDeletionProtection=true"
	for name, tc := range map[string]struct {
		gates, old, message string
	}{
		"always means always":                     {on, protected("Always", "0"), "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection=Always"},
		"cascading means while it has Pods":       {on, protected("Cascading", "2"), "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection=Cascading and replicas 2>0"},
		"cascading without Pods is deletable":     {on, protected("Cascading", "0"), ""},
		"other values protect nothing":            {on, protected("always", "2"), ""},
		"nor does anything while the gate is off": {"", protected("Always", "2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				log := &bytes.Buffer{}
				resp := ask(t, handlers(t, tc.gates, log), validate, version, "DELETE", tc.old, "")
				if resp.Allowed != (tc.message == "") {
					t.Fatalf("response = %v", resp)
				}
				if resp.Allowed {
					if log.Len() > 0 {
						t.Errorf("log = %s", log)
					}
					continue
				}
				if resp.Result.Code != 403 || resp.Result.Message != tc.message {
					t.Errorf("result = %v, want 403 %s", resp.Result, tc.message)
				}
				if !strings.Contains(log.String(), `"Event":"DeletionProtection","Kind":"CloneSet","Namespace":"shop","Name":"web"`) {
					t.Errorf("log = %s", log)
				}
			}
		})
	}
}

func TestEarlierPathsAreServed(t *testing.T) {
	hs := handlers(t, "", nil)
	for _, path := range []string{mutate, validate, "/mutate-apps-kruise-io-v1alpha1-cloneset", "/validate-apps-kruise-io-v1alpha1-cloneset"} {
		if hs[path] == nil {
			t.Errorf("%s is not served", path)
		}
	}
}

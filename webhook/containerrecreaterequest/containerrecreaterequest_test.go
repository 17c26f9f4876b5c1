// SPDX-License-Identifier: Apache-2.0

package containerrecreaterequest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
)

func review(version string, op admissionv1.Operation, old, obj string) admittest.Review {
	return admittest.Review{Kind: schema.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "ContainerRecreateRequest"}, Operation: op, Old: old, New: obj}
}

const (
	path  = "/mutate-apps-kruise-io-containerrecreaterequest"
	alias = "/mutate-apps-kruise-io-v1alpha1-containerrecreaterequest"
)

var long = strings.Repeat("node.", 14) + "example"

// cluster has a Pod web-0 on a plain node, one on a virtual node and one on a node with a long name.
func cluster() []client.Object {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-" + "x"},
			Spec: corev1.PodSpec{
				NodeName: node, TerminationGracePeriodSeconds: new(int64(30)),
				Containers: []corev1.Container{{Name: "app", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2}}}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://1", RestartCount: 4}}},
		}
	}
	return []client.Object{
		pod("web-0", "n1"), pod("web-1", "virtual"), pod("web-2", long), pod("web-3", "gone"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"type": "bare-metal"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{"type": "virtual-kubelet"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: long}},
	}
}

func serve(t testing.TB, gates string, live, nodes client.Reader) admit.Handlers {
	t.Helper()
	set, err := features.Parse(gates)
	if err != nil {
		t.Fatal(err)
	}
	hs := admit.Handlers{}
	Register(hs, Options{Features: set, Live: live, Cached: nodes})
	return hs
}

func reader(t testing.TB, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func handlers(t testing.TB, gates string) admit.Handlers {
	return serve(t, gates, reader(t, cluster()...), reader(t, cluster()...))
}

func crr(pod string, more string) string {
	return `{"metadata":{"name":"web"},"spec":{"podName":"` + pod + `","containers":[{"name":"app"}]` + more + `}}`
}

// filled is what becomes of crr.
func filled(pod, node, extraLabels, annotations, strategy string) string {
	return `{"metadata":{"name":"web"` + annotations + `,"labels":{"crr.apps.kruise.io/active":"true","crr.apps.kruise.io/node-name":"` + node +
		`","crr.apps.kruise.io/pod-uid":"uid-of-x"` + extraLabels + `}},"spec":{"podName":"` + pod + `","containers":[{"name":"app","preStop":{"sleep":{"seconds":2}},` +
		`"statusContext":{"containerID":"containerd://1","restartCount":4}}],"strategy":` + strategy + `}}`
}

const plain = `{"failurePolicy":"Fail","terminationGracePeriodSeconds":30}`

func TestCreate(t *testing.T) {
	for name, tc := range map[string]struct{ obj, want string }{
		"a request is filled in with what its Pod says": {crr("web-0", ""), filled("web-0", "n1", "", "", plain)},
		"what it says about the stop is kept": {crr("web-0", `,"strategy":{"failurePolicy":"Ignore","terminationGracePeriodSeconds":0}`),
			filled("web-0", "n1", "", "", `{"failurePolicy":"Ignore","terminationGracePeriodSeconds":0}`)},
		"labels of one's own are overwritten": {
			strings.Replace(crr("web-0", ""), `"name":"web"`, `"name":"web","labels":{"crr.apps.kruise.io/active":"no","crr.apps.kruise.io/node-name":"n2","crr.apps.kruise.io/pod-uid":"1"}`, 1),
			filled("web-0", "n1", "", "", plain)},
		"a virtual node is said to be one": {crr("web-1", ""), filled("web-1", "virtual", `,"type":"virtual-kubelet"`, "", plain)},
		"a long name of a node is hashed, and told in full": {crr("web-2", ""),
			filled("web-2", "node.node.node.node.node.node.node.node.node.node.no-d19c2f3345", "", `,"annotations":{"crr.apps.kruise.io/node-name":"`+long+`"}`, plain)},
		"a copy on a node with a short name forgets the long one": {
			strings.Replace(crr("web-0", ""), `"name":"web"`, `"name":"web","annotations":{"crr.apps.kruise.io/node-name":"x","a":"b"}`, 1),
			filled("web-0", "n1", "", `,"annotations":{"a":"b"}`, plain)},
		"what is not known stays":                  {crr("web-0", `,"future":{"a":[1]}`), strings.TrimSuffix(filled("web-0", "n1", "", "", plain), "}}") + `,"future":{"a":[1]}}}`},
		"a request that is filled in passes again": {filled("web-0", "n1", "", "", plain), filled("web-0", "n1", "", "", plain)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				for _, path := range []string{path, alias} {
					r := review(version, "CREATE", "", tc.obj)
					got := admittest.Patched(t, r, admittest.Ask(t, handlers(t, ""), path, r))
					if !jsonpatch.Equal([]byte(got), []byte(tc.want)) {
						t.Errorf("%s: %s\nwant %s", version, got, tc.want)
					}
				}
			}
		})
	}
}

// broken fails to read.
type broken struct{ err error }

func (b broken) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return b.err
}
func (b broken) List(context.Context, client.ObjectList, ...client.ListOption) error { return b.err }

func TestRefusals(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("no right"))
	none := reader(t)
	stored := filled("web-0", "n1", "", "", plain)
	acquired := strings.Replace(stored, `"labels"`, `"annotations":{"crr.apps.kruise.io/unready-acquired":"2026-01-01T00:00:00Z"},"labels"`, 1)
	for name, tc := range map[string]struct {
		hs      admit.Handlers
		review  admittest.Review
		code    int32
		message string
	}{
		"no Pod is named":             {nil, review("v1beta1", "CREATE", "", crr("", "")), 400, "spec.podName: Required value"},
		"no such Pod":                 {nil, review("v1alpha1", "CREATE", "", crr("web-9", "")), 400, "no found Pod named web-9"},
		"no such node":                {nil, review("v1beta1", "CREATE", "", crr("web-3", "")), 400, "there is no Node gone"},
		"a hook that the Pod has not": {nil, review("v1beta1", "CREATE", "", strings.Replace(crr("web-0", ""), `"name":"app"`, `"name":"app","preStop":{}`, 1)), 400, "spec.containers[0].preStop: Forbidden"},
		"the Pod cannot be read":      {serve(t, "", broken{forbidden}, none), review("v1beta1", "CREATE", "", crr("web-0", "")), 500, "getting Pod web-0"},
		"the node cannot be read":     {serve(t, "", reader(t, cluster()...), broken{forbidden}), review("v1beta1", "CREATE", "", crr("web-0", "")), 500, "getting Node n1"},
		"the agent is off":            {handlers(t, "KruiseDaemon=false"), review("v1beta1", "CREATE", "", crr("web-0", "")), 403, "feature-gate KruiseDaemon is not enabled"},
		"the spec changes":            {nil, review("v1beta1", "UPDATE", stored, strings.Replace(stored, `"Fail"`, `"Ignore"`, 1)), 403, "spec of ContainerRecreateRequest is immutable"},
		"the Pod's label changes":     {nil, review("v1alpha1", "UPDATE", stored, strings.Replace(stored, "uid-of-x", "y", 1)), 403, "not allowed to update immutable label crr.apps.kruise.io/pod-uid"},
		"the node's label changes":    {nil, review("v1beta1", "UPDATE", stored, strings.Replace(stored, `"n1"`, `"n2"`, 1)), 403, "not allowed to update immutable label crr.apps.kruise.io/node-name"},
		"the time of v1alpha1 moves":  {nil, review("v1alpha1", "UPDATE", acquired, strings.Replace(acquired, "2026", "2027", 1)), 403, "not allowed to update immutable annotation crr.apps.kruise.io/unready-acquired"},
		"the time of v1alpha1 goes":   {nil, review("v1alpha1", "UPDATE", acquired, stored), 403, "not allowed to update immutable annotation"},
		"it is no object":             {nil, review("v1beta1", "CREATE", "", `{"spec":3}`), 400, ""},
		"the version is not known":    {nil, review("v1", "CREATE", "", crr("web-0", "")), 400, `version "v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.hs == nil {
				tc.hs = handlers(t, "")
			}
			got := admittest.Ask(t, tc.hs, path, tc.review)
			if got.Allowed || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.message) {
				t.Errorf("response = %v, want %d %s", got, tc.code, tc.message)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	stored := filled("web-0", "n1", "", "", plain)
	acquired := strings.Replace(stored, `"labels"`, `"annotations":{"crr.apps.kruise.io/unready-acquired":"2026-01-01T00:00:00Z"},"labels"`, 1)
	ended := strings.Replace(stored, `"crr.apps.kruise.io/active":"true",`, "", 1)
	short := strings.Replace(stored, `"preStop":{"sleep":{"seconds":2}},"statusContext":{"containerID":"containerd://1","restartCount":4}`, "", 1)
	short = strings.Replace(short, `"app",`, `"app"`, 1)
	reported := strings.Replace(stored, `"labels"`, `"annotations":{`+
		`"apps.kruise.io/v1beta1-fields":"{\"conditions\":[{\"type\":\"Complete\",\"status\":\"True\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\",\"reason\":\"Recreated\",\"message\":\"\"}]}",`+
		`"crr.apps.kruise.io/sync-container-statuses":"[{\"name\":\"app\",\"ready\":true,\"restartCount\":5,\"containerID\":\"containerd://2\"}]"},"labels"`, 1)
	for name, tc := range map[string]struct{ gates, version, old, obj, want string }{
		"what v1alpha1 has in annotations stays":      {"", "v1alpha1", reported, stored, reported},
		"a request that is no longer active":          {"", "v1beta1", stored, ended, ended},
		"the manifest again, with the labels":         {"", "v1beta1", stored, short, stored},
		"the same in v1alpha1":                        {"", "v1alpha1", stored, short, stored},
		"the time of v1alpha1 is written":             {"", "v1alpha1", stored, acquired, acquired},
		"metadata while the agent is off":             {"KruiseDaemon=false", "v1beta1", stored, ended, ended},
		"a request that could not be made any longer": {"", "v1beta1", strings.ReplaceAll(stored, "web-0", "web-9"), strings.ReplaceAll(ended, "web-0", "web-9"), strings.ReplaceAll(ended, "web-0", "web-9")},
	} {
		t.Run(name, func(t *testing.T) {
			r := review(tc.version, "UPDATE", tc.old, tc.obj)
			got := admittest.Patched(t, r, admittest.Ask(t, handlers(t, tc.gates), path, r))
			if !jsonpatch.Equal([]byte(got), []byte(tc.want)) {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

// A Node that joined a moment ago is not in the cache yet, and that is no reason to refuse.
func TestNodesAreLookedUpTwice(t *testing.T) {
	r := review("v1beta1", "CREATE", "", crr("web-0", ""))
	if got := admittest.Ask(t, serve(t, "", reader(t, cluster()...), reader(t)), path, r); !got.Allowed {
		t.Error(got.Result)
	}
}

func TestWarnings(t *testing.T) {
	request := func(name string, change func(*v1beta1.ContainerRecreateRequest)) client.Object {
		other := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{
			"crr.apps.kruise.io/pod-uid": "uid-of-x", "crr.apps.kruise.io/active": "true",
		}}}
		change(other)
		return other
	}
	others := append(cluster(),
		request("second", func(*v1beta1.ContainerRecreateRequest) {}), request("first", func(*v1beta1.ContainerRecreateRequest) {}),
		request("elsewhere", func(r *v1beta1.ContainerRecreateRequest) { r.Namespace = "other" }),
		request("of-another-pod", func(r *v1beta1.ContainerRecreateRequest) { r.Labels["crr.apps.kruise.io/pod-uid"] = "y" }),
		request("done", func(r *v1beta1.ContainerRecreateRequest) { r.Status.CompletionTime = new(metav1.Now()) }),
		request("no-longer-active", func(r *v1beta1.ContainerRecreateRequest) { delete(r.Labels, "crr.apps.kruise.io/active") }))
	hs := serve(t, "", reader(t, cluster()...), reader(t, others...))
	r := review("v1beta1", "CREATE", "", crr("web-0", `,"strategy":{"terminationGracePeriodSeconds":1}`))
	want := []string{
		"spec.containers[0].preStop.sleep: 2 seconds are cut to terminationGracePeriodSeconds (1)",
		"spec.podName: the request waits until others for this Pod are done: first, second",
	}
	if got := admittest.Ask(t, hs, path, r); !slices.Equal(got.Warnings, want) {
		t.Errorf("warnings = %q", got.Warnings)
	}
}

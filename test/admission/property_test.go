// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/admit/admittest"
	"github.com/kruisectl/kruisectl/webhook/cloneset"
	"github.com/kruisectl/kruisectl/webhook/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/webhook/daemonset"
	"github.com/kruisectl/kruisectl/webhook/imagelistpulljob"
	"github.com/kruisectl/kruisectl/webhook/imagepulljob"
	"github.com/kruisectl/kruisectl/webhook/nodeimage"
	"github.com/kruisectl/kruisectl/webhook/podprobemarker"
	"github.com/kruisectl/kruisectl/webhook/statefulset"
)

// Objects put together from rows of the tables, good and bad ones, keep what admission promises
// of every object: to default it once, to blame fields by name, and to let go what is stored.
func TestPromisesOfAdmission(t *testing.T) {
	everything := all(t)
	servers := map[string]admit.Handlers{}
	gates := []string{"", "TemplateNoDefaults=true", "StatefulSetAutoDeletePVC=false,StatefulSetAutoResizePVCGate=true", "InPlaceWorkloadVerticalScaling=true"}
	for _, g := range gates {
		servers[g] = served(t, g)
	}
	rapid.Check(t, func(rt *rapid.T) {
		obj := everything.draw(rt)
		ask := asker(t, servers[rapid.SampledFrom(gates).Draw(rt, "gates")], obj)

		stored, answer := ask(mutate, admissionv1.Create, "", encode(t, obj))
		if !answer.Allowed {
			blames(rt, stored, answer)
			return
		}
		if _, again := ask(mutate, admissionv1.Create, "", stored); len(again.Patch) > 0 {
			rt.Fatalf("defaulting %s twice: %s", stored, again.Patch)
		}
		if _, answer := ask(validate, admissionv1.Create, "", stored); !answer.Allowed {
			blames(rt, stored, answer)
		}
		labelled := &unstructured.Unstructured{}
		require.NoError(t, labelled.UnmarshalJSON([]byte(stored)))
		labels := labelled.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["a"] = "b"
		labelled.SetLabels(labels)
		if _, answer := ask(mutate, admissionv1.Update, stored, encode(t, labelled)); len(answer.Patch) > 0 {
			rt.Fatalf("a label changes the spec of %s: %s", stored, answer.Patch)
		}
		if _, answer := ask(validate, admissionv1.Update, stored, encode(t, labelled)); !answer.Allowed {
			rt.Fatalf("%s cannot be labelled: %v", stored, answer.Result)
		}
	})
}

// blames fails unless the refusal of obj names a field for every fault.
func blames(rt *rapid.T, obj string, answer *admissionv1.AdmissionResponse) {
	if code := answer.Result.Code; code != 422 && code != 400 {
		rt.Fatalf("%s is refused with code %d: %s", obj, code, answer.Result.Message)
	}
	if answer.Result.Details == nil || len(answer.Result.Details.Causes) == 0 {
		rt.Fatalf("%s is refused without a cause: %s", obj, answer.Result.Message)
	}
	for _, cause := range answer.Result.Details.Causes {
		if !strings.HasPrefix(cause.Field, "spec.") && !strings.HasPrefix(cause.Field, "metadata.") || cause.Message == "" {
			rt.Fatalf("a fault of %s without a field: %v", obj, cause)
		}
	}
}

// pool is what objects are put together from.
type pool struct {
	t      *testing.T
	tables map[string]table
	rows   map[string][]row
}

// all is every row of every table that is no DELETE.
func all(t *testing.T) pool {
	p := pool{t: t, tables: map[string]table{}, rows: map[string][]row{}}
	for file := range kinds {
		tab := read(t, file)
		p.tables[file] = tab
		for _, list := range []map[string]row{tab.Invalid, tab.Valid} {
			for _, name := range slices.Sorted(maps.Keys(list)) {
				if !list[name].Delete && !list[name].Denied {
					p.rows[file] = append(p.rows[file], list[name])
				}
			}
		}
	}
	return p
}

// draw puts an object together from at most four rows.
func (p pool) draw(rt *rapid.T) *unstructured.Unstructured {
	file := rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(rt, "kind")
	version := rapid.SampledFrom(kinds[file].versions).Draw(rt, "version")
	spec := p.tables[file].Base
	var metadata map[string]any
	for range rapid.IntRange(0, 4).Draw(rt, "rows") {
		r, ok := rapid.SampledFrom(p.rows[file]).Draw(rt, "row").in(version)
		if !ok {
			continue
		}
		spec = merged(p.t, merged(p.t, spec, r.Old), r.Spec)
		if r.Metadata != nil {
			metadata = r.Metadata
		}
	}
	obj := object(metadata, spec, kinds[file], version)
	obj.SetGenerateName("")
	if obj.GetName() == "" {
		obj.SetName("web")
	}
	return obj
}

// asker sends reviews of objects of the kind of obj, and returns the object as the answer leaves it.
func asker(t *testing.T, hs admit.Handlers, obj *unstructured.Unstructured) func(path string, op admissionv1.Operation, old, obj string) (string, *admissionv1.AdmissionResponse) {
	gvk := obj.GroupVersionKind()
	file := strings.ToLower(gvk.Kind)
	return func(path string, op admissionv1.Operation, old, obj string) (string, *admissionv1.AdmissionResponse) {
		if path == mutate && kinds[file].plain || path == validate && kinds[file].resolved {
			return obj, &admissionv1.AdmissionResponse{Allowed: true}
		}
		r := admittest.Review{Kind: gvk, Operation: op, Old: old, New: obj}
		answer := admittest.Ask(t, hs, path+file, r)
		if path == mutate && answer.Allowed {
			return admittest.Patched(t, r, answer), answer
		}
		return obj, answer
	}
}

const (
	mutate   = "/mutate-apps-kruise-io-"
	validate = "/validate-apps-kruise-io-"
)

func encode(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(u)
	require.NoError(t, err)
	return string(text)
}

// served are the webhooks of all kinds over a cluster that has nothing but what a
// ContainerRecreateRequest is about.
func served(t *testing.T, gates string) admit.Handlers {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	pod, node := recreated()
	pod.Namespace = "shop" // as reviews of admittest say
	inDefault := pod.DeepCopy()
	inDefault.Namespace = "default"
	return register(t, gates, fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, inDefault, node).Build())
}

// register serves the webhooks of all kinds.
func register(t *testing.T, gates string, reader client.Reader) admit.Handlers {
	t.Helper()
	set, err := features.Parse(strings.TrimSuffix("ImagePullJobGate=true,"+gates, ","))
	require.NoError(t, err)
	hs := admit.Handlers{}
	cloneset.Register(hs, cloneset.Options{Features: set, Cached: reader, Live: reader})
	statefulset.Register(hs, statefulset.Options{Features: set, Live: reader})
	daemonset.Register(hs, set)
	imagepulljob.Register(hs, set)
	imagelistpulljob.Register(hs, set)
	nodeimage.Register(hs, set, testclock.NewFakePassiveClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)))
	containerrecreaterequest.Register(hs, containerrecreaterequest.Options{Features: set, Live: reader, Cached: reader})
	podprobemarker.Register(hs, podprobemarker.Options{Features: set, Markers: reader})
	return hs
}

// recreated is the Pod that the table of ContainerRecreateRequests is about, and its Node: one
// container runs, with a hook, one does not, and there are init containers of both kinds.
func recreated() (*corev1.Pod, *corev1.Node) {
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Unix(1, 0))}}
	done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	container := func(name string, change func(*corev1.Container)) corev1.Container {
		c := corev1.Container{Name: name, Image: "a"}
		change(&c)
		return c
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "target", Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName: "node-1", TerminationGracePeriodSeconds: new(int64(30)),
			InitContainers: []corev1.Container{
				container("setup", func(*corev1.Container) {}),
				container("proxy", func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }),
			},
			Containers: []corev1.Container{
				container("app", func(c *corev1.Container) {
					c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
					c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}}}
				}),
				container("slow", func(c *corev1.Container) {
					c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
				}),
				container("young", func(*corev1.Container) {}),
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			InitContainerStatuses: []corev1.ContainerStatus{
				{Name: "setup", ContainerID: "containerd://s", State: done}, {Name: "proxy", ContainerID: "containerd://p", RestartCount: 1, State: up},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", ContainerID: "containerd://a", RestartCount: 2, State: up}, {Name: "slow", ContainerID: "containerd://b", State: up}, {Name: "young"},
			},
		},
	}
	return pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
}

// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

func raw(t *testing.T, obj any, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	return u
}

func workload(t *testing.T, u *unstructured.Unstructured) Workload {
	t.Helper()
	w, err := Wrap(target.Object{Kind: target.CloneSet, GVK: u.GroupVersionKind(), Live: u})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// inBoth returns the same CloneSet as both versions show it.
func inBoth(t *testing.T, cs *v1beta1.CloneSet) map[string]Workload {
	t.Helper()
	old := &v1alpha1.CloneSet{}
	if err := v1alpha1.CloneSetFromHub(context.Background(), cs, old); err != nil {
		t.Fatal(err)
	}
	return map[string]Workload{
		"v1beta1":  workload(t, raw(t, cs, v1beta1.GroupVersion.WithKind("CloneSet"))),
		"v1alpha1": workload(t, raw(t, old, v1alpha1.GroupVersion.WithKind("CloneSet"))),
	}
}

func TestFactsAreTheSameInBothVersions(t *testing.T) {
	cs := fixture.CloneSet("web").Replicas(10).Partition("70%").MaxUnavailable("20%").Paused().
		Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType).ProgressDeadlineSeconds(600).With(func(c *v1beta1.CloneSet) {
		c.Generation = 4
		c.Status = v1beta1.CloneSetStatus{
			ObservedGeneration: 4, Replicas: 10, ReadyReplicas: 9, AvailableReplicas: 8, UpdatedReplicas: 3, UpdatedReadyReplicas: 2,
			UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 3, UpdateRevision: "web-b", CurrentRevision: "web-a",
		}
	}).Obj()
	want := verdict.Facts{
		Object: "cloneset/web", Generation: 4, ObservedGeneration: 4, Desired: 10, Total: 10, Ready: 9, Available: 8,
		Updated: 3, UpdatedReady: 2, UpdatedAvailable: 1, Partition: verdict.Partition{Raw: "70%", Keep: 7, Target: 3},
		MaxUnavailable: 2, MaxUnavailableRaw: "20%", Paused: true, InPlaceOnly: true, UpdateRevision: "web-b", CurrentRevision: "web-a",
		Deadline: &verdict.Deadline{Seconds: 600, Field: "spec.progressDeadlineSeconds"},
	}
	for version, w := range inBoth(t, cs) {
		got, err := w.Facts()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: Facts() differs (-want +got):\n%s", version, diff)
		}
		if !w.Paused() {
			t.Errorf("%s: Paused() is false", version)
		}
		if v, ok := w.Value(w.At.Partition); !ok || v != "70%" {
			t.Errorf("%s: %s is %v", version, w.At.Partition, v)
		}
		if v, ok := w.Value(w.At.Policy); !ok || v != "InPlaceOnly" {
			t.Errorf("%s: %s is %v", version, w.At.Policy, v)
		}
	}
}

func TestPartitionFollowsTheRoundingOfTheController(t *testing.T) {
	for _, tc := range []struct {
		replicas     int32
		partition    string
		keep, target int
	}{{3, "90%", 2, 1}, {10, "30%", 3, 7}, {10, "95%", 9, 1}, {4, "99%", 3, 1}, {1, "99%", 1, 0}, {3, "7", 3, 0}, {4, "100%", 4, 0}} {
		cs := fixture.CloneSet("web").Replicas(tc.replicas).Partition(tc.partition).Obj()
		f, err := workload(t, raw(t, cs, v1beta1.GroupVersion.WithKind("CloneSet"))).Facts()
		if err != nil {
			t.Fatal(err)
		}
		if f.Partition.Keep != tc.keep || f.Partition.Target != tc.target {
			t.Errorf("%d replicas, partition %s: keep %d target %d, want %d %d", tc.replicas, tc.partition, f.Partition.Keep, f.Partition.Target, tc.keep, tc.target)
		}
	}
}

// An object of which any part is missing or odd gives facts or an error, never a panic.
func TestFactsAreTotal(t *testing.T) {
	full := raw(t, fixture.CloneSet("web").Replicas(3).Partition("50%").Obj(), v1beta1.GroupVersion.WithKind("CloneSet"))
	rapid.Check(t, func(rt *rapid.T) {
		u := full.DeepCopy()
		for range rapid.IntRange(1, 6).Draw(rt, "removals") {
			remove(rt, u.Object)
		}
		w := Workload{Object: target.Object{Kind: target.CloneSet, Live: u}, Adapter: cloneSet, At: cloneSet.Fields["v1beta1"]}
		f, err := w.Facts()
		if err == nil {
			_ = verdict.Of(f)
		}
		_, _ = w.Template()
		_, _ = w.Selector()
		_ = w.Revisions(nil, nil)
	})
}

// remove deletes one random field at any depth.
func remove(t *rapid.T, m map[string]any) {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return
	}
	k := rapid.SampledFrom(sortedWords(keys)).Draw(t, "key")
	if child, ok := m[k].(map[string]any); ok && rapid.Bool().Draw(t, "descend") {
		remove(t, child)
		return
	}
	delete(m, k)
}

func sortedWords(words []string) []string {
	for i := range words {
		for j := i; j > 0 && words[j] < words[j-1]; j-- {
			words[j], words[j-1] = words[j-1], words[j]
		}
	}
	return words
}

func revisions(t *testing.T) (Workload, []*appsv1.ControllerRevision) {
	t.Helper()
	set := fixture.CloneSet("web").Image("web:2")
	one, two, three := fixture.Revision(fixture.CloneSet("web").Image("web:1"), 1), fixture.Revision(set, 2), fixture.Revision(fixture.CloneSet("web").Image("web:3"), 3)
	cs := set.Status(one.Name, two.Name).Obj()
	return workload(t, raw(t, cs, v1beta1.GroupVersion.WithKind("CloneSet"))), []*appsv1.ControllerRevision{one, two, three}
}

func TestRevisionsHaveRolesAndPods(t *testing.T) {
	w, stored := revisions(t)
	pods := []*corev1.Pod{
		fixture.Pod("a").At(stored[0]).Obj(), fixture.Pod("b").At(stored[1]).Obj(),
		fixture.Pod("c").Label("controller-revision-hash", stored[1].Name[strings.LastIndex(stored[1].Name, "-")+1:]).Obj(), // the short form
	}
	list := w.Revisions(stored, pods)
	var got []string
	for _, r := range list {
		got = append(got, strings.Join(r.Roles, "+")+":"+r.Images[0])
	}
	if want := "current:web:1 update+live:web:2 :web:3"; strings.Join(got, " ") != want {
		t.Errorf("revisions are %v, want %s", got, want)
	}
	if list[0].Pods != 1 || list[1].Pods != 2 || list[2].Pods != 0 {
		t.Errorf("pods are %d %d %d", list[0].Pods, list[1].Pods, list[2].Pods)
	}
	if r, ok := Before(list); !ok || r.Number != 3 {
		t.Errorf("Before() is %d: the newest one that differs from live", r.Number)
	}
	for _, word := range []string{"2", list[1].Name, list[1].Hash} {
		if r, ok := FindRevision(list, word); !ok || r.Number != 2 {
			t.Errorf("FindRevision(%q) is %d %v", word, r.Number, ok)
		}
	}
	if _, ok := FindRevision(list, "9"); ok {
		t.Error("revision 9 was found")
	}
	if all := w.Revisions(stored, nil); all[0].Pods != -1 {
		t.Error("unknown Pods are counted")
	}
}

func TestOwnedGoesByUIDAlone(t *testing.T) {
	w, stored := revisions(t)
	foreign := fixture.Revision(fixture.CloneSet("web").Image("x:1").With(func(c *v1beta1.CloneSet) { c.UID = "other" }), 9)
	own := w.Owned([]appsv1.ControllerRevision{*stored[2], *foreign, *stored[0]})
	if len(own) != 2 || own[0].Revision != 1 || own[1].Revision != 3 {
		t.Errorf("owned are %v", own)
	}
}

func TestRawTemplateHasNoPatchDirective(t *testing.T) {
	w, stored := revisions(t)
	stored[0].Data.Raw = []byte(strings.Replace(string(stored[0].Data.Raw), `"spec":{"containers"`, `"spec":{"$patch":"replace","containers"`, 1))
	tmpl, err := w.Revisions(stored, nil)[0].RawTemplate()
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "X", "t": tmpl}}
	text, err := u.MarshalJSON()
	if err != nil || strings.Contains(string(text), "$patch") || strings.Contains(string(text), "creationTimestamp") {
		t.Errorf("template is %s (%v)", text, err)
	}
}

func TestTemplatesAreComparedByMeaning(t *testing.T) {
	a, b := fixture.CloneSet("web").Obj().Spec.Template, fixture.CloneSet("web").Obj().Spec.Template
	a.Annotations, b.Annotations = map[string]string{}, nil
	a.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	a.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1000m")}
	b.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	if !SameTemplate(&a, &b) {
		t.Error("equal templates differ")
	}
	b.Spec.Containers[0].Image = "other"
	if SameTemplate(&a, &b) {
		t.Error("different templates are equal")
	}
}

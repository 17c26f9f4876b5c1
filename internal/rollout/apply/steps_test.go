// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// of wraps an object of a kind, as it would be read.
func of(t *testing.T, k *target.Kind, object map[string]any) adapter.Workload {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(k.Kind))
	u.SetName("x")
	w, err := adapter.Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPartitionForFitsTheKind(t *testing.T) {
	for _, tc := range []struct {
		kind     *target.Kind
		text     string
		replicas int
		want     string
	}{
		{target.CloneSet, "10%", 4, "90%"}, {target.CloneSet, "3", 4, "1"}, {target.CloneSet, "9", 4, "0"}, {target.CloneSet, "0", 4, "100%"},
		{target.DaemonSet, "5%", 40, "95%"}, {target.DaemonSet, "0", 40, "100%"},
		{target.StatefulSet, "10%", 6, "5"}, {target.StatefulSet, "1%", 200, "198"}, {target.StatefulSet, "100%", 6, "0"},
		{target.StatefulSet, "0", 6, "6"}, {target.StatefulSet, "0%", 6, "6"}, {target.StatefulSet, "50%", 0, "0"},
	} {
		got, err := PartitionFor(of(t, tc.kind, map[string]any{}), tc.text, tc.replicas)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: PartitionFor(%s, %d) = %s, %v, want %s", tc.kind.Word(), tc.text, tc.replicas, got.String(), err, tc.want)
		}
	}
}

func TestAdvanceIsOnePatchWithoutRepeatedParents(t *testing.T) {
	w := of(t, target.StatefulSet, map[string]any{"spec": map[string]any{"replicas": int64(3)}})
	ops, err := Advance(intstr.FromInt32(2), func(w adapter.Workload) ([]Op, error) { return Set(w, w.At.MaxUnavailable, int64(1)), nil })(w)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, o := range ops {
		seen[o.Path]++
	}
	for path, n := range seen {
		if n > 1 {
			t.Errorf("%s is written %d times", path, n)
		}
	}
	if len(ops) != 4 { // updateStrategy, rollingUpdate, maxUnavailable, partition
		t.Errorf("operations are %+v", ops)
	}
}

func TestAbortTarget(t *testing.T) {
	list := []adapter.Revision{{Name: "x-a", Hash: "a", Number: 1, Pods: 2}, {Name: "x-b", Hash: "b", Number: 2, Pods: 5}, {Name: "x-c", Hash: "c", Number: 3, Pods: 3, Roles: []string{adapter.RoleUpdate}}}
	status := func(kind *target.Kind, fields map[string]any) adapter.Workload {
		return of(t, kind, map[string]any{"status": fields})
	}
	for name, tc := range map[string]struct {
		w    adapter.Workload
		list []adapter.Revision
		want string
		err  bool
	}{
		"the current revision":              {status(target.StatefulSet, map[string]any{"currentRevision": "x-a", "updateRevision": "x-c"}), list, "x-a", false},
		"nothing while it is the same":      {status(target.StatefulSet, map[string]any{"currentRevision": "x-c", "updateRevision": "x-c"}), list, "", false},
		"an error when it is not stored":    {status(target.CloneSet, map[string]any{"currentRevision": "x-z", "updateRevision": "x-c"}), list, "", true},
		"where most old Pods are":           {status(target.DaemonSet, map[string]any{"updateRevision": "c"}), list, "x-b", false},
		"nothing when no Pod is an old one": {status(target.DaemonSet, map[string]any{"updateRevision": "c"}), list[2:], "", false},
	} {
		got, err := AbortTarget(tc.w, tc.list)
		if got.Name != tc.want || (err != nil) != tc.err {
			t.Errorf("%s: AbortTarget() = %q, %v, want %q", name, got.Name, err, tc.want)
		}
	}
}

func TestReserve(t *testing.T) {
	w := of(t, target.StatefulSet, map[string]any{"spec": map[string]any{"replicas": int64(5), "reserveOrdinals": []any{int64(1), "4-6"}}})
	ops, err := Reserve(w, []int64{5, 2}, 3)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := ops[len(ops)-1].Value.([]any)
	if !ok || len(got) != 3 || got[2] != int64(2) {
		t.Errorf("reserveOrdinals becomes %v: 5 is in a range already", ops[len(ops)-1].Value)
	}
	for _, name := range []string{"web", "web-", "web-x", "-1"} {
		if n, err := OrdinalOf(name); err == nil {
			t.Errorf("OrdinalOf(%q) = %d", name, n)
		}
	}
}

func TestEnvKeepsWhatItDoesNotName(t *testing.T) {
	odd := map[string]any{"name": "B", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}, "futureRef": map[string]any{"x": "y"}}}
	container := map[string]any{"name": "app", "env": []any{map[string]any{"name": "A", "value": "0"}, odd}}
	w := of(t, target.DaemonSet, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{container}, "initContainers": []any{map[string]any{"name": "init"}}}}}})
	set, remove, err := ParseEnv([]string{"A=1", "C=", "D-"})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := Env{Set: set, Remove: remove}.Change(w)
	if err != nil || len(ops) != 2 || ops[0].Op != "test" || ops[1].Path != "/spec/template/spec/containers/0/env" {
		t.Fatalf("operations are %+v, %v", ops, err)
	}
	list := ops[1].Value.([]any)
	if len(list) != 3 || !sameValue(list[1], odd) || nameOf(list[2]) != "C" {
		t.Errorf("variables become %v", list)
	}
	if ops, err := (Env{Set: set[:0], Remove: []string{"D"}}).Change(w); err != nil || len(ops) > 0 {
		t.Errorf("removing what is not there: %v, %v", ops, err)
	}
	if _, err := (Env{Containers: "ini", Set: set}).Change(w); err == nil {
		t.Error("an unknown container is taken")
	}
	if ops, err := (Env{Containers: "init", Set: set}).Change(w); err != nil || len(ops) != 2 || ops[1].Path != "/spec/template/spec/initContainers/0/env" {
		t.Errorf("an init container that is named: %+v, %v", ops, err)
	}
}

func TestResourcesAreComparedByValue(t *testing.T) {
	container := map[string]any{"name": "app", "resources": map[string]any{"limits": map[string]any{"cpu": "1", "memory": "1Gi"}, "claims": []any{"x"}}}
	w := of(t, target.DaemonSet, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}})
	if ops, err := (Resources{Limits: map[string]string{"cpu": "1000m"}}).Change(w); err != nil || len(ops) > 0 {
		t.Errorf("the same value is a change: %v, %v", ops, err)
	}
	ops, err := Resources{Requests: map[string]string{"cpu": "500m"}, Remove: []string{"memory"}}.Change(w)
	if err != nil || len(ops) != 2 {
		t.Fatalf("operations are %+v, %v", ops, err)
	}
	want := map[string]any{"limits": map[string]any{"cpu": "1"}, "requests": map[string]any{"cpu": "500m"}, "claims": []any{"x"}}
	if !sameValue(ops[1].Value, want) {
		t.Errorf("resources become %v, want %v", ops[1].Value, want)
	}
	for _, text := range []string{"cpu", "cpu=", "=1", "cpu=-1", "cpu=1,cpu=2", "cpu=lots"} {
		if got, err := ParseResources("--limits", text); err == nil {
			t.Errorf("ParseResources(%q) = %v", text, got)
		}
	}
}

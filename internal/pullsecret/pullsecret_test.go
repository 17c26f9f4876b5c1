// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var job = types.NamespacedName{Namespace: "shop", Name: "pull"}

// source is the secret shop/login with some data.
func source(data string) map[string]*corev1.Secret {
	return map[string]*corev1.Secret{"login": {
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "login", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"note": "b", corev1.LastAppliedConfigAnnotation: "the whole secret again"},
		},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)},
	}}
}

// copyOf is a copy of shop/login with data, used by jobs.
func copyOf(name, data, references string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "config", Name: name, Annotations: map[string]string{
			"imagepulljobs.kruise.io/source-key": "shop/login", "imagepulljobs.kruise.io/references": references, "imagepulljobs.kruise.io/mode": "batch",
		}},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)},
	}
}

func TestDecide(t *testing.T) {
	created := copyOf("login-b9aa03", "x", "shop/pull")
	created.Labels, created.Annotations["note"] = map[string]string{"team": "a"}, "b"
	ref := func(name string) []v1beta1.ReferenceObject {
		return []v1beta1.ReferenceObject{{Namespace: "config", Name: name, Mode: "batch"}}
	}
	foreign := copyOf("foreign", "x", "")
	foreign.Annotations = nil
	deleting := copyOf("login-1", "x", "shop/pull")
	deleting.DeletionTimestamp = &metav1.Time{}
	otherType := copyOf("login-1", "x", "shop/pull,shop/zoo")
	otherType.Type = corev1.SecretTypeDockercfg
	left := copyOf("login-1", "x", "shop/zoo")
	left.Type = corev1.SecretTypeDockercfg
	cases := map[string]struct {
		snap Snapshot
		want Plan
	}{
		"a source that was made anew with another type is copied anew": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{otherType}},
			Plan{Create: []*corev1.Secret{created}, Update: []*corev1.Secret{left}, References: ref("login-b9aa03")},
		},
		"a job without secrets wants nothing": {Snapshot{}, Plan{}},
		"a wanted secret is copied with what it carries": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{foreign}},
			Plan{Create: []*corev1.Secret{created}, References: ref("login-b9aa03")},
		},
		"a secret that does not exist is skipped": {
			Snapshot{Wanted: []string{"login", "other"}, Sources: source("x"), Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{References: ref("login-1"), Missing: []string{"other"}},
		},
		"a copy outlives its source while the job uses it": {
			Snapshot{Wanted: []string{"login"}, Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{References: ref("login-1"), Missing: []string{"login"}},
		},
		"a copy in order is left alone": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{References: ref("login-1")},
		},
		"changed data is copied again": {
			Snapshot{Wanted: []string{"login"}, Sources: source("y"), Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{References: ref("login-1"), Update: []*corev1.Secret{copyOf("login-1", "y", "shop/pull")}},
		},
		"another job's copy is shared": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/zoo")}},
			Plan{References: ref("login-1"), Update: []*corev1.Secret{copyOf("login-1", "x", "shop/pull,shop/zoo")}},
		},
		"of several copies the one that names the job wins": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{copyOf("login-2", "x", "shop/pull"), copyOf("login-1", "x", "shop/zoo")}},
			Plan{References: ref("login-2")},
		},
		"of several copies that name the job the first by name wins, the others are released": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{copyOf("login-2", "x", "shop/pull"), copyOf("login-1", "x", "shop/pull")}},
			Plan{References: ref("login-1"), Delete: []*corev1.Secret{copyOf("login-2", "x", "shop/pull")}},
		},
		"a copy that is being deleted does not count": {
			Snapshot{Wanted: []string{"login"}, Sources: source("x"), Copies: []*corev1.Secret{deleting}},
			Plan{Create: []*corev1.Secret{created}, References: ref("login-b9aa03")},
		},
		"a copy that nobody else uses is deleted": {
			Snapshot{Released: true, Wanted: []string{"login"}, Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{Delete: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
		},
		"a copy that others use loses the job": {
			Snapshot{Released: true, Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/a,shop/pull,shop/zoo")}},
			Plan{Update: []*corev1.Secret{copyOf("login-1", "x", "shop/a,shop/zoo")}},
		},
		"a copy of a secret that the job wants no more is released": {
			Snapshot{Wanted: []string{}, Copies: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
			Plan{Delete: []*corev1.Secret{copyOf("login-1", "x", "shop/pull")}},
		},
		"secrets of the agents' own namespace are used as they are": {
			Snapshot{Job: types.NamespacedName{Namespace: "config", Name: "pull"}, Wanted: []string{"login"}},
			Plan{References: []v1beta1.ReferenceObject{{Namespace: "config", Name: "login"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.snap.Namespace = "config"
			if tc.snap.Job.Name == "" {
				tc.snap.Job = job
			}
			if diff := cmp.Diff(tc.want, Decide(tc.snap), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestShared plays jobs that come and go in any order on the same secrets: there is never
// more than one copy per source, every active job finds its copy, and none is left over.
func TestShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		copies := map[string]*corev1.Secret{}
		active := map[types.NamespacedName]bool{}
		apply := func(s Snapshot) Plan {
			s.Namespace = "config"
			for _, c := range copies {
				s.Copies = append(s.Copies, c)
			}
			plan := Decide(s)
			for _, c := range slices.Concat(plan.Create, plan.Update) {
				copies[c.Name] = c
			}
			for _, c := range plan.Delete {
				delete(copies, c.Name)
			}
			return plan
		}
		steps := rapid.IntRange(1, 20).Draw(t, "steps")
		for range steps {
			who := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("job%d", rapid.IntRange(0, 3).Draw(t, "job"))}
			if active[who] && rapid.Bool().Draw(t, "ends") {
				apply(Snapshot{Job: who, Released: true})
				delete(active, who)
			} else {
				active[who] = true
				plan := apply(Snapshot{Job: who, Wanted: []string{"login"}, Sources: source("x")})
				if len(plan.References) != 1 || copies[plan.References[0].Name] == nil {
					t.Fatalf("no copy for %v: %+v", who, plan)
				}
				if again := apply(Snapshot{Job: who, Wanted: []string{"login"}, Sources: source("x")}); !again.Empty() {
					t.Fatalf("a second pass writes: %+v", again)
				}
			}
			if len(copies) > 1 || len(copies) == 0 && len(active) > 0 {
				t.Fatalf("%d copies for %d jobs", len(copies), len(active))
			}
		}
		for who := range active {
			apply(Snapshot{Job: who, Released: true})
		}
		if len(copies) != 0 {
			t.Fatalf("left over: %v", copies)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cloneset

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

// observed is what a watcher saw at every event of a Pod, in the order of the API server.
type observed struct {
	least int // available Pods
	most  int // Pods that do not terminate
}

// watchPods watches the Pods of the set, all of which exist, until the returned function
// is called.
func (s *set) watchPods() (end func() observed) {
	s.t.Helper()
	var list corev1.PodList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	w, err := testWatch.Watch(s.t.Context(), &corev1.PodList{}, &client.ListOptions{
		Namespace: s.key.Namespace, Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	result := make(chan observed, 1)
	go func() {
		o := observed{least: len(pods)}
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			pods[pod.Name] = pod
			if e.Type == "DELETED" {
				delete(pods, pod.Name)
			}
			available, active := 0, 0
			for _, p := range pods {
				if !plan.IsActive(p) {
					continue
				}
				active++
				if ok, _ := plan.Available(p, 0, p.CreationTimestamp.Time); ok {
					available++
				}
			}
			o.least, o.most = min(o.least, available), max(o.most, active)
		}
		result <- o
	}()
	return func() observed {
		w.Stop()
		return <-result
	}
}

// At no event are there fewer available Pods than maxUnavailable allows, nor more Pods than
// maxSurge does.
func TestLimitsHoldAtEveryEvent(t *testing.T) {
	cases := map[string]struct {
		set         func() *v1beta1.CloneSet
		env         bool
		updated     int32
		least, most int
	}{
		"recreated, one at a time":             {web().Replicas(4).MaxUnavailable("1").Obj, false, 4, 3, 4},
		"recreated with surge alone":           {web().Replicas(4).MaxUnavailable("0").MaxSurge("2").Obj, false, 4, 4, 6},
		"surge with a partition":               {web().Replicas(4).MaxUnavailable("0").MaxSurge("2").Partition("3").Obj, false, 1, 4, 5},
		"surge and unavailability":             {web().Replicas(4).MaxUnavailable("1").MaxSurge("1").Obj, false, 4, 3, 5},
		"in place, two at a time":              {inPlace().Replicas(5).MaxUnavailable("2").Obj, false, 5, 3, 5},
		"in place, and surge is not needed":    {inPlace().Replicas(4).MaxUnavailable("1").MaxSurge("2").Obj, false, 4, 3, 4},
		"in place with a partition":            {inPlace().Replicas(5).MaxUnavailable("40%").Partition("60%").Obj, false, 2, 3, 5},
		"what cannot be in place is recreated": {inPlace().Replicas(4).MaxUnavailable("1").Obj, true, 4, 3, 4},
		"recreated with surge, because of env": {inPlace().Replicas(3).MaxUnavailable("0").MaxSurge("1").Obj, true, 3, 3, 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := create(t, web().With(func(c *v1beta1.CloneSet) { tc.set().DeepCopyInto(c) }))
			s.updatedAvailable(*s.get().Spec.Replicas)
			end := s.watchPods()
			s.change(func(c *v1beta1.CloneSet) {
				c.Spec.Template.Spec.Containers[0].Image = "app:2"
				if tc.env {
					c.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
				}
			})
			s.updatedAvailable(tc.updated)
			if got := end(); got.least < tc.least || got.most > tc.most {
				t.Errorf("%+v, want at least %d available and at most %d Pods", got, tc.least, tc.most)
			}
			want := slices.Repeat([]string{"app:1"}, len(s.pods())-int(tc.updated))
			if got := s.images(); !slices.Equal(got, append(want, slices.Repeat([]string{"app:2"}, int(tc.updated))...)) {
				t.Errorf("images %v", got)
			}
		})
	}
}

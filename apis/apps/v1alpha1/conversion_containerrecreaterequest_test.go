// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var since = metav1.NewTime(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

func grace(change func(*metav1.Condition)) metav1.Condition {
	c := metav1.Condition{
		Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue, LastTransitionTime: since,
		Reason: v1beta1.PreRecreateGraceCondition, Message: v1beta1.PreRecreateGraceMessage,
	}
	change(&c)
	return c
}

func randomConditions(t *rapid.T) []metav1.Condition {
	return rapid.SliceOfN(rapid.SampledFrom([]metav1.Condition{
		grace(func(*metav1.Condition) {}),
		grace(func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }),
		grace(func(c *metav1.Condition) { c.Reason = "Other" }),
		grace(func(c *metav1.Condition) { c.ObservedGeneration = 3 }),
		grace(func(c *metav1.Condition) { c.LastTransitionTime = metav1.Time{} }),
		grace(func(c *metav1.Condition) { c.Type = "Complete" }),
	}), 0, 3).Draw(t, "conditions")
}

func recreateHub(t *rapid.T) *v1beta1.ContainerRecreateRequest {
	crr := random[v1beta1.ContainerRecreateRequest](t)
	crr.TypeMeta = metav1.TypeMeta{}
	crr.Status.Conditions = randomConditions(t)
	return wire(t, crr)
}

func recreateFromHub(t require.TestingT, in *v1beta1.ContainerRecreateRequest) *v1alpha1.ContainerRecreateRequest {
	out := &v1alpha1.ContainerRecreateRequest{TypeMeta: metav1.TypeMeta{Kind: "kept"}}
	require.NoError(t, v1alpha1.ContainerRecreateRequestFromHub(context.Background(), in, out))
	require.Equal(t, "kept", out.Kind, "conversion touched the TypeMeta")
	out.TypeMeta = metav1.TypeMeta{}
	return wire(t, out)
}

func recreateToHub(t require.TestingT, in *v1alpha1.ContainerRecreateRequest) *v1beta1.ContainerRecreateRequest {
	out := &v1beta1.ContainerRecreateRequest{TypeMeta: metav1.TypeMeta{Kind: "kept"}}
	require.NoError(t, v1alpha1.ContainerRecreateRequestToHub(context.Background(), in, out))
	require.Equal(t, "kept", out.Kind, "conversion touched the TypeMeta")
	out.TypeMeta = metav1.TypeMeta{}
	return wire(t, out)
}

func TestContainerRecreateRequestSurvivesV1alpha1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := recreateHub(t)
		same(t, in, recreateToHub(t, recreateFromHub(t, in)), "a v1alpha1 client that changes nothing changed something")
	})
}

func TestContainerRecreateRequestSurvivesV1beta1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := random[v1alpha1.ContainerRecreateRequest](t)
		in.TypeMeta = metav1.TypeMeta{}
		if rapid.Bool().Draw(t, "grace") {
			setAnnotation(&in.ObjectMeta, v1beta1.RecreateUnreadyAcquiredAnnotation, "2026-11-30T12:00:00Z")
		}
		if rapid.Bool().Draw(t, "snapshot") {
			setAnnotation(&in.ObjectMeta, v1beta1.RecreateSnapshotAnnotation, `[{"name":"app","ready":true,"restartCount":1,"containerID":"containerd://1"}]`)
		}
		stored := recreateToHub(t, in)
		for _, key := range []string{v1beta1.RecreateUnreadyAcquiredAnnotation, v1beta1.RecreateSnapshotAnnotation, v1beta1.V1beta1FieldsAnnotation} {
			require.NotContains(t, stored.Annotations, key)
		}
		same(t, in, recreateFromHub(t, stored), "storing changed what a v1alpha1 client wrote")
	})
}

// The annotations of v1alpha1 and the status of v1beta1 say the same (container-recreate.md 2.3).
func TestRecreateAnnotationsAreStatus(t *testing.T) {
	const unready, snapshot = v1beta1.RecreateUnreadyAcquiredAnnotation, v1beta1.RecreateSnapshotAnnotation
	other := grace(func(c *metav1.Condition) { c.Type = "Complete" })
	keptOther, err := json.Marshal(map[string]any{"conditions": []metav1.Condition{other, grace(func(*metav1.Condition) {})}})
	require.NoError(t, err)
	app := []v1beta1.ContainerSnapshot{{Name: "app", Ready: true, RestartCount: 1, ContainerID: "containerd://1"}}
	for name, c := range map[string]struct {
		annotations map[string]string
		want        v1beta1.ContainerRecreateRequestStatus
		again       map[string]string // nil: as annotations
	}{
		"nothing": {},
		"the time is the condition": {
			annotations: map[string]string{unready: "2026-11-30T12:00:00Z"},
			want:        v1beta1.ContainerRecreateRequestStatus{Conditions: []metav1.Condition{grace(func(*metav1.Condition) {})}},
		},
		"a time elsewhere in the world is shown in UTC": {
			annotations: map[string]string{unready: "2026-11-30T14:00:00.75+02:00"},
			want:        v1beta1.ContainerRecreateRequestStatus{Conditions: []metav1.Condition{grace(func(*metav1.Condition) {})}},
			again:       map[string]string{unready: "2026-11-30T12:00:00Z"},
		},
		"the list is the snapshot": {
			annotations: map[string]string{snapshot: `[{"name":"app","ready":true,"restartCount":1,"containerID":"containerd://1"}]`},
			want:        v1beta1.ContainerRecreateRequestStatus{ContainerStatusSnapshot: app},
		},
		"no time is dropped":   {annotations: map[string]string{unready: "yesterday"}, again: map[string]string{}},
		"no list is dropped":   {annotations: map[string]string{snapshot: "{"}, again: map[string]string{}},
		"half a list is none":  {annotations: map[string]string{snapshot: `[{"name":"app"},{"name":5}]`}, again: map[string]string{}},
		"empty values say nil": {annotations: map[string]string{snapshot: "", unready: ""}, again: map[string]string{}},
		"a v1alpha1 client that takes the time away takes only that condition away": {
			annotations: map[string]string{v1beta1.V1beta1FieldsAnnotation: string(keptOther)},
			want:        v1beta1.ContainerRecreateRequestStatus{Conditions: []metav1.Condition{other}},
			again:       map[string]string{v1beta1.V1beta1FieldsAnnotation: encoded(t, map[string]any{"conditions": []metav1.Condition{other}})},
		},
		"a v1alpha1 client that sets another time moves only that condition": {
			annotations: map[string]string{v1beta1.V1beta1FieldsAnnotation: string(keptOther), unready: "2026-11-30T12:00:05Z"},
			want: v1beta1.ContainerRecreateRequestStatus{Conditions: []metav1.Condition{other, grace(func(c *metav1.Condition) {
				c.LastTransitionTime = metav1.NewTime(since.Add(5 * time.Second))
			})}},
			again: map[string]string{unready: "2026-11-30T12:00:05Z", v1beta1.V1beta1FieldsAnnotation: encoded(t, map[string]any{
				"conditions": []metav1.Condition{other, grace(func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(since.Add(5 * time.Second)) })},
			})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := &v1alpha1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			stored := recreateToHub(t, in)
			require.Equal(t, encoded(t, c.want), encoded(t, stored.Status))
			require.Empty(t, stored.Annotations)
			if c.again == nil {
				c.again = c.annotations
			}
			view := recreateFromHub(t, stored)
			require.Equal(t, len(c.again), len(view.Annotations))
			for key, value := range c.again {
				if key == unready {
					require.Equal(t, value, view.Annotations[key])
				} else {
					require.JSONEq(t, value, view.Annotations[key])
				}
			}
		})
	}
}

func encoded(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// An empty phase is no valid phase: a request that nobody answered must have no status at all.
func TestNoAnswerIsNoStatus(t *testing.T) {
	require.NotContains(t, encoded(t, &v1beta1.ContainerRecreateRequest{}), "status")
	require.NotContains(t, encoded(t, &v1alpha1.ContainerRecreateRequest{}), "status")
	require.Contains(t, encoded(t, &v1beta1.ContainerRecreateRequest{Status: v1beta1.ContainerRecreateRequestStatus{
		Phase: v1beta1.RecreatePending,
	}}), `"status":{"phase":"Pending"}`)
}

func TestContainerRecreateRequestConversionSharesNoMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hub := recreateHub(t)
		before := hub.DeepCopy()
		var view v1alpha1.ContainerRecreateRequest
		view.FromHub(hub)
		same(t, before, hub, "FromHub wrote to its source")
		source := view.DeepCopy()
		back := view.ToHub()
		same(t, source, &view, "ToHub wrote to its source")
		scramble(reflect.ValueOf(back))
		same(t, source, &view, "ToHub shares memory")
		scramble(reflect.ValueOf(&view))
		same(t, before, hub, "FromHub shares memory")

		list := random[v1beta1.ImageListPullJob](t)
		listBefore := list.DeepCopy()
		var listView v1alpha1.ImageListPullJob
		listView.FromHub(list)
		listSource := listView.DeepCopy()
		scramble(reflect.ValueOf(listView.ToHub()))
		same(t, listSource, &listView, "ToHub shares memory")
		scramble(reflect.ValueOf(&listView))
		same(t, listBefore, list, "FromHub shares memory")
	})
}

func TestImageListPullJobSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := random[v1beta1.ImageListPullJob](t)
		in.TypeMeta = metav1.TypeMeta{}
		var view v1alpha1.ImageListPullJob
		var again v1beta1.ImageListPullJob
		require.NoError(t, v1alpha1.ImageListPullJobFromHub(context.Background(), in, &view))
		require.NoError(t, v1alpha1.ImageListPullJobToHub(context.Background(), wire(t, &view), &again))
		same(t, in, &again, "ImageListPullJob")
	})
}

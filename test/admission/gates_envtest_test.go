// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package admission

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/pod"
)

// gated are the kinds of the node agent, with a change of the spec, if it may change.
var gated = map[string]map[string]any{
	"imagepulljob":             {"image": "busybox"},
	"imagelistpulljob":         {"images": []any{"alpine"}},
	"nodeimage":                {"images": map[string]any{"nginx": nil}},
	"containerrecreaterequest": nil,
	"podprobemarker": {"probes": []any{map[string]any{
		"name": "b", "containerName": "main", "podConditionType": "a.b/c", "probe": map[string]any{"tcpSocket": map[string]any{"port": 81}},
	}}},
}

// switchboard serves one of two sets of handlers.
type switchboard struct {
	now atomic.Pointer[admit.Handlers]
}

func (s *switchboard) at(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.now.Load())[path].ServeHTTP(w, r) })
}

// A manager that is started again without the node agent refuses what would need it, and keeps
// nobody from tidying up what there is.
func TestGates(t *testing.T) {
	reader, board := &live{}, &switchboard{}
	on := register(t, "EnablePodProbeMarkerOnServerless=true", reader)
	set, err := features.Parse("EnablePodProbeMarkerOnServerless=true")
	require.NoError(t, err)
	pod.Register(on, set, reader)
	off := register(t, "KruiseDaemon=false", reader)
	off[pod.MutatePath] = on[pod.MutatePath]
	board.now.Store(&on)
	opts := append(installed(t, on), apitest.WithConversion(converter(t)))
	for path := range on {
		opts = append(opts, apitest.WithHandler(path, board.at(path)))
	}
	c := apitest.NewClient(t, apitest.Start(t, opts...))
	reader.Reader = c
	target, node := recreated()
	status := target.Status
	require.NoError(t, c.Create(t.Context(), node))
	require.NoError(t, c.Create(t.Context(), target))
	target.Status = status
	require.NoError(t, c.Status().Update(t.Context(), target))

	stored := map[string]*unstructured.Unstructured{}
	for file := range gated {
		_, obj := row{Metadata: map[string]any{"name": "stored", "finalizers": []any{"example.com/hold"}}}.objects(t, read(t, file).Base, kinds[file], kinds[file].stored())
		require.NoError(t, c.Create(t.Context(), obj), file)
		stored[file] = obj
	}
	t.Run("a Pod gets the probes for a serverless node", func(t *testing.T) { serverless(t, c) })

	board.now.Store(&off)
	for file, change := range gated {
		t.Run(kinds[file].name+" while the gate is off", func(t *testing.T) {
			base := read(t, file).Base
			for _, version := range kinds[file].versions {
				_, obj := row{}.objects(t, base, kinds[file], version)
				err := c.Create(t.Context(), obj, client.DryRunAll)
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, "feature-gate KruiseDaemon is not enabled")
			}
			obj := stored[file]
			if change != nil {
				changed := obj.DeepCopy()
				changed.Object["spec"] = merged(t, changed.Object["spec"].(map[string]any), change)
				require.True(t, apierrors.IsForbidden(c.Update(t.Context(), changed, client.DryRunAll)))
			}
			require.NoError(t, c.Delete(t.Context(), obj))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			obj.SetFinalizers(nil)
			require.NoError(t, c.Update(t.Context(), obj))
			require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)))
		})
	}
}

// serverless creates a Pod that the stored PodProbeMarker matches, and a copy of what came of it.
func serverless(t *testing.T, c client.Client) {
	owner := metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "1", Controller: new(true)}
	first := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first", Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}},
	}
	tried := first.DeepCopy()
	require.NoError(t, c.Create(t.Context(), tried, client.DryRunAll))
	require.NoError(t, c.Create(t.Context(), first))
	require.Equal(t, "stored", first.Annotations["kruise.io/podprobemarker-list"])
	require.JSONEq(t, `[{"name":"healthy","containerName":"main","podConditionType":"game.kruise.io/healthy","probe":{"exec":{"command":["/bin/sh","-c","ls /"]}}}]`,
		first.Annotations["kruise.io/podprobe"])
	require.Equal(t, first.Annotations, tried.Annotations)

	again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "again", Labels: first.Labels, Annotations: first.Annotations, OwnerReferences: first.OwnerReferences}, Spec: first.Spec}
	require.NoError(t, c.Create(t.Context(), again))
	require.Equal(t, first.Annotations, again.Annotations)
	require.Equal(t, first.Spec.ReadinessGates, again.Spec.ReadinessGates)

	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", OwnerReferences: first.OwnerReferences}, Spec: corev1.PodSpec{Containers: first.Spec.Containers}}
	require.NoError(t, c.Create(t.Context(), other))
	require.Empty(t, other.Annotations)
}

// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newClient(objects ...client.Object) client.Client {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func list(t *testing.T, c client.Client) []corev1.Secret {
	t.Helper()
	var secrets corev1.SecretList
	require.NoError(t, c.List(t.Context(), &secrets, client.InNamespace("config")))
	return secrets.Items
}

func TestSyncAndRelease(t *testing.T) {
	c := newClient(source("x")["login"])
	s := &Syncer{Client: c, Copies: c, Live: c, Namespace: "config"}

	result, err := s.Sync(t.Context(), job, []string{"login"})
	require.NoError(t, err)
	require.Len(t, result.References, 1)
	require.Equal(t, result.References[0].Name, list(t, c)[0].Name)

	changed := source("y")["login"]
	require.NoError(t, c.Update(t.Context(), changed))
	_, err = s.Sync(t.Context(), job, []string{"login"})
	require.NoError(t, err)
	require.Equal(t, "y", string(list(t, c)[0].Data[corev1.DockerConfigJsonKey]), "the copy follows its source")

	require.NoError(t, s.Release(t.Context(), job))
	require.Empty(t, list(t, c))
	require.NoError(t, s.Release(t.Context(), job), "what is gone is released")
}

func TestSyncJoinsACopyThatTheCacheDoesNotShow(t *testing.T) {
	c := newClient(source("x")["login"])
	stale := newClient()
	first := &Syncer{Client: c, Copies: c, Live: c, Namespace: "config"}
	_, err := first.Sync(t.Context(), job, []string{"login"})
	require.NoError(t, err)

	other := job
	other.Name = "other"
	second := &Syncer{Client: c, Copies: stale, Live: c, Namespace: "config"}
	result, err := second.Sync(t.Context(), other, []string{"login"})
	require.NoError(t, err)
	secrets := list(t, c)
	require.Len(t, secrets, 1, "one copy per source")
	require.Equal(t, "shop/other,shop/pull", secrets[0].Annotations[ReferencesAnnotation])
	require.Equal(t, secrets[0].Name, result.References[0].Name)
}

func TestReleaseDoesNotDeleteWhatAnotherJobHasJustJoined(t *testing.T) {
	c := newClient(source("x")["login"])
	s := &Syncer{Client: c, Copies: c, Live: c, Namespace: "config"}
	_, err := s.Sync(t.Context(), job, []string{"login"})
	require.NoError(t, err)
	seen := list(t, c)[0]
	stale := newClient(seen.DeepCopy())

	joined := seen.DeepCopy()
	joined.Annotations[ReferencesAnnotation] += ",shop/zoo"
	require.NoError(t, c.Update(t.Context(), joined))
	err = (&Syncer{Client: c, Copies: stale, Live: stale, Namespace: "config"}).Release(t.Context(), job)
	require.True(t, apierrors.IsConflict(err), "got %v", err)
	require.Len(t, list(t, c), 1)
}

func TestReleaseFindsACopyThatTheCacheDoesNotShow(t *testing.T) {
	c := newClient(source("x")["login"])
	s := &Syncer{Client: c, Copies: newClient(), Live: c, Namespace: "config"}
	_, err := s.Sync(t.Context(), job, []string{"login"})
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), job))
	require.Empty(t, list(t, c))
}

func TestUsed(t *testing.T) {
	c := newClient(copyOf("login-1", "x", "shop/pull,shop/zoo"))
	s := &Syncer{Client: c, Copies: c, Live: c, Namespace: "config"}
	used, err := s.Used(t.Context(), job)
	require.NoError(t, err)
	require.True(t, used)
	other := job
	other.Name = "pul"
	used, err = s.Used(t.Context(), other)
	require.NoError(t, err)
	require.False(t, used)
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

func TestResolve(t *testing.T) {
	cases := map[string]struct{ path, ns, want string }{
		"the registry asked for becomes part of the name": {"/v2/library/nginx/manifests/1.20", "docker.io", "/v2/docker.io/library/nginx/manifests/1.20"},
		"a full name stays":                       {"/v2/docker.io/library/nginx/manifests/1.20", "", "/v2/docker.io/library/nginx/manifests/1.20"},
		"the check of the protocol version stays": {"/v2/", "docker.io", "/v2/"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Resolve(tc.path, tc.ns)) })
	}
}

func serve(t *testing.T, r *Registry) string {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestPushedImagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, false)
	require.NoError(t, err)
	image, err := random.Image(64, 2)
	require.NoError(t, err)
	tag, err := name.NewTag(serve(t, r)+"/docker.io/kruisectl/app:1", name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, image))

	r, err = Open(dir, false)
	require.NoError(t, err)
	tag, err = name.NewTag(serve(t, r)+"/docker.io/kruisectl/app:1", name.Insecure)
	require.NoError(t, err)
	got, err := remote.Image(tag)
	require.NoError(t, err)
	want, err := image.Digest()
	require.NoError(t, err)
	digest, err := got.Digest()
	require.NoError(t, err)
	require.Equal(t, want, digest)
}

func TestPrivateWantsCredentials(t *testing.T) {
	r, err := Open(t.TempDir(), true)
	require.NoError(t, err)
	image, err := random.Image(64, 1)
	require.NoError(t, err)
	require.NoError(t, r.Put("private/app:1", image))
	tag, err := name.NewTag(serve(t, r)+"/private/app:1", name.Insecure)
	require.NoError(t, err)
	cases := map[string]struct {
		auth authn.Authenticator
		ok   bool
	}{
		"nobody is refused":              {authn.Anonymous, false},
		"a wrong password is refused":    {&authn.Basic{Username: User, Password: "guess"}, false},
		"the user of the tests may pull": {&authn.Basic{Username: User, Password: Password}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := remote.Image(tag, remote.WithAuth(tc.auth))
			require.Equal(t, tc.ok, err == nil, "%v", err)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/cluster/images"
)

// rig is a public and a private registry behind servers of their own.
type rig struct {
	t              *testing.T
	public, secret string // host:port
}

func newRig(t *testing.T) rig {
	t.Helper()
	open, err := Open(t.TempDir(), false)
	require.NoError(t, err)
	closed, err := Open(t.TempDir(), true)
	require.NoError(t, err)
	closed.host, closed.rules, closed.requests = images.PrivateHost+"/", open.rules, open.requests
	mux := pair{open: open, closed: closed, base: images.Base{Busybox: []byte("program"), Applets: []string{"sh"}}}.admin()
	mux.Handle("/v2/", open)
	own := http.NewServeMux()
	own.HandleFunc(tokenPath, exchange)
	own.Handle("/v2/", closed)
	g := rig{t: t}
	for address, h := range map[*string]http.Handler{&g.public: mux, &g.secret: own} {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		*address = strings.TrimPrefix(server.URL, "http://")
	}
	return g
}

// admin sends a request of a test to the registry and decodes the answer into out, unless that is nil.
func (g rig) admin(method, path string, body, out any) {
	g.t.Helper()
	data, err := json.Marshal(body)
	require.NoError(g.t, err)
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.public+path, strings.NewReader(string(data)))
	require.NoError(g.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	require.Less(g.t, resp.StatusCode, 300, string(text))
	if out != nil {
		require.NoError(g.t, json.Unmarshal(text, out))
	}
}

func (g rig) make(ref string, layers int) MadeImage {
	g.t.Helper()
	var made MadeImage
	g.admin(http.MethodPut, fmt.Sprintf("/test/images?ref=%s&layers=%d&bytes=%d", url.QueryEscape(ref), layers, size), nil, &made)
	return made
}

// get downloads a blob of docker.io/e2e/app from its byte at.
func (g rig) get(ctx context.Context, digest string, at int) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.public+"/v2/e2e/app/blobs/"+digest+"?ns=docker.io", nil)
	require.NoError(g.t, err)
	if at > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", at))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

const size = 4096

func TestDownloadsGoWrongAsTold(t *testing.T) {
	g := newRig(t)
	made := g.make("docker.io/e2e/app:1", 2)
	require.Len(t, made.Layers, 3)
	layer := made.Layers[1]
	status, whole, err := g.get(t.Context(), layer, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Greater(t, len(whole), size, "what is random is not compressed")

	cases := map[string]struct {
		rule   Rule
		at     int
		status int
		body   string
		cut    bool
	}{
		"nothing wrong":               {rule: Rule{Repository: "docker.io/other"}, status: 200, body: whole},
		"the rest of a blob":          {at: 1000, status: 206, body: whole[1000:]},
		"an error":                    {rule: Rule{Repository: "docker.io/e2e/app", Status: 500}, status: 500},
		"a limit of requests":         {rule: Rule{Status: 429, RetryAfter: 1}, status: 429},
		"cut short":                   {rule: Rule{TruncateAt: 100}, status: 200, body: whole[:100], cut: true},
		"cut short before it goes on": {rule: Rule{TruncateAt: 1500}, at: 1000, status: 206, body: whole[1000:1500], cut: true},
		"cut where it was resumed":    {rule: Rule{TruncateAt: 1000}, at: 1000, status: 206, cut: true},
		"slow":                        {rule: Rule{BytesPerSecond: 1 << 20}, status: 200, body: whole},
		"another content":             {rule: Rule{Corrupt: true}, status: 200, body: string([]byte{whole[0] ^ 0xff}) + whole[1:]},
		"another content, resumed":    {rule: Rule{Corrupt: true}, at: 1000, status: 206, body: whole[1000:]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g.admin(http.MethodDelete, "/test/rules", nil, nil)
			g.admin(http.MethodPut, "/test/rules/it", tc.rule, nil)
			status, body, err := g.get(t.Context(), layer, tc.at)
			require.Equal(t, tc.cut, err != nil, "%v", err)
			if status != 0 {
				require.Equal(t, tc.status, status)
			}
			if tc.body != "" && tc.status < 400 {
				require.True(t, tc.body == body, "%d bytes, wanted %d", len(body), len(tc.body))
			}
		})
	}
}

func TestAHangingRegistryWaitsForTheClientToGiveUp(t *testing.T) {
	g := newRig(t)
	made := g.make("docker.io/e2e/app:1", 1)
	g.admin(http.MethodPut, "/test/rules/it", Rule{Hang: true, Kind: Blob}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := g.get(ctx, made.Layers[1], 0)
		done <- err
	}()
	for { // the request has arrived
		var rules map[string]struct{ Hits int }
		g.admin(http.MethodGet, "/test/rules", nil, &rules)
		if rules["it"].Hits > 0 {
			break
		}
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestRequestsAreRemembered(t *testing.T) {
	g := newRig(t)
	made := g.make("docker.io/e2e/app:1", 1)
	var all []Request
	g.admin(http.MethodGet, "/test/requests", nil, &all)
	require.Empty(t, all, "what tests make is not asked for by a client")

	g.admin(http.MethodPut, "/test/rules/it", Rule{Status: 503, Times: 1}, nil)
	_, _, err := g.get(t.Context(), made.Layers[1], 0)
	require.NoError(t, err)
	_, body, err := g.get(t.Context(), made.Layers[1], 0)
	require.NoError(t, err)
	for { // the client has its answer a moment before the server knows that it sent all of it
		g.admin(http.MethodGet, "/test/requests?repository=docker.io/e2e/app", nil, &all)
		if all[len(all)-1].Ended {
			break
		}
	}
	require.Len(t, all, 2)
	require.Equal(t, []int{503, 200}, []int{all[0].Status, all[1].Status})
	require.Equal(t, []bool{true, false}, []bool{all[0].Spoiled, all[1].Spoiled})
	require.EqualValues(t, len(body), all[1].Bytes)
	require.Equal(t, Request{
		Time: all[1].Time, Client: "127.0.0.1", Method: http.MethodGet, Repository: "docker.io/e2e/app", Kind: Blob,
		Reference: made.Layers[1], Ended: true, Status: 200, Bytes: all[1].Bytes,
	}, all[1])
	g.admin(http.MethodGet, "/test/requests?repository=docker.io/e2e/ap", nil, &all)
	require.Empty(t, all)
}

func TestRepositoriesWithCredentialsOfTheirOwn(t *testing.T) {
	g := newRig(t)
	made := g.make("docker.io/e2e/app:1", 1)
	other := g.make(images.PrivateHost+"/e2e/app:1", 1)
	ann := &authn.Basic{Username: "ann", Password: "secret"}
	cases := map[string]struct {
		address string
		digest  string
		rule    Rule
		auth    authn.Authenticator
		ok      bool
	}{
		"basic: nobody":                                  {g.public + "/docker.io", made.Digest, Rule{Auth: &Auth{Basic, "ann", "secret"}}, authn.Anonymous, false},
		"basic: the user":                                {g.public + "/docker.io", made.Digest, Rule{Auth: &Auth{Basic, "ann", "secret"}}, ann, true},
		"bearer: the user gets a token":                  {g.secret, other.Digest, Rule{Auth: &Auth{Bearer, "ann", "secret"}}, ann, true},
		"bearer: a wrong password":                       {g.secret, other.Digest, Rule{Auth: &Auth{Bearer, "ann", "other"}}, ann, false},
		"another user than the private registry's own":   {g.secret, other.Digest, Rule{Auth: &Auth{Basic, "ann", "secret"}}, &authn.Basic{Username: User, Password: Password}, false},
		"the private registry's own user without a rule": {g.secret, other.Digest, Rule{}, &authn.Basic{Username: User, Password: Password}, true},
	}
	for name_, tc := range cases {
		t.Run(name_, func(t *testing.T) {
			g.admin(http.MethodPut, "/test/rules/it", tc.rule, nil)
			tag, err := name.NewTag(tc.address+"/e2e/app:1", name.Insecure)
			require.NoError(t, err)
			// The protocol's ping is anonymous: clients learn the scheme from the answer about the repository.
			client := &http.Client{Transport: challenge{t, tc.auth}}
			resp, err := client.Get("http://" + tag.RegistryStr() + "/v2/" + tag.RepositoryStr() + "/manifests/1")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, tc.ok, resp.StatusCode == http.StatusOK, resp.Status)
			if tc.ok {
				require.Equal(t, tc.digest, resp.Header.Get("Docker-Content-Digest"))
			}
		})
	}
}

// challenge answers a demand for credentials as containerd does.
type challenge struct {
	t    *testing.T
	auth authn.Authenticator
}

// RoundTrip implements http.RoundTripper.
func (c challenge) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	config, err := c.auth.Authorization()
	require.NoError(c.t, err)
	again := req.Clone(req.Context())
	header := resp.Header.Get("WWW-Authenticate")
	if realm, ok := strings.CutPrefix(header, `Bearer realm="`); ok {
		realm, _, _ = strings.Cut(realm, `"`)
		ask, err := http.NewRequestWithContext(req.Context(), http.MethodGet, realm, nil)
		require.NoError(c.t, err)
		ask.SetBasicAuth(config.Username, config.Password)
		answer, err := http.DefaultTransport.RoundTrip(ask)
		require.NoError(c.t, err)
		defer answer.Body.Close()
		var got struct{ Token string }
		require.NoError(c.t, json.NewDecoder(answer.Body).Decode(&got))
		again.Header.Set("Authorization", "Bearer "+got.Token)
	} else {
		again.SetBasicAuth(config.Username, config.Password)
	}
	_ = resp.Body.Close()
	return http.DefaultTransport.RoundTrip(again)
}

func TestMadeImagesCanBePulled(t *testing.T) {
	g := newRig(t)
	made := g.make("docker.io/e2e/app:1", 3)
	require.Equal(t, made, g.make("docker.io/e2e/app:1", 3), "the same name, the same image")
	tag, err := name.NewTag(g.public+"/docker.io/e2e/app:1", name.Insecure)
	require.NoError(t, err)
	got, err := remote.Image(tag)
	require.NoError(t, err)
	digest, err := got.Digest()
	require.NoError(t, err)
	require.Equal(t, made.Digest, digest.String())

	_, err = images.Sized(images.Base{}, "docker.io/e2e/app:1", 0, 1)
	require.Error(t, err)
}

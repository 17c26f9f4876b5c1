// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTarget(t *testing.T) {
	cases := map[string]struct {
		path, host string
		want       target
	}{
		"a manifest by tag": {"/v2/docker.io/library/nginx/manifests/1.20", "", target{"docker.io/library/nginx", Manifest, "1.20"}},
		"a blob":            {"/v2/docker.io/library/nginx/blobs/sha256:ab", "", target{"docker.io/library/nginx", Blob, "sha256:ab"}},
		"a registry with a name of its own puts it before": {"/v2/private/app/manifests/1", "private.test:5001/", target{"private.test:5001/private/app", Manifest, "1"}},
		"an upload is no download":                         {"/v2/docker.io/a/blobs/uploads/1", "", target{Kind: Other}},
		"the check of the protocol version":                {"/v2/", "h/", target{Kind: Other}},
		"a repository called manifests":                    {"/v2/h/manifests/manifests/1", "", target{"h/manifests", Manifest, "1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, parseTarget(tc.path, tc.host)) })
	}
}

func TestRuleMatches(t *testing.T) {
	blob := target{Repository: "docker.io/e2e/slow", Kind: Blob, Reference: "sha256:ab"}
	cases := map[string]struct {
		rule Rule
		want bool
	}{
		"a rule without conditions matches every download": {Rule{}, true},
		"its repository":          {Rule{Repository: "docker.io/e2e/slow"}, true},
		"no longer name":          {Rule{Repository: "docker.io/e2e/slo"}, false},
		"a prefix with a slash":   {Rule{Repository: "docker.io/e2e/"}, true},
		"its kind":                {Rule{Kind: Blob}, true},
		"not another kind":        {Rule{Kind: Manifest}, false},
		"its client":              {Rule{Client: "10.90.0.11"}, true},
		"not the one beside it":   {Rule{Client: "10.90.0.12"}, false},
		"all conditions together": {Rule{Repository: "docker.io/e2e/slow", Kind: Blob, Client: "10.90.0.11"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.rule.matches(blob, "10.90.0.11")) })
	}
	require.False(t, Rule{}.matches(target{Kind: Other}, ""), "uploads and pings are left alone")
}

func TestRulesAreSpentAndMerged(t *testing.T) {
	var rules Rules
	blob := target{Repository: "docker.io/a", Kind: Blob}
	require.NoError(t, rules.Set("twice", Rule{Status: 500, Times: 2}))
	require.NoError(t, rules.Set("slow", Rule{BytesPerSecond: 100}))
	require.NoError(t, rules.Set("slower", Rule{BytesPerSecond: 10, TruncateAt: 5}))

	require.Equal(t, Rule{Status: 500}, rules.hit(blob, "", http.MethodHead), "a HEAD has no body to spoil")
	require.Equal(t, Rule{Status: 500, BytesPerSecond: 10, TruncateAt: 5}, rules.hit(blob, "", http.MethodGet))
	require.Equal(t, Rule{BytesPerSecond: 10, TruncateAt: 5}, rules.hit(blob, "", http.MethodGet), "the first rule is spent")
	require.Equal(t, Rule{}, rules.hit(blob, "", http.MethodPut), "pushes are left alone")
	require.Equal(t, 2, rules.snapshot()["twice"].Hits)

	require.NoError(t, rules.Set("twice", Rule{Status: 429, Times: 1}))
	require.Equal(t, 429, rules.hit(blob, "", http.MethodGet).Status, "a rule set again begins anew")
	rules.Delete("slow")
	rules.Delete("slower")
	require.Equal(t, Rule{}, rules.hit(blob, "", http.MethodGet))
	rules.Delete("")
	require.Empty(t, rules.snapshot())
}

func TestRulesThatCannotBeMeant(t *testing.T) {
	cases := map[string]Rule{
		"neither kind":                   {Kind: "tag"},
		"a negative count":               {Times: -1},
		"no error":                       {Status: 200},
		"an unknown way to authenticate": {Auth: &Auth{Scheme: "digest"}},
	}
	for name, rule := range cases {
		t.Run(name, func(t *testing.T) { require.Error(t, new(Rules).Set("x", rule)) })
	}
}

func TestCredentialsAreNeverSpent(t *testing.T) {
	var rules Rules
	blob := target{Repository: "docker.io/a", Kind: Blob}
	secret := &Auth{Scheme: Basic, User: "ann", Password: "secret"}
	require.NoError(t, rules.Set("it", Rule{Repository: "docker.io/a", Auth: secret, Status: 500, Times: 1}))
	for range 3 {
		require.Equal(t, secret, rules.auth(blob, ""))
	}
	require.Zero(t, rules.snapshot()["it"].Hits, "who has no credentials is not counted")
	require.Equal(t, Rule{Status: 500}, rules.hit(blob, "", http.MethodGet))
	require.Equal(t, Rule{}, rules.hit(blob, "", http.MethodGet))
	require.Equal(t, secret, rules.auth(blob, ""))
	require.Nil(t, rules.auth(target{Repository: "docker.io/b", Kind: Blob}, ""))
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

func TestParseSecret(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("ann:p:w"))
	entry := func(match, user, password string) keyring {
		return keyring{{match: match, auth: cri.Auth{Username: user, Password: password}}}
	}
	cases := map[string]struct {
		kind    corev1.SecretType
		data    string
		want    keyring
		invalid bool
	}{
		"docker config": {corev1.SecretTypeDockerConfigJson, `{"auths":{"quay.io":{"username":"ann","password":"p:w"}}}`, entry("quay.io", "ann", "p:w"), false},
		"encoded logins; the password may have a colon": {corev1.SecretTypeDockerConfigJson, `{"auths":{"quay.io":{"auth":"` + encoded + `"}}}`, entry("quay.io", "ann", "p:w"), false},
		"docker hub's old key":                          {corev1.SecretTypeDockerConfigJson, `{"auths":{"https://index.docker.io/v1/":{"auth":"` + encoded + `"}}}`, entry("index.docker.io", "ann", "p:w"), false},
		"the older form":                                {corev1.SecretTypeDockercfg, `{"https://quay.io/v2/org":{"username":"ann","password":"x","email":"a@b"}}`, entry("quay.io/org", "ann", "x"), false},
		"the newer content in the older type":           {corev1.SecretTypeDockercfg, `{"auths":{"quay.io":{"auth":"` + encoded + `"}}}`, entry("quay.io", "ann", "p:w"), false},
		"an entry that is no login is left out":         {corev1.SecretTypeDockerConfigJson, `{"auths":{"quay.io":"secret","ghcr.io":{"username":"ann"}},"credsStore":"x"}`, entry("ghcr.io", "ann", ""), false},
		"an empty configuration":                        {corev1.SecretTypeDockerConfigJson, `{}`, nil, false},
		"no JSON":                                       {corev1.SecretTypeDockerConfigJson, `passw0rd`, nil, true},
		"another type":                                  {corev1.SecretTypeOpaque, `{}`, nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key := corev1.DockerConfigJsonKey
			if tc.kind == corev1.SecretTypeDockercfg {
				key = corev1.DockerConfigKey
			}
			got, err := parseSecret(&corev1.Secret{Type: tc.kind, Data: map[string][]byte{key: []byte(tc.data)}})
			if tc.invalid {
				require.Error(t, err)
				require.NotContains(t, err.Error(), "passw0rd")
				return
			}
			require.NoError(t, err)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(keyringEntry{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("parseSecret() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	cases := map[string]struct {
		match, repository string
		want              bool
	}{
		"a host matches all its repositories":  {"quay.io", "quay.io/a/b", true},
		"another host does not":                {"quay.io", "ghcr.io/a/b", false},
		"docker hub by its old name":           {"index.docker.io", "docker.io/library/nginx", true},
		"docker hub by its new name":           {"docker.io", "docker.io/library/nginx", true},
		"a path is a prefix":                   {"quay.io/org", "quay.io/org/app", true},
		"another path does not match":          {"quay.io/org", "quay.io/other/app", false},
		"a glob stands for one part of a host": {"*.example.com", "eu.example.com/app", true},
		"but not for two":                      {"*.example.com", "a.eu.example.com/app", false},
		"a port must be the same":              {"localhost:5000", "localhost:5000/app", true},
		"a missing port is another port":       {"localhost", "localhost:5000/app", false},
		"a glob in the middle of a part":       {"reg-*.example.com", "reg-eu.example.com/app", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := matches(tc.match, tc.repository); got != tc.want {
				t.Errorf("matches(%q, %q) = %v, want %v", tc.match, tc.repository, got, tc.want)
			}
		})
	}
}

func TestLookupTriesTheMostSpecificFirst(t *testing.T) {
	ring := keyring{{"quay.io", cri.Auth{Username: "host"}}, {"quay.io/org", cri.Auth{Username: "org"}}, {"*.io", cri.Auth{Username: "glob"}}, {"quay.io/o", cri.Auth{Username: "org"}}}
	want := []cri.Auth{{Username: "org"}, {Username: "host"}, {Username: "glob"}}
	if diff := cmp.Diff(want, ring.lookup("quay.io/org/app")); diff != "" {
		t.Errorf("lookup() differs (-want +got):\n%s", diff)
	}
}

func secretOf(user string) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"username":"` + user + `"}}}`),
	}}
}

func TestKeyrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, answer, failure := 0, secretOf("ann"), error(nil)
		get := func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
			reads++
			return answer, failure
		}
		k := NewKeyrings(t.Context(), get, "config", nil)
		k.files = keyring{{"quay.io", cri.Auth{Username: "file"}}}
		refs := []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}
		lookup := func() []cri.Auth { return slices.Collect(k.Lookup(t.Context(), "quay.io/app", refs)) }

		require.Equal(t, []cri.Auth{{Username: "ann"}, {Username: "file"}}, lookup(), "secrets come before files")
		lookup()
		require.Equal(t, 1, reads, "secrets are remembered")

		answer = secretOf("bob")
		k.Refresh(refs)
		require.Equal(t, "bob", lookup()[0].Username, "and read anew for a retry")

		answer = secretOf("cid")
		time.Sleep(2 * secretAge)
		require.Equal(t, "cid", lookup()[0].Username, "and after a while")

		failure = errors.New("connection refused")
		k.Refresh(refs)
		reads = 0
		require.Equal(t, "cid", lookup()[0].Username, "an API server that is away takes no login away")
		lookup()
		require.Equal(t, 2, reads, "and is asked again")

		failure = apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil)
		require.Equal(t, []cri.Auth{{Username: "file"}}, lookup(), "a secret that may not be read is as if it were not there")
		require.Contains(t, k.Problems(refs), "Secret config/s cannot be used: reading: ", "and the status can say so")
		lookup()
		require.Equal(t, 3, reads, "which is remembered")

		failure, answer = nil, &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"a`)}}
		k.Refresh(refs)
		require.Equal(t, []cri.Auth{{Username: "file"}}, lookup(), "nor one that is no JSON")
		require.Contains(t, k.Problems(refs), "invalid JSON")

		reads = 0
		refs = []v1beta1.ReferenceObject{{Namespace: "kube-system", Name: "s"}}
		require.Equal(t, []cri.Auth{{Username: "file"}}, lookup())
		require.Zero(t, reads, "other namespaces are not asked for")
	})
}

func TestOneReadServesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		k := NewKeyrings(t.Context(), func(context.Context, types.NamespacedName) (*corev1.Secret, error) {
			reads++
			time.Sleep(time.Minute)
			return secretOf("ann"), nil
		}, "config", nil)
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				found := slices.Collect(k.Lookup(t.Context(), "quay.io/app", []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}))
				assert.Equal(t, []cri.Auth{{Username: "ann"}}, found)
			})
		}
		other := slices.Collect(k.Lookup(t.Context(), "quay.io/app", nil))
		require.Empty(t, other, "who does not want it does not wait")
		group.Wait()
		require.Equal(t, 1, reads)
	})
}

// Plugins take seconds: they are asked when the secrets' logins have failed.
func TestPluginsAreAskedLast(t *testing.T) {
	asked := 0
	k := NewKeyrings(t.Context(), func(context.Context, types.NamespacedName) (*corev1.Secret, error) { return secretOf("ann"), nil }, "config", &Plugins{
		providers: []provider{{Name: "p", MatchImages: []string{"quay.io"}}},
		run: func(context.Context, provider, string, []byte) ([]byte, error) {
			asked++
			return []byte(`{"auth":{"quay.io":{"username":"plugin"}}}`), nil
		},
	})
	for login := range k.Lookup(t.Context(), "quay.io/app", []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}) {
		require.Equal(t, "ann", login.Username)
		break
	}
	require.Zero(t, asked)
	found := slices.Collect(k.Lookup(t.Context(), "quay.io/app", []v1beta1.ReferenceObject{{Namespace: "config", Name: "s"}}))
	require.Equal(t, []cri.Auth{{Username: "ann"}, {Username: "plugin"}}, found)
	require.Equal(t, 1, asked)
}

func TestReadFiles(t *testing.T) {
	empty, newer, older, broken := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, file, text string) {
		path := filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(newer, ".docker/config.json", `{"auths":{"quay.io":{"username":"newer"}}}`)
	write(older, ".dockercfg", `{"quay.io":{"username":"older"}}`)
	write(broken, ".docker/config.json", `{`)
	user := func(dirs ...string) string {
		if found := readFiles(t.Context(), dirs).lookup("quay.io/a"); len(found) > 0 {
			return found[0].Username
		}
		return ""
	}
	require.Equal(t, "", user(empty))
	require.Equal(t, "newer", user(empty, older, newer))
	require.Equal(t, "older", user(empty, older))
	require.Equal(t, "newer", user(broken, newer), "a broken file is skipped")
}

func TestPlugins(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.ecr.example.com"]
  defaultCacheDuration: 1h
  args: [get]
  env: [{name: REGION, value: eu}]
- name: broken
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.ecr.example.com"]
  defaultCacheDuration: 1h
`), 0o600))
	// The plugin answers with what it was asked and what its environment says.
	script := "#!/bin/sh\nread -r request\ncase \"$request\" in *'\"image\":\"a.ecr.example.com/app\"'*) ;; *) exit 1;; esac\n" +
		"echo x >> " + dir + "/asked\n" +
		`echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","auth":{"*.ecr.example.com":{"username":"'$1'","password":"'$REGION'"}}}'`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ecr"), []byte(script), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("#!/bin/sh\nexit 3\n"), 0o700))

	plugins, err := LoadPlugins(config, dir)
	require.NoError(t, err)
	want := []cri.Auth{{Username: "get", Password: "eu"}}
	require.Equal(t, want, plugins.lookup(t.Context(), "a.ecr.example.com/app"), "a plugin that fails does not hide another's answer")
	require.Equal(t, want, plugins.lookup(t.Context(), "a.ecr.example.com/other"), "remembered for the registry")
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	require.Equal(t, "x\n", string(asked))
	require.Empty(t, plugins.lookup(t.Context(), "quay.io/app"), "other registries are not asked for")
	require.Empty(t, (*Plugins)(nil).lookup(t.Context(), "quay.io/app"))

	require.NoError(t, os.WriteFile(config, []byte("kind: Other\n"), 0o600))
	_, err = LoadPlugins(config, dir)
	require.ErrorContains(t, err, "CredentialProviderConfig")
	require.NoError(t, os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders: [{name: ../sh}]\n"), 0o600))
	_, err = LoadPlugins(config, dir)
	require.ErrorContains(t, err, "not a file name")
}

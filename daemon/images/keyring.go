// SPDX-License-Identifier: Apache-2.0

package images

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

// dockerHub is the key under which docker login stores credentials of docker.io.
const dockerHub = "index.docker.io"

// keyring is logins by registry, matched as the kubelet does: a key is a host, possibly
// with globs and a port, and optionally a path that repositories have to start with.
type keyring []keyringEntry

type keyringEntry struct {
	match string // host[:port][/path], no scheme
	auth  cri.Auth
}

// lookup returns the logins for a repository such as docker.io/library/nginx, the most
// specific key first. Order and contents are the same for the same input.
func (k keyring) lookup(repository string) []cri.Auth {
	entries := slices.Clone(k)
	slices.SortStableFunc(entries, func(a, b keyringEntry) int { return strings.Compare(b.match, a.match) })
	var found []cri.Auth
	for _, e := range entries {
		if matches(e.match, repository) && !slices.Contains(found, e.auth) {
			found = append(found, e.auth)
		}
	}
	return found
}

// matches reports whether a keyring entry is for a repository.
func matches(match, repository string) bool {
	matchHost, matchPath, _ := strings.Cut(match, "/")
	host, repoPath, _ := strings.Cut(repository, "/")
	if matchHost == dockerHub || matchHost == "registry-1.docker.io" {
		matchHost = "docker.io"
	}
	if !strings.HasPrefix("/"+repoPath, "/"+matchPath) {
		return false
	}
	matchName, matchPort := splitPort(matchHost)
	name, port := splitPort(host)
	if matchPort != port {
		return false
	}
	matchParts, parts := strings.Split(matchName, "."), strings.Split(name, ".")
	if len(matchParts) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(matchParts[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitPort(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}

// normalizeKey turns a key of a docker configuration into host and path. Docker writes
// https://index.docker.io/v1/ for docker.io and bare hosts for all else.
func normalizeKey(key string) string {
	if !strings.HasPrefix(key, "http://") && !strings.HasPrefix(key, "https://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil {
		return ""
	}
	p := strings.TrimSuffix(u.Path, "/")
	for _, version := range []string{"/v1", "/v2"} {
		if p == version {
			p = ""
		}
		p = strings.TrimPrefix(p, version+"/")
	}
	return strings.TrimSuffix(u.Host+"/"+strings.TrimPrefix(p, "/"), "/")
}

// dockerAuth is one entry of a docker configuration.
type dockerAuth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of username:password
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// parseSecret reads a pull secret. Other types than docker's have no logins.
func parseSecret(secret *corev1.Secret) (keyring, error) {
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		return parseConfigJSON(secret.Data[corev1.DockerConfigJsonKey])
	case corev1.SecretTypeDockercfg:
		return parseConfig(secret.Data[corev1.DockerConfigKey])
	}
	return nil, fmt.Errorf("type %q is not a pull secret's", secret.Type)
}

// parseConfigJSON reads the form of ~/.docker/config.json.
func parseConfigJSON(data []byte) (keyring, error) {
	var outer struct {
		Auths json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &outer); err != nil {
		return nil, fmt.Errorf("parsing docker configuration: %w", redacted(err))
	}
	if len(outer.Auths) == 0 {
		return nil, nil
	}
	return parseConfig(outer.Auths)
}

// parseConfig reads the form of ~/.dockercfg: logins by registry. An entry that is no login
// is left out: secrets of the one type with content of the other are seen in the wild, and
// must not stop a pull. So a nested "auths" is read as what it was meant to be.
func parseConfig(data []byte) (keyring, error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("parsing docker configuration: %w", redacted(err))
	}
	var ring keyring
	for key, raw := range entries {
		if key == "auths" {
			if nested, err := parseConfig(raw); err == nil {
				ring = append(ring, nested...)
			}
			continue
		}
		var login dockerAuth
		match := normalizeKey(key)
		if err := json.Unmarshal(raw, &login); err != nil || match == "" {
			continue
		}
		if auth, ok := login.auth(); ok {
			ring = append(ring, keyringEntry{match: match, auth: auth})
		}
	}
	slices.SortFunc(ring, func(a, b keyringEntry) int { return strings.Compare(a.match, b.match) })
	return ring, nil
}

// redacted hides what a JSON error quotes: it may be a password.
func redacted(err error) error { return fmt.Errorf("invalid JSON (%T)", err) }

func (d dockerAuth) auth() (cri.Auth, bool) {
	auth := cri.Auth{Username: d.Username, Password: d.Password, IdentityToken: d.IdentityToken, RegistryToken: d.RegistryToken}
	if d.Auth != "" {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(d.Auth))
		if err != nil {
			decoded, err = base64.RawStdEncoding.DecodeString(strings.TrimSpace(d.Auth))
		}
		if username, password, ok := strings.Cut(string(decoded), ":"); err == nil && ok {
			// Some tools pad with NUL bytes.
			auth.Username, auth.Password = username, strings.Trim(password, "\x00")
		}
	}
	return auth, auth != cri.Auth{}
}

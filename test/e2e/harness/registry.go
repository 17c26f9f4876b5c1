//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// registryAddress is where the registry of the cluster under test answers tests.
var registryAddress = sync.OnceValues(func() (string, error) {
	r, err := Run(context.Background(), "", "cluster", "status", "-o", "json")
	if err != nil {
		return "", fmt.Errorf("asking the cluster for its registry: %w", err)
	}
	var status struct {
		Registry string `json:"registry"`
	}
	if err := json.Unmarshal([]byte(r.Stdout), &status); err != nil || status.Registry == "" {
		return "", fmt.Errorf("asking the cluster for its registry: it said %q", r.Text())
	}
	return status.Registry, nil
})

// askRegistry sends a request of tests to the registry, with body as JSON unless it is nil,
// and decodes the answer into out unless that is nil.
func askRegistry(ctx context.Context, method, path string, query url.Values, body, out any) error {
	address, err := registryAddress()
	if err != nil {
		return err
	}
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(data)
	}
	u := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), payload)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("registry answered %s to %s %s: %s", resp.Status, method, u.String(), text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// Auth are credentials that a repository wants.
type Auth struct {
	Scheme   string `json:"scheme"` // basic or bearer
	User     string `json:"user"`
	Password string `json:"password"`
}

// Rule makes the downloads that it matches go wrong; test/cluster/registry has the words.
type Rule struct {
	Repository     string `json:"repository,omitempty"`
	Kind           string `json:"kind,omitempty"`   // manifest or blob
	Client         string `json:"client,omitempty"` // address of a node
	Times          int    `json:"times,omitempty"`
	DelayMillis    int    `json:"delayMillis,omitempty"`
	Hang           bool   `json:"hang,omitempty"`
	Status         int    `json:"status,omitempty"`
	RetryAfter     int    `json:"retryAfter,omitempty"`
	BytesPerSecond int    `json:"bytesPerSecond,omitempty"`
	TruncateAt     int64  `json:"truncateAt,omitempty"`
	Corrupt        bool   `json:"corrupt,omitempty"`
	Auth           *Auth  `json:"auth,omitempty"`
}

// TestImage is an image that only one test knows.
type TestImage struct {
	// Ref is what a user writes, Name is Ref without the tag, Repository is the full name in the registry's log.
	Ref, Name, Repository string
	// Digest is that of the manifest.
	Digest string `json:"digest"`
	// Layers are digests, the lowest first; the first one is the base that all test images share.
	Layers []string `json:"layers"`
}

// AtDigest is what a user writes to pin the image.
func (i TestImage) AtDigest() string { return i.Name + "@" + i.Digest }

// MakeImage has an image made that nobody has pulled yet: so many layers of so many bytes
// besides the base.
func (e *Env) MakeImage(name string, layers, bytes int) TestImage {
	e.T.Helper()
	short := "e2e/" + e.Namespace + "/" + name
	return e.makeImage(TestImage{Ref: short + ":1", Name: short, Repository: "docker.io/" + short}, "docker.io/"+short+":1", layers, bytes)
}

// MakePrivateImage is MakeImage for the registry that wants credentials.
func (e *Env) MakePrivateImage(name string, layers, bytes int) TestImage {
	e.T.Helper()
	full := os.Getenv("E2E_PRIVATE_REGISTRY") + "/e2e/" + e.Namespace + "/" + name
	return e.makeImage(TestImage{Ref: full + ":1", Name: full, Repository: full}, full+":1", layers, bytes)
}

func (e *Env) makeImage(image TestImage, ref string, layers, bytes int) TestImage {
	e.T.Helper()
	query := url.Values{"ref": {ref}, "layers": {fmt.Sprint(layers)}, "bytes": {fmt.Sprint(bytes)}}
	require.NoError(e.T, askRegistry(e.Ctx(), http.MethodPut, "/test/images", query, nil, &image))
	return image
}

// Spoil makes downloads of the image go wrong until the test ends or Mend is called. A
// second call for the same image replaces the rule.
func (e *Env) Spoil(image TestImage, rule Rule) {
	e.T.Helper()
	rule.Repository = image.Repository
	path := rulePath(image)
	require.NoError(e.T, askRegistry(e.Background(), http.MethodPut, path, nil, rule, nil))
	e.T.Logf("registry: %s: %+v", image.Ref, rule)
	e.T.Cleanup(func() {
		if err := askRegistry(e.Background(), http.MethodDelete, path, nil, nil, nil); err != nil {
			e.T.Errorf("mending the registry: %v", err)
		}
	})
}

// Mend undoes Spoil.
func (e *Env) Mend(image TestImage) {
	e.T.Helper()
	require.NoError(e.T, askRegistry(e.Background(), http.MethodDelete, rulePath(image), nil, nil, nil))
	e.T.Logf("registry: %s is served well again", image.Ref)
}

// Spoiled says how many requests the rule about the image has spoiled.
func (e *Env) Spoiled(image TestImage) int {
	e.T.Helper()
	var rules map[string]struct {
		Hits int `json:"hits"`
	}
	require.NoError(e.T, askRegistry(e.Background(), http.MethodGet, "/test/rules", nil, nil, &rules))
	return rules[ruleName(image)].Hits
}

func ruleName(image TestImage) string {
	return strings.NewReplacer("/", "_", ":", "_").Replace(image.Repository)
}

func rulePath(image TestImage) string { return "/test/rules/" + ruleName(image) }

// Request is one download that a node asked for.
type Request struct {
	Time                    time.Time
	Client, Node            string
	Method, Kind, Reference string
	Ended, Spoiled          bool
	Status                  int
	Bytes                   int64
}

// Requests lists what nodes asked of the image's repository, oldest first.
func (e *Env) Requests(image TestImage) []Request {
	e.T.Helper()
	nodes := map[string]string{}
	for _, n := range e.Nodes() {
		nodes[Address(n)] = n.Name
	}
	var list []Request
	require.NoError(e.T, askRegistry(e.Background(), http.MethodGet, "/test/requests", url.Values{"repository": {image.Repository}}, nil, &list))
	for i := range list {
		list[i].Node = nodes[list[i].Client]
	}
	return list
}

// Downloads counts, by node and layer, how often the layers that are the image's own were
// asked for.
func (e *Env) Downloads(image TestImage) map[string]map[string]int {
	e.T.Helper()
	counts := map[string]map[string]int{}
	for _, r := range e.Requests(image) {
		if r.Method != http.MethodGet || r.Kind != "blob" {
			continue
		}
		for _, l := range image.Layers[1:] {
			if r.Reference != l {
				continue
			}
			if counts[r.Node] == nil {
				counts[r.Node] = map[string]int{}
			}
			counts[r.Node][l]++
		}
	}
	return counts
}

// RequireDownloadedOnce fails unless each of the nodes has downloaded each layer of the
// image exactly once, and no other node has.
func (e *Env) RequireDownloadedOnce(image TestImage, nodes ...string) {
	e.T.Helper()
	want := map[string]map[string]int{}
	for _, n := range nodes {
		want[n] = map[string]int{}
		for _, l := range image.Layers[1:] {
			want[n][l] = 1
		}
	}
	require.Equal(e.T, want, e.Downloads(image), "downloads of %s by node and layer", image.Ref)
}

// Manifests counts, by node, how often the image was resolved.
func (e *Env) Manifests(image TestImage) map[string]int {
	e.T.Helper()
	counts := map[string]int{}
	for _, r := range e.Requests(image) {
		if r.Method == http.MethodHead && r.Kind == "manifest" {
			counts[r.Node]++
		}
	}
	return counts
}

// PullSecret creates a pull secret of the test's namespace with a login for the registry of
// an image's name.
func (e *Env) PullSecret(name, registry, user, password string) *corev1.Secret {
	e.T.Helper()
	s := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: DockerConfig(registry, user, password)}}
	s.Name = name
	e.Create(s)
	return s
}

// DockerConfig is the content of a pull secret.
func DockerConfig(registry, user, password string) []byte {
	data, err := json.Marshal(map[string]any{"auths": map[string]any{registry: map[string]string{"username": user, "password": password}}})
	if err != nil {
		panic(err) // strings only
	}
	return data
}

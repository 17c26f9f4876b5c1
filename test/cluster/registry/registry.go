// SPDX-License-Identifier: Apache-2.0

// Package registry is the image registry of a local cluster. One address stands in for every public registry: what
// containerd asks of docker.io comes here with the host in the query, and images are kept under their full names.
// A second address wants credentials. While they run, tests can make any repository slow, broken, secret or limited
// (Rule), have images made (images.Sized) and read who asked for what (Request).
package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	upstream "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Credentials of the private registry, fixed: tests put them into pull secrets.
const (
	User     = "kruise"
	Password = "kruise-secret"
)

// host is a name for requests that never leave the process.
const host = "registry.invalid"

// Registry keeps blobs and manifests in a directory. Create it with Open.
type Registry struct {
	dir      string
	store    http.Handler
	delay    atomic.Int64 // nanoseconds before each blob is sent
	host     string       // put before the names of repositories, with a slash; "" if they have one
	private  bool
	rules    *Rules
	requests *Requests
}

// Open returns the registry that lives in dir, with what was pushed to it before. A private one wants credentials.
func Open(dir string, private bool) (*Registry, error) {
	for _, d := range []string{"blobs", "manifests"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("creating the directory of the registry: %w", err)
		}
	}
	r := &Registry{dir: dir, private: private, rules: new(Rules), requests: new(Requests), store: upstream.New(
		upstream.Logger(log.New(io.Discard, "", 0)),
		upstream.WithBlobHandler(upstream.NewDiskBlobHandler(filepath.Join(dir, "blobs"))),
	)}
	return r, r.replay()
}

// SetDelay makes every later download of a blob wait for d first.
func (r *Registry) SetDelay(d time.Duration) { r.delay.Store(int64(d)) }

// Put stores an image under its full name. It is not kept for the next Open.
func (r *Registry) Put(ref string, image v1.Image) error {
	tag, err := name.NewTag(host+"/"+ref, name.Insecure)
	if err != nil {
		return fmt.Errorf("storing the image %s: %w", ref, err)
	}
	if err := remote.Write(tag, image, remote.WithTransport(direct{r.store})); err != nil {
		return fmt.Errorf("storing the image %s: %w", ref, err)
	}
	return nil
}

// ServeHTTP speaks the registry protocol, as far as the rules let it.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	req.URL.Path = Resolve(req.URL.Path, req.URL.Query().Get("ns"))
	t := parseTarget(req.URL.Path, r.host)
	answer := &recorder{ResponseWriter: w}
	var entry *Request
	if t.Kind != Other {
		entry = r.requests.add(Request{
			Time: time.Now(), Client: clientOf(req), Method: req.Method, Repository: t.Repository, Kind: t.Kind, Reference: t.Reference,
		})
		defer func() { r.requests.end(entry, answer.status, answer.bytes) }() // also when a rule cuts the connection
	}
	if auth := r.auth(t, clientOf(req)); auth != nil && !auth.admit(answer, req, t) {
		return
	}
	rule := r.rules.hit(t, clientOf(req), req.Method)
	if entry != nil && rule != (Rule{}) {
		r.requests.spoiled(entry)
	}
	if rule.spoil(answer, req) {
		return
	}
	if t.Kind == Blob && req.Method == http.MethodGet && wait(req.Context(), time.Duration(r.delay.Load())) != nil {
		return
	}
	switch out := rule.wrap(answer, req); {
	case t.Kind == Manifest && req.Method == http.MethodPut:
		r.putManifest(out, req)
	case t.Kind == Blob && req.Method == http.MethodGet:
		r.getBlob(out, req, t.Reference)
	default:
		r.store.ServeHTTP(out, req)
	}
}

// auth are the credentials that a request needs, nil if none. A rule's stand instead of the private registry's own.
func (r *Registry) auth(t target, client string) *Auth {
	if auth := r.rules.auth(t, client); auth != nil {
		return auth
	}
	if r.private {
		return &Auth{Scheme: Basic, User: User, Password: Password}
	}
	return nil
}

// getBlob sends a blob, or a range of it, which the upstream handler does for ranges with two ends only: clients that
// resume a download leave the second one out.
func (r *Registry) getBlob(w http.ResponseWriter, req *http.Request, digest string) {
	hash, err := v1.NewHash(digest)
	if err != nil {
		fail(w, http.StatusBadRequest, "NAME_INVALID", "invalid digest")
		return
	}
	f, err := os.Open(filepath.Join(r.dir, "blobs", hash.Algorithm, hash.Hex))
	if err != nil {
		fail(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown blob")
		return
	}
	defer f.Close()
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, req, "", time.Time{}, f)
}

// Resolve maps the path of a request to the path under which the image is kept; ns is the registry that the client
// wanted to talk to, empty if it named the image in full.
func Resolve(path, ns string) string {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok || rest == "" || ns == "" {
		return path
	}
	return "/v2/" + ns + "/" + rest
}

// saved is a manifest on disk.
type saved struct {
	Path string `json:"path"` // of the request
	Type string `json:"type"` // media type
	Body []byte `json:"body"`
}

// putManifest stores a manifest and remembers it for the next start of the registry.
func (r *Registry) putManifest(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := saved{Path: req.URL.Path, Type: req.Header.Get("Content-Type"), Body: body}
	resp := r.replayOne(m)
	if resp.Code < 300 {
		data, err := json.Marshal(m)
		if err == nil {
			sum := sha256.Sum256([]byte(m.Path))
			err = os.WriteFile(filepath.Join(r.dir, "manifests", hex.EncodeToString(sum[:])), data, 0o644)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	for k, v := range resp.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.Code)
	_, _ = w.Write(resp.Body.Bytes())
}

func (r *Registry) replayOne(m saved) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPut, m.Path, strings.NewReader(string(m.Body)))
	req.Header.Set("Content-Type", m.Type)
	resp := httptest.NewRecorder()
	r.store.ServeHTTP(resp, req)
	return resp
}

// replay loads the manifests of an earlier run.
func (r *Registry) replay() error {
	return filepath.WalkDir(filepath.Join(r.dir, "manifests"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("loading a manifest: %w", err)
		}
		var m saved
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("loading the manifest %s: %w", path, err)
		}
		if resp := r.replayOne(m); resp.Code >= 300 {
			return fmt.Errorf("loading the manifest of %s: %w", m.Path, errors.New(resp.Body.String()))
		}
		return nil
	})
}

// direct sends requests to a handler of this process.
type direct struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	resp := httptest.NewRecorder()
	d.handler.ServeHTTP(resp, req)
	result := resp.Result()
	result.Request = req
	return result, nil
}

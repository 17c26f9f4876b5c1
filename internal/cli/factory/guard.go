// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// writeGuard refuses requests that change the cluster while armed (cli.md 1.11). It
// sits in the transport, below every client, so no command can go around it.
type writeGuard struct{ armed atomic.Bool }

func (g *writeGuard) wrap(next http.RoundTripper) http.RoundTripper {
	return guarded{guard: g, next: next}
}

type guarded struct {
	guard *writeGuard
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.guard.armed.Load() && changes(r) {
		return nil, fmt.Errorf("refused %s %s: --dry-run is set and the request has no dryRun=All", r.Method, r.URL.Path)
	}
	return t.next.RoundTrip(r)
}

func changes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	if r.URL.Query().Get("dryRun") == "All" || r.Method == http.MethodDelete && dryDelete(r) {
		return false
	}
	return !strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/")
}

// dryDelete reads the options of a deletion, which are in its body and not in the query.
func dryDelete(r *http.Request) bool {
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	return json.NewDecoder(body).Decode(&options) == nil && slices.Equal(options.DryRun, []string{"All"})
}

// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"fmt"
	"net/http"
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
	if r.URL.Query().Get("dryRun") == "All" {
		return false
	}
	return !strings.Contains(r.URL.Path, "/apis/authorization.k8s.io/")
}

// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Kind is what a request asks for.
type Kind string

// The kinds of requests that rules tell apart.
const (
	Manifest Kind = "manifest"
	Blob     Kind = "blob"
	Other    Kind = "other" // the check of the protocol version, uploads, lists of tags
)

// Schemes of Auth.
const (
	Basic  = "basic"
	Bearer = "bearer"
)

// Auth are credentials that a repository wants.
type Auth struct {
	Scheme   string `json:"scheme"` // Basic or Bearer
	User     string `json:"user"`
	Password string `json:"password"`
}

// Rule makes downloads that it matches go wrong. Several rules may match one request: each adds its own trouble.
type Rule struct {
	// Repository is a full name with its host, such as docker.io/library/nginx, or a prefix that ends with a slash;
	// empty matches all.
	Repository string `json:"repository,omitempty"`
	Kind       Kind   `json:"kind,omitempty"`   // empty matches manifests and blobs
	Client     string `json:"client,omitempty"` // address of a node; empty matches all
	Times      int    `json:"times,omitempty"`  // how many requests the rule spoils before it is spent; 0 is no limit

	DelayMillis    int   `json:"delayMillis,omitempty"`    // wait before the answer
	Hang           bool  `json:"hang,omitempty"`           // never answer; the client has to give up
	Status         int   `json:"status,omitempty"`         // answer with this error
	RetryAfter     int   `json:"retryAfter,omitempty"`     // seconds, the header that goes with Status
	BytesPerSecond int   `json:"bytesPerSecond,omitempty"` // of each answer
	TruncateAt     int64 `json:"truncateAt,omitempty"`     // cut the connection at this byte of a blob, also when a client resumes there
	Corrupt        bool  `json:"corrupt,omitempty"`        // change a byte: the digest is wrong then
	// Auth are credentials that are wanted instead of any others, as long as the rule is there: Times does not count
	// for them, nor are requests without them counted.
	Auth *Auth `json:"auth,omitempty"`
}

// check says what is wrong with a rule.
func (r Rule) check() error {
	switch {
	case !slices.Contains([]Kind{"", Manifest, Blob}, r.Kind):
		return fmt.Errorf("kind %q is neither %s nor %s", r.Kind, Manifest, Blob)
	case min(int64(r.Times), int64(r.DelayMillis), int64(r.RetryAfter), int64(r.BytesPerSecond), r.TruncateAt) < 0:
		return errors.New("a number is negative")
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return fmt.Errorf("status %d is no error", r.Status)
	case r.Auth != nil && r.Auth.Scheme != Basic && r.Auth.Scheme != Bearer:
		return fmt.Errorf("scheme %q is neither %s nor %s", r.Auth.Scheme, Basic, Bearer)
	}
	return nil
}

// target is what a request is about.
type target struct {
	Repository string // full name with its host
	Kind       Kind
	Reference  string // tag or digest
}

// parseTarget reads the path of a request; host is put before names that lack one.
func parseTarget(path, host string) target {
	rest := strings.TrimPrefix(path, "/v2/")
	for kind, segment := range map[Kind]string{Manifest: "/manifests/", Blob: "/blobs/"} {
		i := strings.LastIndex(rest, segment)
		if i < 0 || strings.HasPrefix(rest[i:], "/blobs/uploads/") {
			continue
		}
		return target{Repository: host + rest[:i], Kind: kind, Reference: rest[i+len(segment):]}
	}
	return target{Kind: Other}
}

// matches says whether the rule is about a download of t by client.
func (r Rule) matches(t target, client string) bool {
	switch {
	case t.Kind == Other:
		return false
	case r.Kind != "" && r.Kind != t.Kind:
		return false
	case r.Client != "" && r.Client != client:
		return false
	case strings.HasSuffix(r.Repository, "/"):
		return strings.HasPrefix(t.Repository, r.Repository)
	}
	return r.Repository == "" || r.Repository == t.Repository
}

// Rules are the rules in force, by name. The zero value has none; it is safe for concurrent use.
type Rules struct {
	mu   sync.Mutex
	list map[string]*ruleState
}

type ruleState struct {
	Rule
	Hits int `json:"hits"` // requests that were spoiled so far
}

// Set puts a rule in force, instead of one of the same name.
func (rs *Rules) Set(name string, r Rule) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("rule %s: %w", name, err)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.list == nil {
		rs.list = map[string]*ruleState{}
	}
	rs.list[name] = &ruleState{Rule: r}
	return nil
}

// Delete takes a rule out of force; an empty name means all of them.
func (rs *Rules) Delete(name string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if name == "" {
		rs.list = nil
		return
	}
	delete(rs.list, name)
}

// snapshot copies all rules with their counts.
func (rs *Rules) snapshot() map[string]ruleState {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := map[string]ruleState{}
	for name, s := range rs.list {
		all[name] = *s
	}
	return all
}

// auth returns the credentials that a request of client wants, nil if no rule says so.
func (rs *Rules) auth(t target, client string) *Auth {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, s := range rs.list {
		if s.Auth != nil && s.matches(t, client) {
			return s.Auth
		}
	}
	return nil
}

// hit merges the trouble that a download by client runs into, and counts it against each rule. Heads are spoiled by
// errors and delays as any other request; only a GET has a body to spoil.
func (rs *Rules) hit(t target, client, method string) Rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var merged Rule
	if method != http.MethodGet && method != http.MethodHead {
		return merged
	}
	for _, s := range rs.list {
		if !s.matches(t, client) || (s.Times > 0 && s.Hits >= s.Times) || !s.spoils(method) {
			continue
		}
		s.Hits++
		merged.add(s.Rule)
	}
	return merged
}

// spoils says whether the rule does anything to an answer to a request of that method.
func (r Rule) spoils(method string) bool {
	if r.Hang || r.Status != 0 || r.DelayMillis > 0 {
		return true
	}
	return method == http.MethodGet && (r.BytesPerSecond > 0 || r.TruncateAt > 0 || r.Corrupt)
}

// add adds the trouble of another rule: the worse of both.
func (r *Rule) add(o Rule) {
	r.Hang = r.Hang || o.Hang
	r.Corrupt = r.Corrupt || o.Corrupt
	r.DelayMillis = max(r.DelayMillis, o.DelayMillis)
	r.Status = max(r.Status, o.Status)
	r.RetryAfter = max(r.RetryAfter, o.RetryAfter)
	if r.BytesPerSecond == 0 || (o.BytesPerSecond > 0 && o.BytesPerSecond < r.BytesPerSecond) {
		r.BytesPerSecond = o.BytesPerSecond
	}
	if r.TruncateAt == 0 || (o.TruncateAt > 0 && o.TruncateAt < r.TruncateAt) {
		r.TruncateAt = o.TruncateAt
	}
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// Cause is why a pull failed, as far as the runtime's words tell: CRI has no codes for it.
type Cause string

// The causes, as values of a metric.
const (
	CauseRateLimited  Cause = "rate_limited"
	CauseUnauthorized Cause = "unauthorized"
	CauseNotFound     Cause = "not_found"
	CauseCertificate  Cause = "certificate"
	CauseUnreachable  Cause = "unreachable"
	CauseTimeout      Cause = "timeout"
	CauseDeadline     Cause = "deadline"
	CauseDisk         Cause = "disk"
	CauseRuntime      Cause = "runtime"
	CauseOther        Cause = "other"
)

var (
	errDeadline = errors.New("pulling exceeds the activeDeadlineSeconds")
	errTimeout  = errors.New("no result in time")
)

// signs are words of containerd, CRI-O, Docker and registries. The first that fits counts.
var signs = []struct {
	cause Cause
	words []string
}{
	{CauseRateLimited, []string{"toomanyrequests", "too many requests", "rate limit"}},
	{CauseDisk, []string{"no space left", "disk quota exceeded"}},
	{CauseCertificate, []string{"x509", "tls: ", "server gave http response to https client"}},
	{CauseUnauthorized, []string{"unauthorized", "unauthenticated", "authentication required", "access denied", "authorization failed", "forbidden", "requested access to the resource is denied"}},
	{CauseNotFound, []string{"not found", "manifest unknown", "name unknown", "manifest_unknown", "name_unknown"}},
	{CauseTimeout, []string{"deadline exceeded", "i/o timeout", "timeout exceeded", "timed out", "handshake timeout"}},
	{CauseUnreachable, []string{"connection refused", "no such host", "no route to host", "network is unreachable", "connection reset", "name resolution", "server misbehaving", "service unavailable", "bad gateway", "gateway timeout", "internal server error", "unexpected eof", "dial tcp"}},
}

// causeOf reads an error of a pull.
func causeOf(err error) Cause {
	switch {
	case errors.Is(err, errDeadline):
		return CauseDeadline
	case errors.Is(err, errTimeout):
		return CauseTimeout
	case errors.Is(err, cri.ErrUnavailable):
		return CauseRuntime
	}
	text := strings.ToLower(err.Error())
	for _, s := range signs {
		for _, word := range s.words {
			if strings.Contains(text, word) {
				return s.cause
			}
		}
	}
	return CauseOther
}

// explain says in one sentence why ref could not be pulled, with the runtime's own words.
func explain(ref imageref.Ref, err error) string {
	cause, words := causeOf(err), oneLine(err.Error())
	registry, _, _ := strings.Cut(ref.Repository(), "/")
	switch cause {
	case CauseRateLimited:
		return fmt.Sprintf("registry %s limits how much this node may pull (HTTP 429): %s", registry, words)
	case CauseUnauthorized:
		return fmt.Sprintf("registry %s does not let this login pull %s, or has no such repository: %s", registry, ref, words)
	case CauseNotFound:
		return fmt.Sprintf("registry %s has no %s: %s", registry, ref, words)
	case CauseCertificate:
		return fmt.Sprintf("the node does not trust the certificate of registry %s: %s", registry, words)
	case CauseUnreachable:
		return fmt.Sprintf("registry %s does not answer: %s", registry, words)
	case CauseDisk:
		return fmt.Sprintf("the node has no space for %s: %s", ref, words)
	}
	return words
}

// maxWords bounds what is cited: one line of a status, not a page of HTML of a proxy.
const maxWords = 500

// oneLine is text without line breaks and not longer than maxWords bytes.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "…"
	}
	return text
}

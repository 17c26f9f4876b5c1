// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// What runtimes say, and what a user reads.
func TestExplain(t *testing.T) {
	const containerd = `failed to pull and unpack image "quay.io/acme/app:9": failed to resolve reference "quay.io/acme/app:9": `
	cases := map[string]struct {
		err   error
		cause Cause
		want  string // beginning
	}{
		"containerd: no such tag": {errors.New(containerd + "quay.io/acme/app:9: not found"), CauseNotFound, "registry quay.io has no quay.io/acme/app:9: failed to pull"},
		"CRI-O: no such tag":      {errors.New("reading manifest 9 in quay.io/acme/app: manifest unknown"), CauseNotFound, "registry quay.io has no quay.io/acme/app:9: "},
		"containerd: wrong login": {
			errors.New(containerd + "failed to authorize: failed to fetch oauth token: unexpected status from GET request: 401 Unauthorized"),
			CauseUnauthorized, "registry quay.io does not let this login pull quay.io/acme/app:9, or has no such repository: ",
		},
		"Docker: anonymous": {
			errors.New("pull access denied for acme/app, repository does not exist or may require 'docker login'"),
			CauseUnauthorized, "registry quay.io does not let this login pull",
		},
		"Docker Hub's limit": {
			errors.New("429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit"),
			CauseRateLimited, "registry quay.io limits how much this node may pull (HTTP 429): 429 Too Many",
		},
		"own certificate":               {errors.New(containerd + "tls: failed to verify certificate: x509: certificate signed by unknown authority"), CauseCertificate, "the node does not trust the certificate of registry quay.io: "},
		"plain HTTP":                    {errors.New("http: server gave HTTP response to HTTPS client"), CauseCertificate, "the node does not trust"},
		"no registry":                   {errors.New(containerd + "dial tcp 10.0.0.1:443: connect: connection refused"), CauseUnreachable, "registry quay.io does not answer: "},
		"no name":                       {errors.New("dial tcp: lookup quay.io: no such host"), CauseUnreachable, "registry quay.io does not answer: "},
		"registry in trouble":           {errors.New("unexpected status: 503 Service Unavailable"), CauseUnreachable, "registry quay.io does not answer: "},
		"the network hangs":             {errors.New("dial tcp 10.0.0.1:443: i/o timeout"), CauseTimeout, "dial tcp 10.0.0.1:443: i/o timeout"},
		"full disk":                     {errors.New("write /var/lib/x: no space left on device"), CauseDisk, "the node has no space for quay.io/acme/app:9: "},
		"our own timeout":               {&timeoutError{"pulling x is canceled: no result within 5s"}, CauseTimeout, "pulling x is canceled: no result within 5s"},
		"the deadline":                  {errDeadline, CauseDeadline, "pulling exceeds the activeDeadlineSeconds"},
		"the runtime is away":           {fmt.Errorf("%w: EOF", cri.ErrUnavailable), CauseRuntime, "the container runtime does not answer: EOF"},
		"anything else":                 {errors.New("line one\n\tline two"), CauseOther, "line one line two"},
		"digits of a digest say little": {errors.New("sha256:404401429503: strange"), CauseOther, "sha256:404401429503: strange"},
	}
	ref, err := imageref.Parse("quay.io/acme/app:9")
	require.NoError(t, err)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.cause, causeOf(tc.err))
			got := explain(ref, tc.err)
			require.Truef(t, strings.HasPrefix(got, tc.want), "got %q", got)
			require.NotContains(t, got, "\n")
		})
	}
	require.LessOrEqual(t, len(explain(ref, errors.New(strings.Repeat("<html>é", 10000)))), 600)
}

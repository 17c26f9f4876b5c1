//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// One node cannot pull. The user sees which and why, and pulls again there, and only there.
func TestAFailedNodeIsRetriedThroughKruisectl(t *testing.T) {
	t.Parallel()
	s := newSuite(t, beta{})
	image := s.MakeImage("app", 2, 1000)
	nodes := s.Nodes()
	s.Spoil(image, harness.Rule{Client: harness.Address(nodes[1]), Status: 403})
	r := s.Try("image", "pull", image.Ref, "--name", "job", "--parallelism", "3", "--backoff", "0", "--wait", "--timeout", "5m")
	require.Equal(t, 3, r.Code, "exit code when a node fails:\n%s", r.Text())
	require.Equal(t, []string{nodes[1].Name}, s.waitCompleted("job", len(nodes)-1, 1).FailedNodes)
	status := s.Try("image", "status", "job")
	require.Contains(t, status.Text(), nodes[1].Name)
	require.Regexp(t, "(?i)403|forbidden|denied", status.Text())

	s.Mend(image)
	s.Kruisectl("image", "retry", "job", "--wait", "--timeout", "5m")
	s.RequireDownloadedOnce(image, s.NodeNames()...)
}

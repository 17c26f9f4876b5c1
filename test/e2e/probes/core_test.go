//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package probes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// Scenarios 1 to 1f of the specification.
func TestExecProbesMarkPods(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	s.start()
	before := harness.Identities(s.Pods(setName))
	nodes := len(s.NodeNames())

	s.probe("nginx", "healthy", healthy, shell("/bin/sh", "-c", "ls /"), whenHealthy())
	s.waitPodsLook(look{label: "healthy", conditions: map[string]string{healthy: "True", check: ""}})
	s.waitListed()

	// 1b
	s.probe("main", "check", check, shell("ps", "-ef"), costs()...)
	s.waitPodsLook(look{label: "healthy", annotation: "10", conditions: map[string]string{healthy: "True", check: "True"}})

	// 1c
	s.change("ppm-nginx", shell("/bin/sh", "-c", "failed /"))
	s.change("ppm-main", shell("failed", "-ef"))
	s.waitPodsLook(look{annotation: "-10", conditions: map[string]string{healthy: "False", check: "False"}})
	s.RequireSamePods(setName, before)
	for _, p := range s.Pods(setName) {
		require.Zero(t, harness.Restarts(p, "nginx")+harness.Restarts(p, "main"), "a probe restarts nothing")
		require.True(t, harness.Ready(&p), "nor does it take a Pod out of service")
	}

	// 1d
	s.change("ppm-nginx", shell("/bin/sh", "-c", "ls /"))
	s.scale(1)
	s.waitPodsLook(look{label: "healthy", annotation: "-10", conditions: map[string]string{healthy: "True", check: "False"}})
	s.waitListed()

	// 1e
	s.scale(nodes)
	s.waitPodsLook(look{label: "healthy", annotation: "-10", conditions: map[string]string{healthy: "True", check: "False"}})
	s.waitListed()

	// 1f
	s.remove("ppm-nginx")
	s.remove("ppm-main")
	require.Empty(t, s.listed(), "what NodePodProbes list of the namespace, at once")
}

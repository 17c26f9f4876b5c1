//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package probes_test probes containers through PodProbeMarkers on a real cluster, and looks
// at what becomes of their Pods.
package probes_test

import (
	"os"
	"testing"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m.Run)) }

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package containers_test restarts containers of running Pods on a real cluster.
package containers_test

import (
	"os"
	"testing"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m.Run)) }

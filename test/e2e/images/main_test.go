//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package images_test pulls images ahead of their use on a real cluster, from a registry
// that works, and from one that is slow, broken, secret or gone.
package images_test

import (
	"os"
	"testing"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m.Run)) }

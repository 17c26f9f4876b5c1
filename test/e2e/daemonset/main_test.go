//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package daemonset_test runs Advanced DaemonSets on a real cluster.
package daemonset_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func TestMain(m *testing.M) {
	if err := harness.Install(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := harness.NamespacesGone(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

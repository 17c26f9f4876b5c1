// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"os"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// asManager is the variable that makes the test binary be the program.
const asManager = "KRUISE_MANAGER_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		main()
	}
	ctrl.SetLogger(klog.Background())
	os.Exit(m.Run())
}

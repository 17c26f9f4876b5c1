// SPDX-License-Identifier: Apache-2.0

// Command cluster builds, starts, inspects and removes a real Kubernetes cluster on this machine, from package
// registries alone: no container engine, no image registry, no cluster elsewhere.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
		os.Exit(1)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Command demo shows the product's main job on a cluster where it is installed: a CloneSet
// of six Pods is updated in place in batches, and a table proves for every Pod that it
// kept UID, IP and node, that only the changed container restarted, and that the new image
// was on the node before the Pod was touched.
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
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes cluster on this machine, built from package registries alone",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newBuild(), newAssets(),
		newUp(), newDown(), newStatus(), newKubeconfig(), newEnv(),
		newListImages(), newLoadImage(), newBuildProduct(),
		newProcess(), newNode(), newExec(), newSimulate(), newRunManager(),
		newHoldNode(), newSupervise(), newServeRegistry(), newServeVolumes(),
	)
	return root
}

// say returns a function that writes lines of progress with the time since now to w; quiet drops them.
func say(w io.Writer, quiet bool) func(string, ...any) {
	start := time.Now()
	var mu sync.Mutex
	return func(format string, args ...any) {
		if quiet {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "[%6.1fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}

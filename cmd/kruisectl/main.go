// SPDX-License-Identifier: Apache-2.0

// Command kruisectl installs, drives and explains Kruise workloads. It also answers as
// kubectl-kruise (a kubectl plugin) and as kubectl_complete-kruise (its completion).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/cli"
	"github.com/kruisectl/kruisectl/internal/cli/out"
)

func main() {
	// The client library would print a warning, with a stack, when none was set.
	ctrllog.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var first time.Time
		for s := range signals {
			code := out.CodeInterrupted
			if s == syscall.SIGTERM {
				code = out.CodeTerminated
			}
			if !first.IsZero() && time.Since(first) < 2*time.Second {
				os.Exit(code)
			}
			first = time.Now()
			cancel(&out.Signal{Code: code})
		}
	}()
	os.Exit(cli.Main(ctx, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}

// SPDX-License-Identifier: Apache-2.0

// Command kruise-manager serves admission and conversion webhooks on every replica and runs
// the controllers on the leader. It holds flags, wiring and the order of start-up
// (platform.md 2); what is served and controlled is in webhook and controllers.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kruisectl/kruisectl/internal/version"
)

// drain is how long webhooks are served after the signal to stop: until the API server has
// seen that this replica is going, its calls still arrive here.
const drain = 3 * time.Second

func main() {
	// Once for the process, and before any flag is made: the list of formats freezes then.
	if err := logsapi.RegisterLogFormat(logsapi.JSONLogFormat, logsjson.Factory{}, logsapi.LoggingBetaOptions); err != nil {
		fmt.Fprintf(os.Stderr, "kruise-manager: registering the log format json: %v\n", err)
		os.Exit(1)
	}
	os.Exit(start(os.Args[1:], os.Getenv))
}

// start parses and applies what the process was started with, then runs until a signal.
func start(args []string, getenv func(string) string) int {
	o := newOptions(getenv)
	if err := parse(o, args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "kruise-manager: %v\n", err)
		return 2
	}
	if o.printVersion {
		fmt.Fprintln(os.Stdout, version.Get().Version)
		return 0
	}
	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		fmt.Fprintf(os.Stderr, "kruise-manager: logging flags: %v\n", err)
		return 1
	}
	defer klog.Flush()
	ctrl.SetLogger(klog.Background())

	signalled := ctrl.SetupSignalHandler()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	context.AfterFunc(signalled, func() { time.AfterFunc(drain, cancel) })
	o.draining = signalled.Done()
	if err := run(ctx, o); err != nil {
		klog.Background().Error(err, "The manager ends")
		return 1
	}
	return 0
}

// parse fills o from the command line.
func parse(o *options, args []string) error {
	fs := pflag.NewFlagSet("kruise-manager", pflag.ContinueOnError)
	o.addFlags(fs)
	return fs.Parse(args)
}

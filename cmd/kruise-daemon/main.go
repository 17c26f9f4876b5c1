// SPDX-License-Identifier: Apache-2.0

// Command kruise-daemon is the node agent: it pulls images and reports what containers run,
// over the container runtime's socket and the API server, for its own node only. This
// package has flags and wiring; daemon.md 1 is the contract.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/features"
)

// defaultConfigNamespace is where the manager copies pull secrets to.
const defaultConfigNamespace = "kruise-daemon-config"

// endWithin is how long the agent may take to end; its Pod has 10 s.
const endWithin = 8 * time.Second

// options are the flags and the environment.
type options struct {
	addr, pprofAddr  string
	enablePprof      bool
	hostRunDir       string
	socketFile       string
	maxWorkers       int
	maxPerRegistry   int
	pluginConfigFile string
	pluginBinDir     string
	qps              float64
	burst            int
	kubeconfig       string
	gates            *features.Set
	node             string
	configNamespace  string
}

// parse reads flags in Go's syntax: one dash or two, so that -v=5 and --v=5 both work.
func parse(args []string, getenv func(string) string) (options, error) {
	o := options{gates: features.New(), node: getenv("NODE_NAME"), configNamespace: getenv("KRUISE_DAEMON_CONFIG_NS")}
	fs := flag.NewFlagSet("kruise-daemon", flag.ContinueOnError)
	klog.InitFlags(fs)
	fs.StringVar(&o.addr, "addr", ":10221", "address of /metrics and /healthz")
	fs.StringVar(&o.pprofAddr, "pprof-addr", ":10222", "address of /debug/pprof")
	fs.BoolVar(&o.enablePprof, "enable-pprof", true, "serve profiles on --pprof-addr")
	fs.StringVar(&o.hostRunDir, "host-run-dir", cri.HostRunDir, "where the host's /var/run is mounted")
	fs.StringVar(&o.socketFile, "socket-file", "", "the runtime's socket below --host-run-dir; empty looks for the known ones")
	fs.IntVar(&o.maxWorkers, "max-workers-for-pull-image", -1, "how many images this node pulls at once; 0 or less is no limit")
	fs.IntVar(&o.maxPerRegistry, "max-pulls-per-registry", 0, "how many images this node pulls at once from one registry; 0 or less is no limit")
	fs.StringVar(&o.pluginConfigFile, "plugin-config-file", "/kruise/CredentialProviderPlugin.yaml", "credential provider configuration, as for the kubelet")
	fs.StringVar(&o.pluginBinDir, "plugin-bin-dir", "/kruise/plugins", "directory of the credential providers")
	fs.Float64Var(&o.qps, "rest-config-qps", 0, "requests per second to the API server; 0 is the client's default")
	fs.IntVar(&o.burst, "rest-config-burst", 0, "burst of requests to the API server; 0 is the client's default")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty inside a cluster")
	fs.Var(o.gates, "feature-gates", features.Usage())
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.node == "" {
		return o, errors.New("the environment variable NODE_NAME must name this node")
	}
	if o.configNamespace == "" {
		o.configNamespace = defaultConfigNamespace
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kruise-daemon:", err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		// The agent is at rest nearly always. Collecting twice as often costs it nothing
		// that could be measured, and halves what lies around between collections.
		debug.SetGCPercent(50)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A second signal ends the process as it is, and so does time: the Pod has 10 s.
	context.AfterFunc(ctx, func() {
		stop()
		time.AfterFunc(endWithin, func() {
			klog.Background().Info("Ending with work that does not stop", "after", endWithin)
			klog.Flush()
			os.Exit(1)
		})
	})
	err = run(klog.NewContext(ctx, klog.Background()), o)
	stop()
	if err != nil {
		klog.Background().Error(err, "Ending")
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

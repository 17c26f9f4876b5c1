// SPDX-License-Identifier: Apache-2.0

package main

import (
	goflag "flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/internal/features"
)

// maxAlwaysTTL is 31 days in seconds.
const maxAlwaysTTL = 2678400

// options are everything that decides how a manager runs.
type options struct {
	getenv        func(string) string
	config        *rest.Config    // set by tests; else from kubeconfig or the cluster
	draining      <-chan struct{} // closed when the process was told to stop
	skipNameCheck bool            // set by tests that run several managers in one process
	printVersion  bool

	features *features.Set
	logging  *logsapi.LoggingConfiguration

	kubeconfig            string
	metricsAddr           string
	probeAddr             string
	pprof                 bool
	pprofAddr             string
	allowPrivileged       bool
	leaderElection        bool
	leaseNamespace        string
	leaseName             string
	leaseResource         string
	leaseDuration         time.Duration
	renewDeadline         time.Duration
	retryPeriod           time.Duration
	releaseLease          bool
	namespace             string
	syncPeriod            string
	cacheSyncTimeout      time.Duration
	webhookTimeout        time.Duration
	alwaysTTL             int32
	qps                   float32
	burst                 int
	deepCopyLists         bool
	backoffBase           time.Duration
	backoffMax            time.Duration
	queueQPS              float64
	queueBurst            int
	expectationTimeout    time.Duration
	protectionLogPath     string
	jobPodsByScheduler    bool
	daemonPodsByScheduler bool
	nodeImageDelay        time.Duration
	excludePreparing      bool
	spreadStatusKinds     string
	workers               map[string]*int // by prefix of the flag
}

// workerFlags are the controllers with a flag --<name>-workers; the flags of kinds that
// this build does not run are accepted, so that arguments of earlier releases stay valid.
func workerFlags() []string {
	return []string{
		"advancedcronjob", "broadcastjob", "cloneset", "crr", "daemonset", "nodeimage", "imagepulljob", "sidecarset",
		"statefulset", "uniteddeployment", "podunavailablebudget", "workloadspread", "resourcedistribution",
		"persistentpodstate", "sidecarterminator", "podprobemarker", "nodepodprobe",
	}
}

// newOptions returns the defaults that hold with this environment.
func newOptions(getenv func(string) string) *options {
	o := &options{getenv: getenv, logging: logsapi.NewLoggingConfiguration(), workers: map[string]*int{}}
	var defaults []features.Option
	if legacy := getenv("CUSTOM_RESOURCE_ENABLE"); legacy != "" && !slices.Contains(strings.Split(legacy, ","), "SidecarSet") {
		defaults = append(defaults, features.WithDefault(features.PodWebhook, false))
	}
	o.features = features.New(defaults...)
	return o
}

// addFlags registers the flags of platform.md 2.2.
func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.SortFlags = true
	fs.BoolVar(&o.printVersion, "version", false, "Print the version and exit.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig file, for running outside of the cluster.")
	fs.StringVar(&o.metricsAddr, "metrics-addr", ":8080", "Address of /metrics, without TLS or authentication. 0 turns it off.")
	fs.StringVar(&o.probeAddr, "health-probe-addr", ":8000", "Address of /healthz and /readyz.")
	fs.BoolVar(&o.pprof, "enable-pprof", true, "Serve /debug/pprof.")
	fs.StringVar(&o.pprofAddr, "pprof-addr", ":8090", "Address of /debug/pprof.")
	fs.BoolVar(&o.allowPrivileged, "allow-privileged", true, "Accepted for compatibility: privileged containers in templates are up to the API server, which checks every Pod.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to restrict the controllers to; empty is all.")
	fs.StringVar(&o.syncPeriod, "sync-period", "", "How often controllers look at every object again: a duration, 0 for never, empty for the library's default.")
	fs.DurationVar(&o.cacheSyncTimeout, "controller-cache-sync-timeout", 2*time.Minute, "How long a controller waits for its caches.")
	fs.DurationVar(&o.webhookTimeout, "webhook-initialize-timeout", time.Minute, "How long setting up webhooks may take at start.")
	fs.Float32Var(&o.qps, "rest-config-qps", 0, "Limit of requests to the API server per second. 0 is no limit: the server protects itself.")
	fs.IntVar(&o.burst, "rest-config-burst", 0, "Requests that may exceed --rest-config-qps for a moment.")
	fs.BoolVar(&o.deepCopyLists, "disable-no-deepcopy", false, "Copy every object that is listed from a cache.")
	fs.DurationVar(&o.backoffBase, "rate-limiter-base-delay", 5*time.Millisecond, "First delay before an object that failed is tried again.")
	fs.DurationVar(&o.backoffMax, "rate-limiter-max-delay", 1000*time.Second, "Longest delay before an object that failed is tried again.")
	fs.Float64Var(&o.queueQPS, "rate-limiter-qps", 10, "Retries per second of each controller.")
	fs.IntVar(&o.queueBurst, "rate-limiter-bucket-size", 100, "Retries that may exceed --rate-limiter-qps for a moment.")
	fs.DurationVar(&o.expectationTimeout, "expectation-timeout", 5*time.Minute, "When a controller stops waiting to see its own write.")
	fs.StringVar(&o.protectionLogPath, "protection-log-path", "/log", "Directory of protection.log.")
	fs.Int32Var(&o.alwaysTTL, "default-ttlseconds-for-always-nodeimage", 300, "Seconds that images of jobs with pull policy Always stay listed in NodeImages; 0 to 2678400.")
	fs.DurationVar(&o.nodeImageDelay, "nodeimage-creation-delay", 30*time.Second, "How long a node must be ready before it gets a NodeImage.")
	fs.BoolVar(&o.excludePreparing, "cloneset-scaling-exclude-preparing-delete", false, "Do not count Pods that prepare deletion as replicas of a CloneSet.")
	fs.BoolVar(&o.jobPodsByScheduler, "assign-bcj-pods-by-scheduler", true, "Let the scheduler place Pods of BroadcastJobs.")
	fs.BoolVar(&o.daemonPodsByScheduler, "assign-pods-by-scheduler", true, "Let the scheduler place Pods of Advanced DaemonSets.")
	fs.StringVar(&o.spreadStatusKinds, "ws-enabled-versioned-status", "deployment,replicaset", "Kinds whose WorkloadSpread status is kept by revision.")
	fs.Var(o.features, "feature-gates", features.Usage())
	for _, name := range workerFlags() {
		o.workers[name] = fs.Int(name+"-workers", 3, "Objects that the "+name+" controller works on at the same time.")
	}
	o.addLeaderElectionFlags(fs)
	o.addLogFlags(fs)
}

func (o *options) addLeaderElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.leaderElection, "enable-leader-election", true, "Run controllers only while holding the lease.")
	fs.StringVar(&o.leaseNamespace, "leader-election-namespace", "kruise-system", "Namespace of the lease; empty is that of the Pod.")
	fs.StringVar(&o.leaseName, "leader-election-id", "kruise-manager", "Name of the lease.")
	fs.StringVar(&o.leaseResource, "leader-election-resource-lock", "leases", "Kind of the lock.")
	fs.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second, "How long others wait for a leader that is silent.")
	fs.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", 10*time.Second, "When a leader that cannot renew gives up.")
	fs.DurationVar(&o.retryPeriod, "leader-election-retry-period", 2*time.Second, "How often the lease is tried.")
	fs.BoolVar(&o.releaseLease, "leader-election-release-on-exit", false, "Give the lease back on a graceful end, so that the next leader need not wait for it to run out.")
}

// addLogFlags accepts the logging flags of component-base and, beside them, those of klog
// that earlier releases took.
func (o *options) addLogFlags(fs *pflag.FlagSet) {
	logsapi.AddFlags(o.logging, fs)
	var legacy goflag.FlagSet
	klog.InitFlags(&legacy)
	legacy.VisitAll(func(f *goflag.Flag) {
		if fs.Lookup(f.Name) == nil {
			fs.AddGoFlag(f)
		}
	})
}

// validate returns what is wrong with the values of flags.
func (o *options) validate() error {
	if o.alwaysTTL < 0 || o.alwaysTTL > maxAlwaysTTL {
		return fmt.Errorf("--default-ttlseconds-for-always-nodeimage is %d: set 0 to %d seconds", o.alwaysTTL, maxAlwaysTTL)
	}
	return nil
}

// resync reads --sync-period; nil is the library's default.
func (o *options) resync() (*time.Duration, error) {
	if o.syncPeriod == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(o.syncPeriod)
	if err != nil {
		return nil, fmt.Errorf("--sync-period is %q: %w", o.syncPeriod, err)
	}
	return &d, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/internal/features"
)

func noEnv(string) string { return "" }

func TestFlagsOfBothInstallers(t *testing.T) {
	cases := map[string]struct {
		args  []string
		check func(*options) bool
	}{
		"the chart": {
			args: []string{"--enable-leader-election", "--metrics-addr=:8080", "--health-probe-addr=:8000", "--logtostderr=true",
				"--leader-election-namespace=ns", "--v=4", "--feature-gates=ImagePullJobGate=true", "--sync-period=0", "--logging-format=json"},
			check: func(o *options) bool {
				resync, err := o.resync()
				return o.leaseNamespace == "ns" && o.features.Enabled(features.ImagePullJobGate) && err == nil && *resync == 0 &&
					o.logging.Format == "json" && o.logging.Verbosity == 4
			},
		},
		"the acceptance environment": {
			args: []string{"--enable-leader-election", "--logtostderr=true", "--v=5",
				"--feature-gates=AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false"},
			check: func(o *options) bool {
				return o.leaderElection && o.features.Enabled(features.CloneSetShortHash) && !o.features.Enabled(features.EnableExternalCerts)
			},
		},
		"the short form of the log level": {
			args: []string{"-v=5"}, check: func(o *options) bool { return o.logging.Verbosity == 5 },
		},
		"every worker flag, also of kinds that do not run": {
			args:  []string{"--cloneset-workers=7", "--advancedcronjob-workers=1", "--crr-workers=1", "--nodepodprobe-workers=9"},
			check: func(o *options) bool { return *o.workers["cloneset"] == 7 && *o.workers["nodeimage"] == 3 },
		},
		"nothing": {
			check: func(o *options) bool {
				resync, err := o.resync()
				return resync == nil && err == nil && o.metricsAddr == ":8080" && o.probeAddr == ":8000" && o.pprofAddr == ":8090" && o.pprof &&
					o.allowPrivileged && o.leaderElection && o.leaseNamespace == "kruise-system" && o.leaseName == "kruise-manager" &&
					o.leaseResource == "leases" && o.leaseDuration == 15*time.Second && o.renewDeadline == 10*time.Second && o.retryPeriod == 2*time.Second &&
					!o.releaseLease && o.cacheSyncTimeout == 2*time.Minute && o.webhookTimeout == time.Minute && o.alwaysTTL == 300 &&
					o.backoffBase == 5*time.Millisecond && o.backoffMax == 1000*time.Second && o.queueQPS == 10 && o.queueBurst == 100 &&
					o.expectationTimeout == 5*time.Minute && o.protectionLogPath == "/log" && o.nodeImageDelay == 30*time.Second &&
					!o.excludePreparing && o.jobPodsByScheduler && o.daemonPodsByScheduler && o.spreadStatusKinds == "deployment,replicaset"
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := newOptions(noEnv)
			if err := parse(o, tc.args); err != nil {
				t.Fatal(err)
			}
			if err := o.validate(); err != nil {
				t.Fatal(err)
			}
			if !tc.check(o) {
				t.Errorf("options = %+v", o)
			}
		})
	}
}

func TestFlagsThatAreWrong(t *testing.T) {
	for args, want := range map[string]string{
		"--feature-gates=CloneSetShortHahs=true":               "did you mean CloneSetShortHash?",
		"--concurrent-cloneset-syncs=3":                        "unknown flag",
		"--default-ttlseconds-for-always-nodeimage=2678401":    "set 0 to 2678400 seconds",
		"--default-ttlseconds-for-always-nodeimage=-1":         "set 0 to 2678400 seconds",
		"--webhook-initialize-timeout=soon":                    "invalid argument",
		"--feature-gates=PodWebhook=perhaps,KruiseDaemon=true": `has value "perhaps"`,
	} {
		o := newOptions(noEnv)
		err := parse(o, []string{args})
		if err == nil {
			err = o.validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %s", args, err, want)
		}
	}
	o := newOptions(noEnv)
	if err := parse(o, []string{"--sync-period=often"}); err != nil {
		t.Fatal(err)
	}
	if resync, err := o.resync(); resync != nil || err == nil {
		t.Errorf("an unreadable --sync-period is %v, %v; it is to be ignored", resync, err)
	}
}

func TestStartAnswersHelpAndVersion(t *testing.T) {
	for args, want := range map[string]int{"--help": 0, "--version": 0, "--nonsense": 2} {
		if got := start([]string{args}, noEnv); got != want {
			t.Errorf("%s ends with %d, want %d", args, got, want)
		}
	}
}

func TestLegacyEnvironmentTurnsPodWebhookOff(t *testing.T) {
	for value, want := range map[string]bool{"": true, "CloneSet": false, "CloneSet,SidecarSet": true} {
		o := newOptions(func(name string) string { return map[string]string{"CUSTOM_RESOURCE_ENABLE": value}[name] })
		if got := o.features.Enabled(features.PodWebhook); got != want {
			t.Errorf("CUSTOM_RESOURCE_ENABLE=%q: PodWebhook=%t, want %t", value, got, want)
		}
	}
	o := newOptions(func(string) string { return "CloneSet" })
	if err := parse(o, []string{"--feature-gates=PodWebhook=true"}); err != nil {
		t.Fatal(err)
	}
	if !o.features.Enabled(features.PodWebhook) {
		t.Error("an explicit gate does not win over the environment")
	}
}

func TestRequestsAreLimitedOnlyWhenAsked(t *testing.T) {
	base := &rest.Config{Host: "https://api", QPS: 7, Burst: 9}
	for name, tc := range map[string]struct {
		args  []string
		qps   float32
		burst int
	}{
		"by default there is no limit": {qps: -1},
		"flags set one":                {args: []string{"--rest-config-qps=30", "--rest-config-burst=50"}, qps: 30, burst: 50},
		"a limit has a burst":          {args: []string{"--rest-config-qps=30"}, qps: 30, burst: 30},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions(noEnv)
			if err := parse(o, tc.args); err != nil {
				t.Fatal(err)
			}
			o.config = base
			cfg, err := o.restConfig()
			if err != nil {
				t.Fatal(err)
			}
			if cfg.QPS != tc.qps || cfg.Burst != tc.burst || cfg.UserAgent != "kruise-manager" || base.QPS != 7 {
				t.Errorf("QPS %v, burst %v, user agent %q", cfg.QPS, cfg.Burst, cfg.UserAgent)
			}
		})
	}
}

func TestQueuesAreLimitedByFlags(t *testing.T) {
	o := newOptions(noEnv)
	if err := parse(o, []string{"--rate-limiter-base-delay=1s", "--rate-limiter-max-delay=3s"}); err != nil {
		t.Fatal(err)
	}
	var limiter workqueue.TypedRateLimiter[reconcile.Request] = wiring{options: o}.limiter()
	var got []time.Duration
	for range 4 {
		got = append(got, limiter.When(reconcile.Request{}))
	}
	if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}, got); diff != "" {
		t.Errorf("delays differ (-want +got):\n%s", diff)
	}
}

func TestServes(t *testing.T) {
	discovery := func(lists ...*metav1.APIResourceList) *fakediscovery.FakeDiscovery {
		return &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: lists}}
	}
	a := &api{discovery: discovery(&metav1.APIResourceList{GroupVersion: "apps.kruise.io/v1beta1", APIResources: []metav1.APIResource{{Kind: "CloneSet"}}})}
	if !a.serves(t.Context(), "CloneSet") {
		t.Error("a kind that is listed is not served")
	}
	if a.serves(t.Context(), "NodeImage") {
		t.Error("a kind that is not listed is served")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := (&api{discovery: discovery()}); !a.serves(ended, "NodeImage") {
		t.Error("an API that does not answer turns kinds off")
	}
}

func TestGatedOff(t *testing.T) {
	off, err := features.Parse("PodWebhook=false")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/mutate-pod": "PodWebhook", "/validate-service": "ResourcesDeletionProtection", "/mutate-apps-kruise-io-future": ""} {
		if got := gatedOff(off)(path); got != want {
			t.Errorf("%s is kept off by %q, want %q", path, got, want)
		}
	}
	if got := gatedOff(features.New())("/mutate-pod"); got != "" {
		t.Errorf("/mutate-pod is kept off by %q", got)
	}
}

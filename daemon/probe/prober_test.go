// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProber(t *testing.T) {
	cases := map[string]func(*testing.T, *rig){
		"a command tells its result within the second, and then nothing more": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
			writes := r.writes()
			require.LessOrEqual(t, writes, 2, "Unknown and the first result, or both at once")
			after(5 * time.Minute)
			require.Equal(t, writes, r.writes(), "no news, no writes")
			require.Equal(t, 1, r.runtime.CallsOf("ContainerStatus"), "when a container started is asked once")
			require.InDelta(t, 301, r.runtime.CallsOf("ExecSync"), 2, "the period is 1 s")
			after(6 * time.Minute)
			require.Equal(t, writes+1, r.writes(), "after 600 s the time is refreshed")
		},
		"a new message propagates, and events tell of new states": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(fails("init"), fails("init"), says("data"), says("data"), says("data"), says("gate")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(20 * time.Second)
			require.Subset(t, r.told(), []string{"Failed init", "Succeeded data", "Succeeded gate"})
			require.Equal(t, "Succeeded gate", r.now("u1", "m#a"))
			events := r.recorded()
			require.Contains(t, events, "Normal KruiseProbeFailed init")
			require.Contains(t, events, "Normal KruiseProbeSucceeded data")
			require.LessOrEqual(t, len(events), 4, "%v", events)
		},
		"two probes of one container do not disturb each other": func(t *testing.T, r *rig) {
			r.container("u1", "c1", map[string][]fakecri.ExecScript{"check": {says("healthy")}, "idle": {fails("busy")}})
			r.want("u1", execProbe("m#a", "check", nil), execProbe("m#idle", "idle", nil))
			after(2 * time.Second)
			writes := r.writes()
			after(time.Minute)
			require.Equal(t, "Succeeded healthy", r.now("u1", "m#a"))
			require.Equal(t, "Failed busy", r.now("u1", "m#idle"))
			require.Equal(t, writes, r.writes(), "no flapping")
		},
		"a container that restarts is Unknown until its first result": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("one")))
			r.want("u1", execProbe("m#a", "check", func(p *v1alpha1.ContainerProbeSpec) { p.InitialDelaySeconds = 3 }))
			after(2 * time.Second)
			r.runtime.Exit("c1", 1)
			after(2 * time.Second)
			require.Equal(t, "Failed Container(main) is Non-running", r.now("u1", "m#a"))
			r.container("u1", "c2", answers(says("two")))
			require.True(t, r.runtime.Change("c2", func(c *fakecri.Container) { c.Started = time.Now() }))
			after(2 * time.Second)
			require.Equal(t, "Unknown ", r.now("u1", "m#a"))
			after(3 * time.Second)
			require.Equal(t, "Succeeded two", r.now("u1", "m#a"))
		},
		"while the runtime is down the last result stays": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			writes := r.writes()
			r.runtime.SetDown(true)
			after(time.Minute)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
			r.runtime.SetDown(false)
			after(time.Minute)
			require.Equal(t, writes, r.writes())
			require.Positive(t, testutil.ToFloat64(r.metrics.misses))
		},
		"errors of the runtime are no results, and do not count": func(t *testing.T, r *rig) {
			broken := fakecri.ExecScript{Err: errors.New("rpc error")}
			r.container("u1", "c1", answers(says("ok"), broken, fails("1"), broken, fails("2"), says("ok2")))
			r.want("u1", execProbe("m#a", "check", func(p *v1alpha1.ContainerProbeSpec) { p.FailureThreshold = 2 }))
			after(4500 * time.Millisecond)
			require.Equal(t, "Failed 2", r.now("u1", "m#a"))
			after(2 * time.Second)
			require.Equal(t, "Succeeded ok2", r.now("u1", "m#a"))
		},
		"a command that takes too long has failed": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(fakecri.ExecScript{Delay: time.Hour}))
			r.want("u1", execProbe("m#a", "check", func(p *v1alpha1.ContainerProbeSpec) { p.TimeoutSeconds = 2 }))
			after(3 * time.Second)
			require.Equal(t, "Failed command timed out after 2s", r.now("u1", "m#a"))
		},
		"a container without status keeps what was known": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			r.container("u1", "c2", answers(says("two")))
			require.True(t, r.runtime.Change("c2", func(c *fakecri.Container) { c.NilStatus = true }))
			after(5 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
			require.True(t, r.runtime.Change("c2", func(c *fakecri.Container) { c.NilStatus = false }))
			after(2 * time.Second)
			require.Equal(t, "Succeeded two", r.now("u1", "m#a"))
		},
		"a container that does not exist has no result": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			odd := execProbe("m#a", "check", nil)
			odd.ContainerName = "nope"
			r.want("u1", odd)
			after(time.Minute)
			require.Empty(t, r.now("u1", "m#a"))
			require.Zero(t, r.writes())
		},
		"another command starts from Unknown at once": func(t *testing.T, r *rig) {
			r.container("u1", "c1", map[string][]fakecri.ExecScript{"check": {says("one")}, "slow": {{Delay: 5 * time.Second, Stdout: "two"}}})
			hour := func(p *v1alpha1.ContainerProbeSpec) { p.PeriodSeconds, p.TimeoutSeconds = 3600, 10 }
			r.want("u1", execProbe("m#a", "check", hour))
			after(2 * time.Second)
			require.Equal(t, "Succeeded one", r.now("u1", "m#a"))
			r.want("u1", execProbe("m#a", "slow", hour))
			after(2 * time.Second)
			require.Equal(t, "Unknown ", r.now("u1", "m#a"))
			after(5 * time.Second)
			require.Equal(t, "Succeeded two", r.now("u1", "m#a"))
		},
		"a result of the probe that was is not that of the probe that is": func(t *testing.T, r *rig) {
			r.container("u1", "c1", map[string][]fakecri.ExecScript{"check": {{Delay: 5 * time.Second, Stdout: "old"}}, "new": {fails("new")}})
			long := func(p *v1alpha1.ContainerProbeSpec) { p.TimeoutSeconds = 10 }
			r.want("u1", execProbe("m#a", "check", long))
			after(2 * time.Second) // it runs
			r.want("u1", execProbe("m#a", "new", long))
			after(10 * time.Second)
			require.NotContains(t, r.told(), "Succeeded old")
			require.Equal(t, "Failed new", r.now("u1", "m#a"))
		},
		"a shorter period counts at once": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("one"), says("two")))
			r.want("u1", execProbe("m#a", "check", func(p *v1alpha1.ContainerProbeSpec) { p.PeriodSeconds = 3600 }))
			after(5 * time.Second)
			require.Equal(t, 1, r.runtime.CallsOf("ExecSync"))
			r.want("u1", execProbe("m#a", "check", func(p *v1alpha1.ContainerProbeSpec) { p.PeriodSeconds = 2 }))
			after(time.Second)
			require.Equal(t, "Succeeded two", r.now("u1", "m#a"))
			after(10 * time.Second)
			require.InDelta(t, 7, r.runtime.CallsOf("ExecSync"), 1)
		},
		"a probe that is stopped and wanted again in the same moment runs": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(fakecri.ExecScript{Delay: 3 * time.Second, Stdout: "first"}, says("second")))
			long := func(p *v1alpha1.ContainerProbeSpec) { p.TimeoutSeconds = 10 }
			r.want("u1", execProbe("m#a", "check", long))
			after(time.Second) // it runs
			r.want("u1")
			after(600 * time.Millisecond)
			r.want("u1", execProbe("m#a", "check", long))
			after(time.Second)
			require.Equal(t, "Succeeded second", r.now("u1", "m#a"))
			after(5 * time.Second)
			require.NotContains(t, r.told(), "Succeeded first")
		},
		"without NodePodProbe nothing runs, and it may come back as another": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			r.store.mu.Lock()
			r.store.npp = nil
			r.store.mu.Unlock()
			r.prober.Wake()
			after(2 * time.Second)
			calls := len(r.runtime.Calls())
			after(time.Minute)
			require.Len(t, r.runtime.Calls(), calls)
			require.Zero(t, testutil.ToFloat64(r.metrics.probes))
			r.want("u1", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
		},
		"results of Pods that are not listed any more go": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.container("u2", "c2", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			r.want("u2", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u2", "m#a"))
			r.want("u1")
			after(2 * time.Second)
			require.Empty(t, r.now("u1", "m#a"))
			require.Equal(t, "Succeeded data", r.now("u2", "m#a"))
		},
		"the network is asked at the Pod's IP, and not before there is one": func(t *testing.T, r *rig) {
			r.container("u1", "c1", nil)
			get := v1alpha1.ContainerProbe{Name: "m#h", ContainerName: "main"}
			get.Probe.HTTPGet = &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}
			r.want("u1", tcpProbe("m#a", 80), get)
			r.edit(func(npp *v1alpha1.NodePodProbe) { npp.Spec.PodProbes[0].IP = "" })
			after(5 * time.Second)
			require.NotContains(t, r.told(), "Failed")
			require.Equal(t, "Unknown ", r.now("u1", "m#a"))
			r.edit(func(npp *v1alpha1.NodePodProbe) { npp.Spec.PodProbes[0].IP = "10.0.0.7" })
			after(2 * time.Second)
			require.Equal(t, "Succeeded ", r.now("u1", "m#a"))
			require.Equal(t, "Succeeded ", r.now("u1", "m#h"))
			r.network.mu.Lock()
			defer r.network.mu.Unlock()
			require.Contains(t, r.network.asked, "tcp 10.0.0.7:80")
			require.Contains(t, r.network.asked, "http 10.0.0.7:8080/healthz")
		},
		"a panic over one probe leaves the others alone": func(t *testing.T, r *rig) {
			r.network.answer = func(asked string) Result {
				if asked == "tcp 10.0.0.1:1" {
					panic("odd container")
				}
				return Result{State: v1alpha1.ProbeSucceeded}
			}
			r.container("u1", "c1", nil)
			odd := tcpProbe("m#odd", 1)
			r.want("u1", tcpProbe("m#a", 80), odd)
			after(5 * time.Second)
			require.Equal(t, "Succeeded ", r.now("u1", "m#a"))
			require.Equal(t, "Unknown ", r.now("u1", "m#odd"))
		},
		"results outlive an API server that is away": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.fail(errors.New("connection refused"))
			r.want("u1", execProbe("m#a", "check", nil))
			after(time.Minute)
			require.Less(t, r.writes(), 20, "backoff")
			r.fail(nil)
			after(15 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
		},
		"a conflict costs a second try, and other writers keep what they wrote": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.fail(apierrors.NewConflict(nodePodProbes, "node", errors.New("changed")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(time.Second)
			r.fail(nil)
			r.container("u2", "c2", answers(says("two")))
			r.want("u2", execProbe("m#a", "check", nil))
			after(5 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
			require.Equal(t, "Succeeded two", r.now("u2", "m#a"))
		},
		"what somebody else writes into the status is put right": func(t *testing.T, r *rig) {
			r.container("u1", "c1", answers(says("data")))
			r.want("u1", execProbe("m#a", "check", nil))
			after(2 * time.Second)
			r.edit(func(npp *v1alpha1.NodePodProbe) { npp.Status = v1alpha1.NodePodProbeStatus{} })
			after(2 * time.Second)
			require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
		},
		"a message that changes all the time floods neither the API server nor the events": func(t *testing.T, r *rig) {
			script := make([]fakecri.ExecScript, 0, 200)
			for i := range 200 {
				script = append(script, says(fmt.Sprint(i)))
			}
			for i := range 50 {
				uid := fmt.Sprint("u", i+1)
				r.container(uid, "c-"+uid, answers(script...))
				r.want(uid, execProbe("m#a", "check", nil))
			}
			after(3 * time.Second)
			before := r.writes()
			after(100 * time.Second)
			require.LessOrEqual(t, r.writes()-before, 201, "of 5,000 results, two writes a second at most")
			require.LessOrEqual(t, len(r.recorded()), 50*(2+2))
		},
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, &memory{}, fakecri.New("containerd"))
				defer r.stop()
				after(2 * time.Hour) // no NodePodProbe yet; probes that come now start at once
				check(t, r)
			})
		})
	}
}

// What is known of a container that still runs survives a restart of the agent.
func TestARestartFlipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runtime := &memory{}, fakecri.New("containerd")
		r := start(t, store, runtime)
		r.container("u1", "c1", answers(says("data")))
		r.container("u2", "c2", answers(says("data"), says("data"), says("data"), fails("no")))
		r.container("u3", "c3", answers(says("data")))
		for _, uid := range []string{"u1", "u2", "u3"} {
			r.want(uid, execProbe("m#a", "check", nil))
		}
		after(3 * time.Second)
		r.stop()
		after(time.Minute)
		r.container("u3", "c3-new", map[string][]fakecri.ExecScript{"check": {{Err: errors.New("rpc error")}}})
		require.True(t, runtime.Change("c3-new", func(c *fakecri.Container) { c.Started = time.Now() }))
		store.mu.Lock()
		store.told = nil
		store.mu.Unlock()

		r = start(t, store, runtime)
		defer r.stop()
		after(10 * time.Second)
		require.NotContains(t, r.told(), "Unknown ")
		require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
		require.Equal(t, "Failed no", r.now("u2", "m#a"), "new results count")
		require.Equal(t, "Unknown ", r.now("u3", "m#a"), "of a new container nothing is known")
		require.Equal(t, []string{"Normal KruiseProbeFailed ", "Normal KruiseProbeFailed no"}, slices.Sorted(slices.Values(r.recorded())))
	})
}

// Thousands of probes must not become thousands of commands at once.
func TestCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := &counting{Runtime: fakecri.New("containerd")}
		r := start(t, &memory{}, runtime.Runtime)
		r.stop()
		r.prober = New(Options{Store: r.store, Runtimes: []cri.Runtime{runtime}, Events: r.events})
		r.store.onChange = r.prober.Wake
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = r.prober.Run(ctx) })
		for i := range 200 {
			uid := fmt.Sprint("u", i)
			r.container(uid, "c-"+uid, answers(fakecri.ExecScript{Delay: 500 * time.Millisecond, Stdout: "ok"}))
			r.want(uid, execProbe("m#a", "check", nil))
		}
		after(10 * time.Second)
		for i := range 200 {
			require.Equal(t, "Succeeded ok", r.now(fmt.Sprint("u", i), "m#a"))
		}
		cancel()
		group.Wait()
		require.Equal(t, execs, runtime.most)
	})
}

// counting counts concurrent commands.
type counting struct {
	*fakecri.Runtime
	mu        sync.Mutex
	now, most int
}

func (c *counting) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	return c.Runtime.Exec(ctx, id, command, timeout)
}

// A Pod may run in any runtime of the node, and be known there by another UID.
func TestTheRuntimeOfAPodIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := fakecri.New("cri-o")
		r := start(t, &memory{}, second)
		r.stop()
		first := fakecri.New("containerd")
		first.SetDown(true)
		r.prober = New(Options{
			Store: r.store, Runtimes: []cri.Runtime{first, second}, Events: r.events,
			RuntimeUID: func(_ context.Context, task Task) string { return "source-of-" + string(task.Key.UID) },
		})
		r.store.onChange = r.prober.Wake
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = r.prober.Run(ctx) })
		r.container("source-of-u1", "c1", answers(says("data")))
		r.want("u1", execProbe("m#a", "check", nil))
		after(3 * time.Second)
		require.Equal(t, "Succeeded data", r.now("u1", "m#a"))
		cancel()
		group.Wait()
	})
}

func TestNotReadyBeforeTheCacheIs(t *testing.T) {
	synced := false
	p := New(Options{Synced: func() bool { return synced }})
	require.EqualError(t, p.Ready(), "not synced")
	require.Equal(t, "nodePodProbeInformerSynced", p.Name())
	synced = true
	require.NoError(t, p.Ready())
}

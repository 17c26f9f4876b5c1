//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The tests of this file disturb the whole cluster, so they are not parallel: they run
// before the parallel ones start.

// faultOn injects one fault and returns when the API server answers.
func faultOn(action, process string) func(*harness.Env, string) {
	return func(e *harness.Env, _ string) {
		e.Disturb(action, process)
		e.WaitForAPIServer()
	}
}

func TestFaultsInTheMiddleOfARollout(t *testing.T) {
	// Each fault is told the node of a Pod that is not updated yet.
	faults := map[string]func(e *harness.Env, node string){
		"API server restarted": faultOn("restart", "kube-apiserver"),
		"etcd restarted":       faultOn("restart", "etcd"),
		"container runtime killed": func(e *harness.Env, node string) {
			e.Disturb("kill", node+".containerd")
		},
		"node agent killed":   killDaemon,
		"kubelet killed":      func(e *harness.Env, node string) { e.Disturb("kill", node+".kubelet") },
		"scheduler restarted": faultOn("restart", "kube-scheduler"),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			e := harness.New(t)
			e.Create(harness.WebSet("web", 6))
			e.WaitAvailable("web", 6)
			before := harness.Identities(e.Pods("web"))
			watch := e.Observe("web", harness.Limits{MinReady: 5, MaxPods: 6, KeepPods: true})

			e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
			var node string
			e.Eventually("the rollout is on its way", harness.Long, func() string {
				pods := e.Pods("web")
				if harness.CountImage(pods, "app", harness.Nginx2) == 0 {
					return "no Pod updated yet"
				}
				i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return harness.Image(p, "app") == harness.Nginx1 })
				require.GreaterOrEqual(t, i, 0, "a Pod that is not updated yet")
				node = pods[i].Spec.NodeName
				return ""
			})
			fault(e, node)
			e.WaitAvailable("web", 6)
			watch.Check(e)
			e.RequireSamePods("web", before)
			require.Equal(t, 6, harness.CountImage(e.Pods("web"), "app", harness.Nginx2))
			for _, p := range e.Pods("web") {
				require.EqualValues(t, 1, harness.Restarts(p, "app"), "restarts of app in %s", p.Name)
			}
		})
	}
}

// killDaemon deletes the node agent of a node without grace; the DaemonSet replaces it.
func killDaemon(e *harness.Env, node string) {
	e.T.Helper()
	for _, p := range daemonsOn(e, node) {
		require.NoError(e.T, e.Client.Delete(e.Ctx(), &p, client.GracePeriodSeconds(0)))
		e.T.Logf("fault: killed %s on %s", p.Name, node)
	}
}

func daemonsOn(e *harness.Env, node string) []corev1.Pod {
	e.T.Helper()
	list := &corev1.PodList{}
	require.NoError(e.T, e.Client.List(e.Background(), list, client.InNamespace(harness.SystemNamespace), client.MatchingLabels{"control-plane": "daemon"}))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != node })
}

// Updates of images need no node agent: what the kubelet reports is enough.
func TestImagesAreUpdatedWithoutANodeAgent(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3))
	e.WaitAvailable("web", 3)
	before := harness.Identities(e.Pods("web"))
	node := e.Pods("web")[0].Spec.NodeName

	// The agent keeps off nodes of this type.
	label := func(value string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"type":%s}}}`, value))
		if err := e.Client.Patch(e.Background(), n, patch); err != nil {
			t.Errorf("labelling Node %s: %v", node, err)
		}
	}
	label(`"virtual-kubelet"`)
	t.Cleanup(func() {
		label(`null`)
		e.EventuallyIn(e.Background(), "the agent is back", harness.Long, func() string {
			for _, p := range daemonsOn(e, node) {
				if harness.Ready(&p) {
					return ""
				}
			}
			return "none is ready"
		})
	})
	e.Eventually("no agent is on the node", harness.Long, func() string {
		if n := len(daemonsOn(e, node)); n > 0 {
			return fmt.Sprintf("%d left", n)
		}
		return ""
	})

	watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
	e.WaitAvailable("web", 3)
	watch.Check(e)
	e.RequireSamePods("web", before)
}

// A Pod whose kubelet is silent uses up the limit: nothing else is touched until it is back.
func TestASilentKubeletStopsTheRolloutWithinItsLimit(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3, func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.RollingUpdate.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{
			WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{
				Weight: 100, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "first"}},
			}},
		}
	}))
	e.WaitAvailable("web", 3)
	pods := e.Pods("web")
	first := pods[0]
	patchPod(e, first.Name, `{"metadata":{"labels":{"stage":"first"}}}`)

	kubelet := first.Spec.NodeName + ".kubelet"
	e.Disturb("stop", kubelet)
	t.Cleanup(func() { e.Disturb("start", kubelet) })
	watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.Nginx2 })
	e.Eventually("the Pod of the silent kubelet is chosen", harness.Long, func() string {
		if p := getPod(e, first.Name); harness.Image(*p, "app") != harness.Nginx2 {
			return "not yet"
		}
		return ""
	})
	e.Throughout("no other Pod is touched", harness.Still, func() string {
		if n := harness.CountImage(e.Pods("web"), "app", harness.Nginx2); n != 1 {
			return fmt.Sprintf("%d Pods have the new image", n)
		}
		return ""
	})
	e.Disturb("start", kubelet)
	e.WaitAvailable("web", 3)
	watch.Check(e)
	e.RequireSamePods("web", harness.Identities(pods))
}

// The registry answers too late at first. The attempts are cut, and one that comes after
// the registry has recovered succeeds.
func TestPullsFromASlowRegistryAreCutAndRepeated(t *testing.T) {
	e := harness.New(t)
	e.SlowRegistry(harness.SlowPull)
	r := e.Try("image", "pull", harness.NewImage1, "--name", "cut", "--node", "node1", "--pull-timeout", "4s", "--backoff", "0", "--wait", "--timeout", "5m")
	require.Equal(t, 3, r.Code, "exit code when the only attempt is cut:\n%s", r.Text())
	require.Contains(t, e.Try("image", "status", "cut").Stdout, "no result within 4s")

	e.Kruisectl("image", "pull", harness.NewImage2, "--name", "repeated", "--node", "node1", "--pull-timeout", "4s", "--backoff", "8")
	job := func() v1beta1.ImagePullJobStatus {
		j := &v1beta1.ImagePullJob{}
		require.NoError(t, e.Client.Get(e.Ctx(), e.Key("repeated"), j))
		return j.Status
	}
	e.Eventually("the node pulls", harness.Short, func() string {
		if s := job(); s.Active != 1 {
			return fmt.Sprintf("status %+v", s)
		}
		return ""
	})
	e.Throughout("a cut attempt does not end the job", harness.Still, func() string {
		if s := job(); s.Failed+s.Succeeded > 0 {
			return fmt.Sprintf("status %+v", s)
		}
		return ""
	})
	e.SlowRegistry(0)
	e.Kruisectl("image", "wait", "repeated", "--timeout", "5m")
	require.EqualValues(t, 1, job().Succeeded)
}

// Downloads that take their time cost no Pod more than promised.
func TestARolloutFromASluggishRegistryKeepsItsLimits(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3))
	e.WaitAvailable("web", 3)
	before := harness.Identities(e.Pods("web"))
	e.SlowRegistry(harness.SluggishPull)
	watch := e.Observe("web", harness.Limits{MinReady: 2, MaxPods: 3, KeepPods: true})
	e.Update("web", func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = harness.NewImage3 })
	e.WaitAvailable("web", 3)
	watch.Check(e)
	e.RequireSamePods("web", before)
}

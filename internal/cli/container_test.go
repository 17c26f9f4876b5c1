// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/restart"
)

// runningPod is Pod p of namespace shop with containers a and b.
func runningPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "uid-p", Labels: map[string]string{"app": "p"}}}
	p.Spec.NodeName = "node-1"
	p.Spec.Containers = []corev1.Container{{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1", Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}}}}
	p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "s:1"}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0.Add(-time.Hour))}}
	for _, n := range []string{"a", "b"} {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: n, ContainerID: "containerd://" + n + "0123456789", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// crr is a request for Pod p, containers a and b.
func crr(name string, phase v1beta1.RecreatePhase, message string, states ...v1beta1.RecreateState) *v1beta1.ContainerRecreateRequest {
	r := restart.Request(runningPod(), name, []string{"a", "b"}, restart.Options{FailurePolicy: v1beta1.RecreateFailurePolicyFail})
	r.UID, r.CreationTimestamp = types.UID("uid-"+name), metav1.NewTime(t0.Add(-2*time.Minute))
	r.Labels = map[string]string{v1beta1.RecreatePodUIDLabel: "uid-p", v1beta1.RecreateNodeNameLabel: "node-1"}
	for i := range r.Spec.Containers {
		c := &r.Spec.Containers[i]
		c.StatusContext = &v1beta1.RecreateContainerContext{ContainerID: "containerd://" + c.Name + "before-that"}
	}
	r.Status = v1beta1.ContainerRecreateRequestStatus{Phase: phase, Message: message, ContainerRecreateStates: states}
	return r
}

func killed(name string, phase v1beta1.RecreatePhase) v1beta1.RecreateState {
	return v1beta1.RecreateState{Name: name, Phase: phase, IsKilled: true}
}

func agent(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-daemon-" + node, Labels: map[string]string{"control-plane": "daemon"}}, Spec: corev1.PodSpec{NodeName: node}}
}

var random = regexp.MustCompile(`-restart-[a-z0-9]{5}\b|(resume-id|restart-id:|restartID":) ?"?[a-z0-9]{8}\b`)

// Every case is one command line; its whole output is a golden file.
func TestContainerCommands(t *testing.T) {
	pod := func(change ...func(*corev1.Pod)) []client.Object { return []client.Object{runningPod(change...)} }
	ok := crr("r", v1beta1.RecreateCompleted, "", killed("a", v1beta1.RecreateSucceeded), killed("b", v1beta1.RecreateSucceeded))
	late := crr("r", v1beta1.RecreateCompleted, "recreating has exceeded the activeDeadlineSeconds", killed("a", v1beta1.RecreateRecreating))
	broken := crr("r", v1beta1.RecreateCompleted, "", v1beta1.RecreateState{Name: "a", Phase: v1beta1.RecreateFailed, Message: "kill container error: boom"})
	mute := crr("r", v1beta1.RecreateCompleted, "daemon has not responded for a long time")
	busy := crr("r", v1beta1.RecreateRecreating, "", killed("a", v1beta1.RecreateRecreating))
	two := crr("s", v1beta1.RecreatePending, "")
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"create-crr":                   {pod(), "create ContainerRecreateRequest r --pod p --containers b -u 5 -m 7 --dry-run=client -o yaml"},
		"create-crr-long-names":        {pod(), "create crr r --pod p --unreadyGracePeriodSeconds 5 --minStartedSeconds=7 --dry-run=client -o jsonpath={.spec.strategy}"},
		"create-crr-defaults":          {pod(), "create crr r --pod p --dry-run=client -o json"},
		"create-crr-done":              {pod(), "create crr r --pod p"},
		"create-crr-unknown":           {pod(), "create crr r --pod p -c zz"},
		"create-crr-init":              {pod(), "create crr r --pod p -c setup"},
		"create-crr-twice":             {pod(), "create crr r --pod p -c a,a"},
		"create-crr-no-pod":            {pod(), "create crr r"},
		"create-crr-no-such-pod":       {nil, "create crr r --pod none"},
		"container-restart":            {pod(), "container restart p --name r"},
		"container-restart-every-flag": {pod(), "container restart pod/p --name r -c b,a --failure-policy Ignore --ordered --recreate-force --termination-grace 9 -u -1 -m 0 --deadline 0 --ttl -1 --dry-run=client -o jsonpath={.spec}"},
		"container-restart-pending":    {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), "container restart p"},
		"container-restart-never":      {pod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), "container restart p"},
		"container-restart-no-agent":   {join(pod(), []client.Object{agent("node-2")}), "container restart p"},
		"container-restart-busy":       {join(pod(), []client.Object{agent("node-1"), busy}), "container restart p --name again"},
		"container-restart-nothing":    {pod(), "container restart"},
		"container-restart-bad-policy": {pod(), "container restart p --failure-policy Maybe"},
		"container-restart-bad-limit":  {pod(), "container restart p --deadline 2"},
		"container-restart-service":    {pod(), "container restart cronjob/x"},
		"container-restart-set-first":  {newShop(10).objects(), "container restart clone/web --wait=false --max-parallel 2"},
		"container-restart-set-dry":    {newShop(10).objects(), "container restart clone/web -c app --dry-run=client"},
		"container-restart-selected":   {newShop(10).objects(), "container restart -l app=web"},
		"container-restart-none":       {pod(), "container restart -l app=none"},
		"container-restart-old-run":    {newShop(10).objects(), "container restart clone/web --resume-id abcdefgh"},
		"container-list":               {join(pod(), []client.Object{busy, two}), "container list"},
		"container-list-wide":          {join(pod(), []client.Object{late}), "container list p -A=false -o wide"},
		"container-list-other":         {join(newShop(10).objects(), []client.Object{busy}), "container list clone/web"},
		"container-list-json":          {join(pod(), []client.Object{two}), "container list --active -o json"},
		"container-wait":               {join(pod(), []client.Object{ok}), "container wait r"},
		"container-wait-json":          {join(pod(), []client.Object{ok}), "container wait r -o json"},
		"container-wait-deadline":      {join(pod(), []client.Object{late}), "container wait r"},
		"container-wait-failed":        {join(pod(), []client.Object{broken}), "container wait crr/r"},
		"container-wait-mute":          {join(pod(), []client.Object{mute}), "container wait r"},
		"container-wait-unknown":       {nil, "container wait none"},
		"container-wait-nothing":       {nil, "container wait"},
		"container-cancel":             {join(pod(), []client.Object{busy}), "container cancel r"},
		"container-cancel-dry":         {join(pod(), []client.Object{busy}), "container cancel r --dry-run=client"},
		"container-cancel-unknown":     {nil, "container cancel none"},
		"restart-containers":           {newShop(10).objects(), "rollout restart clone/web --method=containers --wait=false"},
		"restart-containers-alone":     {newShop(10).objects(), "rollout restart clone/web --containers app"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			r := w.run(strings.Fields(tc.args)...)
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+random.ReplaceAllString(r.String(), "-RANDOM"))
			if (r.code == 1 || r.code == 2 || r.code == 9 || strings.Contains(tc.args, "--dry-run")) && len(r.writes) > 0 {
				t.Errorf("%s wrote %v", tc.args, r.writes)
			}
		})
	}
}

// agentDoes plays the node agent: it completes every request that is not, as phase says.
func agentDoes(t *testing.T, c client.WithWatch, phase v1beta1.RecreatePhase) (most int) {
	var all v1beta1.ContainerRecreateRequestList
	if err := c.List(context.Background(), &all); err != nil {
		t.Error(err)
	}
	for i := range all.Items {
		r := &all.Items[i]
		if r.Status.Phase == v1beta1.RecreateCompleted {
			continue
		}
		most++
		r.Status.Phase, r.Status.ContainerRecreateStates = v1beta1.RecreateCompleted, nil
		for _, ct := range r.Spec.Containers {
			r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates, killed(ct.Name, phase))
		}
		if err := c.Status().Update(context.Background(), r); err != nil {
			t.Error(err)
		}
	}
	return most
}

func TestContainerRestartWaits(t *testing.T) {
	pod := []client.Object{runningPod()}
	does := func(phase v1beta1.RecreatePhase) step {
		return step{20 * time.Second, func(t *testing.T, c client.WithWatch) { agentDoes(t, c, phase) }}
	}
	expect := func(code int, words ...string) func(*testing.T, *world, result) {
		return func(t *testing.T, _ *world, r result) { t.Helper(); wants(code, words...)(t, r) }
	}
	t.Run("until the containers are back", func(t *testing.T) {
		worldStory(t, pod, "container restart p --wait", expect(0, "pod/p restarted: 2 of 2 containers restarted", "CONTAINER  PHASE", "a          Succeeded  yes"), does(v1beta1.RecreateSucceeded))
	})
	t.Run("a failure is exit code 3", func(t *testing.T) {
		worldStory(t, pod, "container restart p --wait -o json", expect(3, `"verdict": "Failed"`), does(v1beta1.RecreateFailed))
	})
	t.Run("no longer than --timeout", func(t *testing.T) {
		worldStory(t, pod, "container restart p --wait --timeout 1m", expect(4, "not finished", "waits for the node agent"))
	})
	t.Run("a request that is deleted is exit code 6", func(t *testing.T) {
		worldStory(t, pod, "container restart p --name r --wait", expect(6, "deleted"), step{20 * time.Second, func(t *testing.T, c client.WithWatch) {
			if err := c.Delete(context.Background(), crr("r", "", "")); err != nil {
				t.Error(err)
			}
		}})
	})
	var rounds []step
	most := 0
	for range 6 {
		rounds = append(rounds, step{10 * time.Second, func(t *testing.T, c client.WithWatch) { most = max(most, agentDoes(t, c, v1beta1.RecreateSucceeded)) }})
	}
	t.Run("a workload goes a few pods at a time", func(t *testing.T) {
		worldStory(t, newShop(10).objects(), "container restart clone/web -c app --max-parallel 3", func(t *testing.T, w *world, r result) {
			wants(0, "pod/web-a restarted", "pod/web-j restarted", "10 of 10 pods restarted")(t, r)
			if most != 3 || len(r.writes) != 10 {
				t.Errorf("%d at a time, wrote %v", most, r.writes)
			}
		}, rounds...)
	})
	t.Run("and stops at the first that fails", func(t *testing.T) {
		worldStory(t, newShop(10).objects(), "container restart clone/web", func(t *testing.T, w *world, r result) {
			wants(3, "9 pods not restarted", "--resume-id")(t, r)
			if len(r.writes) != 1 {
				t.Errorf("wrote %v", r.writes)
			}
		}, does(v1beta1.RecreateFailed))
	})
	t.Run("unless it is to keep going", func(t *testing.T) {
		worldStory(t, newShop(10).objects(), "container restart clone/web --max-parallel 5 --keep-going", func(t *testing.T, w *world, r result) {
			wants(8, "Failed", "restarted")(t, r)
			if len(r.writes) != 10 {
				t.Errorf("wrote %v", r.writes)
			}
		}, does(v1beta1.RecreateFailed), does(v1beta1.RecreateSucceeded))
	})
}

// What an interrupted run restarted is left out when it goes on.
func TestContainerRestartGoesOn(t *testing.T) {
	s := newShop(10)
	before := restart.Request(s.pods[0], "before", []string{"app"}, restart.Options{Labels: map[string]string{restart.RestartIDLabel: "abcdefgh", v1beta1.RecreatePodUIDLabel: string(s.pods[0].UID)}})
	before.Status = v1beta1.ContainerRecreateRequestStatus{Phase: v1beta1.RecreateCompleted, ContainerRecreateStates: []v1beta1.RecreateState{killed("app", v1beta1.RecreateSucceeded)}}
	w := newWorld(t, join(s.objects(), []client.Object{before})...)
	r := w.run("container", "restart", "clone/web", "--resume-id", "abcdefgh", "--wait=false", "--max-parallel", "10")
	if r.code != 0 || len(r.writes) != 9 || strings.Contains(strings.Join(r.writes, " "), "web-a-") {
		t.Errorf("wrote %v\n%s", r.writes, r)
	}
}

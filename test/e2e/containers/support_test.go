//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

const (
	v1alpha1Version = "apps.kruise.io/v1alpha1"
	v1beta1Version  = "apps.kruise.io/v1beta1"

	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	httpd   = "httpd:2.4.38"
)

// suite is one test, and the version of the API through which it speaks. What both versions
// of a request have in common has the same JSON, so requests are v1beta1's here, and travel
// as JSON.
type suite struct {
	*harness.Env
	version string
}

func newSuite(t *testing.T, version string) suite {
	t.Helper()
	s := suite{harness.New(t), version}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Short)
		defer cancel()
		all := &v1beta1.ContainerRecreateRequestList{}
		_ = s.Client.List(ctx, all, client.InNamespace(s.Namespace))
		for i := range all.Items {
			all.Items[i].ManagedFields = nil
			text, _ := yaml.Marshal(all.Items[i])
			t.Logf("ContainerRecreateRequest %s:\n%s", all.Items[i].Name, text)
		}
	})
	return s
}

type request = v1beta1.ContainerRecreateRequest

// recreate is a request of those containers of a Pod.
func recreate(name, pod string, containers []string, edit ...func(*v1beta1.ContainerRecreateRequestSpec)) *request {
	r := &request{}
	r.Name = name
	r.Spec.PodName = pod
	for _, c := range containers {
		r.Spec.Containers = append(r.Spec.Containers, v1beta1.RecreateContainer{Name: c})
	}
	for _, f := range edit {
		f(&r.Spec)
	}
	return r
}

func strategy(edit func(*v1beta1.RecreateStrategy)) func(*v1beta1.ContainerRecreateRequestSpec) {
	return func(spec *v1beta1.ContainerRecreateRequestSpec) {
		if spec.Strategy == nil {
			spec.Strategy = &v1beta1.RecreateStrategy{}
		}
		edit(spec.Strategy)
	}
}

func ordered(spec *v1beta1.ContainerRecreateRequestSpec) {
	strategy(func(st *v1beta1.RecreateStrategy) { st.OrderedRecreate = true })(spec)
}

func force(spec *v1beta1.ContainerRecreateRequestSpec) {
	strategy(func(st *v1beta1.RecreateStrategy) { st.ForceRecreate = true })(spec)
}

func unreadyGrace(seconds int64) func(*v1beta1.ContainerRecreateRequestSpec) {
	return strategy(func(st *v1beta1.RecreateStrategy) { st.UnreadyGracePeriodSeconds = &seconds })
}

func deadline(seconds int64) func(*v1beta1.ContainerRecreateRequestSpec) {
	return func(spec *v1beta1.ContainerRecreateRequestSpec) { spec.ActiveDeadlineSeconds = &seconds }
}

// send creates the request through the test's version and returns it as the server answered.
func (s suite) send(r *request) *request {
	s.T.Helper()
	created, err := s.trySend(r)
	require.NoError(s.T, err)
	return created
}

func (s suite) trySend(r *request) (*request, error) {
	s.T.Helper()
	r.Namespace = s.Namespace
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	require.NoError(s.T, err)
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(s.version)
	u.SetKind("ContainerRecreateRequest")
	if err := s.Client.Create(s.Ctx(), u); err != nil {
		return nil, err
	}
	return s.typed(u), nil
}

func (s suite) typed(u *unstructured.Unstructured) *request {
	s.T.Helper()
	r := &request{}
	data, err := json.Marshal(u)
	require.NoError(s.T, err)
	require.NoError(s.T, json.Unmarshal(data, r))
	return r
}

// read returns the request as that version has it.
func (s suite) read(name, version string) *request {
	s.T.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind("ContainerRecreateRequest")
	s.Eventually("reading ContainerRecreateRequest "+name, harness.Short, func() string { return text(s.Client.Get(s.Ctx(), s.Key(name), u)) })
	return s.typed(u)
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// waitCompleted waits for the end of a request, and for its label to go.
func (s suite) waitCompleted(name string) *request {
	s.T.Helper()
	var r *request
	s.Eventually("ContainerRecreateRequest "+name+" completes", harness.Long, func() string {
		if r = s.read(name, s.version); r.Status.Phase != v1beta1.RecreateCompleted {
			return fmt.Sprintf("status %+v", r.Status)
		}
		return ""
	})
	require.NotNil(s.T, r.Status.CompletionTime)
	s.Eventually("ContainerRecreateRequest "+name+" is not active", harness.Short, func() string {
		if _, active := s.read(name, s.version).Labels[v1beta1.RecreateActiveLabel]; active {
			return "it has the label"
		}
		return ""
	})
	return r
}

// succeeded are the states of containers that were stopped and run again.
func succeeded(names ...string) []v1beta1.RecreateState {
	var states []v1beta1.RecreateState
	for _, n := range names {
		states = append(states, v1beta1.RecreateState{Name: n, Phase: v1beta1.RecreateSucceeded, IsKilled: true})
	}
	return states
}

// web creates CloneSet web of containers "app" and "sidecar" and returns its Pods, all ready.
func (s suite) web(replicas int32, edit ...func(*corev1.PodSpec)) []corev1.Pod {
	s.T.Helper()
	s.Create(harness.WebSet("web", replicas, func(cs *v1beta1.CloneSet) {
		spec := &cs.Spec.Template.Spec
		spec.TerminationGracePeriodSeconds = nil
		spec.Containers = []corev1.Container{
			{Name: "app", Image: httpd, ImagePullPolicy: corev1.PullIfNotPresent},
			{Name: "sidecar", Image: agnhost, ImagePullPolicy: corev1.PullIfNotPresent},
		}
		for _, f := range edit {
			f(spec)
		}
	}))
	s.T.Cleanup(s.dropWeb)
	s.WaitAvailable("web", replicas)
	return s.Pods("web")
}

// dropWeb deletes the set and its Pods at once: their hooks would hold up the namespace.
func (s suite) dropWeb() {
	if s.T.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Short)
	defer cancel()
	set := &v1beta1.CloneSet{}
	set.Namespace, set.Name = s.Namespace, "web"
	err := s.Client.Delete(ctx, set)
	if err == nil {
		err = s.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.Namespace), client.GracePeriodSeconds(0))
	}
	if err != nil {
		s.T.Errorf("deleting CloneSet web: %v", err)
	}
}

// postStart makes app run for so long before anything else of it happens.
func postStart(seconds int) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { lifecycle(&spec.Containers[0]).PostStart = sleep(seconds) }
}

// preStop makes app take so long to stop, if it is given as much time.
func preStop(seconds int) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		lifecycle(&spec.Containers[0]).PreStop = sleep(seconds)
		spec.TerminationGracePeriodSeconds = new(int64(3 * seconds))
	}
}

func lifecycle(c *corev1.Container) *corev1.Lifecycle {
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	return c.Lifecycle
}

func sleep(seconds int) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", fmt.Sprint(seconds)}}}
}

func (s suite) pod(name string) *corev1.Pod {
	s.T.Helper()
	p := &corev1.Pod{}
	s.Eventually("reading Pod "+name, harness.Short, func() string { return text(s.Client.Get(s.Ctx(), s.Key(name), p)) })
	return p
}

// container finds the status of a container.
func container(t testing.TB, p *corev1.Pod, name string) corev1.ContainerStatus {
	t.Helper()
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, "container %s of Pod %s", name, p.Name)
	return p.Status.ContainerStatuses[i]
}

// requireRecreated fails unless the Pod is the one of before, is ready, and each of the
// containers was restarted exactly once and no other was.
func (s suite) requireRecreated(before corev1.Pod, names ...string) *corev1.Pod {
	s.T.Helper()
	after := s.pod(before.Name)
	require.Equal(s.T, before.UID, after.UID)
	require.Equal(s.T, before.Status.PodIP, after.Status.PodIP)
	require.True(s.T, harness.Ready(after), "Pod is ready: %+v", after.Status.Conditions)
	for _, c := range before.Status.ContainerStatuses {
		now := container(s.T, after, c.Name)
		if !slices.Contains(names, c.Name) {
			require.Equal(s.T, []any{c.ContainerID, c.RestartCount}, []any{now.ContainerID, now.RestartCount}, "container %s was not asked for", c.Name)
			continue
		}
		require.EqualValues(s.T, 1, now.RestartCount, "restarts of %s", c.Name)
		require.NotEqual(s.T, c.ContainerID, now.ContainerID)
	}
	return after
}

// waitRecreated is requireRecreated for a Pod that is not ready yet.
func (s suite) waitRecreated(before corev1.Pod, names ...string) {
	s.T.Helper()
	s.Eventually("the Pod is ready again", harness.Long, func() string {
		after := s.pod(before.Name)
		for _, n := range names {
			if container(s.T, after, n).RestartCount == 0 {
				return n + " was not restarted"
			}
		}
		if !harness.Ready(after) {
			return fmt.Sprintf("conditions %+v", after.Status.Conditions)
		}
		return ""
	})
	s.requireRecreated(before, names...)
}

// between is how much later the previous sidecar ended than the previous app.
func (s suite) between(pod string) time.Duration {
	s.T.Helper()
	var ends []time.Time
	s.Eventually("the kubelet tells how containers ended", harness.Long, func() string {
		ends = nil
		p := s.pod(pod)
		for _, n := range []string{"app", "sidecar"} {
			end := container(s.T, p, n).LastTerminationState.Terminated
			if end == nil {
				return n + " has not ended"
			}
			ends = append(ends, end.FinishedAt.Time)
		}
		return ""
	})
	return ends[1].Sub(ends[0])
}

// conditionsSeen collects "status message" of a condition of the Pod, once for each change,
// until the returned function is called.
func (s suite) conditionsSeen(pod string, kind corev1.PodConditionType) func() []string {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.Ctx())
	w, err := s.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.Namespace), client.MatchingFields{"metadata.name": pod})
	require.NoError(s.T, err)
	done := make(chan []string, 1)
	go func() {
		var seen []string
		for ev := range w.ResultChan() {
			p, ok := ev.Object.(*corev1.Pod)
			if !ok || ev.Type == watch.Bookmark {
				continue
			}
			for _, c := range p.Status.Conditions {
				if now := string(c.Status) + " " + c.Message; c.Type == kind && (len(seen) == 0 || seen[len(seen)-1] != now) {
					seen = append(seen, now)
				}
			}
		}
		done <- seen
	}()
	return func() []string {
		cancel()
		w.Stop()
		return <-done
	}
}

func (s suite) waitGone(name string) {
	s.T.Helper()
	s.Eventually("ContainerRecreateRequest "+name+" is gone", harness.Short, func() string {
		err := s.Client.Get(s.Ctx(), s.Key(name), &request{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("it exists, or: %v", err)
	})
}

// waitRecreating waits until the node agent has taken the request up.
func (s suite) waitRecreating(name string) {
	s.T.Helper()
	s.Eventually("the agent works on "+name, harness.Long, func() string {
		if r := s.read(name, s.version); r.Status.Phase != v1beta1.RecreateRecreating {
			return fmt.Sprintf("status %+v", r.Status)
		}
		return ""
	})
}

// waitKilling waits until the agent has begun to stop app.
func (s suite) waitKilling(pod, request string) {
	s.T.Helper()
	s.Eventually("app is being stopped", harness.Long, func() string {
		all := &corev1.EventList{}
		if err := s.Client.List(s.Ctx(), all, client.InNamespace(s.Namespace)); err != nil {
			return err.Error()
		}
		for _, ev := range all.Items {
			if ev.InvolvedObject.Name == pod && ev.Reason == "Killing" && strings.Contains(ev.Message, "Stopping container app by ContainerRecreateRequest "+request) {
				return ""
			}
		}
		return "no such event"
	})
}

// names of conditions and labels, as the wire has them.
func labelsOf(p corev1.Pod) map[string]string {
	return map[string]string{
		"crr.apps.kruise.io/pod-uid": string(p.UID), "crr.apps.kruise.io/node-name": p.Spec.NodeName, "crr.apps.kruise.io/active": "true",
	}
}

// requireFilledIn fails unless admission has completed the request.
func (s suite) requireFilledIn(r *request, p corev1.Pod) {
	s.T.Helper()
	require.Equal(s.T, labelsOf(p), r.Labels)
	require.Equal(s.T, v1beta1.RecreateFailurePolicyFail, r.Spec.Strategy.FailurePolicy)
	for _, c := range r.Spec.Containers {
		require.Equal(s.T, container(s.T, &p, c.Name).ContainerID, c.StatusContext.ContainerID)
	}
}

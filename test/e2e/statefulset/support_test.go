//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// suite is one test's StatefulSet, which is always called web.
type suite struct {
	*harness.Env
}

func newSuite(t *testing.T) suite {
	t.Helper()
	s := suite{harness.New(t)}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Short)
		defer cancel()
		set := &v1beta1.StatefulSet{}
		if err := s.Client.Get(ctx, s.Key("web"), set); err == nil {
			set.ManagedFields = nil
			text, _ := yaml.Marshal(set)
			t.Logf("StatefulSet web:\n%s", text)
		}
	})
	return s
}

// broken is the file that makes a Pod of web unready while it exists.
const broken = "/tmp/broken"

// web is a StatefulSet of one container "app" that can be updated in place and is ready as
// long as no file says that it is broken.
func web(replicas int32, edit ...func(*v1beta1.StatefulSet)) *v1beta1.StatefulSet {
	labels := map[string]string{"foo": "bar", "baz": "blah"}
	set := &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: v1beta1.StatefulSetSpec{
			Replicas:    &replicas,
			ServiceName: "web",
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"foo": "bar", "baz": "blah"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}},
					Containers: []corev1.Container{{
						Name: "app", Image: harness.Nginx1, ImagePullPolicy: corev1.PullIfNotPresent,
						ReadinessProbe: probe("test ! -e " + broken),
					}},
				},
			},
		},
	}
	for _, f := range edit {
		f(set)
	}
	return set
}

func probe(command string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", command}}},
		PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1, TimeoutSeconds: 30,
	}
}

func app(set *v1beta1.StatefulSet) *corev1.Container { return &set.Spec.Template.Spec.Containers[0] }

// inPlace makes the policy InPlaceIfPossible.
func inPlace(set *v1beta1.StatefulSet) {
	rolling(set).PodUpdatePolicy = v1beta1.InPlaceIfPossiblePodUpdatePolicyType
}

func rolling(set *v1beta1.StatefulSet) *v1beta1.RollingUpdateStatefulSetStrategy {
	if set.Spec.UpdateStrategy.RollingUpdate == nil {
		set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{}
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}

func parallel(set *v1beta1.StatefulSet) { set.Spec.PodManagementPolicy = "Parallel" }

// withClaim gives every Pod a claim of one byte, mounted at /data.
func withClaim(set *v1beta1.StatefulSet) {
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
		},
	}}
	app(set).VolumeMounts = append(app(set).VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
}

func (s suite) set() *v1beta1.StatefulSet {
	s.T.Helper()
	set := &v1beta1.StatefulSet{}
	s.Eventually("reading StatefulSet web", harness.Short, func() string {
		return text(s.Client.Get(s.Ctx(), s.Key("web"), set))
	})
	return set
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// change reads web, edits it and writes it, again on conflict.
func (s suite) change(edit func(*v1beta1.StatefulSet)) {
	s.T.Helper()
	s.Eventually("changing StatefulSet web", harness.Short, func() string {
		set := s.set()
		edit(set)
		return text(s.Client.Update(s.Ctx(), set))
	})
}

func (s suite) image(image string) {
	s.T.Helper()
	s.change(func(set *v1beta1.StatefulSet) { app(set).Image = image })
}

func (s suite) scale(n int32) {
	s.T.Helper()
	s.change(func(set *v1beta1.StatefulSet) { set.Spec.Replicas = &n })
}

// waitStatus waits until the controller has seen the last change and ok holds.
func (s suite) waitStatus(what string, ok func(v1beta1.StatefulSetStatus) bool) v1beta1.StatefulSetStatus {
	s.T.Helper()
	var status v1beta1.StatefulSetStatus
	s.Eventually(what, harness.Long, func() string {
		set := s.set()
		status = set.Status
		switch {
		case status.ObservedGeneration < set.Generation:
			return "the controller has not seen the last change"
		case !ok(status):
			return fmt.Sprintf("status %+v", status)
		}
		return ""
	})
	return status
}

// waitObserved waits until the controller has seen the last change.
func (s suite) waitObserved() v1beta1.StatefulSetStatus {
	s.T.Helper()
	return s.waitStatus("the last change is seen", func(v1beta1.StatefulSetStatus) bool { return true })
}

// waitReady waits until exactly n Pods exist and are ready.
func (s suite) waitReady(n int32) v1beta1.StatefulSetStatus {
	s.T.Helper()
	return s.waitStatus(fmt.Sprintf("%d Pods are ready", n), func(st v1beta1.StatefulSetStatus) bool {
		return st.Replicas == n && st.ReadyReplicas == n
	})
}

// waitComplete waits until n Pods are ready and the update revision is the current one.
func (s suite) waitComplete(n int32) v1beta1.StatefulSetStatus {
	s.T.Helper()
	return s.waitStatus("the update is complete", func(st v1beta1.StatefulSetStatus) bool {
		return st.Replicas == n && st.ReadyReplicas == n && st.UpdatedReplicas == n && st.CurrentRevision == st.UpdateRevision
	})
}

// waitGone waits until no Pod is left and the status says so, after a scale to 0.
func (s suite) waitGone() {
	s.T.Helper()
	s.waitStatus("no Pod is left", func(st v1beta1.StatefulSetStatus) bool { return st.Replicas == 0 })
	require.Empty(s.T, s.names())
}

func name(ordinal int) string { return fmt.Sprintf("web-%d", ordinal) }

// pod returns the Pod of an ordinal.
func (s suite) pod(ordinal int) corev1.Pod {
	s.T.Helper()
	p := corev1.Pod{}
	s.Eventually("Pod "+name(ordinal)+" exists", harness.Long, func() string {
		return text(s.Client.Get(s.Ctx(), s.Key(name(ordinal)), &p))
	})
	return p
}

// names are those of all Pods, terminating ones included, in the order of names.
func (s suite) names() []string {
	s.T.Helper()
	list := &corev1.PodList{}
	s.Eventually("listing Pods", harness.Short, func() string {
		return text(s.Client.List(s.Ctx(), list, client.InNamespace(s.Namespace)))
	})
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// waitRunning waits until container "app" of the Pod of an ordinal runs, and returns the Pod.
func (s suite) waitRunning(ordinal int) corev1.Pod {
	s.T.Helper()
	var p corev1.Pod
	s.Eventually("Pod "+name(ordinal)+" runs", harness.Long, func() string {
		p = s.pod(ordinal)
		if p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Sprintf("status %+v", p.Status)
		}
		return ""
	})
	return p
}

// waitPodReady waits until the Pod of an ordinal is ready.
func (s suite) waitPodReady(ordinal int) {
	s.T.Helper()
	s.Eventually("Pod "+name(ordinal)+" is ready", harness.Long, func() string {
		if p := s.pod(ordinal); p.DeletionTimestamp != nil || !harness.Ready(&p) {
			return fmt.Sprintf("conditions %+v", p.Status.Conditions)
		}
		return ""
	})
}

// inside runs a shell command in container "app" of a Pod and returns what it printed.
func (s suite) inside(ordinal int, command string) string {
	s.T.Helper()
	var out string
	s.Eventually("running "+command+" in Pod "+name(ordinal), harness.Short, func() string {
		r, err := harness.Run(s.Ctx(), "", harness.Kubectl(), "-n", s.Namespace, "exec", name(ordinal), "-c", "app", "--", "sh", "-c", command)
		require.NoError(s.T, err)
		out = r.Stdout
		if r.Code != 0 {
			return r.Text()
		}
		return ""
	})
	return out
}

func (s suite) breakPod(ordinal int)  { s.T.Helper(); s.inside(ordinal, "touch "+broken) }
func (s suite) repairPod(ordinal int) { s.T.Helper(); s.inside(ordinal, "rm -f "+broken) }

// waitUnready waits until exactly n Pods are ready.
func (s suite) waitReadyCount(n int32) {
	s.T.Helper()
	s.waitStatus(fmt.Sprintf("%d Pods are ready", n), func(st v1beta1.StatefulSetStatus) bool { return st.ReadyReplicas == n })
}

// stays fails unless exactly want Pods exist for a while.
func (s suite) stays(want ...string) {
	s.T.Helper()
	s.Throughout(fmt.Sprintf("no other Pods than %v", want), harness.Still, func() string {
		if got := s.names(); !slices.Equal(got, want) {
			return fmt.Sprintf("Pods %v", got)
		}
		return ""
	})
}

// forceDelete deletes the Pod of an ordinal at once and returns when another one has its name.
func (s suite) forceDelete(ordinal int) {
	s.T.Helper()
	old := s.pod(ordinal)
	require.NoError(s.T, client.IgnoreNotFound(s.Client.Delete(s.Ctx(), &old, client.GracePeriodSeconds(0))))
	s.waitReplaced(old)
}

func (s suite) waitReplaced(old corev1.Pod) {
	s.T.Helper()
	s.Eventually("another Pod has the name "+old.Name, harness.Long, func() string {
		p := &corev1.Pod{}
		if err := s.Client.Get(s.Ctx(), s.Key(old.Name), p); err != nil {
			return err.Error()
		}
		if p.UID == old.UID {
			return "it still exists"
		}
		return ""
	})
}

// label merges one label into the Pod of an ordinal.
func (s suite) label(ordinal int, key, value string) {
	s.T.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name = s.Namespace, name(ordinal)
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	require.NoError(s.T, s.Client.Patch(s.Ctx(), p, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// requireRevision fails unless the Pods of the ordinals carry the revision.
func (s suite) requireRevision(revision string, ordinals ...int) {
	s.T.Helper()
	for _, o := range ordinals {
		require.Equal(s.T, revision, s.pod(o).Labels["controller-revision-hash"], "revision of %s", name(o))
	}
}

// order records the order in which Pods appear and in which they are told to go.
type order struct {
	stop func()
	done chan struct{}

	created, deleted []string
}

// watchOrder starts to record; end returns what was seen.
func (s suite) watchOrder() *order {
	s.T.Helper()
	list := &corev1.PodList{}
	require.NoError(s.T, s.Client.List(s.Ctx(), list, client.InNamespace(s.Namespace)))
	ctx, cancel := context.WithCancel(s.Ctx())
	o := &order{stop: cancel, done: make(chan struct{})}
	seen, going := map[string]bool{}, map[string]bool{}
	for _, p := range list.Items {
		seen[string(p.UID)] = true
	}
	go func() {
		defer close(o.done)
		version := list.ResourceVersion
		for ctx.Err() == nil {
			w, err := s.Client.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			if err != nil {
				time.Sleep(time.Second)
				continue
			}
			for ev := range w.ResultChan() {
				p, ok := ev.Object.(*corev1.Pod)
				if !ok {
					continue
				}
				version = p.ResourceVersion
				if uid := string(p.UID); !seen[uid] {
					seen[uid] = true
					o.created = append(o.created, p.Name)
				}
				if uid := string(p.UID); p.DeletionTimestamp != nil && !going[uid] {
					going[uid] = true
					o.deleted = append(o.deleted, p.Name)
				}
			}
		}
	}()
	return o
}

// end stops recording.
func (o *order) end() (created, deleted []string) {
	o.stop()
	<-o.done
	return o.created, o.deleted
}

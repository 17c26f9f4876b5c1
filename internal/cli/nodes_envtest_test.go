// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// agents makes n NodeImages with label zone=<namespace> and returns their names.
func (s *server) agents(n int) []string {
	s.t.Helper()
	var names []string
	for i := range n {
		ni := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-node-%d", s.ns, i), Labels: map[string]string{"zone": s.ns}}}
		s.create(ni)
		names = append(names, ni.Name)
	}
	return names
}

// becomesStatus writes the status of an ImagePullJob.
func (s *server) jobStatus(name string, st v1beta1.ImagePullJobStatus) {
	s.t.Helper()
	j := read[v1beta1.ImagePullJob](s, name)
	j.Status = st
	if err := s.c.Status().Update(s.t.Context(), j); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) onlyJob() *v1beta1.ImagePullJob {
	s.t.Helper()
	var jobs v1beta1.ImagePullJobList
	if err := s.c.List(s.t.Context(), &jobs, client.InNamespace(s.ns)); err != nil || len(jobs.Items) != 1 {
		s.t.Fatalf("%d jobs, %v", len(jobs.Items), err)
	}
	return &jobs.Items[0]
}

func pullStory(t *testing.T, s *server) {
	nodes := s.agents(5)
	zone := "zone=" + s.ns
	line := []string{"image", "pull", "repo/web:4", "--node-selector", zone, "--parallelism", "40%"}
	s.must(0, []string{"imagepulljob.apps.kruise.io/pull-web-", "created", "parallelism 40% of 5 nodes is 2"}, line...)
	s.must(0, []string{"already active"}, line...)
	s.must(0, []string{"created (server dry run)"}, "image", "pull", "repo/web:5", "--dry-run=server")
	s.must(2, []string{"use one of --node, --node-selector and --pod-selector"}, "image", "pull", "repo/web:5", "--node", "a", "--pod-selector", "a=b")
	j := s.onlyJob()
	if j.Spec.Selector.MatchLabels["zone"] != s.ns || j.Spec.Parallelism.IntValue() != 2 || *j.Spec.CompletionPolicy.TTLSecondsAfterFinished != 86400 {
		t.Errorf("spec is %+v", j.Spec)
	}
	s.must(4, []string{"not finished", "its controller has not begun"}, "image", "wait", j.Name, "--timeout", "2s")
	s.tasks(nodes, j)
	started := &metav1.Time{Time: time.Now().Add(-time.Minute)}
	s.jobStatus(j.Name, v1beta1.ImagePullJobStatus{StartTime: started, Desired: 5, Active: 1, Succeeded: 1, Failed: 1, FailedNodes: nodes[1:2]})
	s.must(0, []string{"Succeeded", "401 unauthorized", "Pulling 40%", "waits for a place (parallelism 2)", "2 queued"}, "image", "status", j.Name)
	s.must(0, []string{"I03 PullFailed", "401 unauthorized"}, "why", "imagepulljob/"+j.Name)
	s.must(0, []string{nodes[0], "Present"}, "image", "nodes", "repo/web:4")
	go func() {
		time.Sleep(time.Second)
		st := v1beta1.ImagePullJobStatus{StartTime: started, Desired: 3, Succeeded: 2, Failed: 1, FailedNodes: nodes[1:2], CompletionTime: &metav1.Time{Time: time.Now()}}
		live := &v1beta1.ImagePullJob{}
		if err := s.c.Get(context.Background(), client.ObjectKeyFromObject(j), live); err != nil {
			t.Error(err)
			return
		}
		live.Status = st
		if err := s.c.Status().Update(context.Background(), live); err != nil {
			t.Error(err)
		}
	}()
	s.must(3, []string{"failed: 2 of 3 nodes succeeded, 1 failed", nodes[1] + ": 401 unauthorized", "image retry " + j.Name}, "image", "wait", j.Name, "--timeout", "2m")
	s.must(0, []string{"pulled on enough nodes"}, "image", "wait", j.Name, "--min-succeeded", "60%")
	s.must(1, []string{"has finished", "--force"}, line...)
	s.must(0, []string{j.Name + "-retry-1 created"}, "image", "retry", j.Name)
	if again := read[v1beta1.ImagePullJob](s, j.Name+"-retry-1"); strings.Join(again.Spec.Selector.Names, ",") != nodes[1] || len(again.Spec.Selector.MatchLabels) > 0 {
		t.Errorf("the retry selects %+v", again.Spec.Selector)
	}
	s.must(0, []string{j.Name, "-retry-1", "OWNER"}, "image", "list")
	s.must(0, []string{"replaced"}, append(line, "--force")...)
	s.must(0, []string{"(server dry run)"}, "image", "cancel", j.Name, "--dry-run=server")
	s.must(0, []string{"cancelled"}, "image", "cancel", j.Name)
	s.must(1, []string{"not found"}, "image", "status", j.Name)
}

// tasks gives the job's task to the first three nodes: one is done, one failed, one pulls.
func (s *server) tasks(nodes []string, j *v1beta1.ImagePullJob) {
	s.t.Helper()
	for i, phase := range []v1beta1.ImagePullPhase{v1beta1.ImagePhaseSucceeded, v1beta1.ImagePhaseFailed, v1beta1.ImagePhasePulling} {
		ni := &v1beta1.NodeImage{}
		if err := s.c.Get(s.t.Context(), client.ObjectKey{Name: nodes[i]}, ni); err != nil {
			s.t.Fatal(err)
		}
		now := metav1.Now()
		ni.Spec.Images = map[string]v1beta1.ImageSpec{"repo/web": {Tags: []v1beta1.ImageTagSpec{{Tag: "4", CreatedAt: &now, OwnerReferences: []corev1.ObjectReference{{UID: j.UID, Name: j.Name, Namespace: j.Namespace, Kind: "ImagePullJob", APIVersion: "apps.kruise.io/v1beta1"}}}}}}
		if err := s.c.Update(s.t.Context(), ni); err != nil {
			s.t.Fatal(err)
		}
		st := v1beta1.ImageTagStatus{Tag: "4", Phase: phase, Progress: 40, StartTime: &now}
		if phase == v1beta1.ImagePhaseFailed {
			st.Message, st.CompletionTime = "401 unauthorized", &now
		}
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"repo/web": {Tags: []v1beta1.ImageTagStatus{st}}}
		if err := s.c.Status().Update(s.t.Context(), ni); err != nil {
			s.t.Fatal(err)
		}
	}
}

func listStory(t *testing.T, s *server) {
	s.must(0, []string{"imagelistpulljob.apps.kruise.io/pull-a-", "created"}, "image", "pull", "a:1", "b:1")
	s.must(0, []string{"already active"}, "image", "pull", "a:1", "b:1")
	var lists v1beta1.ImageListPullJobList
	if err := s.c.List(t.Context(), &lists, client.InNamespace(s.ns)); err != nil || len(lists.Items) != 1 {
		t.Fatalf("%d lists, %v", len(lists.Items), err)
	}
	l := &lists.Items[0]
	if strings.Join(l.Spec.Images, " ") != "a:1 b:1" {
		t.Errorf("images are %v", l.Spec.Images)
	}
	s.must(0, []string{"2 images", "no job yet"}, "image", "status", l.Name)
	l.Status = v1beta1.ImageListPullJobStatus{Desired: 2, Completed: 2, Succeeded: 2, StartTime: &metav1.Time{Time: time.Now()}, CompletionTime: &metav1.Time{Time: time.Now()}}
	if err := s.c.Status().Update(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	s.must(0, []string{"pulled: 2 of 2 images"}, "image", "wait", "ilpj/"+l.Name)
	s.must(0, []string{"a:1 +1"}, "image", "list")
}

func predownloadStory(t *testing.T, s *server) {
	s.shop()
	go func() {
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			var jobs v1beta1.ImagePullJobList
			if err := s.c.List(context.Background(), &jobs, client.InNamespace(s.ns)); err != nil || len(jobs.Items) == 0 {
				continue
			}
			if s.get("web").Spec.Template.Spec.Containers[0].Image != "repo/web:3" {
				t.Error("the template changed before the pull")
			}
			jobs.Items[0].Status = v1beta1.ImagePullJobStatus{Desired: 1, Succeeded: 1, StartTime: &metav1.Time{Time: time.Now()}, CompletionTime: &metav1.Time{Time: time.Now()}}
			if err := s.c.Status().Update(context.Background(), &jobs.Items[0]); err != nil {
				t.Error(err)
			}
			return
		}
	}()
	s.must(0, []string{"pulled: 1 of 1 nodes succeeded", "image updated"}, "set", "image", "clone/web", "app=repo/web:4", "--predownload", "--timeout", "2m")
	if got := s.get("web").Spec.Template.Spec.Containers[0].Image; got != "repo/web:4" {
		t.Errorf("image is %s", got)
	}
	if j := s.onlyJob(); j.Spec.PodSelector == nil || j.Labels["cli.kruise.io/predownload-for"] != "cloneset.web" {
		t.Errorf("the job is %+v %v", j.Spec, j.Labels)
	}
}

func restartStory(t *testing.T, s *server) {
	s.shop()
	s.must(0, []string{"containerrecreaterequest.apps.kruise.io/r created"}, "create", "ContainerRecreateRequest", "r", "--pod", "web-a", "--containers", "app", "-u", "5", "-m", "7")
	r := read[v1beta1.ContainerRecreateRequest](s, "r")
	st := r.Spec.Strategy
	if len(r.Spec.Containers) != 1 || *st.UnreadyGracePeriodSeconds != 5 || st.MinStartedSeconds != 7 || *r.Spec.ActiveDeadlineSeconds != 300 || *r.Spec.TTLSecondsAfterFinished != 1800 {
		t.Errorf("the request is %+v", r.Spec)
	}
	s.must(1, []string{"a request of this name exists"}, "container", "restart", "web-a", "--name", "r")
	s.must(0, []string{"C01 AgentSilent"}, "why", "crr/r")
	s.must(0, []string{"P20 CRRActive", "request r restarts containers"}, "why", "pod/web-a")
	s.must(4, []string{"waits for the node agent"}, "container", "wait", "r", "--timeout", "1s")
	s.must(0, []string{"(server dry run)"}, "container", "cancel", "r", "--dry-run=server")
	s.must(0, []string{"cancelled"}, "container", "cancel", "r")
	stop := s.playAgent()
	defer stop()
	s.must(0, []string{"pod/web-b restarted: 1 of 1 container restarted", "Succeeded"}, "container", "restart", "web-b", "--wait", "--timeout", "2m")
	out := s.must(0, []string{`"kind": "RestartStatus"`}, "container", "restart", "clone/web", "-c", "app", "--max-parallel", "2", "--timeout", "2m", "-o", "json")
	var doc struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(out.out), &doc); err != nil || len(doc.Items) != 4 {
		t.Errorf("%d items, %v:\n%s", len(doc.Items), err, out.out)
	}
	s.must(0, []string{"restarted"}, "rollout", "restart", "clone/web", "--method=containers", "--timeout", "2m")
	s.must(0, []string{"Succeeded"}, "container", "list", "clone/web")
}

// playAgent completes every request in the namespace until stop is called.
func (s *server) playAgent() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
			var all v1beta1.ContainerRecreateRequestList
			if s.c.List(ctx, &all, client.InNamespace(s.ns)) != nil {
				continue
			}
			for i := range all.Items {
				r := &all.Items[i]
				if r.Status.Phase == v1beta1.RecreateCompleted {
					continue
				}
				r.Status.Phase, r.Status.CompletionTime = v1beta1.RecreateCompleted, &metav1.Time{Time: time.Now()}
				for _, c := range r.Spec.Containers {
					r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates, v1beta1.RecreateState{Name: c.Name, Phase: v1beta1.RecreateSucceeded, IsKilled: true})
				}
				_ = s.c.Status().Update(ctx, r)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func probeStory(t *testing.T, s *server) {
	s.shop()
	m := &v1alpha1.PodProbeMarker{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "ppm"}}
	m.Spec.Selector = &metav1.LabelSelector{MatchLabels: s.get("web").Spec.Selector.MatchLabels}
	probe := v1alpha1.ContainerProbeSpec{}
	probe.Exec = &corev1.ExecAction{Command: []string{"ls"}}
	m.Spec.Probes = []v1alpha1.PodContainerProbe{{Name: "healthy", ContainerName: "app", Probe: probe, PodConditionType: "game.io/healthy"}}
	s.create(m)
	r := s.must(0, []string{"POD", "web-a", "ppm", "healthy", "web-d"}, "probe")
	if strings.Count(r.out, "healthy") != 4 {
		t.Errorf("not a row for each pod:\n%s", r.out)
	}
	s.must(0, []string{"web-a"}, "probe", "web-a", "-o", "jsonpath={.probes[*].pod}")
	s.must(1, []string{"not found"}, "probe", "nobody")
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cli

import (
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// put creates objects, of which the first is the workload: the others are made its own, and
// statuses are written where the API keeps them apart.
func (s *server) put(objects []client.Object) {
	s.t.Helper()
	var owner types.UID
	for i, o := range objects {
		if o.GetNamespace() != "" {
			o.SetNamespace(s.ns)
		}
		for j := range o.GetOwnerReferences() {
			refs := o.GetOwnerReferences()
			refs[j].UID = owner
			o.SetOwnerReferences(refs)
		}
		o.SetUID("")
		made := o.DeepCopyObject().(client.Object)
		if _, isNode := o.(*corev1.Node); isNode {
			s.node(made.(*corev1.Node))
			continue
		}
		s.create(made)
		if i == 0 {
			owner = made.GetUID()
		}
		switch was := o.(type) {
		case *corev1.Pod:
			made.(*corev1.Pod).Status = was.Status
		case *v1beta1.StatefulSet:
			was.Status.ObservedGeneration = made.GetGeneration()
			made.(*v1beta1.StatefulSet).Status = was.Status
		case *v1beta1.DaemonSet:
			was.Status.ObservedGeneration = made.GetGeneration()
			made.(*v1beta1.DaemonSet).Status = was.Status
		default:
			continue
		}
		if err := s.c.Status().Update(s.t.Context(), made); err != nil {
			s.t.Fatal(err)
		}
	}
}

// node creates a node, and takes away the taint of one that no kubelet reports for.
func (s *server) node(n *corev1.Node) {
	s.t.Helper()
	if err := client.IgnoreAlreadyExists(s.c.Create(s.t.Context(), n)); err != nil {
		s.t.Fatal(err)
	}
	made := read[corev1.Node](&server{t: s.t, c: s.c}, n.Name)
	made.Spec.Taints = nil
	if err := s.c.Update(s.t.Context(), made); err != nil {
		s.t.Fatal(err)
	}
}

func read[T any, P interface {
	*T
	client.Object
}](s *server, name string) *T {
	s.t.Helper()
	o := P(new(T))
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return (*T)(o)
}

func statefulSetStory(t *testing.T, s *server) {
	s.put(newDB(6))
	s.must(0, []string{"statefulset.apps.kruise.io/db: successfully rolled out"}, "rollout", "status", "asts/db", "--check")
	s.must(0, []string{"sts/db is statefulsets.apps.kruise.io"}, "rollout", "status", "sts/db", "--check")
	before := read[v1beta1.StatefulSet](s, "db")
	s.must(0, []string{"db-5", "6, up to 1 at a time"}, "rollout", "preview", "asts/db", "--image", "app=repo/db:3", "--all-batches")
	s.must(0, []string{"(server dry run)"}, "scale", "asts/db", "--replicas", "4", "--dry-run=server")
	if now := read[v1beta1.StatefulSet](s, "db"); now.ResourceVersion != before.ResourceVersion {
		t.Error("a dry run wrote")
	}
	s.must(0, []string{"partition 0 -> 3", "keeps 3 of 6"}, "rollout", "partition", "asts/db", "50%")
	s.must(0, []string{"image updated"}, "set", "image", "asts/db", "app=repo/db:3")
	s.must(0, []string{"env updated"}, "set", "env", "asts/db", "A=1", "B=2")
	s.must(0, []string{"env updated"}, "set", "env", "asts/db", "B-")
	s.must(0, []string{"A=1"}, "set", "env", "asts/db", "--list")
	s.must(0, []string{"resource requirements updated"}, "set", "resources", "asts/db", "--limits", "cpu=1", "--requests", "cpu=500m")
	s.must(0, []string{"unchanged"}, "set", "resources", "asts/db", "--limits", "cpu=1000m")
	now := read[v1beta1.StatefulSet](s, "db")
	app := now.Spec.Template.Spec.Containers[0]
	if app.Image != "repo/db:3" || len(app.Env) != 1 || app.Env[0].Value != "1" || app.Resources.Limits.Cpu().String() != "1" || *now.Spec.UpdateStrategy.RollingUpdate.Partition != 3 {
		t.Errorf("the template is %+v, the strategy %+v", app, now.Spec.UpdateStrategy.RollingUpdate)
	}
	s.must(0, []string{"rolled back to revision 2", "partition 3 set to 0"}, "rollout", "undo", "asts/db", "--to-revision", "2")
	if got := read[v1beta1.StatefulSet](s, "db").Spec.Template.Spec.Containers[0]; got.Image != "repo/db:2" || len(got.Env) > 0 {
		t.Errorf("after undo the container is %+v", got)
	}
	s.must(0, []string{"scaled from 6 to 5"}, "scale", "asts/db", "--replicas", "5", "--current-replicas", "6")
	s.must(1, []string{"precondition"}, "scale", "asts/db", "--replicas", "4", "--current-replicas", "6")
	s.must(9, []string{"add --yes"}, "scaledown", "asts/db", "--pods", "db-1", "--reserve")
	s.must(0, []string{"scaled down from 5 to 4"}, "scaledown", "asts/db", "--pods", "db-1", "--reserve", "--yes")
	if got := read[v1beta1.StatefulSet](s, "db").Spec; *got.Replicas != 4 || len(got.ReserveOrdinals) != 1 || got.ReserveOrdinals[0].IntValue() != 1 {
		t.Errorf("replicas %d, reserved %v", *got.Replicas, got.ReserveOrdinals)
	}
	s.must(0, []string{"paused"}, "rollout", "pause", "asts", "--all", "--yes")
	s.must(1, []string{"resume it first"}, "rollout", "restart", "asts/db")
	s.must(0, []string{"resumed"}, "rollout", "resume", "asts/db")
	s.must(0, []string{"restarted", "only the first wave"}, "rollout", "restart", "asts/db", "--wait=false")
	marked := 0
	var pods corev1.PodList
	if err := s.c.List(t.Context(), &pods, client.InNamespace(s.ns), client.HasLabels{v1beta1.SpecifiedDeleteLabel}); err == nil {
		marked = len(pods.Items)
	}
	if marked != 1 {
		t.Errorf("%d pods are marked", marked)
	}
	s.ambiguous()
}

// ambiguous adds a native StatefulSet of the same name.
func (s *server) ambiguous() {
	s.t.Helper()
	labels := map[string]string{"app": "native"}
	s.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: s.ns}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a:1"}}}},
	}})
	s.must(2, []string{`"sts/db" is ambiguous`, "statefulsets.apps/db", "statefulsets.apps.kruise.io/db"}, "rollout", "pause", "sts/db")
	s.must(0, []string{"statefulsets.apps/db exists as well"}, "rollout", "history", "sts/db")
	s.must(2, []string{"does not work on statefulsets.apps", "kubectl rollout status statefulsets.apps/db"}, "rollout", "status", "statefulsets.apps/db")
}

func daemonSetStory(t *testing.T, s *server) {
	s.put(newAgent(5))
	s.must(0, []string{"daemonset.apps.kruise.io/agent: successfully rolled out"}, "rollout", "status", "ads/agent", "--check")
	s.must(0, []string{"BATCH", "agent-node-3, agent-node-4"}, "rollout", "preview", "ads/agent", "--image", "app=repo/agent:3", "--all-batches")
	s.must(0, []string{"paused"}, "rollout", "pause", "ads/agent")
	s.must(0, []string{"already paused"}, "rollout", "pause", "ads/agent")
	s.must(0, []string{"partition 0 -> 50%", "keeps 2 of 5"}, "rollout", "partition", "ads/agent", "50%")
	s.must(0, []string{"image updated"}, "set", "image", "ads/agent", "*=repo/agent:3")
	now := read[v1beta1.DaemonSet](s, "agent")
	if ru := now.Spec.UpdateStrategy.RollingUpdate; !ru.Paused || ru.Partition.String() != "50%" || now.Spec.Template.Spec.Containers[0].Image != "repo/agent:3" {
		t.Errorf("the strategy is %+v", ru)
	}
	s.must(0, []string{"rolled back to revision 1", "it is paused"}, "rollout", "undo", "ads/agent", "--to-revision", "1")
	s.must(1, []string{"a rollout is under way", "rollout status ads/agent --full"}, "rollout", "restart", "ads/agent")
	s.must(2, []string{"one pod on each node"}, "scale", "ads/agent", "--replicas", "2")
	s.must(0, []string{"W01 NotObserved"}, "why", "ads/agent")
	s.must(1, []string{"has no ads named"}, "rollout", "status", "ads/none")
	file := filepath.Join(t.TempDir(), "agent.yaml")
	manifest := "apiVersion: apps.kruise.io/v1alpha1\nkind: DaemonSet\nmetadata: {name: agent}\nspec: {burstReplicas: 1}\n"
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must(1, []string{"write the file for apps.kruise.io/v1beta1"}, "rollout", "preview", "-f", file)
}

func scaledownStory(t *testing.T, s *server) {
	s.shop()
	s.must(1, []string{"not found among its active pods: ghost"}, "scaledown", "web", "--pods", "web-a,ghost", "--yes")
	s.must(0, []string{"scaled down from 4 to 2"}, "scaledown", "web", "--pods", "web-a, web-b", "--yes")
	cs := s.get("web")
	if *cs.Spec.Replicas != 2 || !equal(cs.Spec.ScaleStrategy.PodsToDelete, []string{"web-a", "web-b"}) {
		t.Errorf("replicas %d, podsToDelete %v", *cs.Spec.Replicas, cs.Spec.ScaleStrategy.PodsToDelete)
	}
	s.must(0, []string{"scaled from 2 to 3"}, "scale", "clone/web", "--replicas", "3")
	s.must(4, []string{"--timeout passed: 4 of 2 pods"}, "scale", "clone/web", "--replicas", "2", "--wait", "--timeout", "1s")
}

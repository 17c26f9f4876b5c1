// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// load puts the set that OpenKruise 1.9 left behind, its Pods and its revisions, into a
// namespace with nodes of its own; owners are named in the given version.
func load(t *testing.T, moment, ownerVersion string) *set {
	t.Helper()
	t.Parallel()
	s := &set{t: t, key: client.ObjectKey{Namespace: namespace(t), Name: "ads"}}
	raw, err := os.ReadFile("../../internal/rollout/plan/daemonset/testdata/openkruise-1.9/" + moment + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	js, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(js, &list); err != nil {
		t.Fatal(err)
	}
	// The set comes first, for its UID, and the nodes come last: without them it makes no Pods.
	ds := &v1beta1.DaemonSet{}
	decode(t, list.Items[0], ds)
	ds.ObjectMeta = metav1.ObjectMeta{Name: ds.Name, Namespace: s.key.Namespace, Annotations: ds.Annotations}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{nodeLabel: s.key.Namespace}
	ds.Spec.UpdateStrategy.RollingUpdate.Paused = true
	if err := testClient.Create(t.Context(), ds.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	live := s.get()
	owner := *metav1.NewControllerRef(live, v1beta1.GroupVersion.WithKind("DaemonSet"))
	owner.APIVersion = "apps.kruise.io/" + ownerVersion
	var nodes []string
	for _, item := range list.Items[1:] {
		var kind metav1.TypeMeta
		decode(t, item, &kind)
		var obj client.Object = &appsv1.ControllerRevision{}
		if kind.Kind == "Pod" {
			obj = &corev1.Pod{}
		}
		decode(t, item, obj)
		if p, ok := obj.(*corev1.Pod); ok {
			nodes = append(nodes, p.Spec.NodeName)
		}
		s.store(obj, owner)
	}
	// New nodes admit no Pods: that tells when the controller has seen those there are.
	for _, n := range nodes {
		s.newNode(n)
	}
	s.status("every Pod seen", func(st v1beta1.DaemonSetStatus) bool { return int(st.NumberMisscheduled) == len(nodes) })
	for _, n := range nodes {
		s.changeNode(n, func(n *corev1.Node) { n.Spec.Taints = nil })
	}
	return s
}

func decode(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// store creates an object as it was, with its status.
func (s *set) store(obj client.Object, owner metav1.OwnerReference) {
	s.t.Helper()
	obj.SetNamespace(s.key.Namespace)
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetOwnerReferences([]metav1.OwnerReference{owner})
	switch o := obj.(type) {
	case *appsv1.ControllerRevision:
		o.Data.Raw = withNodeSelector(s.t, o.Data.Raw, s.key.Namespace)
	case *corev1.Pod:
		node := o.Spec.NodeName
		o.Spec.NodeName = s.node(node)
		o.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values = []string{s.node(node)}
		delete(o.Annotations, v1beta1.RuntimeContainersMetaAnnotation) // no daemon runs here that would follow
		o.Spec.Volumes, o.Spec.Containers[0].VolumeMounts = nil, nil   // the token, which the API server adds
		o.Spec.ServiceAccountName, o.Spec.DeprecatedServiceAccount = "", ""
	}
	status := obj.DeepCopyObject()
	if err := testClient.Create(s.t.Context(), obj); err != nil {
		s.t.Fatal(err)
	}
	if was, ok := status.(*corev1.Pod); ok {
		pod, _ := obj.(*corev1.Pod)
		base := pod.DeepCopy()
		pod.Status = was.Status
		if err := testClient.Status().Patch(s.t.Context(), pod, client.MergeFrom(base)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// withNodeSelector gives a stored template the node selector of this test.
func withNodeSelector(t *testing.T, raw []byte, value string) []byte {
	t.Helper()
	var data struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	decode(t, raw, &data)
	data.Spec.Template["spec"].(map[string]any)["nodeSelector"] = map[string]any{nodeLabel: value}
	out, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Pods that OpenKruise made stay as they are, whatever API version their owner was then.
func TestTakeOver(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			s := load(t, "3-settled", version)
			s.change(func(d *v1beta1.DaemonSet) { d.Spec.UpdateStrategy.RollingUpdate.Paused = false })
			s.status("everything is updated", func(st v1beta1.DaemonSetStatus) bool {
				return st.UpdatedNumberScheduled == 3 && st.NumberAvailable == 3 && st.UpdateRevision == "68fc88dd6f"
			})
			if got := s.where(); got != "node1=nginx:1.17 node2=nginx:1.17 node3=nginx:1.17" {
				t.Errorf("Pods %s", got)
			}
			before := s.uids()
			s.image("nginx:1.18")
			s.at("node1=nginx:1.18 node2=nginx:1.18 node3=nginx:1.18")
			if !slices.Equal(before, s.uids()) {
				t.Error("Pods were recreated")
			}
			s.image("nginx:1.16") // back to the first revision, by its old name and hash
			s.at("node1=nginx:1.16 node2=nginx:1.16 node3=nginx:1.16")
			if got := s.get().Status.UpdateRevision; got != "b8f67c9bd" {
				t.Errorf("the hash is %s", got)
			}
			for _, w := range writes.in(s.key.Namespace) {
				if strings.HasPrefix(w, "DELETE") && strings.Contains(w, "/pods/") {
					t.Error(w)
				}
			}
		})
	}
}

// The manager writes no Pod and no revision that is as it should be.
func TestTakeOverWritesNothing(t *testing.T) {
	s := load(t, "3-settled", "v1alpha1")
	s.status("everything is updated", func(st v1beta1.DaemonSetStatus) bool {
		return st.UpdatedNumberScheduled == 3 && st.NumberAvailable == 3
	})
	for _, w := range writes.in(s.key.Namespace) {
		// The set was there before its revisions: it had made one, which goes again.
		ours := strings.Contains(w, "68fc88dd6f") || strings.Contains(w, "b8f67c9bd")
		if strings.Contains(w, "/pods") || strings.Contains(w, "/controllerrevisions") && ours {
			t.Error(w)
		}
	}
	if revs := s.revisions(); len(revs) != 2 {
		t.Errorf("revisions %v", revs)
	}
}

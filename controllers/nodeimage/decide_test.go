// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds int) *metav1.Time {
	return &metav1.Time{Time: t0.Add(time.Duration(seconds) * time.Second)}
}

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "east"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: *at(0)}}},
	}
	if change != nil {
		change(n)
	}
	return n
}

// nodeImage has one task, nginx:1 at version 2, created at t0, owned by job "j".
func nodeImage(change func(*v1beta1.NodeImage, *v1beta1.ImageTagSpec)) *v1beta1.NodeImage {
	n := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "east"}}}
	tag := v1beta1.ImageTagSpec{
		Tag: "1", Version: 2, CreatedAt: at(0),
		PullPolicy:      &v1beta1.ImageTagPullPolicy{TTLSecondsAfterFinished: new(int32(100))},
		OwnerReferences: []corev1.ObjectReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImagePullJob", UID: "j"}},
	}
	n.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {}}
	if change != nil {
		change(n, &tag)
	}
	if n.Spec.Images != nil {
		image := n.Spec.Images["nginx"]
		image.Tags = append(image.Tags, tag)
		n.Spec.Images["nginx"] = image
	}
	return n
}

func report(n *v1beta1.NodeImage, status v1beta1.ImageTagStatus) {
	status.Tag = "1"
	n.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{status}}}
}

func TestDecide(t *testing.T) {
	now := t0.Add(60 * time.Second)
	empty := func(labels map[string]string) *v1beta1.NodeImage {
		return &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}
	}
	noTasks := func(n *v1beta1.NodeImage) *v1beta1.NodeImage { n.Spec.Images = nil; return n }
	cases := map[string]struct {
		snap Snapshot
		want Plan
	}{
		"neither node nor NodeImage": {Snapshot{}, Plan{}},
		"a ready node gets a NodeImage with its labels": {
			Snapshot{Node: node(nil), CreationDelay: 30 * time.Second},
			Plan{Create: empty(map[string]string{"zone": "east"})},
		},
		"a node that has just become ready waits": {
			Snapshot{Node: node(func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = *at(50) }), CreationDelay: 30 * time.Second},
			Plan{Requeue: 20 * time.Second},
		},
		"a node that is not ready gets none": {Snapshot{Node: node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })}, Plan{}},
		"a virtual node gets none":           {Snapshot{Node: node(func(n *corev1.Node) { n.Labels["type"] = "virtual-kubelet" })}, Plan{}},
		"a deleting node gets none":          {Snapshot{Node: node(func(n *corev1.Node) { n.DeletionTimestamp = at(0) })}, Plan{}},
		"without node the NodeImage goes":    {Snapshot{NodeImage: nodeImage(nil)}, Plan{Delete: true}},
		"with a deleting node too":           {Snapshot{Node: node(func(n *corev1.Node) { n.DeletionTimestamp = at(0) }), NodeImage: nodeImage(nil)}, Plan{Delete: true}},
		"a deleting NodeImage is left alone": {Snapshot{NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) { n.DeletionTimestamp = at(0) })}, Plan{}},
		"a fake NodeImage stays without node, whatever its label says": {
			Snapshot{NodeImage: empty(map[string]string{"apps.kruise.io/fake-nodeimage": ""})}, Plan{},
		},
		"labels follow the node, all of them": {
			Snapshot{Node: node(nil), NodeImage: empty(map[string]string{"zone": "west", "old": "1"})},
			Plan{Update: empty(map[string]string{"zone": "east"})},
		},
		"a task without createdAt goes": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(_ *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) { tag.CreatedAt = nil })},
			Plan{Update: noTasks(nodeImage(nil))},
		},
		"a task whose last job is gone goes, with its image": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(nil), GoneJobs: map[types.UID]bool{"j": true}},
			Plan{Update: noTasks(nodeImage(nil))},
		},
		"a task that another job wants too stays": {
			Snapshot{
				Node: node(nil), GoneJobs: map[types.UID]bool{"k": true},
				NodeImage: nodeImage(func(_ *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) {
					tag.OwnerReferences = append(tag.OwnerReferences, corev1.ObjectReference{UID: "k"})
				}),
			},
			Plan{Update: nodeImage(nil)},
		},
		"a task that somebody wrote by hand stays": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(_ *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) { tag.OwnerReferences = nil })},
			Plan{Requeue: 9 * time.Minute},
		},
		"a task goes after its TTL": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				report(n, v1beta1.ImageTagStatus{Version: 2, CompletionTime: at(-40)})
			})},
			Plan{Update: func() *v1beta1.NodeImage {
				n := noTasks(nodeImage(nil))
				report(n, v1beta1.ImageTagStatus{Version: 2, CompletionTime: at(-40)})
				return n
			}()},
		},
		"a task of a job that still runs is kept beyond its TTL": {
			Snapshot{
				Node: node(nil), RunningJobs: map[types.UID]bool{"j": true},
				NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
					report(n, v1beta1.ImageTagStatus{Version: 2, CompletionTime: at(-4000)})
				}),
			},
			Plan{Requeue: time.Minute},
		},
		"before its TTL it waits for it": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				report(n, v1beta1.ImageTagStatus{Version: 2, CompletionTime: at(0)})
			})},
			Plan{Requeue: 40 * time.Second},
		},
		"the end of an older version does not count for the TTL": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				report(n, v1beta1.ImageTagStatus{Version: 1, CompletionTime: at(-4000)})
			})},
			Plan{Requeue: 9 * time.Minute},
		},
		"a secret of old that is gone is not referred to": {
			Snapshot{
				Node: node(nil), GoneSecrets: map[types.NamespacedName]bool{{Namespace: "n", Name: "s"}: true},
				NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
					n.Spec.Images["nginx"] = v1beta1.ImageSpec{PullSecrets: []v1beta1.ReferenceObject{{Namespace: "n", Name: "s"}, {Namespace: "n", Name: "t"}}}
				}),
			},
			Plan{Update: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				n.Spec.Images["nginx"] = v1beta1.ImageSpec{PullSecrets: []v1beta1.ReferenceObject{{Namespace: "n", Name: "t"}}}
			})},
		},
		"a shared copy stays until the image goes": {
			Snapshot{
				Node: node(nil), GoneSecrets: map[types.NamespacedName]bool{{Namespace: "n", Name: "s"}: true},
				NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
					n.Spec.Images["nginx"] = v1beta1.ImageSpec{PullSecrets: []v1beta1.ReferenceObject{{Namespace: "n", Name: "s", Mode: "batch"}}}
				}),
			},
			Plan{Requeue: 9 * time.Minute},
		},
		"a node that pulls within its deadline has time": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(n *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) {
				tag.PullPolicy.ActiveDeadlineSeconds = new(int64(30))
				report(n, v1beta1.ImageTagStatus{Version: 2, Phase: v1beta1.ImagePhasePulling, StartTime: at(1)})
			})},
			Plan{Requeue: 570 * time.Second},
		},
		"a node that pulls without deadline has all the time": {
			Snapshot{Node: node(nil), NodeImage: nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				report(n, v1beta1.ImageTagStatus{Version: 2, Phase: v1beta1.ImagePhasePulling})
			})},
			Plan{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.snap.Name = "a"
			before := tc.snap.NodeImage.DeepCopy()
			if diff := cmp.Diff(tc.want, Decide(tc.snap, now)); diff != "" {
				t.Errorf("Decide() differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.snap.NodeImage); diff != "" {
				t.Errorf("Decide() wrote into the snapshot:\n%s", diff)
			}
		})
	}
}

func TestDecideFailsSilentTasks(t *testing.T) {
	now := t0.Add(10 * time.Minute)
	silent := "node has not responded for a long time"
	owners := []corev1.ObjectReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImagePullJob", UID: "j"}}
	cases := map[string]struct {
		nodeImage *v1beta1.NodeImage
		want      v1beta1.ImageTagStatus
		message   string
	}{
		"a task without an answer": {
			nodeImage(nil),
			v1beta1.ImageTagStatus{Tag: "1", Version: 2, Phase: "Failed", CompletionTime: at(600), Message: silent}, silent,
		},
		"a task with an answer to an older version only": {
			nodeImage(func(n *v1beta1.NodeImage, _ *v1beta1.ImageTagSpec) {
				report(n, v1beta1.ImageTagStatus{Version: 1, Phase: "Succeeded", CompletionTime: at(1), StartTime: at(1)})
			}),
			v1beta1.ImageTagStatus{Tag: "1", Version: 2, Phase: "Failed", CompletionTime: at(600), Message: silent}, silent,
		},
		"a task past its deadline": {
			nodeImage(func(n *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) {
				tag.CreatedAt, tag.PullPolicy.ActiveDeadlineSeconds = at(-30), new(int64(30))
				report(n, v1beta1.ImageTagStatus{Version: 2, Phase: "Pulling", StartTime: at(1)})
			}),
			v1beta1.ImageTagStatus{Tag: "1", Version: 2, Phase: "Failed", StartTime: at(1), CompletionTime: at(600), Message: "pulling exceeds the activeDeadlineSeconds"},
			"pulling exceeds the activeDeadlineSeconds",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.nodeImage.Status.ImageStatuses = withStray(tc.nodeImage.Status.ImageStatuses)
			plan := Decide(Snapshot{Name: "a", Node: node(nil), NodeImage: tc.nodeImage}, now)
			want := v1beta1.NodeImageStatus{Desired: 1, Failed: 1, ImageStatuses: map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{tc.want}}}}
			if plan.Status == nil {
				t.Fatalf("no status in %+v", plan)
			}
			if diff := cmp.Diff(want, plan.Status.Status); diff != "" {
				t.Errorf("status differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]FailedTask{{Image: "nginx", Tag: "1", Message: tc.message, Owners: owners}}, plan.Failed); diff != "" {
				t.Errorf("failed tasks differ (-want +got):\n%s", diff)
			}
			again := Decide(Snapshot{Name: "a", Node: node(nil), NodeImage: plan.Status}, now)
			if diff := cmp.Diff(Plan{Requeue: 100 * time.Second}, again); diff != "" {
				t.Errorf("the second pass differs (-want +got):\n%s", diff)
			}
		})
	}
}

// withStray adds the status of an image that is not in the spec.
func withStray(statuses map[string]v1beta1.ImageStatus) map[string]v1beta1.ImageStatus {
	if statuses == nil {
		statuses = map[string]v1beta1.ImageStatus{}
	}
	statuses["gone"] = v1beta1.ImageStatus{Tags: []v1beta1.ImageTagStatus{{Tag: "1", Phase: "Succeeded"}}}
	return statuses
}

// TestDecideSettles applies plans until nothing is left to do: that takes few steps, every
// task that remains has an answer in the end, and the counts add up.
func TestDecideSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ni := drawNodeImage(t)
		snap := Snapshot{Name: "a", Node: node(nil), NodeImage: ni, GoneJobs: map[types.UID]bool{"gone": true}}
		now := t0
		for range 100 {
			plan := Decide(snap, now)
			switch {
			case plan.Update != nil:
				snap.NodeImage = plan.Update
			case plan.Status != nil:
				snap.NodeImage = plan.Status
				checkCounts(t, plan.Status)
			case plan.Requeue > 0:
				now = now.Add(plan.Requeue)
			default:
				for name, image := range snap.NodeImage.Spec.Images {
					for _, tag := range image.Tags {
						if tagStatus(snap.NodeImage.Status, name, tag) == nil {
							t.Fatalf("%s:%s never gets an answer", name, tag.Tag)
						}
					}
				}
				return
			}
		}
		t.Fatal("does not settle")
	})
}

func drawNodeImage(t *rapid.T) *v1beta1.NodeImage {
	ni := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{}}}
	for i := range rapid.IntRange(0, 3).Draw(t, "images") {
		name := fmt.Sprintf("image%d", i)
		var spec v1beta1.ImageSpec
		var status v1beta1.ImageStatus
		for j := range rapid.IntRange(0, 3).Draw(t, "tags") {
			tag := v1beta1.ImageTagSpec{Tag: fmt.Sprint(j), Version: int64(rapid.IntRange(0, 2).Draw(t, "version")), PullPolicy: &v1beta1.ImageTagPullPolicy{}}
			if rapid.IntRange(0, 9).Draw(t, "created") > 0 {
				tag.CreatedAt = at(-rapid.IntRange(0, 1000).Draw(t, "age"))
			}
			if rapid.Bool().Draw(t, "ttl") {
				tag.PullPolicy.TTLSecondsAfterFinished = new(int32(rapid.IntRange(0, 500).Draw(t, "ttl seconds")))
			}
			if rapid.Bool().Draw(t, "deadline") {
				tag.PullPolicy.ActiveDeadlineSeconds = new(int64(rapid.IntRange(0, 500).Draw(t, "deadline seconds")))
			}
			if owner := rapid.SampledFrom([]string{"", "gone", "here"}).Draw(t, "owner"); owner != "" {
				tag.OwnerReferences = []corev1.ObjectReference{{UID: types.UID(owner)}}
			}
			spec.Tags = append(spec.Tags, tag)
			if rapid.Bool().Draw(t, "reported") {
				s := v1beta1.ImageTagStatus{Tag: tag.Tag, Version: int64(rapid.IntRange(0, 2).Draw(t, "reported version")), Phase: v1beta1.ImagePhasePulling}
				if rapid.Bool().Draw(t, "through") {
					s.Phase, s.CompletionTime = v1beta1.ImagePhaseSucceeded, at(-rapid.IntRange(0, 1000).Draw(t, "since"))
				}
				status.Tags = append(status.Tags, s)
			}
		}
		ni.Spec.Images[name] = spec
		if len(status.Tags) > 0 {
			if ni.Status.ImageStatuses == nil {
				ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{}
			}
			ni.Status.ImageStatuses[name] = status
		}
	}
	return ni
}

func checkCounts(t *rapid.T, ni *v1beta1.NodeImage) {
	tags, statuses := 0, 0
	for _, image := range ni.Spec.Images {
		tags += len(image.Tags)
	}
	for _, image := range ni.Status.ImageStatuses {
		statuses += len(image.Tags)
	}
	s := ni.Status
	if int(s.Desired) != tags || int(s.Succeeded+s.Failed+s.Pulling+s.Waiting) != statuses || statuses > tags {
		t.Fatalf("counts do not add up: %+v", s)
	}
}

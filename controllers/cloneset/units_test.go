// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
)

func TestPodChangedKeepsWhatCanMatter(t *testing.T) {
	settled := fixture.PodOf(fixture.CloneSet("web"), "a")
	updating := settled.State(v1beta1.LifecycleUpdating)
	later := fixture.Created.Add(time.Minute)
	restarted := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }
	cases := map[string]struct {
		old, pod fixture.PodBuilder
		want     bool
	}{
		"an annotation of a settled Pod": {settled, settled.Annotation("x", "y"), false},
		"a restart of a settled Pod":     {settled, settled.With(restarted), false},
		"a label":                        {settled, settled.Label("x", "y"), true},
		"a finalizer":                    {settled, settled.With(func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} }), true},
		"a spec":                         {settled, settled.With(func(p *corev1.Pod) { p.Generation++ }), true},
		"readiness":                      {settled, settled.NotReady(later), true},
		"an evicted Pod":                 {settled, settled.Phase(corev1.PodFailed), true},
		"termination":                    {settled, settled.Terminating(later), true},
		"scheduling":                     {settled.Node(""), settled, true},
		"a restart during an update":     {updating, updating.With(restarted), true},
		"a Pod that has no condition of ours yet": {
			fixture.Pod("b"), fixture.Pod("b").Annotation("x", "y"), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, podChanged(true)(tc.old.Obj(), tc.pod.Obj()))
			assert.True(t, podChanged(false)(tc.old.Obj(), tc.pod.Obj()))
		})
	}
}

func TestNewPodAndClaims(t *testing.T) {
	b := fixture.CloneSet("web").Claim("logs", "1Gi").Claim("data", "2Gi").TemplateLabel("tier", "front").With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Annotations = map[string]string{"note": "n"}
		c.Spec.Template.Finalizers = []string{"example.com/drain"}
		c.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "own"}}
		c.Spec.VolumeClaimTemplates[0].Labels = map[string]string{"disk": "slow"}
	})
	set, rev := b.Obj(), fixture.Revision(b, 1)
	snap := &snapshot{Snapshot: plan.Snapshot{Set: set, Update: rev, Current: rev, Gates: plan.Gates{ShortHash: true}}}
	before := set.DeepCopy()
	made, err := makingOf(set, rev)
	assert.NoError(t, err)
	pod := newPod(snap, made, rev, "abcde", fixture.Created)
	text, err := yaml.Marshal(pod)
	assert.NoError(t, err)
	hash := rev.Labels["controller.kubernetes.io/hash"]
	want := `metadata:
  annotations:
    lifecycle.apps.kruise.io/timestamp: "2026-01-02T03:04:05Z"
    note: "n"
  finalizers:
  - example.com/drain
  generateName: web-
  labels:
    app: web
    apps.kruise.io/cloneset-instance-id: abcde
    controller-revision-hash: ` + hash + `
    lifecycle.apps.kruise.io/state: PreparingNormal
    pod-template-hash: ` + hash + `
    tier: front
  name: web-abcde
  namespace: shop
  ownerReferences:
  - apiVersion: apps.kruise.io/v1beta1
    blockOwnerDeletion: true
    controller: true
    kind: CloneSet
    name: web
    uid: uid-web
spec:
  containers:
  - image: app:1
    imagePullPolicy: Always
    name: app
    resources: {}
  readinessGates:
  - conditionType: InPlaceUpdateReady
  volumes:
  - name: own
  - name: logs
    persistentVolumeClaim:
      claimName: logs-web-abcde
  - name: data
    persistentVolumeClaim:
      claimName: data-web-abcde
status: {}
`
	assert.Empty(t, cmp.Diff(want, string(text)))
	assert.Empty(t, cmp.Diff(before, set), "the set is only read")

	claims := newClaims(snap, made, "abcde")
	assert.Equal(t, "logs-web-abcde", claims[0].Name)
	assert.Equal(t, map[string]string{"app": "web", "apps.kruise.io/cloneset-instance-id": "abcde", "disk": "slow"}, claims[0].Labels)
	assert.Equal(t, "CloneSet", claims[0].OwnerReferences[0].Kind)
}

// A claim template that was removed is still there for Pods of the revision that mounts it.
func TestRemovedClaimTemplatesAreThoseOfTheRevision(t *testing.T) {
	mount := func(names ...string) func(*v1beta1.CloneSet) {
		return func(c *v1beta1.CloneSet) {
			for _, n := range names {
				c.Spec.Template.Spec.Containers[0].VolumeMounts = append(c.Spec.Template.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: n, MountPath: "/" + n})
			}
		}
	}
	before := fixture.CloneSet("web").Claim("logs", "1Gi").Claim("data", "1Gi").Claim("idle", "1Gi").With(mount("logs", "data"))
	after := fixture.CloneSet("web").Claim("data", "2Gi").Obj()
	made, err := makingOf(after, fixture.Revision(before, 1))
	assert.NoError(t, err)
	var got []string
	for _, c := range made.claims {
		got = append(got, c.Name+" "+c.Spec.Resources.Requests.Storage().String())
	}
	assert.Equal(t, []string{"data 2Gi", "logs 1Gi"}, got, "what is not mounted is not made")
	assert.Len(t, after.Spec.VolumeClaimTemplates, 1, "the set is only read")

	broken := fixture.Revision(before, 1)
	broken.Annotations["apps.kruise.io/cloneset-volumeclaimtemplates"] = "{"
	_, err = makingOf(after, broken)
	assert.Error(t, err)
}

func TestInstanceIDsAreFreeSortedAndUnique(t *testing.T) {
	draws := []string{"taken", "zzzzz", "claim", "zzzzz", "aaaaa"}
	r := &Reconciler{newID: func() string { id := draws[0]; draws = draws[1:]; return id }}
	snap := &snapshot{
		Snapshot: plan.Snapshot{Set: fixture.CloneSet("web").Obj(), Claims: []*corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"apps.kruise.io/cloneset-instance-id": "claim"}}},
		}},
		pods: map[string]*corev1.Pod{"web-taken": nil},
	}
	assert.Equal(t, []string{"aaaaa", "mmmmm", "zzzzz"}, r.instanceIDs(snap, []string{"mmmmm"}, 3))
}

func TestLongMessagesAreCut(t *testing.T) {
	assert.Empty(t, message(nil))
	assert.Less(t, len(message(errors.New(string(make([]byte, 5000))))), 1100)
}

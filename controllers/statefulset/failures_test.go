// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/podready"
)

// refusing answers writes that begin with prefix with err.
func refusing(prefix string, err error) func(string) error {
	return func(w string) error {
		if strings.HasPrefix(w, prefix) {
			return err
		}
		return nil
	}
}

var (
	quota    = apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("exceeded quota"))
	conflict = apierrors.NewConflict(corev1.Resource("pods"), "db-0", errors.New("it changed"))
	exists   = apierrors.NewAlreadyExists(corev1.Resource("pods"), "db-0")
)

func ending() error {
	e := apierrors.NewForbidden(corev1.Resource("pods"), "db-0", errors.New("because it is being terminated"))
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return e
}

// sized is a set of one Pod with a claim of class "grows", that grows with its template.
func sized(size string) *v1beta1.StatefulSet {
	set := bare("db")
	template := claimTemplate("data")
	template.Spec.StorageClassName = new("grows")
	template.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{template}
	set.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
	return set
}

func class(expands bool) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "x", AllowVolumeExpansion: &expands}
}

// change edits the stored set.
func (b *bench) change(edit func(*v1beta1.StatefulSet)) {
	b.t.Helper()
	set := &v1beta1.StatefulSet{}
	require.NoError(b.t, b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"}, set))
	edit(set)
	set.Generation++
	require.NoError(b.t, b.api.Update(b.t.Context(), set))
}

// ready runs all Pods.
func (b *bench) ready() {
	b.t.Helper()
	var pods corev1.PodList
	require.NoError(b.t, b.api.List(b.t.Context(), &pods))
	for i := range pods.Items {
		p := &pods.Items[i]
		p.Status.Phase = corev1.PodRunning
		for _, c := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady, v1beta1.InPlaceUpdateReady} {
			podready.SetCondition(p, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue}, t0)
		}
		require.NoError(b.t, b.api.Status().Update(b.t.Context(), p))
	}
}

// conditions are those of the stored status: type and message.
func (b *bench) conditions() (out []string) {
	b.t.Helper()
	set := &v1beta1.StatefulSet{}
	require.NoError(b.t, b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"}, set))
	for _, c := range set.Status.Conditions {
		out = append(out, string(c.Type)+" "+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return out
}

func TestFailuresOfCreation(t *testing.T) {
	const podRefused = `StatefulPodControl failed to create Pod error: creating Pod db-0: `
	cases := map[string]struct {
		refuse    func(string) error
		events    []string
		condition string
		failed    bool
	}{
		"a quota": {
			refusing("create Pod", quota),
			[]string{
				"Normal SuccessfulCreate create Claim data-db-0 Pod db-0 in StatefulSet db success",
				`Warning FailedCreate create Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota`,
			},
			podRefused + `pods "db-0" is forbidden: exceeded quota`, true,
		},
		"a name that is taken": {
			refusing("create Pod", exists),
			[]string{"Normal SuccessfulCreate create Claim data-db-0 Pod db-0 in StatefulSet db success"},
			podRefused + `pods "db-0" already exists`, true,
		},
		"a claim": {
			refusing("create PersistentVolumeClaim", quota),
			[]string{`Warning FailedCreate create Claim data-db-0 for Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota`},
			`StatefulPodControl failed to create Pod error: creating PersistentVolumeClaim data-db-0: pods "db-0" is forbidden: exceeded quota`, true,
		},
		"a namespace that ends": {refusing("create P", ending()), nil, "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sized("1Gi"), class(true))
			b.refuse = tc.refuse
			_, _, err := b.pass("shop", "db")
			assert.Equal(t, tc.failed, err != nil, "%v", err)
			assert.Equal(t, tc.events, b.events())
			if tc.condition == "" {
				assert.Empty(t, b.conditions())
				return
			}
			assert.Equal(t, []string{"FailedCreatePod True : " + tc.condition}, b.conditions())
			b.refuse = nil
			b.settle("shop", "db")
			assert.Empty(t, b.conditions(), "resolved")
			b.settle("shop", "db")
		})
	}
}

func TestANamespaceThatEndsLeavesNoNewRevision(t *testing.T) {
	b := newBench(t, bare("db"))
	b.refuse = refusing("create", ending())
	writes, got := b.settle("shop", "db")
	assert.Empty(t, writes)
	assert.Zero(t, got)
}

// A claim of the wanted name that is not in the cache yet serves, unless it is going.
func TestAnExistingClaimServes(t *testing.T) {
	for name, going := range map[string]bool{"it stays": false, "it goes": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, sized("1Gi"), class(true))
			b.refuse = func(w string) error {
				if w != "create PersistentVolumeClaim data-db-0" {
					return nil
				}
				b.refuse = nil
				c := claimTemplate("data-db-0")
				c.Namespace = "shop"
				c.Finalizers = []string{"kubernetes.io/pvc-protection"}
				require.NoError(t, b.api.Create(t.Context(), &c))
				if going {
					require.NoError(t, b.api.Delete(t.Context(), &c))
				}
				return exists
			}
			writes, _, err := b.pass("shop", "db")
			assert.Equal(t, going, err != nil, "%v", err)
			assert.Equal(t, !going, len(writes) == 3, "%v", writes)
			assert.Equal(t, !going, len(b.events()) == 1)
		})
	}
}

func TestFailuresOfDeletion(t *testing.T) {
	b := newBench(t, bare("db"))
	b.settle("shop", "db")
	b.ready()
	b.settle("shop", "db")
	b.events()
	b.change(func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "app:2" })
	b.refuse = refusing("delete", quota)
	_, _, err := b.pass("shop", "db")
	assert.ErrorContains(t, err, "deleting Pod db-0")
	assert.Equal(t, []string{
		`Warning FailedDelete delete Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota`,
		`Warning FailedDelete failed to delete pod db-0: pods "db-0" is forbidden: exceeded quota`,
	}, b.events())
	assert.Equal(t, []string{`FailedUpdatePod True : StatefulPodControl failed to update Pod error: deleting Pod db-0: pods "db-0" is forbidden: exceeded quota`}, b.conditions())

	b.refuse = refusing("delete", conflict)
	_, got := b.settle("shop", "db")
	assert.Equal(t, conflictDelay, got.RequeueAfter, "somebody else replaced the Pod")
	assert.Empty(t, b.events())
	assert.Empty(t, b.conditions())

	b.refuse = nil
	writes, _ := b.settle("shop", "db")
	assert.Contains(t, writes, "delete Pod db-0")
	assert.Equal(t, []string{"Normal SuccessfulDelete delete Pod db-0 in StatefulSet db successful"}, b.events())
}

func TestFailuresOfInPlaceUpdates(t *testing.T) {
	set := bare("db")
	set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}}
	set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType}
	b := newBench(t, set)
	b.settle("shop", "db")
	b.ready()
	b.settle("shop", "db")
	b.events()
	b.change(func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "app:2" })
	b.refuse = refusing("patch status of Pod", quota)
	_, _, err := b.pass("shop", "db")
	assert.Error(t, err)
	events := b.events()
	if assert.Len(t, events, 1) {
		assert.Contains(t, events[0], "Warning FailedUpdatePodInPlace failed to update pod db-0 in-place(revision db-")
	}
	assert.Len(t, b.conditions(), 1)

	// A spec that the API server refuses for good: the Pod is marked, and made anew.
	b.refuse = refusing("patch Pod", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "db-0", nil))
	_, _, err = b.pass("shop", "db")
	assert.Error(t, err, "the mark is refused as well")
	assert.Contains(t, b.events()[0], "it is recreated instead")
	again := func() { // the Pod gets its readiness back
		b.settle("shop", "db")
		b.ready()
	}
	b.refuse = nil
	again()
	b.refuse = func(w string) error {
		if w == "patch Pod db-0" {
			b.refuse = nil
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "db-0", nil)
		}
		return nil
	}
	b.settle("shop", "db")
	again()
	writes, _ := b.settle("shop", "db")
	assert.Contains(t, writes, "delete Pod db-0")
	b.settle("shop", "db")
	pod := &corev1.Pod{}
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db-0"}, pod))
	assert.Equal(t, "app:2", pod.Spec.Containers[0].Image)
}

func TestFailuresOfExpansion(t *testing.T) {
	b := newBench(t, sized("1Gi"), class(true))
	b.settle("shop", "db")
	b.ready()
	b.settle("shop", "db")
	b.events()
	b.change(func(s *v1beta1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = sized("2Gi").Spec.VolumeClaimTemplates
		s.Spec.VolumeClaimTemplates[0].Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	})
	b.refuse = refusing("patch PersistentVolumeClaim", quota)
	_, _, err := b.pass("shop", "db")
	assert.ErrorContains(t, err, "changing PersistentVolumeClaim data-db-0")
	assert.Equal(t, []string{`Warning FailedResize resize Claim data-db-0 for Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota`}, b.events())
	assert.Len(t, b.conditions(), 1)

	b.refuse = nil
	writes, _ := b.settle("shop", "db")
	assert.Contains(t, writes, "patch PersistentVolumeClaim data-db-0")
	assert.Equal(t, []string{"Normal SuccessfulResize resize Claim data-db-0 Pod db-0 in StatefulSet db success"}, b.events())
	assert.Empty(t, b.conditions())
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data-db-0"}, claim))
	assert.Equal(t, "db", claim.Annotations["apps.kruise.io/owned-by-asts"])
	assert.Equal(t, "2Gi", claim.Spec.Resources.Requests.Storage().String())
	assert.Empty(t, claim.Spec.Resources.Limits, "the API server lets only requests change")

	// What nobody can do is said once, not at every pass.
	b.change(func(s *v1beta1.StatefulSet) {
		s.Spec.VolumeClaimTemplates[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	for range 3 {
		b.settle("shop", "db")
	}
	events := b.events()
	if assert.Len(t, events, 1) {
		assert.Contains(t, events[0], "Warning FailedUpdatePVC access modes or storage class of claim data-db-0")
	}
	assert.Len(t, b.conditions(), 1)
}

// After a lost answer nobody knows whether the Pod exists: nothing is done until the cache
// shows it, or the API server says that it does not.
func TestALostAnswerIsWaitedFor(t *testing.T) {
	b := newBench(t, bare("db"))
	b.refuse = refusing("create Pod", errors.New("connection reset by peer"))
	_, _, err := b.pass("shop", "db")
	require.Error(t, err)
	b.refuse = nil
	writes, got := b.settle("shop", "db")
	assert.Empty(t, writes)
	assert.Equal(t, expectation.ProbeAfter, got.RequeueAfter)
	b.clock.SetTime(t0.Add(expectation.ProbeAfter + time.Second))
	writes, _ = b.settle("shop", "db")
	assert.Contains(t, writes, "create Pod db-0")
}

// A status that somebody else wrote is decided on again, with what the server has.
func TestAConflictOfTheStatusIsResolved(t *testing.T) {
	b := newBench(t, bare("db"))
	b.refuse = func(w string) error {
		if w != "update status of StatefulSet db" {
			return nil
		}
		b.refuse = nil
		b.change(func(s *v1beta1.StatefulSet) { s.Annotations = map[string]string{"a": "b"} })
		return apierrors.NewConflict(appsv1.Resource("statefulsets"), "db", errors.New("it changed"))
	}
	b.settle("shop", "db")
	set := &v1beta1.StatefulSet{}
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"}, set))
	assert.Equal(t, int64(1), set.Status.ObservedGeneration, "the generation that was decided on")
	assert.Equal(t, int32(1), set.Status.Replicas)
	assert.Equal(t, "b", set.Annotations["a"])
	b.refuse = refusing("update status", conflict)
	_, _, err := b.pass("shop", "db")
	assert.ErrorContains(t, err, "it changed 5 times meanwhile")
}

// A set that is gone leaves nothing behind.
func TestASetThatIsGone(t *testing.T) {
	b := newBench(t)
	writes, got := b.settle("shop", "db")
	assert.Empty(t, writes)
	assert.Zero(t, got)
}

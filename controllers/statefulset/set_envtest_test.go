// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// edit changes a StatefulSet that is to be created, or one that exists.
type edit = func(*v1beta1.StatefulSet)

// base is StatefulSet "db" of one replica, as the webhook leaves it.
func base() *v1beta1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: v1beta1.StatefulSetSpec{
			Replicas:            new(int32(1)),
			ServiceName:         "dbs",
			PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
			UpdateStrategy: v1beta1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &v1beta1.RollingUpdateStatefulSetStrategy{
					Partition: new(int32(0)), MaxUnavailable: new(intstr.FromInt32(1)),
					PodUpdatePolicy: v1beta1.RecreatePodUpdatePolicyType, MinReadySeconds: new(int32(0)),
				},
			},
			RevisionHistoryLimit: new(int32(10)),
		},
	}
}

func parallel(s *v1beta1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }

func inPlace(s *v1beta1.StatefulSet) {
	s.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceIfPossiblePodUpdatePolicyType
	s.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}}
}

func onDelete(s *v1beta1.StatefulSet) {
	s.Spec.UpdateStrategy = v1beta1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
}

func replicas(n int32) edit { return func(s *v1beta1.StatefulSet) { s.Spec.Replicas = &n } }

func image(image string) edit {
	return func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image }
}

// partition replaces rollingUpdate by just the partition when the set was made so.
func partition(n int32) edit {
	return func(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
}

func maxUnavailable(v string) edit {
	return func(s *v1beta1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(v))
	}
}

func reserve(ordinals ...string) edit {
	return func(s *v1beta1.StatefulSet) {
		s.Spec.ReserveOrdinals = nil
		for _, o := range ordinals {
			s.Spec.ReserveOrdinals = append(s.Spec.ReserveOrdinals, intstr.Parse(o))
		}
	}
}

// told makes Pods with an annotation that the fake kubelet obeys.
func told(annotation string) edit {
	return func(s *v1beta1.StatefulSet) {
		metav1.SetMetaDataAnnotation(&s.Spec.Template.ObjectMeta, annotation, "x")
	}
}

func templateLabel(key, value string) edit {
	return func(s *v1beta1.StatefulSet) {
		labels := maps.Clone(s.Spec.Template.Labels) // the selector has the same map
		labels[key] = value
		s.Spec.Template.Labels = labels
	}
}

// claim adds a claim template of 1Gi in a storage class; "" is none.
func claim(name, class string) edit {
	return func(s *v1beta1.StatefulSet) {
		c := corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			},
		}
		if class != "" {
			c.Spec.StorageClassName = &class
		}
		s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, c)
	}
}

func retention(deleted, scaled string) edit {
	return func(s *v1beta1.StatefulSet) {
		s.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.PersistentVolumeClaimRetentionPolicyType(deleted),
			WhenScaled:  appsv1.PersistentVolumeClaimRetentionPolicyType(scaled),
		}
	}
}

// set is a StatefulSet under test.
type set struct {
	t   *testing.T
	key client.ObjectKey
}

// create makes a StatefulSet in a new namespace.
func create(t *testing.T, edits ...edit) *set {
	t.Helper()
	t.Parallel()
	s := base()
	s.Namespace = namespace(t)
	for _, e := range edits {
		e(s)
	}
	if err := testClient.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return &set{t, client.ObjectKeyFromObject(s)}
}

func (s *set) get() *v1beta1.StatefulSet {
	s.t.Helper()
	o := &v1beta1.StatefulSet{}
	if err := testClient.Get(s.t.Context(), s.key, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// change edits the spec; conflicts with the controller are retried.
func (s *set) change(edits ...edit) {
	s.t.Helper()
	eventually(s.t, func() error {
		o := s.get()
		for _, e := range edits {
			e(o)
		}
		return testClient.Update(s.t.Context(), o)
	})
}

// pods are all Pods of the namespace, also terminating ones, by name.
func (s *set) pods() []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items
}

func (s *set) pod(ordinal int) *corev1.Pod {
	s.t.Helper()
	p := &corev1.Pod{}
	key := types.NamespacedName{Namespace: s.key.Namespace, Name: plan.PodName(s.key.Name, ordinal)}
	eventually(s.t, func() error { return testClient.Get(s.t.Context(), key, p) })
	return p
}

// names are the ordinals of the Pods with something about each of them.
func (s *set) names(of func(corev1.Pod) string) string {
	var out []string
	for _, p := range s.pods() {
		text := strings.TrimPrefix(p.Name, s.key.Name+"-")
		if of != nil {
			text += "=" + of(p)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// wait waits until the Pods are those of want, with something about each of them.
func (s *set) wait(want string, of func(corev1.Pod) string) {
	s.t.Helper()
	eventually(s.t, func() error {
		if got := s.names(of); got != want {
			return fmt.Errorf("Pods %s, want %s; status %+v", got, want, s.get().Status)
		}
		return nil
	})
}

func byImage(p corev1.Pod) string { return p.Spec.Containers[0].Image }

// byAll shows what a test that fails needs to tell.
func byAll(p corev1.Pod) string {
	ready := "unready"
	if plan.IsReady(&p) {
		ready = "ready"
	}
	return fmt.Sprintf("%s(%s %s %s annotations %v deletion %v)", byImage(p), p.UID, byState(p), ready, p.Annotations, p.DeletionTimestamp)
}

func byState(p corev1.Pod) string { return p.Labels[v1beta1.LifecycleStateLabel] }

func (s *set) uids() map[string]types.UID {
	out := map[string]types.UID{}
	for _, p := range s.pods() {
		out[p.Name] = p.UID
	}
	return out
}

// patch sends a JSON merge patch to the Pod of an ordinal.
func (s *set) patch(ordinal int, patch string) {
	s.t.Helper()
	p := s.pod(ordinal)
	if err := testClient.Patch(s.t.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *set) deletePod(ordinal int) types.UID {
	s.t.Helper()
	p := s.pod(ordinal)
	if err := testClient.Delete(s.t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		s.t.Fatal(err)
	}
	return p.UID
}

// status waits until the status of the present generation passes check.
func (s *set) status(what string, check func(v1beta1.StatefulSetStatus) bool) v1beta1.StatefulSetStatus {
	s.t.Helper()
	var got v1beta1.StatefulSetStatus
	eventually(s.t, func() error {
		o := s.get()
		got = o.Status
		if o.Status.ObservedGeneration == o.Generation && check(o.Status) {
			return nil
		}
		return fmt.Errorf("waiting for %s: generation %d, status %+v, Pods %s", what, o.Generation, o.Status, s.names(byAll))
	})
	return got
}

// settled waits until all Pods are ready, and n of them updated and available.
func (s *set) settled(n int32) v1beta1.StatefulSetStatus {
	s.t.Helper()
	want := *s.get().Spec.Replicas
	return s.status(fmt.Sprintf("%d Pods of which %d are updated", want, n), func(st v1beta1.StatefulSetStatus) bool {
		return st.Replicas == want && st.ReadyReplicas == want && st.AvailableReplicas == want && st.UpdatedAvailableReplicas == n
	})
}

func (s *set) claims() map[string]corev1.PersistentVolumeClaim {
	s.t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]corev1.PersistentVolumeClaim{}
	for _, c := range list.Items {
		out[c.Name] = c
	}
	return out
}

// waitClaims waits until exactly these claims exist, with something about each of them.
func (s *set) waitClaims(want string, of func(corev1.PersistentVolumeClaim) string) {
	s.t.Helper()
	eventually(s.t, func() error {
		claims := s.claims()
		var out []string
		for _, name := range slices.Sorted(maps.Keys(claims)) {
			if of != nil {
				out = append(out, name+"="+of(claims[name]))
			} else {
				out = append(out, name)
			}
		}
		if got := strings.Join(out, " "); got != want {
			return fmt.Errorf("claims %s, want %s; Pods %s", got, want, s.names(nil))
		}
		return nil
	})
}

func byOwners(c corev1.PersistentVolumeClaim) string {
	var out []string
	for _, ref := range c.OwnerReferences {
		out = append(out, ref.Kind+"/"+ref.Name)
	}
	return strings.Join(out, ",")
}

// bySize shows request and capacity.
func bySize(c corev1.PersistentVolumeClaim) string {
	return c.Spec.Resources.Requests.Storage().String() + "/" + c.Status.Capacity.Storage().String()
}

func (s *set) revisions() []appsv1.ControllerRevision {
	s.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// podWrites are the manager's writes by Pod, without the first ones.
func (s *set) podWrites(from int) map[string][]string {
	perPod := map[string][]string{}
	for _, w := range writes.in(s.key.Namespace)[from:] {
		if _, pod, found := strings.Cut(w, "/pods/"); found {
			pod, _, _ = strings.Cut(pod, "/")
			perPod[pod] = append(perPod[pod], w)
		}
	}
	return perPod
}

// event waits for an event of the controller about the set.
func (s *set) event(reason, message string) {
	s.t.Helper()
	eventually(s.t, func() error {
		var list corev1.EventList
		if err := testClient.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			return err
		}
		var have []string
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, message) && e.Source.Component == "statefulset-controller" {
				return nil
			}
			have = append(have, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("no event %s with %q among %q", reason, message, have)
	})
}

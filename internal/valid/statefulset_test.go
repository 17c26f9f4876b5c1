// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

type (
	set      = v1beta1.StatefulSet
	setRoll  = v1beta1.RollingUpdateStatefulSetStrategy
	setClaim = corev1.PersistentVolumeClaim
)

// db returns a valid, defaulted StatefulSet with policy Parallel.
func db(change ...func(*set)) *set {
	s := &set{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "shop", UID: "db-uid"},
		Spec: v1beta1.StatefulSetSpec{
			Replicas: new(int32(3)), ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement, RevisionHistoryLimit: new(int32(10)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "main", Image: "postgres:17"}}, RestartPolicy: corev1.RestartPolicyAlways,
					ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}},
				},
			},
			UpdateStrategy: v1beta1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &setRoll{
				Partition: new(int32), MaxUnavailable: new(intstr.FromInt32(1)), PodUpdatePolicy: v1beta1.RecreatePodUpdatePolicyType, MinReadySeconds: new(int32),
			}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func setRolling(change func(*setRoll)) func(*set) {
	return func(s *set) { change(s.Spec.UpdateStrategy.RollingUpdate) }
}

func orderedReady(s *set) { s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement }

func reserve(values ...intstr.IntOrString) func(*set) {
	return func(s *set) { s.Spec.ReserveOrdinals = values }
}

func unordered(s *v1beta1.UpdatePriorityStrategy) func(*set) {
	return setRolling(func(r *setRoll) { r.UnorderedUpdate = &v1beta1.UnorderedUpdateStrategy{PriorityStrategy: s} })
}

func TestValidStatefulSets(t *testing.T) {
	for name, s := range map[string]*set{
		"the plain one":                   db(),
		"one Pod after the other":         db(orderedReady),
		"a policy left to the default":    db(func(s *set) { s.Spec.PodManagementPolicy = "" }),
		"no Pods":                         db(func(s *set) { s.Spec.Replicas = new(int32) }),
		"no Service":                      db(func(s *set) { s.Spec.ServiceName = "" }),
		"a generated name":                db(func(s *set) { s.Name, s.GenerateName = "", "db-" }),
		"the longest name":                db(func(s *set) { s.Name = strings.Repeat("d", 63) }),
		"a partition beyond the replicas": db(setRolling(func(r *setRoll) { r.Partition = new(int32(99)) })),
		"more than all Pods unavailable":  db(setRolling(func(r *setRoll) { r.MaxUnavailable = new(intstr.FromString("150%")) })),
		"OrderedReady that may lack one Pod while it scales": db(orderedReady, func(s *set) {
			s.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: new(intstr.FromInt32(1))}
		}),
		"OnDelete": db(func(s *set) { s.Spec.UpdateStrategy = v1beta1.StatefulSetUpdateStrategy{Type: "OnDelete"} }),
		"in place with its readiness gate": db(setRolling(func(r *setRoll) {
			r.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{
				GracePeriodSeconds: 3, ImagePreDownloadParallelism: new(intstr.FromString("10%")), ImagePreDownloadMinUpdatedReadyPods: new(int32(1)),
			}
		})),
		"ready for five minutes": db(setRolling(func(r *setRoll) { r.MinReadySeconds = new(int32(300)) })),
		"reserved ordinals":      db(reserve(intstr.FromInt32(0), intstr.FromInt32(0), intstr.FromString("2-5"), intstr.FromString("7-7"), intstr.FromString("0-2147483647"))),
		"a later start":          db(func(s *set) { s.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: math.MaxInt32} }),
		"an update by weight": db(unordered(&v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{
			{Weight: 100, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
		}})),
		"an update in no order": db(unordered(nil)),
		"claims that go with the Pods": db(func(s *set) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Retain", WhenScaled: "Delete"}
		}),
		"a Pod spec that only the API server judges": db(func(s *set) { s.Spec.Template.Spec.Containers, s.Spec.Template.Spec.RestartPolicy = nil, "" }),
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, valid.StatefulSet(s, valid.Options{})) })
	}
}

func TestInvalidStatefulSets(t *testing.T) {
	const ru = "spec.updateStrategy.rollingUpdate"
	maxUnavailable := func(v intstr.IntOrString) func(*set) {
		return setRolling(func(r *setRoll) { r.MaxUnavailable = &v })
	}
	for name, c := range map[string]struct {
		change func(*set)
		path   string
	}{
		"a name with a dot":     {func(s *set) { s.Name = "db.shop" }, "metadata.name"},
		"a name of 64 letters":  {func(s *set) { s.Name = strings.Repeat("d", 64) }, "metadata.name"},
		"replicas missing":      {func(s *set) { s.Spec.Replicas = nil }, "spec.replicas"},
		"replicas below zero":   {func(s *set) { s.Spec.Replicas = new(int32(-1)) }, "spec.replicas"},
		"selector missing":      {func(s *set) { s.Spec.Selector = nil }, "spec.selector"},
		"selector empty":        {func(s *set) { s.Spec.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"labels not selected":   {func(s *set) { s.Spec.Template.Labels = nil }, "spec.template.metadata.labels"},
		"a label without a key": {func(s *set) { s.Spec.Template.Labels[""] = "x" }, "spec.template.metadata.labels"},
		"an annotation of the template without a key": {func(s *set) {
			s.Spec.Template.Annotations = map[string]string{"": "x"}
		}, "spec.template.metadata.annotations"},
		"Pods that end":            {func(s *set) { s.Spec.Template.Spec.RestartPolicy = "OnFailure" }, "spec.template.spec.restartPolicy"},
		"Pods with a deadline":     {func(s *set) { s.Spec.Template.Spec.ActiveDeadlineSeconds = new(int64(9)) }, "spec.template.spec.activeDeadlineSeconds"},
		"an unknown policy":        {func(s *set) { s.Spec.PodManagementPolicy = "Serial" }, "spec.podManagementPolicy"},
		"an unknown type":          {func(s *set) { s.Spec.UpdateStrategy.Type = "Recreate" }, "spec.updateStrategy.type"},
		"OnDelete with limits":     {func(s *set) { s.Spec.UpdateStrategy.Type = "OnDelete" }, ru},
		"no limits":                {func(s *set) { s.Spec.UpdateStrategy.RollingUpdate = nil }, ru},
		"a partition below zero":   {setRolling(func(r *setRoll) { r.Partition = new(int32(-1)) }), ru + ".partition"},
		"maxUnavailable of none":   {maxUnavailable(intstr.FromInt32(0)), ru + ".maxUnavailable"},
		"maxUnavailable of 0%":     {maxUnavailable(intstr.FromString("00%")), ru + ".maxUnavailable"},
		"maxUnavailable in quotes": {maxUnavailable(intstr.FromString("5")), ru + ".maxUnavailable"},
		"maxUnavailable in words":  {maxUnavailable(intstr.FromString("half")), ru + ".maxUnavailable"},
		"a part of a percent":      {maxUnavailable(intstr.FromString("2.5%")), ru + ".maxUnavailable"},
		"OrderedReady with two unavailable": {func(s *set) {
			orderedReady(s)
			maxUnavailable(intstr.FromInt32(2))(s)
		}, ru + ".maxUnavailable"},
		"OrderedReady with a percentage that comes to one": {func(s *set) {
			s.Spec.PodManagementPolicy = ""
			maxUnavailable(intstr.FromString("1%"))(s)
		}, ru + ".maxUnavailable"},
		"an unknown way to update": {setRolling(func(r *setRoll) { r.PodUpdatePolicy = "InPlace" }), ru + ".podUpdatePolicy"},
		"in place without the readiness gate": {func(s *set) {
			s.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "Other"}}
			s.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceIfPossiblePodUpdatePolicyType
		}, "spec.template.spec.readinessGates"},
		"OrderedReady without order": {func(s *set) {
			orderedReady(s)
			unordered(nil)(s)
		}, ru + ".unorderedUpdate"},
		"weights and orders at once": {unordered(&v1beta1.UpdatePriorityStrategy{
			OrderPriority:  []v1beta1.UpdatePriorityOrderTerm{{OrderedKey: "o"}},
			WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
		}), ru + ".unorderedUpdate.priorityStrategy"},
		"a weight of nobody": {unordered(&v1beta1.UpdatePriorityStrategy{
			WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{Weight: 1}},
		}), ru + ".unorderedUpdate.priorityStrategy.weightPriority[0].matchSelector"},
		"an order without a key": {unordered(&v1beta1.UpdatePriorityStrategy{
			OrderPriority: []v1beta1.UpdatePriorityOrderTerm{{}},
		}), ru + ".unorderedUpdate.priorityStrategy.orderPriority[0].orderedKey"},
		"a grace period below zero": {setRolling(func(r *setRoll) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: -1}
		}), ru + ".inPlaceUpdateStrategy.gracePeriodSeconds"},
		"a parallelism in words": {setRolling(func(r *setRoll) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromString("many"))}
		}), ru + ".inPlaceUpdateStrategy.imagePreDownloadParallelism"},
		"ready for longer than five minutes": {setRolling(func(r *setRoll) { r.MinReadySeconds = new(int32(301)) }), ru + ".minReadySeconds"},
		"ready for less than no time":        {setRolling(func(r *setRoll) { r.MinReadySeconds = new(int32(-1)) }), ru + ".minReadySeconds"},
		"a negative history":                 {func(s *set) { s.Spec.RevisionHistoryLimit = new(int32(-1)) }, "spec.revisionHistoryLimit"},
		"a reserved ordinal below zero":      {reserve(intstr.FromInt32(1), intstr.FromInt32(-1)), "spec.reserveOrdinals[1]"},
		"a reserved ordinal in quotes":       {reserve(intstr.FromString("5")), "spec.reserveOrdinals[0]"},
		"a range without end":                {reserve(intstr.FromString("5-")), "spec.reserveOrdinals[0]"},
		"a range of ranges":                  {reserve(intstr.FromString("1-2-3")), "spec.reserveOrdinals[0]"},
		"a range backwards":                  {reserve(intstr.FromString("5-3")), "spec.reserveOrdinals[0]"},
		"a range beyond all ordinals":        {reserve(intstr.FromString("0-99999999999999999999")), "spec.reserveOrdinals[0]"},
		"a start below zero":                 {func(s *set) { s.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: -1} }, "spec.ordinals.start"},
		"a hook with a label nobody can have": {func(s *set) {
			s.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"a b": "c"}}}
		}, "spec.lifecycle.preDelete.labelsHandler"},
		"no Pod may be created": {func(s *set) {
			s.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: new(intstr.FromString("0%"))}
		}, "spec.scaleStrategy.maxUnavailable"},
		"half a retention policy": {func(s *set) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: "Delete"}
		}, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted"},
		"an unknown retention policy": {func(s *set) {
			s.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Retain", WhenScaled: "Recycle"}
		}, "spec.persistentVolumeClaimRetentionPolicy.whenScaled"},
		"an unknown strategy for claims": {func(s *set) { s.Spec.VolumeClaimUpdateStrategy.Type = "OnUpdate" }, "spec.volumeClaimUpdateStrategy.type"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.StatefulSet(db(c.change), valid.Options{})
			require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
			require.NotEmpty(t, errs[0].Detail, "what is wrong")
		})
	}
}

func TestUpdateOfStatefulSet(t *testing.T) {
	inPlaceOnly := setRolling(func(r *setRoll) { r.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType })
	image := func(s *set) { s.Spec.Template.Spec.Containers[0].Image = "postgres:18" }
	limits := func(s *set) {
		s.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": *quantity("2")}
	}
	broken := func(s *set) { s.Spec.RevisionHistoryLimit = new(int32(-1)) }
	for name, c := range map[string]struct {
		old, obj *set
		o        valid.Options
		path     string // empty: accepted
	}{
		"the selector": {db(), db(func(s *set) {
			s.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}}
		}), valid.Options{}, "spec.selector"},
		"the Service":                   {db(), db(func(s *set) { s.Spec.ServiceName = "" }), valid.Options{}, "spec.serviceName"},
		"the policy":                    {db(), db(orderedReady), valid.Options{}, "spec.podManagementPolicy"},
		"the policy, spelt out":         {db(func(s *set) { s.Spec.PodManagementPolicy = "" }), db(orderedReady), valid.Options{}, ""},
		"everything else":               {db(), db(image, limits, reserve(intstr.FromInt32(1)), func(s *set) { s.Spec.Replicas = new(int32(9)) }), valid.Options{}, ""},
		"InPlaceOnly and the image":     {db(), db(image, inPlaceOnly), valid.Options{}, ""},
		"InPlaceOnly and metadata":      {db(inPlaceOnly), db(inPlaceOnly, func(s *set) { s.Spec.Template.Annotations = map[string]string{"a": "b"} }), valid.Options{}, ""},
		"InPlaceOnly and resources":     {db(inPlaceOnly), db(inPlaceOnly, limits), valid.Options{}, "spec.template.spec"},
		"with the gate of resources on": {db(inPlaceOnly), db(inPlaceOnly, limits), valid.Options{VerticalScaling: true}, ""},
		"a finalizer of what is not valid": {db(broken), db(broken, func(s *set) { s.Finalizers = nil }),
			valid.Options{}, ""},
		"another field of what is not valid": {db(broken), db(broken, func(s *set) { s.Spec.Replicas = new(int32) }), valid.Options{}, ""},
		"a new fault beside an old one":      {db(broken), db(broken, func(s *set) { s.Spec.Replicas = new(int32(-1)) }), valid.Options{}, "spec.replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.StatefulSetUpdate(c.old, c.obj, c.o)
			if c.path == "" {
				require.Empty(t, errs)
				return
			}
			require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
		})
	}
}

func TestDeleteOfStatefulSet(t *testing.T) {
	s := db(func(s *set) { s.Labels = map[string]string{v1beta1.DeleteProtectionLabel: "Cascading"} })
	require.EqualError(t, valid.StatefulSetDelete(s), "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection=Cascading and replicas 3>0")
	s.Spec.Replicas = new(int32)
	require.NoError(t, valid.StatefulSetDelete(s))
}

// However wide a range is, it is read and not expanded.
func TestReservedRangesInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int32Range(0, math.MaxInt32).Draw(t, "a"), rapid.Int32Range(0, math.MaxInt32).Draw(t, "b")
		errs := valid.StatefulSet(db(reserve(intstr.FromString(fmt.Sprintf("%d-%d", a, b)))), valid.Options{})
		if len(errs) > 0 != (a > b) {
			t.Fatalf("%d-%d: %v", a, b, errs)
		}
	})
}

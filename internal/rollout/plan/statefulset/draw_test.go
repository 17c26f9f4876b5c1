// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

var now = fixture.Created.Add(time.Hour)

// hookLabel is what hooks of these tests look for.
const hookLabel = "hook"

func hook(marks bool) *v1beta1.LifecycleHook {
	return &v1beta1.LifecycleHook{LabelsHandler: map[string]string{hookLabel: "on"}, MarkPodNotReady: marks}
}

// drawSet draws a StatefulSet with numbers as limits, so that tests can hold Decide to them.
func drawSet(t *rapid.T) fixture.StatefulSetBuilder {
	replicas := rapid.SampledFrom([]int{0, 1, 2, 3, 3, 4, 5, 6}).Draw(t, "replicas")
	b := fixture.StatefulSet("web").With(func(s *v1beta1.StatefulSet) {
		s.Spec.Replicas = new(int32(replicas))
		r := s.Spec.UpdateStrategy.RollingUpdate
		r.PodUpdatePolicy = rapid.SampledFrom([]v1beta1.PodUpdatePolicyType{
			v1beta1.RecreatePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType, v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
		}).Draw(t, "policy")
		r.Partition = new(int32(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 4}).Draw(t, "partition")))
		r.MinReadySeconds = new(int32(rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "minReadySeconds")))
		if rapid.Bool().Draw(t, "grace") {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: 2}
		}
		if rapid.Bool().Draw(t, "parallel") {
			s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
			r.MaxUnavailable = new(intstr.FromInt32(int32(rapid.IntRange(1, 3).Draw(t, "maxUnavailable"))))
			if n := rapid.IntRange(0, 3).Draw(t, "scaleMaxUnavailable"); n > 0 {
				s.Spec.ScaleStrategy = &v1beta1.StatefulSetScaleStrategy{MaxUnavailable: new(intstr.FromInt32(int32(n)))}
			}
			r.UnorderedUpdate = drawUnordered(t)
		}
		s.Spec.Lifecycle = drawLifecycle(t)
		if s.Spec.Lifecycle != nil {
			s.Spec.Template.Labels[hookLabel] = "on"
		}
		s.Spec.ReserveOrdinals = drawReserved(t)
		s.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: int32(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "start"))}
		s.Spec.PersistentVolumeClaimRetentionPolicy = drawRetention(t)
		s.Spec.VolumeClaimUpdateStrategy.Type = rapid.SampledFrom([]v1beta1.VolumeClaimUpdateStrategyType{
			v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType, v1beta1.OnDeleteVolumeClaimUpdateStrategyType,
		}).Draw(t, "claimUpdates")
		for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "claims") {
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, claimTemplate(fmt.Sprintf("data%d", i)))
		}
	})
	return b
}

func claimTemplate(name string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("grows"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: size(1)},
		},
	}
}

func size(gigabytes int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(gigabytes<<30, resource.BinarySI)}
}

func drawUnordered(t *rapid.T) *v1beta1.UnorderedUpdateStrategy {
	switch rapid.IntRange(0, 3).Draw(t, "unordered") {
	case 1:
		return &v1beta1.UnorderedUpdateStrategy{}
	case 2:
		return &v1beta1.UnorderedUpdateStrategy{PriorityStrategy: &v1beta1.UpdatePriorityStrategy{
			OrderPriority: []v1beta1.UpdatePriorityOrderTerm{{OrderedKey: "rank"}},
		}}
	}
	return nil
}

func drawLifecycle(t *rapid.T) *v1beta1.Lifecycle {
	lc := &v1beta1.Lifecycle{}
	switch rapid.IntRange(0, 5).Draw(t, "hooks") {
	case 1:
		lc.PreDelete = hook(rapid.Bool().Draw(t, "marks"))
	case 2:
		lc.InPlaceUpdate = hook(rapid.Bool().Draw(t, "marks"))
	case 3:
		lc.PreDelete, lc.InPlaceUpdate = hook(rapid.Bool().Draw(t, "marks")), hook(rapid.Bool().Draw(t, "marks"))
	case 4:
		lc.PreDelete, lc.InPlaceUpdate, lc.PreNormal = hook(false), hook(false), hook(false)
	default:
		return nil
	}
	return lc
}

func drawReserved(t *rapid.T) []intstr.IntOrString {
	return rapid.SampledFrom([][]intstr.IntOrString{
		nil, nil, nil,
		{intstr.FromInt32(1)},
		{intstr.FromInt32(0), intstr.FromString("3-4")},
		{intstr.FromString("0-2000000000")},
	}).Draw(t, "reserved")
}

func drawRetention(t *rapid.T) *v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	choice := []appsv1.PersistentVolumeClaimRetentionPolicyType{appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	return &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled:  rapid.SampledFrom(choice).Draw(t, "whenScaled"),
		WhenDeleted: rapid.SampledFrom(choice).Draw(t, "whenDeleted"),
	}
}

// revisions are those of three templates: one, another image, another environment. They
// do not depend on what drawSet draws, but for the hook's label.
var revisions = sync.OnceValue(func() map[string]*appsv1.ControllerRevision {
	m := map[string]*appsv1.ControllerRevision{}
	for _, hooked := range []bool{false, true} {
		b, key := fixture.StatefulSet("web"), ""
		if hooked {
			b, key = b.TemplateLabel(hookLabel, "on"), "hooked "
		}
		m[key+"old"] = fixture.StatefulSetRevision(b, 1)
		m[key+"image"] = fixture.StatefulSetRevision(b.Image("app:2"), 2)
		m[key+"env"] = fixture.StatefulSetRevision(b.Env("A", "1"), 3)
	}
	return m
})

// drawSnapshot draws any situation, also ones that no rollout leads to.
func drawSnapshot(t *rapid.T) Snapshot {
	set := drawSet(t).Obj()
	key := ""
	if set.Spec.Lifecycle != nil {
		key = "hooked "
	}
	old := revisions()[key+"old"]
	next := revisions()[key+rapid.SampledFrom([]string{"image", "image", "env", "old"}).Draw(t, "change")]
	switch next {
	case revisions()[key+"image"]:
		set.Spec.Template.Spec.Containers[0].Image = "app:2"
	case revisions()[key+"env"]:
		set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	}
	switch rapid.IntRange(0, 9).Draw(t, "strategy") {
	case 0:
		set.Spec.UpdateStrategy.RollingUpdate.Paused = true
	case 1:
		set.Spec.UpdateStrategy = v1beta1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	case 2:
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
	}
	s := Snapshot{
		Set: set, Update: next, Current: old, Revisions: []*appsv1.ControllerRevision{old, next},
		StorageClasses: map[string]*storagev1.StorageClass{"grows": {AllowVolumeExpansion: new(true)}, "fixed": {}},
		Gates: Gates{
			AutoDeletePVC: rapid.Bool().Draw(t, "autoDelete"), AutoResizePVC: rapid.IntRange(0, 3).Draw(t, "autoResize") > 0,
			StartOrdinal: true, PodIndexLabel: true, PreparingUpdateAsUpdate: rapid.Bool().Draw(t, "preparingUpdateAsUpdate"),
		},
	}
	r := Ordinals(set, s.Gates)
	base := 0
	if r.Count() > 0 {
		base = max(0, r.At(0)-2)
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "ordinals") {
		if rapid.IntRange(0, 5).Draw(t, "missing") > 0 {
			s.Pods = append(s.Pods, drawPod(t, &s, base+i))
		}
		s.Claims = append(s.Claims, drawClaims(t, &s, base+i)...)
	}
	return s
}

func drawPod(t *rapid.T, s *Snapshot, n int) *corev1.Pod {
	name := PodName(s.Set.Name, n)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: s.Set.Namespace, UID: types.UID("uid-" + name),
		Labels: map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: name},
	}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1beta1.InPlaceUpdateReady}}
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = rapid.SampledFrom([]string{s.Update.Name, s.Update.Name, s.Current.Name, s.Current.Name, s.Current.Name, "web-gone"}).Draw(t, "revision")
	if state := rapid.SampledFrom([]v1beta1.LifecycleState{
		"", v1beta1.LifecycleNormal, v1beta1.LifecycleNormal, v1beta1.LifecycleNormal, v1beta1.LifecycleNormal, v1beta1.LifecyclePreparingNormal,
		v1beta1.LifecyclePreparingUpdate, v1beta1.LifecycleUpdating, v1beta1.LifecycleUpdated, v1beta1.LifecyclePreparingDelete,
	}).Draw(t, "state"); state != "" {
		p.Labels[v1beta1.LifecycleStateLabel] = string(state)
	}
	ready, at := corev1.ConditionTrue, fixture.Created
	p.Status.Phase = corev1.PodRunning
	switch rapid.IntRange(0, 11).Draw(t, "health") {
	case 0, 1:
		ready = corev1.ConditionFalse
	case 2:
		at = now.Add(-time.Second)
	case 3:
		p.Status.Phase, ready = corev1.PodFailed, corev1.ConditionFalse
	case 4:
		p.Status.Phase, ready = corev1.PodPending, corev1.ConditionFalse
	case 5:
		p.DeletionTimestamp = new(metav1.NewTime(now))
	}
	gate := ready
	if rapid.IntRange(0, 9).Draw(t, "gate") == 0 {
		gate = corev1.ConditionFalse
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: v1beta1.InPlaceUpdateReady, Status: gate, LastTransitionTime: metav1.NewTime(at)},
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(at)},
	}
	if rapid.IntRange(0, 5).Draw(t, "specified") == 0 {
		p.Labels[v1beta1.SpecifiedDeleteLabel] = ""
	}
	if rapid.Bool().Draw(t, "hooked") {
		p.Labels[hookLabel] = "on"
	}
	if rapid.Bool().Draw(t, "ranked") {
		p.Labels["rank"] = fmt.Sprintf("r-%d", rapid.IntRange(0, 2).Draw(t, "rank"))
	}
	if rapid.IntRange(0, 9).Draw(t, "adopted") == 0 {
		delete(p.Labels, appsv1.StatefulSetPodNameLabel)
	}
	for _, template := range s.Set.Spec.VolumeClaimTemplates {
		if rapid.IntRange(0, 9).Draw(t, "lacks") > 0 {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(template.Name, s.Set.Name, n)},
			}})
		}
	}
	return p
}

func drawClaims(t *rapid.T, s *Snapshot, n int) (list []*corev1.PersistentVolumeClaim) {
	for i := range s.Set.Spec.VolumeClaimTemplates {
		if rapid.IntRange(0, 7).Draw(t, "claimMissing") == 0 {
			continue
		}
		claim := NewClaim(s.Set, &s.Set.Spec.VolumeClaimTemplates[i], n)
		claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, size(1)
		switch rapid.IntRange(0, 13).Draw(t, "claim") {
		case 0, 1, 2:
			s.Set.Spec.VolumeClaimTemplates[i].Spec.Resources.Requests = size(2)
		case 3:
			claim.Spec.Resources.Requests = size(2)
		case 4:
			claim.Spec.Resources.Requests = size(2)
			claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "pendingFor"))),
			}}
		case 5:
			claim.DeletionTimestamp = new(metav1.NewTime(now))
		case 6:
			claim.Spec.StorageClassName = new("fixed")
		case 7:
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}
		for _, ref := range rapid.SampledFrom([][]string{nil, nil, nil, {"set"}, {"pod"}, {"before"}, {"other"}}).Draw(t, "owners") {
			r := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: PodName(s.Set.Name, n), UID: types.UID("uid-" + PodName(s.Set.Name, n))}
			switch ref {
			case "set":
				r = metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "StatefulSet", Name: s.Set.Name, UID: s.Set.UID}
			case "before":
				r.UID = "gone"
			case "other":
				r = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}
			}
			claim.OwnerReferences = append(claim.OwnerReferences, r)
		}
		list = append(list, claim)
	}
	return list
}

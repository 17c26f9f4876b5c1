// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// SetDefaultsCloneSet fills in what is absent (cloneset.md 5.1, row v1alpha1). The limits of
// a rolling update are not written into a strategy of type OnDelete, which has no use for them.
func SetDefaultsCloneSet(cs *CloneSet, o v1beta1.DefaultOptions) {
	s := &cs.Spec
	setDefault(&s.Replicas, v1beta1.DefaultReplicas)
	setDefault(&s.RevisionHistoryLimit, v1beta1.DefaultRevisionHistoryLimit)
	o.SetTemplates(&s.Template, s.VolumeClaimTemplates)

	u := &s.UpdateStrategy
	switch u.Type {
	case "":
		u.Type = RecreateCloneSetUpdateStrategyType
	case OnDeleteCloneSetUpdateStrategyType:
		return
	case InPlaceIfPossibleCloneSetUpdateStrategyType, InPlaceOnlyCloneSetUpdateStrategyType:
		setDefault(&u.InPlaceUpdateStrategy, v1beta1.InPlaceUpdateStrategy{})
	}
	setDefault(&u.Partition, intstr.FromInt32(0))
	setDefault(&u.MaxUnavailable, intstr.FromString(v1beta1.DefaultMaxUnavailable))
	setDefault(&u.MaxSurge, intstr.FromInt32(0))
}

// SetDefaultsStatefulSet fills in what is absent (statefulset.md 5.1). It is
// v1beta1.SetDefaultsStatefulSet without the fields that this version does not have, whatever
// the options say: an object written in it keeps no default for them.
func SetDefaultsStatefulSet(set *StatefulSet, o v1beta1.DefaultOptions) {
	o.AutoDeletePVC, o.AutoResizePVC = false, false
	s := &set.Spec
	hub := v1beta1.StatefulSet{Spec: v1beta1.StatefulSetSpec{
		Replicas: s.Replicas, Template: s.Template, VolumeClaimTemplates: s.VolumeClaimTemplates,
		PodManagementPolicy: s.PodManagementPolicy, UpdateStrategy: s.UpdateStrategy, RevisionHistoryLimit: s.RevisionHistoryLimit,
	}}
	v1beta1.SetDefaultsStatefulSet(&hub, o)
	s.Replicas, s.Template, s.VolumeClaimTemplates = hub.Spec.Replicas, hub.Spec.Template, hub.Spec.VolumeClaimTemplates
	s.PodManagementPolicy, s.UpdateStrategy, s.RevisionHistoryLimit = hub.Spec.PodManagementPolicy, hub.Spec.UpdateStrategy, hub.Spec.RevisionHistoryLimit
}

// SetDefaultsDaemonSet fills in what is absent (daemonset.md 5.1). First it replaces the word
// Surging by what it stands for.
func SetDefaultsDaemonSet(ds *DaemonSet, o v1beta1.DefaultOptions) {
	s := &ds.Spec
	if r := s.UpdateStrategy.RollingUpdate; r != nil && r.RollingUpdateType == SurgingRollingUpdateType {
		setDefault(&r.MaxSurge, intstr.FromInt32(1))
		setDefault(&r.MaxUnavailable, intstr.FromInt32(0))
		r.RollingUpdateType = v1beta1.StandardRollingUpdateType
	}
	hub := v1beta1.DaemonSet{Spec: v1beta1.DaemonSetSpec{
		BurstReplicas: s.BurstReplicas, RevisionHistoryLimit: s.RevisionHistoryLimit,
		UpdateStrategy: v1beta1.DaemonSetUpdateStrategy{Type: s.UpdateStrategy.Type, RollingUpdate: s.UpdateStrategy.RollingUpdate},
	}}
	v1beta1.SetDefaultsDaemonSet(&hub, o)
	s.BurstReplicas, s.RevisionHistoryLimit = hub.Spec.BurstReplicas, hub.Spec.RevisionHistoryLimit
	s.UpdateStrategy = DaemonSetUpdateStrategy{Type: hub.Spec.UpdateStrategy.Type, RollingUpdate: hub.Spec.UpdateStrategy.RollingUpdate}
}

// SetDefaultsImagePullJob fills in what is absent (images.md 5). create adds the finalizer;
// for jobs written as v1beta1 the controller does that.
func SetDefaultsImagePullJob(job *ImagePullJob, create bool) {
	hub := v1beta1.ImagePullJob{Spec: job.Spec}
	v1beta1.SetDefaultsImagePullJob(&hub)
	job.Spec = hub.Spec
	if create && !slices.Contains(job.Finalizers, v1beta1.ImagePullJobFinalizer) {
		job.Finalizers = append(job.Finalizers, v1beta1.ImagePullJobFinalizer)
	}
}

// SetDefaultsImageListPullJob is v1beta1.SetDefaultsImageListPullJob for this version.
func SetDefaultsImageListPullJob(job *ImageListPullJob) {
	v1beta1.SetDefaultsImagePullJobTemplate(&job.Spec.ImagePullJobTemplate)
}

// SetDefaultsContainerRecreateRequest is v1beta1.SetDefaultsContainerRecreateRequest for this version.
func SetDefaultsContainerRecreateRequest(crr *ContainerRecreateRequest) {
	hub := crr.ToHub()
	v1beta1.SetDefaultsContainerRecreateRequest(hub)
	crr.Spec.Strategy = (*RecreateStrategy)(hub.Spec.Strategy)
}

// SetDefaultsNodeImage is v1beta1.SetDefaultsNodeImage for this version.
func SetDefaultsNodeImage(ni *NodeImage, now metav1.Time) {
	hub := v1beta1.NodeImage{Spec: ni.Spec, Status: ni.Status}
	v1beta1.SetDefaultsNodeImage(&hub, now)
	ni.Spec, ni.Status = hub.Spec, hub.Status
}

// setDefault points p at a copy of value when it points nowhere.
func setDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Values that stand for absent fields (cloneset.md 5.1, statefulset.md 5.1, daemonset.md 5.1,
// images.md 2.1 and 4).
const (
	DefaultReplicas             int32 = 1
	DefaultRevisionHistoryLimit int32 = 10
	// DefaultMaxUnavailable is a percentage of replicas.
	DefaultMaxUnavailable = "20%"
	// DefaultSetMaxUnavailable is the maxUnavailable of a StatefulSet and of a DaemonSet.
	DefaultSetMaxUnavailable  int32 = 1
	DefaultBurstReplicas      int32 = 250
	DefaultPullTimeoutSeconds int32 = 600
	DefaultPullBackoffLimit   int32 = 3
)

// DefaultOptions says what defaulting does besides the defaults of the kind itself. The
// template of a DaemonSet is never filled in.
//
// +kubebuilder:object:generate=false
type DefaultOptions struct {
	// Template fills in the Pod template and Claim a volume claim template. Leave both nil
	// when the gate TemplateNoDefaults is on, and on an UPDATE that does not change the
	// template: a template that gains defaults makes a new revision and restarts every Pod.
	Template func(*corev1.PodTemplateSpec)
	Claim    func(*corev1.PersistentVolumeClaim)
	// AutoDeletePVC and AutoResizePVC are the gates StatefulSetAutoDeletePVC and
	// StatefulSetAutoResizePVCGate: with the gate off its field of a StatefulSet stays absent.
	AutoDeletePVC, AutoResizePVC bool
}

// SetDefaultsCloneSet fills in what is absent (cloneset.md 5.1). It changes nothing that is set.
func SetDefaultsCloneSet(cs *CloneSet, o DefaultOptions) {
	s := &cs.Spec
	setDefault(&s.Replicas, DefaultReplicas)
	setDefault(&s.RevisionHistoryLimit, DefaultRevisionHistoryLimit)
	o.SetTemplates(&s.Template, s.VolumeClaimTemplates)

	u := &s.UpdateStrategy
	if u.Type == "" {
		u.Type = RollingUpdateCloneSetUpdateStrategyType
	}
	if u.Type != RollingUpdateCloneSetUpdateStrategyType {
		return
	}
	if u.RollingUpdate == nil {
		u.RollingUpdate = &RollingUpdateCloneSetStrategy{}
	}
	r := u.RollingUpdate
	if r.PodUpdatePolicy == "" {
		r.PodUpdatePolicy = RecreatePodUpdatePolicyType
	}
	inPlace := r.PodUpdatePolicy == InPlaceIfPossiblePodUpdatePolicyType || r.PodUpdatePolicy == InPlaceOnlyPodUpdatePolicyType
	if inPlace && r.InPlaceUpdateStrategy == nil {
		r.InPlaceUpdateStrategy = &InPlaceUpdateStrategy{}
	}
	setDefault(&r.Partition, intstr.FromInt32(0))
	setDefault(&r.MaxUnavailable, intstr.FromString(DefaultMaxUnavailable))
	setDefault(&r.MaxSurge, intstr.FromInt32(0))
}

// SetDefaultsStatefulSet fills in what is absent (statefulset.md 5.1). It changes nothing that
// is set, and nothing in a strategy of type OnDelete.
func SetDefaultsStatefulSet(set *StatefulSet, o DefaultOptions) {
	s := &set.Spec
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	u := &s.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateStatefulSetStrategyType
	}
	if u.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		if u.RollingUpdate == nil {
			u.RollingUpdate = &RollingUpdateStatefulSetStrategy{}
		}
		r := u.RollingUpdate
		setDefault(&r.Partition, 0)
		setDefault(&r.MaxUnavailable, intstr.FromInt32(DefaultSetMaxUnavailable))
		setDefault(&r.MinReadySeconds, 0)
		if r.PodUpdatePolicy == "" {
			r.PodUpdatePolicy = RecreatePodUpdatePolicyType
		}
	}
	if o.AutoDeletePVC {
		setDefault(&s.PersistentVolumeClaimRetentionPolicy, StatefulSetPersistentVolumeClaimRetentionPolicy{})
		p := s.PersistentVolumeClaimRetentionPolicy
		if p.WhenDeleted == "" {
			p.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
		if p.WhenScaled == "" {
			p.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}
	}
	if o.AutoResizePVC && s.VolumeClaimUpdateStrategy.Type == "" {
		s.VolumeClaimUpdateStrategy.Type = OnDeleteVolumeClaimUpdateStrategyType
	}
	setDefault(&s.Replicas, DefaultReplicas)
	setDefault(&s.RevisionHistoryLimit, DefaultRevisionHistoryLimit)
	o.SetTemplates(&s.Template, s.VolumeClaimTemplates)
}

// SetDefaultsDaemonSet fills in what is absent (daemonset.md 5.1). It changes nothing that is
// set. The options have no effect: the template is stored as written.
func SetDefaultsDaemonSet(ds *DaemonSet, _ DefaultOptions) {
	s := &ds.Spec
	setDefault(&s.BurstReplicas, intstr.FromInt32(DefaultBurstReplicas))
	setDefault(&s.RevisionHistoryLimit, DefaultRevisionHistoryLimit)
	u := &s.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return
	}
	if u.RollingUpdate == nil {
		u.RollingUpdate = &RollingUpdateDaemonSet{}
	}
	r := u.RollingUpdate
	if r.RollingUpdateType == "" {
		r.RollingUpdateType = StandardRollingUpdateType
	}
	if r.MaxUnavailable == nil && r.MaxSurge == nil {
		r.MaxUnavailable = new(intstr.FromInt32(DefaultSetMaxUnavailable))
		r.MaxSurge = new(intstr.FromInt32(0))
	}
}

// SetTemplates runs the functions of o that are set.
func (o DefaultOptions) SetTemplates(template *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) {
	if o.Template != nil {
		o.Template(template)
	}
	if o.Claim != nil {
		for i := range claims {
			o.Claim(&claims[i])
		}
	}
}

// SetDefaultsImagePullJob fills in what is absent (images.md 2.1). The finalizer of a job
// written as v1alpha1 is not its business.
func SetDefaultsImagePullJob(job *ImagePullJob) {
	SetDefaultsImagePullJobTemplate(&job.Spec.ImagePullJobTemplate)
	if job.Spec.ImagePullPolicy == "" {
		job.Spec.ImagePullPolicy = PullIfNotPresent
	}
}

// SetDefaultsImageListPullJob fills in what is absent (images.md 5). Each child gets its image
// pull policy when it is created.
func SetDefaultsImageListPullJob(job *ImageListPullJob) {
	SetDefaultsImagePullJobTemplate(&job.Spec.ImagePullJobTemplate)
}

// SetDefaultsContainerRecreateRequest fills in what is absent and needs no look at the Pod
// (container-recreate.md 3).
func SetDefaultsContainerRecreateRequest(crr *ContainerRecreateRequest) {
	setDefault(&crr.Spec.Strategy, RecreateStrategy{})
	if s := crr.Spec.Strategy; s.FailurePolicy == "" {
		s.FailurePolicy = RecreateFailurePolicyFail
	}
}

// SetDefaultsImagePullJobTemplate fills in what ImagePullJob and ImageListPullJob have in
// common. The image pull policy is not part of that: a list leaves it to each job.
func SetDefaultsImagePullJobTemplate(t *ImagePullJobTemplate) {
	if t.CompletionPolicy.Type == "" {
		t.CompletionPolicy.Type = Always
	}
	if t.PullPolicy == nil {
		t.PullPolicy = &PullPolicy{}
	}
	setDefault(&t.PullPolicy.TimeoutSeconds, DefaultPullTimeoutSeconds)
	setDefault(&t.PullPolicy.BackoffLimit, DefaultPullBackoffLimit)
}

// SetDefaultsNodeImage fills in what is absent and sorts the tags of spec and status
// (images.md 5). now becomes the createdAt of tags that have none.
func SetDefaultsNodeImage(ni *NodeImage, now metav1.Time) {
	for _, image := range ni.Spec.Images {
		for i := range image.Tags { // the slice is shared with the map's value
			tag := &image.Tags[i]
			setDefault(&tag.CreatedAt, now)
			if tag.PullPolicy == nil {
				tag.PullPolicy = &ImageTagPullPolicy{}
			}
			setDefault(&tag.PullPolicy.TimeoutSeconds, DefaultPullTimeoutSeconds)
			setDefault(&tag.PullPolicy.BackoffLimit, DefaultPullBackoffLimit)
		}
		slices.SortStableFunc(image.Tags, func(a, b ImageTagSpec) int { return strings.Compare(a.Tag, b.Tag) })
	}
	for _, image := range ni.Status.ImageStatuses {
		slices.SortStableFunc(image.Tags, func(a, b ImageTagStatus) int { return strings.Compare(a.Tag, b.Tag) })
	}
}

// setDefault points p at a copy of value when it points nowhere.
func setDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

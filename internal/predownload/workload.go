// SPDX-License-Identifier: Apache-2.0

package predownload

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// Workload is what Decide has to know of a workload.
type Workload struct {
	Kind   schema.GroupVersionKind
	Object metav1.Object
	// Selector selects the Pods; required.
	Selector *metav1.LabelSelector
	// Over means no Pod is left to update: jobs are deleted.
	Over bool
	// OnDelete means the workload updates no Pod by itself.
	OnDelete bool
	// InPlace means the policy lets Pods be updated in place.
	InPlace bool
	// AnyChange means Pods that are recreated come back on their node, so that images are
	// worth pulling for few Pods and for any policy and change (DaemonSet).
	AnyChange bool
	// Pods is how many Pods are wanted, KeptBack how many the partition keeps at the old
	// revision, and AtOnce how many may be updated at a time.
	Pods, KeptBack, AtOnce int32
	// UpdatedReady is how many Pods are updated to the update revision and ready, and
	// MinUpdatedReady how many must be before images are pulled.
	UpdatedReady, MinUpdatedReady int32
	// Parallelism and TimeoutSeconds are those of the jobs; nil is 1 and 300.
	Parallelism    *intstr.IntOrString
	TimeoutSeconds *int32
	// Hash is what updated Pods carry in controller-revision-hash besides the name of the
	// revision; "" is the revision's label controller.kubernetes.io/hash.
	Hash string
}

// OfCloneSet describes set (inplace-update.md 13.1). Its knobs are fields.
func OfCloneSet(set *v1beta1.CloneSet, current, update *appsv1.ControllerRevision) Workload {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	w := Workload{
		Kind: v1beta1.GroupVersion.WithKind("CloneSet"), Object: set, Selector: set.Spec.Selector,
		Over:     current.Name == update.Name,
		OnDelete: set.Spec.UpdateStrategy.Type == v1beta1.OnDeleteCloneSetUpdateStrategyType || rolling == nil,
		Pods:     1,
	}
	if set.Spec.Replicas != nil {
		w.Pods = *set.Spec.Replicas
	}
	if set.Status.UpdateRevision == update.Name {
		w.UpdatedReady = set.Status.UpdatedReadyReplicas
	}
	if rolling == nil {
		return w
	}
	w.InPlace = rolling.PodUpdatePolicy == v1beta1.InPlaceIfPossiblePodUpdatePolicyType || rolling.PodUpdatePolicy == v1beta1.InPlaceOnlyPodUpdatePolicyType
	w.KeptBack = Count(rolling.Partition, 0, w.Pods, percent.Down)
	w.AtOnce = Count(rolling.MaxUnavailable, w.Pods/5, w.Pods, percent.Down)
	w.knobs(rolling.InPlaceUpdateStrategy)
	return w
}

// OfStatefulSet describes set (statefulset.md 11). Its knobs are annotations; the fields of
// inPlaceUpdateStrategy, which OpenKruise ignores, hold where there is no annotation.
func OfStatefulSet(set *v1beta1.StatefulSet, current, update *appsv1.ControllerRevision) Workload {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	w := Workload{
		Kind: v1beta1.GroupVersion.WithKind("StatefulSet"), Object: set, Selector: set.Spec.Selector,
		Over:     current.Name == update.Name,
		OnDelete: set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || rolling == nil,
		Pods:     1,
	}
	if set.Spec.Replicas != nil {
		w.Pods = *set.Spec.Replicas
	}
	if set.Status.UpdateRevision == update.Name {
		w.UpdatedReady = set.Status.UpdatedReadyReplicas
	}
	if rolling != nil {
		w.InPlace = rolling.PodUpdatePolicy == v1beta1.InPlaceIfPossiblePodUpdatePolicyType || rolling.PodUpdatePolicy == v1beta1.InPlaceOnlyPodUpdatePolicyType
		if rolling.Partition != nil {
			w.KeptBack = *rolling.Partition
		}
		w.AtOnce = Count(rolling.MaxUnavailable, 1, w.Pods, percent.Down)
		w.knobs(rolling.InPlaceUpdateStrategy)
	}
	w.annotate()
	return w
}

// Nodes is what the description of a DaemonSet needs besides the object.
type Nodes struct {
	// Desired is how many nodes should run a Pod, Updated how many run one at Hash, and
	// UpdatedReady how many of these are ready.
	Desired, Updated, UpdatedReady int32
	// Hash is the present template's.
	Hash string
}

// OfDaemonSet describes set (daemonset.md 9). Pods come back on the same node, so images
// are pulled for any kind of update; updated nodes, told by the hash, are left alone.
func OfDaemonSet(set *v1beta1.DaemonSet, n Nodes) Workload {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	w := Workload{
		Kind: v1beta1.GroupVersion.WithKind("DaemonSet"), Object: set, Selector: set.Spec.Selector,
		Over:         n.Updated == n.Desired && (set.Status.UpdateRevision == "" || set.Status.UpdateRevision == n.Hash),
		OnDelete:     set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || rolling == nil,
		AnyChange:    true,
		Pods:         n.Desired,
		UpdatedReady: n.UpdatedReady,
		Hash:         n.Hash,
	}
	if rolling != nil {
		w.KeptBack = Count(rolling.Partition, 0, n.Desired, percent.Down)
		w.AtOnce = Count(rolling.MaxUnavailable, 1, n.Desired, percent.Up)
	}
	w.annotate()
	return w
}

// Count is v out of total; fallback when it is absent or cannot be read.
func Count(v *intstr.IntOrString, fallback, total int32, r percent.Rounding) int32 {
	if v == nil {
		return fallback
	}
	n, err := percent.Of(*v, total, r)
	if err != nil {
		return fallback
	}
	return n
}

// knobs takes over the fields of s, which may be nil.
func (w *Workload) knobs(s *v1beta1.InPlaceUpdateStrategy) {
	if s == nil {
		return
	}
	w.Parallelism, w.TimeoutSeconds = s.ImagePreDownloadParallelism, s.ImagePreDownloadTimeoutSeconds
	if s.ImagePreDownloadMinUpdatedReadyPods != nil {
		w.MinUpdatedReady = *s.ImagePreDownloadMinUpdatedReadyPods
	}
}

// annotate reads the knobs from the annotations of w.Object; w.Pods must be known. What
// cannot be read is left as it is.
func (w *Workload) annotate() {
	annotations := w.Object.GetAnnotations()
	if n, err := strconv.ParseInt(annotations[v1beta1.ImagePreDownloadParallelismAnnotation], 10, 32); err == nil {
		w.Parallelism = new(intstr.FromInt32(int32(n)))
	}
	if n, err := strconv.ParseInt(annotations[v1beta1.ImagePreDownloadTimeoutSecondsAnnotation], 10, 32); err == nil {
		w.TimeoutSeconds = new(int32(n))
	}
	if text := annotations[v1beta1.ImagePreDownloadMinUpdatedReadyPodsAnnotation]; text != "" {
		v := intstr.Parse(text)
		w.MinUpdatedReady = Count(&v, w.MinUpdatedReady, w.Pods, percent.Up)
	}
}

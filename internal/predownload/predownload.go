// SPDX-License-Identifier: Apache-2.0

// Package predownload decides whether the images of a CloneSet's new revision are pulled
// on the nodes of its Pods before they are updated in place, and builds the ImagePullJobs
// that do so (inplace-update.md 13.1). It is pure.
package predownload

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/revision"
)

const (
	defaultTimeout = 300 // seconds of one pull; the API comments say 600
	timeToLive     = 600 // seconds after a job has finished
	fewReplicas    = 3   // up to so many Pods it is not worth the while
	maxName        = 253 // bytes of an object name
)

// Verdict is what is to be done.
type Verdict string

const (
	// Nothing is to be done now.
	Nothing Verdict = "Nothing"
	// CleanUp: the rollout is over; delete the jobs of the workload.
	CleanUp Verdict = "CleanUp"
	// Ignore: label the update revision with ImagePreDownloadIgnoredLabel.
	Ignore Verdict = "Ignore"
	// Create: create the jobs, then label the revision with ImagePreDownloadCreatedLabel.
	Create Verdict = "Create"
)

// Decision is the verdict, why, and the jobs to create.
type Decision struct {
	Verdict Verdict
	Why     string
	Jobs    []*v1beta1.ImagePullJob
}

// Decide decides for set, whose template is update and whose Pods are at current. Options
// are those of its in-place updates.
func Decide(set *v1beta1.CloneSet, current, update *appsv1.ControllerRevision, o inplace.Options) Decision {
	if current.Name == update.Name {
		return Decision{Verdict: CleanUp, Why: "current and update revision are equal"}
	}
	for _, label := range []string{v1beta1.ImagePreDownloadCreatedLabel, v1beta1.ImagePreDownloadIgnoredLabel} {
		if _, done := update.Labels[label]; done {
			return Decision{Verdict: Nothing, Why: "it was decided before: label " + label}
		}
	}
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if why := needless(set, rolling); why != "" {
		return Decision{Verdict: Ignore, Why: why}
	}
	if inplace.Compare(current, update, o).InPlace == nil {
		return Decision{Verdict: Ignore, Why: "the Pods cannot be updated in place"}
	}
	ready := int32(0)
	if set.Status.UpdateRevision == update.Name {
		ready = set.Status.UpdatedReadyReplicas
	}
	strategy := rolling.InPlaceUpdateStrategy
	if strategy != nil && strategy.ImagePreDownloadMinUpdatedReadyPods != nil && *strategy.ImagePreDownloadMinUpdatedReadyPods > ready {
		return Decision{Verdict: Nothing, Why: "too few Pods are updated and ready yet"}
	}
	jobs, err := jobs(set, current, update)
	if err != nil {
		return Decision{Verdict: Ignore, Why: err.Error()}
	}
	return Decision{Verdict: Create, Why: "images change", Jobs: jobs}
}

// needless says why no image is pulled beforehand; "" when there is a point in it.
func needless(set *v1beta1.CloneSet, rolling *v1beta1.RollingUpdateCloneSetStrategy) string {
	replicas := int32(1)
	if set.Spec.Replicas != nil {
		replicas = *set.Spec.Replicas
	}
	switch {
	case set.Spec.UpdateStrategy.Type == v1beta1.OnDeleteCloneSetUpdateStrategyType || rolling == nil:
		return "the update strategy is OnDelete"
	case rolling.PodUpdatePolicy != v1beta1.InPlaceIfPossiblePodUpdatePolicyType && rolling.PodUpdatePolicy != v1beta1.InPlaceOnlyPodUpdatePolicyType:
		return "the policy is ReCreate"
	case replicas <= fewReplicas:
		return "there are 3 replicas or less"
	case count(rolling.Partition, 0, replicas) == 0 && count(rolling.MaxUnavailable, replicas/5, replicas) >= replicas:
		return "all Pods are updated at once"
	}
	return ""
}

func count(v *intstr.IntOrString, fallback, replicas int32) int32 {
	if v == nil {
		return fallback
	}
	n, err := percent.Of(*v, replicas, percent.Down)
	if err != nil {
		return fallback
	}
	return n
}

// jobs are one job per app container whose image is new.
func jobs(set *v1beta1.CloneSet, current, update *appsv1.ControllerRevision) ([]*v1beta1.ImagePullJob, error) {
	was, err := revision.Template(current)
	if err != nil {
		return nil, err
	}
	template, err := revision.Template(update)
	if err != nil {
		return nil, err
	}
	old := map[string]string{}
	for _, c := range was.Spec.Containers {
		old[c.Name] = c.Image
	}
	var out []*v1beta1.ImagePullJob
	for _, c := range template.Spec.Containers {
		if old[c.Name] != c.Image {
			out = append(out, job(set, update, template, c))
		}
	}
	return out, nil
}

func job(set *v1beta1.CloneSet, update *appsv1.ControllerRevision, template *corev1.PodTemplateSpec, c corev1.Container) *v1beta1.ImagePullJob {
	labels := maps.Clone(template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	hash := update.Labels[v1beta1.RevisionHashLabel]
	labels[v1beta1.RevisionHashLabel] = hash
	selector := set.Spec.Selector.DeepCopy()
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key:      appsv1.ControllerRevisionHashLabelKey,
		Operator: metav1.LabelSelectorOpNotIn,
		Values:   []string{update.Name, hash},
	})
	j := &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name(update, c.Name),
			Namespace:       set.Namespace,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("CloneSet"))},
		},
		Spec: v1beta1.ImagePullJobSpec{
			Image: c.Image,
			ImagePullJobTemplate: v1beta1.ImagePullJobTemplate{
				PodSelector:      &v1beta1.ImagePullJobPodSelector{LabelSelector: *selector},
				Parallelism:      new(intstr.FromInt32(1)),
				PullPolicy:       &v1beta1.PullPolicy{BackoffLimit: new(int32(1)), TimeoutSeconds: new(int32(defaultTimeout))},
				CompletionPolicy: v1beta1.CompletionPolicy{Type: v1beta1.Always, TTLSecondsAfterFinished: new(int32(timeToLive))},
				SandboxConfig:    &v1beta1.SandboxConfig{Labels: maps.Clone(labels), Annotations: template.Annotations},
			},
		},
	}
	for _, s := range template.Spec.ImagePullSecrets {
		j.Spec.PullSecrets = append(j.Spec.PullSecrets, s.Name)
	}
	if s := set.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy; s != nil {
		if s.ImagePreDownloadParallelism != nil {
			j.Spec.Parallelism = new(*s.ImagePreDownloadParallelism)
		}
		if s.ImagePreDownloadTimeoutSeconds != nil {
			j.Spec.PullPolicy.TimeoutSeconds = new(*s.ImagePreDownloadTimeoutSeconds)
		}
	}
	return j
}

// name is <revision>-<container>, cut when too long, with a hash that keeps it unique.
func name(update *appsv1.ControllerRevision, container string) string {
	full := update.Name + "-" + container
	if len(full) <= maxName {
		return full
	}
	hash := revision.Hash([]byte(full), 0)
	return strings.TrimRight(full[:maxName-len(hash)-1], "-.") + "-" + hash
}

// Owned returns the jobs that the workload with this UID controls.
func Owned(jobs []v1beta1.ImagePullJob, set *v1beta1.CloneSet) []*v1beta1.ImagePullJob {
	var out []*v1beta1.ImagePullJob
	for i := range jobs {
		if ref := metav1.GetControllerOfNoCopy(&jobs[i]); ref != nil && ref.UID == set.UID {
			out = append(out, &jobs[i])
		}
	}
	return slices.Clip(out)
}

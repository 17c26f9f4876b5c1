// SPDX-License-Identifier: Apache-2.0

// Package predownload decides whether the images of a workload's new revision are pulled on
// the nodes of its Pods before they are updated, and makes the ImagePullJobs that do so
// (inplace-update.md 13.1, statefulset.md 11, daemonset.md 9). Decide is pure; Applier
// carries out what it decided.
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

// Decide decides for w, whose template is update and whose Pods are at old revisions.
// Options are those of its in-place updates.
func Decide(w Workload, old []*appsv1.ControllerRevision, update *appsv1.ControllerRevision, o inplace.Options) Decision {
	if w.Over {
		return Decision{Verdict: CleanUp, Why: "the rollout is over"}
	}
	for _, label := range []string{v1beta1.ImagePreDownloadCreatedLabel, v1beta1.ImagePreDownloadIgnoredLabel} {
		if _, done := update.Labels[label]; done {
			return Decision{Verdict: Nothing, Why: "it was decided before: label " + label}
		}
	}
	if len(old) == 0 {
		return Decision{Verdict: Nothing, Why: "there is no old revision"}
	}
	if why := needless(w); why != "" {
		return Decision{Verdict: Ignore, Why: why}
	}
	if !w.AnyChange && !slices.ContainsFunc(old, func(r *appsv1.ControllerRevision) bool {
		return inplace.Compare(r, update, o).InPlace != nil
	}) {
		return Decision{Verdict: Ignore, Why: "the Pods cannot be updated in place"}
	}
	if w.MinUpdatedReady > w.UpdatedReady {
		return Decision{Verdict: Nothing, Why: "too few Pods are updated and ready yet"}
	}
	jobs, err := jobs(w, old, update)
	if err != nil {
		return Decision{Verdict: Ignore, Why: err.Error()}
	}
	return Decision{Verdict: Create, Why: "images change", Jobs: jobs}
}

// needless says why no image is pulled beforehand; "" when there is a point in it.
func needless(w Workload) string {
	switch {
	case w.OnDelete:
		return "the update strategy is OnDelete"
	case !w.AnyChange && !w.InPlace:
		return "the policy is ReCreate"
	case !w.AnyChange && w.Pods <= fewReplicas:
		return "there are 3 replicas or less"
	case w.KeptBack == 0 && w.AtOnce >= w.Pods:
		return "all Pods are updated at once"
	}
	return ""
}

// jobs are one job per app container whose image is not that of every old revision.
func jobs(w Workload, old []*appsv1.ControllerRevision, update *appsv1.ControllerRevision) ([]*v1beta1.ImagePullJob, error) {
	template, err := revision.Template(update)
	if err != nil {
		return nil, err
	}
	images := map[string]map[string]bool{} // by container
	for _, r := range old {
		was, err := revision.Template(r)
		if err != nil {
			return nil, err
		}
		for _, c := range was.Spec.Containers {
			if images[c.Name] == nil {
				images[c.Name] = map[string]bool{}
			}
			images[c.Name][c.Image] = true
		}
	}
	var out []*v1beta1.ImagePullJob
	for _, c := range template.Spec.Containers {
		if len(images[c.Name]) != 1 || !images[c.Name][c.Image] {
			out = append(out, job(w, update, template, c))
		}
	}
	return out, nil
}

func job(w Workload, update *appsv1.ControllerRevision, template *corev1.PodTemplateSpec, c corev1.Container) *v1beta1.ImagePullJob {
	hash := w.Hash
	if hash == "" {
		hash = update.Labels[v1beta1.RevisionHashLabel]
	}
	labels := map[string]string{}
	maps.Copy(labels, template.Labels)
	labels[v1beta1.RevisionHashLabel] = hash
	selector := w.Selector.DeepCopy()
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key:      appsv1.ControllerRevisionHashLabelKey,
		Operator: metav1.LabelSelectorOpNotIn,
		Values:   []string{update.Name, hash},
	})
	j := &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name(update, c.Name),
			Namespace:       w.Object.GetNamespace(),
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Object, w.Kind)},
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
	if w.Parallelism != nil {
		j.Spec.Parallelism = new(*w.Parallelism)
	}
	if w.TimeoutSeconds != nil {
		j.Spec.PullPolicy.TimeoutSeconds = new(*w.TimeoutSeconds)
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

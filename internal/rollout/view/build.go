// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Of computes the read model of a snapshot. It is pure.
func Of(s diagnose.Snapshot, kubeContext string, now time.Time) Rollout {
	live := s.Workload.Live
	r := Rollout{
		Context: kubeContext, At: now, Hidden: s.Hidden,
		Object: Object{
			APIVersion: live.GetAPIVersion(), Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(),
			UID: string(live.GetUID()), Generation: live.GetGeneration(),
			Typed: s.Workload.Short(), Result: s.Workload.String(),
		},
	}
	if v, ok, _ := unstructured.NestedString(live.Object, s.Workload.At.Policy...); ok {
		r.Policy = v
	}
	s = diagnose.Planned(s, now)
	s.Facts.Blockers = diagnose.Blockers(s, now)
	r.Facts, r.Result = s.Facts, verdict.Of(s.Facts)
	r.revisions(s)
	plan := diagnose.PlanOf(s, now)
	for _, p := range append(slices.Clone(s.Pods), s.Inactive...) {
		r.Pods = append(r.Pods, r.pod(s, plan, p, now))
	}
	r.missing(s, plan)
	r.order()
	for _, e := range slices.Backward(s.Events) {
		r.Events = append(r.Events, Event{
			Time: diagnose.When(e), Object: e.InvolvedObject.Name, Warning: e.Type == corev1.EventTypeWarning,
			Reason: e.Reason, Message: e.Message, Count: max(1, int(e.Count)),
		})
	}
	if t := r.Facts.Partition.Target; t > 0 {
		r.Progress = min(100, 100*r.Facts.UpdatedAvailable/t)
	} else {
		r.Progress = 100
	}
	r.Remaining = remaining(r)
	r.Pulls = pulls(s)
	return r
}

// pulls counts, for each image of the live template that a job pulls, the nodes of the Pods
// that have it. Without NodeImages nothing is known.
func pulls(s diagnose.Snapshot) []pull.Coverage {
	t, err := s.Workload.Template()
	if err != nil || s.NodeImages == nil {
		return nil
	}
	wanted := map[string]bool{}
	for _, c := range slices.Concat(t.Spec.Containers, t.Spec.InitContainers) {
		wanted[c.Image] = true
	}
	var pods []corev1.Pod
	for _, p := range s.Pods {
		pods = append(pods, *p)
	}
	nodes := pull.NodesOf(pods)
	var list []pull.Coverage
	for i := range s.Jobs {
		job := &s.Jobs[i]
		if !wanted[job.Spec.Image] || len(nodes) == 0 {
			continue
		}
		wanted[job.Spec.Image] = false // one line for each image
		list = append(list, pull.Cover(job, nodes, s.NodeImages, runs(job.Spec.Image, s.Pods)))
	}
	return list
}

// runs are the nodes with a Pod that runs the image.
func runs(image string, pods []*corev1.Pod) map[string]bool {
	want, err := imageref.Parse(image)
	if err != nil {
		return nil
	}
	nodes := map[string]bool{}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			if c.Image != image {
				continue
			}
			for _, st := range p.Status.ContainerStatuses {
				// The runtime may spell the image out, or name it by its ID after an update in place.
				got, err := imageref.Parse(st.Image)
				if st.Name == c.Name && st.State.Running != nil && err == nil && got == want {
					nodes[p.Spec.NodeName] = true
				}
			}
		}
	}
	return nodes
}

func (r *Rollout) revisions(s diagnose.Snapshot) {
	list := s.Workload.Revisions(s.Stored, s.Pods)
	steps := diagnose.InPlaceSteps(s)
	for _, rev := range slices.Backward(list) {
		v := Revision{
			Name: rev.Name, Hash: rev.Hash, Number: rev.Number, Roles: rev.Roles, Pods: rev.Pods,
			Created: rev.Created, Cause: rev.Cause, Images: rev.Images, InPlace: steps[rev.Name],
		}
		if v.Roles == nil {
			v.Roles = []string{}
		}
		r.Revisions = append(r.Revisions, v)
		if rev.Has(adapter.RoleUpdate) {
			r.Update = &v
		}
		switch {
		case rev.Has(adapter.RoleUpdate):
		case rev.Has(adapter.RoleCurrent),
			s.Facts.CurrentRevision == "" && r.Current == nil && rev.Pods > 0: // the status names none
			r.Current = &v
		}
	}
}

// inPlaceState is the part of the state annotation that a row needs.
type inPlaceState struct {
	Revision        string    `json:"revision"`
	UpdateTimestamp time.Time `json:"updateTimestamp"`
}

func (r *Rollout) pod(s diagnose.Snapshot, plan diagnose.Plan, p *corev1.Pod, now time.Time) Pod {
	hash := revision.ShortHash(p.Labels[appsv1.ControllerRevisionHashLabelKey])
	v := Pod{
		Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Hash: hash,
		Updated: hash != "" && revision.SameRevision(hash, s.Facts.UpdateRevision),
		How:     HowNone, Restarts: diagnose.Restarts(p), Created: p.CreationTimestamp.Time,
	}
	for _, rev := range s.Stored {
		if revision.SameRevision(hash, rev.Name) {
			v.Number = rev.Revision
		}
	}
	for _, c := range p.Spec.Containers {
		v.Images = append(v.Images, c.Image)
	}
	v.State, v.Since = diagnose.State(p)
	v.Ready = diagnose.PodReady(p)
	v.Available = diagnose.Active(p) && diagnose.Available(p, minReady(s), now)
	if v.Updated {
		v.How = how(p, r.updateCreated(), hash)
	}
	if h, ok := plan.Held[p.Name]; ok {
		v.Held, v.HeldText = h.Why, h.Detail
	}
	if f, ok := diagnose.Pod(s, p, now).First(); ok {
		v.Why, v.WhyText = f.Code, f.Message
	}
	v.Group = group(v, p, now)
	return v
}

func minReady(s diagnose.Snapshot) time.Duration {
	n, _, _ := unstructured.NestedInt64(s.Workload.Live.Object, "spec", "minReadySeconds")
	return time.Duration(n) * time.Second
}

func (r *Rollout) updateCreated() time.Time {
	if r.Update == nil {
		return time.Time{}
	}
	return r.Update.Created
}

// how tells an in-place update by the record it leaves on the Pod. A Pod without it was
// made at the revision: as a replacement when the revision is not the first.
func how(p *corev1.Pod, revisionCreated time.Time, hash string) string {
	raw := p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]
	if raw == "" {
		raw = p.Annotations[v1beta1.InPlaceUpdateStateAnnotationOld]
	}
	var st inPlaceState
	if raw != "" && json.Unmarshal([]byte(raw), &st) == nil && revision.SameRevision(hash, st.Revision) {
		return HowInPlace
	}
	if !revisionCreated.IsZero() && p.CreationTimestamp.Time.Before(revisionCreated) {
		return HowInPlace
	}
	return HowNew
}

func group(v Pod, p *corev1.Pod, now time.Time) Group {
	switch {
	case p.DeletionTimestamp != nil || v.State == string(v1beta1.LifecyclePreparingDelete):
		return GroupSurplus
	case diagnose.Failing(p, now):
		return GroupFailing
	case !v.Updated && (v.State == "Updating" || v.State == string(v1beta1.LifecyclePreparingUpdate) || hasKey(p.Labels, v1beta1.SpecifiedDeleteLabel)):
		return GroupUpdating
	case !v.Updated:
		return GroupKept
	case !v.Available:
		return GroupUpdating
	}
	return GroupUpdated
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }

var groupRank = map[Group]int{GroupFailing: 0, GroupMissing: 1, GroupUpdating: 2, GroupUpdated: 3, GroupKept: 4, GroupSurplus: 5}

// order sorts the rows, counts the batches and finds the start of the rollout.
func (r *Rollout) order() {
	slices.SortStableFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(groupRank[a.Group], groupRank[b.Group]), byOrdinal(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	var started []time.Time
	for _, p := range r.Pods {
		if p.Updated && p.How != HowNone && !p.Since.IsZero() {
			started = append(started, p.Since)
		}
	}
	slices.SortFunc(started, time.Time.Compare)
	if len(started) > 0 && r.Update != nil && len(r.Revisions) > 1 {
		r.Started = r.Update.Created
	}
	window := max(1, r.Facts.MaxUnavailable)
	for i := range r.Pods {
		if at := slices.Index(started, r.Pods[i].Since); at >= 0 && r.Pods[i].Updated {
			r.Pods[i].Batch = at/window + 1
		}
	}
	// The batch that moved last is what one looks at, so it comes first in its group.
	slices.SortStableFunc(r.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(groupRank[a.Group], groupRank[b.Group]), cmp.Compare(b.Batch, a.Batch))
	})
}

// byOrdinal compares names, and the numbers at their end as numbers: db-2 before db-10.
func byOrdinal(a, b string) int {
	pa, na, oka := cutNumber(a)
	pb, nb, okb := cutNumber(b)
	if oka && okb && pa == pb {
		return cmp.Compare(na, nb)
	}
	return cmp.Compare(a, b)
}

func cutNumber(name string) (prefix string, n int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name, 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	return name[:i], n, err == nil
}

// missing adds a row for each Pod that is not there, with the rule that keeps it from
// being made, if there is one.
func (r *Rollout) missing(s diagnose.Snapshot, plan diagnose.Plan) {
	add := func(name, state string, h diagnose.Hold) {
		v := Pod{Name: name, UID: "missing/" + name, Group: GroupMissing, How: HowNone, State: state, Held: h.Why, HeldText: h.Detail}
		if s.Workload.Kind == target.DaemonSet {
			v.Name, v.Node = "", name
		}
		r.Pods = append(r.Pods, v)
	}
	for _, h := range plan.Making {
		add(h.Pod, "Next", diagnose.Hold{}) // nothing holds it
	}
	for _, name := range slices.Sorted(maps.Keys(plan.Missing)) {
		add(name, "Waiting", plan.Missing[name])
	}
}

// remaining extrapolates the last five completions; it needs two Pods and 20 seconds.
func remaining(r Rollout) time.Duration {
	if r.Result.Verdict != verdict.Progressing {
		return 0
	}
	var done []time.Time
	for _, p := range r.Pods {
		if p.Group == GroupUpdated && p.Since.After(r.Started) && !r.Started.IsZero() {
			done = append(done, p.Since)
		}
	}
	slices.SortFunc(done, time.Time.Compare)
	done = done[max(0, len(done)-5):]
	left := r.Facts.Partition.Target - r.Facts.UpdatedAvailable
	if len(done) < 2 || left <= 0 || r.At.Sub(r.Started) < 20*time.Second {
		return 0
	}
	each := done[len(done)-1].Sub(done[0]) / time.Duration(len(done)-1)
	return each * time.Duration(left)
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/podready"
	"github.com/kruisectl/kruisectl/internal/revision"
)

const preparingDelete = v1beta1.LifecyclePreparingDelete

// model is a cluster in which everything succeeds. Objects are copied before they change.
type model struct {
	snapshot Snapshot
	now      time.Time
	round    time.Duration
	// trusted are Pods that become ready because the model itself brought them forward.
	trusted map[string]bool
}

func newModel(s *Snapshot, now time.Time) *model {
	m := &model{snapshot: *s, now: now, trusted: map[string]bool{}}
	m.round = time.Duration(MinReadySeconds(s.Set))*time.Second + time.Second
	m.snapshot.Set = s.Set.DeepCopy()
	m.snapshot.Pods, m.snapshot.Claims = nil, slices.Clone(s.Claims)
	for _, p := range s.Pods {
		if p.DeletionTimestamp != nil {
			continue // it is gone by the time anything happens
		}
		m.snapshot.Pods = append(m.snapshot.Pods, p)
		if revision.SameRevision(RevisionOf(p), s.Update.Name) && !IsTerminal(p) {
			m.trusted[p.Name] = true
		}
	}
	for i, c := range m.snapshot.Claims {
		asks, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
		if has.Cmp(asks) < 0 {
			m.snapshot.Claims[i] = c.DeepCopy()
			grown(m.snapshot.Claims[i])
		}
	}
	m.settle()
	return m
}

// apply carries the plan out and lets time pass; false when there was nothing to do, now
// or later.
func (m *model) apply(plan *Plan) bool {
	if plan.Idle() {
		m.now = m.now.Add(plan.Requeue)
		return plan.Requeue > 0
	}
	byName := map[string]int{}
	for i, p := range m.snapshot.Pods {
		byName[p.Name] = i
	}
	gone := map[string]bool{}
	for _, s := range slices.Concat(plan.Refresh, plan.Scale, plan.Update) {
		i, ok := byName[s.Pod]
		if !ok {
			continue
		}
		if s.Do == Delete {
			gone[s.Pod] = true
			continue
		}
		pod := m.snapshot.Pods[i].DeepCopy()
		m.do(pod, s)
		m.snapshot.Pods[i] = pod
	}
	m.snapshot.Pods = slices.DeleteFunc(slices.Clone(m.snapshot.Pods), func(p *corev1.Pod) bool { return gone[p.Name] })
	m.claims(plan.Claims)
	for _, c := range plan.Create {
		m.create(c)
	}
	m.settle()
	m.now = m.now.Add(m.round)
	m.snapshot.Set.Status = Status(m.snapshot, m.now)
	if m.snapshot.Set.Status.CurrentRevision == m.snapshot.Update.Name {
		m.snapshot.Current = m.snapshot.Update
	}
	return true
}

func (m *model) do(pod *corev1.Pod, s Step) {
	if s.Transition.Rule != "" {
		s.Transition.Apply(pod, m.now)
	}
	switch s.Do {
	case UpdateInPlace:
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, s.Target)
		m.trusted[pod.Name] = true
	case Refresh:
		if m.trusted[pod.Name] {
			podready.SetCondition(pod, corev1.PodCondition{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionTrue}, m.now)
		}
	case Repair:
		Identity(pod, s.Ordinal, m.snapshot.Gates)
	}
}

// claims carries the steps out, and lets volumes grow at once.
func (m *model) claims(steps []ClaimStep) {
	pods := map[string]*corev1.Pod{}
	for _, p := range m.snapshot.Pods {
		pods[p.Name] = p
	}
	for _, s := range steps {
		i := slices.IndexFunc(m.snapshot.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == s.Claim })
		if s.Do == CreateClaim {
			m.claim(s.Template, s.Ordinal)
			continue
		}
		if i < 0 || pods[s.Pod] == nil {
			continue
		}
		claim := m.snapshot.Claims[i].DeepCopy()
		s.Apply(claim, m.snapshot.Set, pods[s.Pod])
		grown(claim)
		m.snapshot.Claims[i] = claim
	}
}

func grown(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Capacity = maps.Clone(claim.Spec.Resources.Requests)
	claim.Status.Conditions = nil
}

func (m *model) claim(template string, n int) {
	if t := ClaimTemplate(m.snapshot.Set, template); t != nil {
		claim := NewClaim(m.snapshot.Set, t, n)
		grown(claim)
		m.snapshot.Claims = append(m.snapshot.Claims, claim)
	}
}

func (m *model) create(c Creation) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: c.Pod, Namespace: m.snapshot.Set.Namespace, UID: types.UID("new-" + c.Pod),
		Labels: maps.Clone(m.snapshot.Set.Spec.Template.Labels),
	}}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, c.Revision)
	Identity(pod, c.Ordinal, m.snapshot.Gates)
	lifecycle.SetState(pod, c.State, m.now)
	pod.Spec.NodeName = "node"
	for _, t := range m.snapshot.Set.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: ClaimName(t.Name, m.snapshot.Set.Name, c.Ordinal)},
		}})
	}
	for _, t := range c.Claims {
		m.claim(t, c.Ordinal)
	}
	m.trusted[pod.Name] = true
	m.snapshot.Pods = append(m.snapshot.Pods, pod)
}

// settle lets everybody else do their part: owners of hooks let go of Pods that wait for
// them and come back afterwards, and trusted Pods become ready.
func (m *model) settle() {
	lc := m.snapshot.Set.Spec.Lifecycle
	for i, p := range m.snapshot.Pods {
		state := lifecycle.State(p)
		waits := state == v1beta1.LifecyclePreparingUpdate || state == preparingDelete
		settled := IsReady(p) && state == v1beta1.LifecycleNormal && !inProgress(p)
		if settled || !m.trusted[p.Name] && !waits {
			continue
		}
		p = p.DeepCopy()
		switch {
		case state == v1beta1.LifecyclePreparingUpdate:
			if lc != nil {
				lifecycle.Unhook(lc.InPlaceUpdate, p)
			}
		case state == preparingDelete:
			if lc != nil {
				lifecycle.Unhook(lc.PreDelete, p)
			}
		default:
			if lc != nil {
				lifecycle.Rehook(lc.InPlaceUpdate, p)
			}
			m.settled(p)
		}
		m.snapshot.Pods[i] = p
	}
}

func inProgress(p *corev1.Pod) bool {
	if c := podready.Condition(p, v1beta1.InPlaceUpdateReady); c != nil && c.Status == corev1.ConditionFalse {
		return true
	}
	_, state := p.Annotations[v1beta1.InPlaceUpdateStateAnnotation]
	_, grace := p.Annotations[v1beta1.InPlaceUpdateGraceAnnotation]
	return state || grace
}

// settled makes a Pod what it is when nothing is left to do: Normal and ready.
func (m *model) settled(p *corev1.Pod) {
	p.Annotations = maps.Clone(p.Annotations)
	for _, key := range []string{
		v1beta1.InPlaceUpdateStateAnnotation, v1beta1.InPlaceUpdateStateAnnotationOld,
		v1beta1.InPlaceUpdateGraceAnnotation, v1beta1.InPlaceUpdateGraceAnnotationOld,
	} {
		delete(p.Annotations, key)
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, v1beta1.LifecycleStateLabel, string(v1beta1.LifecycleNormal))
	since := metav1.NewTime(m.now)
	if at, ready := readySince(p); ready {
		since = metav1.NewTime(at)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: v1beta1.InPlaceUpdateReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
	}
}

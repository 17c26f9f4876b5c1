// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/lifecycle"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/revision"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/slowstart"
)

// create makes the Pods that the plan asks for, with their claims. The first batch with a
// failure is the last one.
func (r *Reconciler) create(ctx context.Context, o *overlay, c plan.Creation) error {
	total := c.Total()
	if total == 0 {
		return nil
	}
	makings := map[*appsv1.ControllerRevision]making{}
	for _, rev := range []*appsv1.ControllerRevision{o.snap.Current, o.snap.Update} {
		m, err := makingOf(o.snap.Set, rev)
		if err != nil {
			return err
		}
		makings[rev] = m
	}
	ids := r.instanceIDs(o.snap, c.IDs, total)
	pods, claims := make([]*corev1.Pod, total), make([][]*corev1.PersistentVolumeClaim, total)
	for i := range pods {
		rev := o.snap.Update
		if i < c.Current {
			rev = o.snap.Current
		}
		pods[i] = newPod(o.snap, makings[rev], rev, ids[i], r.clock.Now())
		claims[i] = newClaims(o.snap, makings[rev], ids[i])
	}
	err := errors.Join(slowstart.Run(total, r.parallel, slowstart.StopAtFirst, func(i int) error {
		return r.createPod(ctx, o, pods[i], claims[i])
	})...)
	if owned.NamespaceEnds(err) {
		log.FromContext(ctx).V(1).Info("The namespace is being deleted, no Pod is created", "cloneSet", klog.KObj(o.snap.Set))
		return nil
	}
	return err
}

// instanceIDs completes ids to total with random ones that no Pod and no claim has.
func (r *Reconciler) instanceIDs(snap *snapshot, ids []string, total int) []string {
	used := map[string]bool{}
	for name := range snap.byName() {
		used[strings.TrimPrefix(name, snap.Set.Name+"-")] = true
	}
	for _, c := range snap.Claims {
		used[c.Labels[v1beta1.InstanceIDLabel]] = true
	}
	ids = slices.Clone(ids)
	for len(ids) < total {
		if id := r.newID(); !used[id] {
			used[id] = true
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// createPod makes the claims of the Pod, then the Pod.
func (r *Reconciler) createPod(ctx context.Context, o *overlay, pod *corev1.Pod, claims []*corev1.PersistentVolumeClaim) error {
	for _, claim := range claims {
		if slices.ContainsFunc(o.snap.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == claim.Name }) {
			continue
		}
		if err := r.writer.Create(ctx, o.snap.key, claim); owned.NamespaceEnds(err) {
			return err
		} else if err != nil {
			r.event(o.snap, events.Warning, events.CreateFailed, "failed to create pvc: %v, pvc: %s", err, claim.Name)
			return fmt.Errorf("creating PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	if err := r.writer.Create(ctx, o.snap.key, pod); owned.NamespaceEnds(err) {
		return err
	} else if err != nil {
		r.event(o.snap, events.Warning, events.CreateFailed, "failed to create pod: %v, pod: %s", err, pod.Name)
		return fmt.Errorf("creating Pod %s: %w", pod.Name, err)
	}
	o.add(pod)
	r.event(o.snap, events.Normal, events.Created, "succeed to create pod %s", pod.Name)
	return nil
}

// making is what Pods of one revision are made of.
type making struct {
	template *corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
}

// makingOf takes the claim templates of the present spec, which are no part of a revision.
// One that the revision's containers mount and the spec has no more comes from the revision:
// in OpenKruise such Pods fail validation for ever.
func makingOf(set *v1beta1.CloneSet, rev *appsv1.ControllerRevision) (making, error) {
	template, err := revision.Template(rev)
	if err != nil {
		return making{}, err
	}
	m := making{template: template, claims: slices.Clip(set.Spec.VolumeClaimTemplates)}
	has := map[string]bool{}
	for _, v := range template.Spec.Volumes {
		has[v.Name] = true
	}
	for _, c := range m.claims {
		has[c.Name] = true
	}
	missing := map[string]bool{}
	for _, list := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for _, c := range list {
			for _, v := range c.VolumeMounts {
				missing[v.Name] = !has[v.Name]
			}
			for _, v := range c.VolumeDevices {
				missing[v.Name] = !has[v.Name]
			}
		}
	}
	stored, err := revision.ClaimTemplates(rev)
	if err != nil {
		return making{}, err
	}
	for _, c := range stored {
		if missing[c.Name] {
			m.claims = append(m.claims, c)
		}
	}
	return m, nil
}

// newClaims are the claims of the Pod with this instance id.
func newClaims(snap *snapshot, m making, id string) []*corev1.PersistentVolumeClaim {
	set := snap.Set
	var out []*corev1.PersistentVolumeClaim
	for i := range m.claims {
		template := &m.claims[i]
		labels := map[string]string{}
		maps.Copy(labels, template.Labels)
		maps.Copy(labels, set.Spec.Selector.MatchLabels)
		labels[v1beta1.InstanceIDLabel] = id
		out = append(out, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name:            claimName(template.Name, set.Name, id),
				Namespace:       set.Namespace,
				Labels:          labels,
				Annotations:     maps.Clone(template.Annotations),
				OwnerReferences: []metav1.OwnerReference{ownerRef(set)},
			},
			Spec: *template.Spec.DeepCopy(),
		})
	}
	return out
}

func claimName(template, set, id string) string { return template + "-" + set + "-" + id }

func ownerRef(set *v1beta1.CloneSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("CloneSet"))
}

// newPod is the Pod of a revision (cloneset.md 10.3), as it is sent to the API server.
func newPod(snap *snapshot, m making, rev *appsv1.ControllerRevision, id string, now time.Time) *corev1.Pod {
	set := snap.Set
	template := m.template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            set.Name + "-" + id,
			GenerateName:    set.Name + "-",
			Namespace:       set.Namespace,
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			Finalizers:      template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ownerRef(set)},
		},
		Spec: template.Spec,
	}
	plan.SetRevision(pod, rev.Name, snap.Gates.ShortHash)
	pod.Labels[v1beta1.InstanceIDLabel] = id
	lifecycle.SetState(pod, v1beta1.LifecyclePreparingNormal, now)
	gate := corev1.PodReadinessGate{ConditionType: v1beta1.InPlaceUpdateReady}
	if !slices.Contains(pod.Spec.ReadinessGates, gate) {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, gate)
	}
	for i := range m.claims {
		name := m.claims[i].Name
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	}
	for i := range m.claims {
		name := m.claims[i].Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: claimName(name, set.Name, id),
			}},
		})
	}
	return pod
}

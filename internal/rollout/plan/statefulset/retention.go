// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settleClaims gives claims of existing Pods the owners that the retention policy wants,
// and makes those that a pending Pod lacks (statefulset.md 9 and 7.7, step 3). Claims of
// ordinals without a Pod are never touched.
func (d *decider) settleClaims() {
	templates := d.s.Set.Spec.VolumeClaimTemplates
	for _, v := range d.pods {
		// The claims of a Pod in range that is going stay doomed if they are: its successor
		// waits for new ones.
		owns := d.s.Gates.AutoDeletePVC && (!v.inRange || !v.terminating && !v.terminal)
		pending := v.pod.Status.Phase == corev1.PodPending && !v.terminating
		for i := range templates {
			name := ClaimName(templates[i].Name, d.s.Set.Name, v.ordinal)
			step := ClaimStep{Claim: name, Template: templates[i].Name, Pod: v.name, Ordinal: v.ordinal}
			switch claim := d.claims[name]; {
			case claim == nil && pending && mounts(v.pod, templates[i].Name, name):
				step.Do, step.Why, step.Detail = CreateClaim, ReasonClaimMissing, "the Pod is pending and its claim is gone"
				d.plan.Claims = append(d.plan.Claims, step)
			case claim != nil && claim.DeletionTimestamp == nil && owns:
				d.own(v, claim, step)
			}
		}
	}
}

func (d *decider) own(v *view, claim *corev1.PersistentVolumeClaim, step ClaimStep) {
	step.SetOwns, step.PodOwns = Retention(d.s.Set, v.inRange)
	if slices.EqualFunc(owners(claim, d.s.Set, v.pod, step.SetOwns, step.PodOwns), claim.OwnerReferences,
		func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }) {
		return
	}
	v.owning = true
	step.Do, step.Why = OwnClaim, ReasonRetention
	switch {
	case step.PodOwns:
		step.Detail = "the claim goes with its Pod, which is out of range (whenScaled Delete)"
	case step.SetOwns:
		step.Detail = "the claim goes with the StatefulSet (whenDeleted Delete)"
	default:
		step.Detail = "the claim is kept"
	}
	d.plan.Claims = append(d.plan.Claims, step)
}

// create makes the Pod of a missing ordinal, unless a claim of it is going.
func (d *decider) create(v *view) {
	c := Creation{Pod: v.name, Ordinal: v.ordinal, Revision: d.s.Current.Name, State: d.newState(v.updated)}
	c.Detail = "the ordinal has no Pod; the partition keeps it at the current revision"
	if v.updated {
		c.Revision, c.Detail = d.s.Update.Name, "the ordinal has no Pod"
	}
	templates := d.s.Set.Spec.VolumeClaimTemplates
	for i := range templates {
		name := ClaimName(templates[i].Name, d.s.Set.Name, v.ordinal)
		claim := d.claims[name]
		switch {
		case claim == nil:
			c.Claims = append(c.Claims, templates[i].Name)
		case claim.DeletionTimestamp != nil:
			d.hold(v, HeldClaimTerminating, "claim %s is being deleted; the Pod waits for a new one", name)
			return
		case d.s.Gates.AutoDeletePVC && deletesScaled(d.s.Set) && slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return namesPod(r, v.name) }):
			d.hold(v, HeldStaleClaim, "claim %s belongs to the Pod that was scaled in before and goes with it; the Pod waits for a new one", name)
			return
		}
	}
	v.touched = true
	d.plan.Create = append(d.plan.Create, c)
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// restartAfter is how long a claim must have been waiting for its file system to grow
// before its Pod is started anew. Most drivers let it grow in the running Pod, and have
// the same condition until the kubelet has done so.
const restartAfter = 3 * time.Minute

// growth is a claim that asks for less than its template.
type growth struct{ claim, template *corev1.PersistentVolumeClaim }

// inspectClaims finds out how the claims of a Pod in range stand to their templates
// (statefulset.md 10.1). Missing and terminating claims are ignored.
func (d *decider) inspectClaims(v *view) {
	templates := d.s.Set.Spec.VolumeClaimTemplates
	v.completed = true
	var pendingFor time.Duration
	for i := range templates {
		claim := d.claims[ClaimName(templates[i].Name, d.s.Set.Name, v.ordinal)]
		if claim == nil || claim.DeletionTimestamp != nil {
			continue
		}
		f := fitOf(claim, &templates[i])
		v.completed = v.completed && f.completed()
		v.expanding = v.expanding || !f.ready
		if f.pending != nil && !f.ready {
			pendingFor = max(pendingFor, d.now.Sub(f.pending.LastTransitionTime.Time), 1)
		}
		switch {
		case !f.sameShape:
			d.forbid(v, HeldClaimShape, fmt.Sprintf("access modes or storage class of claim %s are not those of template %s, and no claim can change them", claim.Name, templates[i].Name))
		case !f.enough:
			v.growing = append(v.growing, growth{claim, &templates[i]})
			if why := d.notExpandable(claim); why != "" {
				d.forbid(v, HeldNotExpandable, fmt.Sprintf("claim %s asks for less than template %s, and %s", claim.Name, templates[i].Name, why))
			}
		}
	}
	if v.completed && pendingFor > 0 && v.updated && v.lacks == "" {
		// Only sizes have changed, so nothing else starts the Pod anew.
		v.restart = pendingFor >= restartAfter
		if !v.restart {
			d.plan.wish(restartAfter - pendingFor)
		}
	}
}

func (d *decider) forbid(v *view, why Reason, detail string) {
	if v.forbidden == nil {
		v.forbidden = &Step{Why: why, Detail: detail}
	}
}

// notExpandable says why a claim cannot grow; empty when it can. A claim that names no
// storage class is left to the API server.
func (d *decider) notExpandable(claim *corev1.PersistentVolumeClaim) string {
	name := claim.Spec.StorageClassName
	if name == nil || *name == "" {
		return ""
	}
	class := d.s.StorageClasses[*name]
	switch {
	case class == nil:
		return fmt.Sprintf("its storage class %s does not exist", *name)
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return fmt.Sprintf("its storage class %s does not allow expansion", *name)
	}
	return ""
}

// expandClaims brings the claims of a candidate in line (statefulset.md 10.2). It reports
// whether they are, so that the Pod may be updated.
func (d *decider) expandClaims(v *view) bool {
	switch {
	case !d.expands:
		return true
	case v.forbidden != nil:
		d.holdStep(v, *v.forbidden)
		return false
	case v.completed:
		return true
	case len(v.growing) > 0 && v.owning:
		d.hold(v, HeldClaimOwners, "owners of its claims are written first")
		return false
	}
	for _, g := range v.growing {
		asks, wants := g.claim.Spec.Resources.Requests[corev1.ResourceStorage], g.template.Spec.Resources.Requests[corev1.ResourceStorage]
		d.plan.Claims = append(d.plan.Claims, ClaimStep{
			Claim: g.claim.Name, Template: g.template.Name, Pod: v.name, Ordinal: v.ordinal,
			Do: ExpandClaim, Why: ReasonExpand, Resources: g.template.Spec.Resources,
			Detail: fmt.Sprintf("the claim asks for %s and its template for %s", asks.String(), wants.String()),
		})
	}
	d.setExpanding(v)
	d.hold(v, HeldExpanding, "its claims are being expanded")
	return false
}

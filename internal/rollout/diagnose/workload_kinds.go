// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// shownNames bounds the names in one sentence.
const shownNames = 5

// inPlaceOnly are the Pods that the policy forbids to update.
func inPlaceOnly(plan Plan) (list []Hold) {
	for _, h := range plan.Blocked {
		if h.Why == string(statefulset.HeldInPlaceOnly) {
			list = append(list, h)
		}
	}
	return list
}

// claims are volume claims that cannot follow their templates: no waiting ends that.
func claims(s Snapshot, plan Plan) (list []verdict.Finding) {
	var names []string
	detail := ""
	for _, h := range plan.Blocked {
		switch h.Why {
		case string(statefulset.HeldClaimShape), string(statefulset.HeldNotExpandable):
			names = append(names, h.Pod)
			if detail == "" {
				detail = h.Detail
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []verdict.Finding{finding(s, "W19", verdict.Blocker, time.Time{}, "kubectl get persistentvolumeclaims -n "+s.Workload.Live.GetNamespace(),
		fmt.Sprintf("claims of %s cannot be brought in line with their template: %s", pods(len(names)), detail), "pods", enumerate.Some(names, shownNames))}
}

// brokenInOrder finds what stops a StatefulSet that keeps the order: a Pod of an older
// revision that cannot run, which the controller waits for and never replaces.
func brokenInOrder(s Snapshot, now time.Time) []verdict.Finding {
	if !s.Workload.Ordered() {
		return nil
	}
	for _, p := range s.Pods {
		c := &podCase{s: s, p: p, now: now}
		if s.Facts.UpdateRevision == "" || c.atUpdate() || !Failing(p, now) {
			continue
		}
		return []verdict.Finding{finding(s, "W17", verdict.Blocker, time.Time{}, "kubectl delete pod "+p.Name+" -n "+p.Namespace,
			fmt.Sprintf("pod %s is at an older revision and cannot run; a set that keeps the order (OrderedReady) waits for it and does not replace it", p.Name),
			"spec.podManagementPolicy", "OrderedReady", "pod", p.Name)}
	}
	return nil
}

// ordinals explains names that look as if Pods were missing.
func (c *workloadCase) ordinals() {
	if c.s.Workload.Kind != target.StatefulSet {
		return
	}
	set, err := adapter.StatefulSet(c.s.Workload.Live)
	if err != nil {
		return
	}
	r := statefulset.Ordinals(set, c.s.Gates.StatefulSet)
	if r.Count() == 0 || r.End() == r.Count() { // 0 to replicas-1, as anybody expects
		return
	}
	var reserved []string
	for _, o := range set.Spec.ReserveOrdinals {
		reserved = append(reserved, o.String())
	}
	evidence := []string{}
	if len(reserved) > 0 {
		evidence = append(evidence, "spec.reserveOrdinals", strings.Join(reserved, ", "))
	}
	if set.Spec.Ordinals != nil {
		evidence = append(evidence, "spec.ordinals.start", fmt.Sprint(set.Spec.Ordinals.Start))
	}
	c.add("W18", verdict.Note, time.Time{}, "", fmt.Sprintf("its %s are %s-%d to %s-%d, with gaps where ordinals are reserved",
		pods(r.Count()), set.Name, r.At(0), set.Name, r.End()-1), evidence...)
}

// missing explains Pods that are not there: ordinals that wait for their turn, nodes
// without a Pod.
func (c *workloadCase) missing() {
	what, code := "pods", "W05"
	if c.s.Workload.Kind == target.DaemonSet {
		what, code = "nodes without a pod", "W20"
	}
	by := map[string][]string{}
	detail := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.plan.Missing)) {
		h := c.plan.Missing[name]
		by[h.Why] = append(by[h.Why], name)
		if detail[h.Why] == "" {
			detail[h.Why] = h.Detail
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		if c.plan.CreateLimit != nil && why == string(statefulset.HeldScaleLimit) {
			continue // W05 says it already
		}
		c.add(code, verdict.Cause, time.Time{}, "", fmt.Sprintf("%s that wait (%s): %s; %s", what, why, enumerate.Some(by[why], shownNames), detail[why]), "held", why, "count", fmt.Sprint(len(by[why])))
	}
}

// nodes counts the nodes that take no Pod of a DaemonSet, and the Pods that are where they
// should not be.
func (c *workloadCase) nodes() {
	if c.s.Workload.Kind != target.DaemonSet || !c.s.AllNodes {
		return
	}
	set, err := adapter.DaemonSet(c.s.Workload.Live)
	if err != nil {
		return
	}
	eligible := daemonset.EligibilityOf(&set.Spec.Template)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.s.Nodes)) {
		if run, _ := eligible.On(c.s.Nodes[name]); !run {
			out = append(out, name)
		}
	}
	if len(out) > 0 {
		c.add("W20", verdict.Note, time.Time{}, "", fmt.Sprintf("%d of %d nodes take no pod: node selector, affinity or a taint that is not tolerated: %s",
			len(out), len(c.s.Nodes), enumerate.Some(out, shownNames)), "nodes", fmt.Sprint(len(out)))
	}
	var stray []string
	for _, p := range c.s.Pods {
		if at := daemonset.TargetNode(p); at != "" && c.s.Nodes[at] == nil {
			stray = append(stray, p.Name)
		}
	}
	if len(stray) > 0 {
		c.add("W20", verdict.Cause, time.Time{}, "why pod/"+stray[0], fmt.Sprintf("%s bound for nodes that do not exist: %s", pods(len(stray)), enumerate.Some(stray, shownNames)), "pods", fmt.Sprint(len(stray)))
	}
}

// SPDX-License-Identifier: Apache-2.0

package updatesort

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Deletion is what the order of deletion depends on besides the Pods.
type Deletion struct {
	// Available tells whether a Pod is available; its rules are the workload's.
	Available func(*corev1.Pod) bool
	// Among are all Pods of the workload, the candidates too; nil: the candidates are all.
	// How crowded a node or a zone is, is counted over all of them: OpenKruise counts only
	// the candidates, which are those of one revision, and so empties zones.
	Among []*corev1.Pod
	// Constraints are the topologySpreadConstraints of the Pod template.
	Constraints []corev1.TopologySpreadConstraint
	// NodeLabels are the labels of nodes by name. A node without an entry is left out of
	// the topology. Only read when Constraints name another key than the hostname.
	NodeLabels map[string]map[string]string
}

// ranked is a Pod with its facts and the rank among its neighbours; a higher rank goes first.
type ranked struct {
	pod *corev1.Pod
	facts
	rank float64
	// candidate Pods come before the others in a group, so that theirs are the ranks that
	// say how crowded it is.
	candidate bool
}

// ForDeletion returns candidates in the order of their deletion (cloneset.md 10.5).
func ForDeletion(candidates []*corev1.Pod, d Deletion) []*corev1.Pod {
	var all []*ranked
	byPod := make(map[*corev1.Pod]*ranked, max(len(candidates), len(d.Among)))
	for _, p := range slices.Concat(d.Among, candidates) {
		if byPod[p] != nil {
			continue
		}
		r := &ranked{pod: p, facts: factsOf(p)}
		r.deletionCost = deletionCost(p)
		r.available = d.Available == nil || d.Available(p)
		byPod[p], all = r, append(all, r)
	}
	for _, p := range candidates {
		byPod[p].candidate = true
	}
	ranks := rankPerNode(all)
	if len(d.Constraints) > 0 {
		sameNode := ranks
		ranks = map[*corev1.Pod]float64{}
		for i := range d.Constraints {
			addTopologyRank(ranks, all, d.Constraints[i].TopologyKey, d.NodeLabels, sameNode)
		}
	}
	list := make([]*ranked, len(candidates))
	for i, p := range candidates {
		list[i] = byPod[p]
		list[i].rank = ranks[p]
	}
	slices.SortStableFunc(list, func(a, b *ranked) int { return compareDeletion(a, b, a.rank, b.rank, true) })
	out := make([]*corev1.Pod, len(list))
	for i, r := range list {
		out[i] = r.pod
	}
	return out
}

// compareDeletion is rules 1 to 8. Ranks are arguments because ranking itself sorts by
// these rules, with other ranks and without availability.
func compareDeletion(a, b *ranked, rankA, rankB float64, availability bool) int {
	if c := cmp.Or(falseFirst(a.scheduled, b.scheduled), cmp.Compare(a.phase, b.phase)); c != 0 {
		return c
	}
	if availability {
		if c := falseFirst(a.available, b.available); c != 0 {
			return c
		}
	}
	if c := cmp.Or(falseFirst(a.ready, b.ready), cmp.Compare(a.deletionCost, b.deletionCost), cmp.Compare(rankB, rankA)); c != 0 {
		return c
	}
	if a.ready && b.ready {
		if c := youngerFirst(a.readySince, b.readySince); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(b.restarts, a.restarts), youngerFirst(a.created, b.created))
}

// groupBy sorts each group by the rules without rank from outside, and returns the groups
// in the order of their keys. Pods with an empty key are left out.
func groupBy(list []*ranked, key func(*ranked) string, rank map[*corev1.Pod]float64) [][]*ranked {
	groups := map[string][]*ranked{}
	var keys []string
	for _, r := range list {
		k := key(r)
		if k == "" {
			continue
		}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], r)
	}
	slices.SortFunc(keys, strings.Compare)
	out := make([][]*ranked, len(keys))
	for i, k := range keys {
		out[i] = groups[k]
		slices.SortStableFunc(out[i], func(a, b *ranked) int {
			if c := falseFirst(!a.candidate, !b.candidate); c != 0 {
				return c
			}
			return compareDeletion(a, b, rank[a.pod], rank[b.pod], false)
		})
	}
	return out
}

// rankPerNode gives the first of k Pods on a node k-1, the last one 0.
func rankPerNode(list []*ranked) map[*corev1.Pod]float64 {
	ranks := map[*corev1.Pod]float64{}
	for _, group := range groupBy(list, func(r *ranked) string { return r.pod.Spec.NodeName }, nil) {
		for i, r := range group {
			ranks[r.pod] = float64(len(group) - 1 - i)
		}
	}
	return ranks
}

// addTopologyRank adds what one constraint says about each scheduled Pod.
func addTopologyRank(ranks map[*corev1.Pod]float64, list []*ranked, topologyKey string, nodes map[string]map[string]string, sameNode map[*corev1.Pod]float64) {
	key := func(r *ranked) string { return nodes[r.pod.Spec.NodeName][topologyKey] }
	if topologyKey == corev1.LabelHostname {
		key, sameNode = func(r *ranked) string { return r.pod.Spec.NodeName }, nil
	}
	groups := groupBy(list, key, sameNode)
	weight := math.Log(float64(len(groups) + 2))
	for _, group := range groups {
		for i, r := range group {
			ranks[r.pod] += float64(len(group)-i) * weight
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package updatesort

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// scatter spreads the Pods that a term matches over the whole update (cloneset.md 12.2,
// rule 3), term after term.
func scatter(pods, all []*corev1.Pod, terms v1beta1.CloneSetUpdateScatterStrategy) []*corev1.Pod {
	for _, term := range orderedTerms(pods, terms) {
		pods = scatterOne(pods, all, term)
	}
	return pods
}

func matches(pod *corev1.Pod, term v1beta1.CloneSetUpdateScatterTerm) bool {
	value, ok := pod.Labels[term.Key]
	return ok && value == term.Value
}

func count(pods []*corev1.Pod, term v1beta1.CloneSetUpdateScatterTerm) (n int) {
	for _, p := range pods {
		if matches(p, term) {
			n++
		}
	}
	return n
}

// orderedTerms leaves out terms that match no candidate, when there are several, and puts
// those first that match most.
func orderedTerms(pods []*corev1.Pod, terms v1beta1.CloneSetUpdateScatterStrategy) []v1beta1.CloneSetUpdateScatterTerm {
	if len(terms) <= 1 {
		return terms
	}
	type counted struct {
		term v1beta1.CloneSetUpdateScatterTerm
		n    int
	}
	var list []counted
	for _, t := range terms {
		if n := count(pods, t); n > 0 {
			list = append(list, counted{t, n})
		}
	}
	slices.SortStableFunc(list, func(a, b counted) int { return b.n - a.n })
	ordered := make([]v1beta1.CloneSetUpdateScatterTerm, len(list))
	for i := range list {
		ordered[i] = list[i].term
	}
	return ordered
}

// shape is how many groups there are and what each takes of both kinds.
type shape struct{ groups, matched, unmatched int }

// shapeOf divides m matched and n unmatched Pods, both positive, into groups.
func shapeOf(m, n int) shape {
	g := min(m, n)
	round := func(x int) int { return int(math.Round(float64(x) / float64(g))) }
	return shape{groups: g, matched: round(m), unmatched: round(n)}
}

func scatterOne(pods, all []*corev1.Pod, term v1beta1.CloneSetUpdateScatterTerm) []*corev1.Pod {
	var matched, unmatched []*corev1.Pod
	for _, p := range pods {
		if matches(p, term) {
			matched = append(matched, p)
		} else {
			unmatched = append(unmatched, p)
		}
	}
	if len(matched) <= 1 || len(unmatched) <= 1 {
		return pods
	}
	held := matched[len(matched)-1]
	matched = matched[:len(matched)-1]

	out := make([]*corev1.Pod, 0, len(pods))
	take := func(from *[]*corev1.Pod, n int) {
		n = max(0, min(n, len(*from)))
		out = append(out, (*from)[:n]...)
		*from = (*from)[n:]
	}
	cm, cu := len(matched), len(unmatched)
	tm := count(all, term) - 1
	tu := len(all) - tm - 1
	s := shapeOf(cm, cu)
	// With more unmatched Pods among the candidates than among all, the surplus goes
	// first, so that the rest keeps the proportion of all Pods.
	if tm > 0 && tu > 0 && tu*cm < cu*tm {
		s = shapeOf(tm, tu)
		s.groups = min(cm/s.matched, cu/s.unmatched)
		take(&unmatched, cu-s.groups*s.unmatched)
	}
	for range s.groups {
		take(&matched, s.matched)
		take(&unmatched, s.unmatched)
	}
	out = append(out, matched...)
	out = append(out, unmatched...)
	return append(out, held)
}

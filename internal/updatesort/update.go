// SPDX-License-Identifier: Apache-2.0

package updatesort

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// ForUpdate returns candidates in the order of their update: base order, priority,
// scatter, and Pods that are PreparingUpdate before all others. all are the active Pods
// of the workload, which scatter weighs the candidates against. strategy may be nil.
func ForUpdate(candidates, all []*corev1.Pod, strategy *v1beta1.RollingUpdateCloneSetStrategy) []*corev1.Pod {
	sorted := sortBy(candidates, factsOf, compareActive)
	if strategy != nil {
		sorted = ByPriority(sorted, strategy.PriorityStrategy)
		sorted = scatter(sorted, all, strategy.ScatterStrategy)
	}
	return preparingFirst(sorted)
}

// preparingFirst moves Pods that are PreparingUpdate before all others.
func preparingFirst(pods []*corev1.Pod) []*corev1.Pod {
	var first, rest []*corev1.Pod
	for i, p := range pods {
		switch {
		case state(p) == v1beta1.LifecyclePreparingUpdate:
			if first == nil {
				rest = append(rest, pods[:i]...)
			}
			first = append(first, p)
		case first != nil:
			rest = append(rest, p)
		}
	}
	if first == nil {
		return pods
	}
	return append(first, rest...)
}

// sortBy sorts a copy of pods, computing the key of each Pod once.
func sortBy[K any](pods []*corev1.Pod, key func(*corev1.Pod) K, compare func(a, b K) int) []*corev1.Pod {
	type keyed struct {
		pod *corev1.Pod
		key K
	}
	list := make([]keyed, len(pods))
	for i, p := range pods {
		list[i] = keyed{p, key(p)}
	}
	slices.SortStableFunc(list, func(a, b keyed) int { return compare(a.key, b.key) })
	out := make([]*corev1.Pod, len(list))
	for i := range list {
		out[i] = list[i].pod
	}
	return out
}

// ByPriority orders pods by strategy, those of equal priority as they come; strategy may be
// nil. The StatefulSet's unordered update uses it alone (statefulset.md 7.9).
func ByPriority(pods []*corev1.Pod, strategy *v1beta1.UpdatePriorityStrategy) []*corev1.Pod {
	switch {
	case strategy == nil:
		return pods
	case len(strategy.WeightPriority) > 0:
		return byWeight(pods, strategy.WeightPriority)
	case len(strategy.OrderPriority) > 0:
		return byOrder(pods, strategy.OrderPriority)
	}
	return pods
}

func byWeight(pods []*corev1.Pod, terms []v1beta1.UpdatePriorityWeightTerm) []*corev1.Pod {
	selectors := make([]labels.Selector, len(terms))
	for i := range terms {
		selector, err := metav1.LabelSelectorAsSelector(&terms[i].MatchSelector)
		if err != nil {
			selector = labels.Nothing() // admission refuses it; here it weighs nothing
		}
		selectors[i] = selector
	}
	weight := func(p *corev1.Pod) (sum int) {
		for i, s := range selectors {
			if s.Matches(labels.Set(p.Labels)) {
				sum += int(terms[i].Weight)
			}
		}
		return sum
	}
	return sortBy(pods, weight, func(a, b int) int { return cmp.Compare(b, a) })
}

// position is where orderPriority puts a Pod.
type position struct {
	level  int // index of the first key the Pod has; -1 for none
	number int64
}

// byOrder keeps a quirk of OpenKruise: a Pod with none of the keys comes before all
// others, although the manual says after.
func byOrder(pods []*corev1.Pod, terms []v1beta1.UpdatePriorityOrderTerm) []*corev1.Pod {
	of := func(p *corev1.Pod) position {
		for i, term := range terms {
			if value, ok := p.Labels[term.OrderedKey]; ok {
				return position{i, trailingNumber(value)}
			}
		}
		return position{level: -1}
	}
	return sortBy(pods, of, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(b.number, a.number))
	})
}

// trailingNumber is the integer that text ends with; 0 without one, or when too large.
func trailingNumber(text string) int64 {
	i := len(text)
	for i > 0 && text[i-1] >= '0' && text[i-1] <= '9' {
		i--
	}
	n, err := strconv.ParseInt(text[i:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

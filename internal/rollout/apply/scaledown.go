// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

var (
	replicasAt     = adapter.Path{"spec", "replicas"}
	podsToDeleteAt = adapter.Path{"spec", "scaleStrategy", "podsToDelete"}
	reserveAt      = adapter.Path{"spec", "reserveOrdinals"}
)

// PodsToDelete are the names in a CloneSet that are to be deleted.
func PodsToDelete(w adapter.Workload) []string {
	v, _ := w.Value(podsToDeleteAt)
	list, _ := v.([]any)
	var names []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			names = append(names, s)
		}
	}
	return names
}

// DeletePods sets replicas and adds names to those to be deleted. keep says which of the
// names that are there already stay.
func DeletePods(w adapter.Workload, names []string, replicas int64, keep func(string) bool) []Op {
	union := []any{}
	for _, n := range PodsToDelete(w) {
		if keep(n) && !slices.Contains(names, n) {
			union = append(union, n)
		}
	}
	for _, n := range names {
		union = append(union, n)
	}
	return append(testedReplicas(w, replicas), Set(w, podsToDeleteAt, union)...)
}

func testedReplicas(w adapter.Workload, replicas int64) []Op {
	was, ok := w.Value(replicasAt)
	if !ok {
		return Set(w, replicasAt, replicas)
	}
	return append([]Op{{Op: "test", Path: replicasAt.Pointer(), Value: was}}, Set(w, replicasAt, replicas)...)
}

// Reserve sets replicas and adds ordinals to those that an Advanced StatefulSet does not
// use; entries that are there stay as they are.
func Reserve(w adapter.Workload, ordinals []int64, replicas int64) ([]Op, error) {
	if w.GVK.Version == "v1alpha1" {
		return nil, errors.New("spec.reserveOrdinals needs version v1beta1, which the server does not serve")
	}
	v, _ := w.Value(reserveAt)
	list, _ := v.([]any)
	list = slices.Clone(list)
	for _, n := range ordinals {
		if !slices.ContainsFunc(list, func(entry any) bool { return covers(entry, n) }) {
			list = append(list, n)
		}
	}
	return append(testedReplicas(w, replicas), Set(w, reserveAt, list)...), nil
}

// covers reads one entry of reserveOrdinals: a number, or a range such as "4-6".
func covers(entry any, n int64) bool {
	switch e := entry.(type) {
	case int64:
		return e == n
	case string:
		from, to, ok := strings.Cut(e, "-")
		if !ok {
			to = from
		}
		a, err := strconv.ParseInt(from, 10, 64)
		b, err2 := strconv.ParseInt(to, 10, 64)
		return err == nil && err2 == nil && a <= n && n <= b
	}
	return false
}

// OrdinalOf is the number at the end of the name of a Pod.
func OrdinalOf(pod string) (int64, error) {
	i := strings.LastIndex(pod, "-")
	n, err := strconv.ParseInt(pod[i+1:], 10, 32)
	if err != nil || i < 1 {
		return 0, fmt.Errorf("pod %s has no ordinal at the end of its name", pod)
	}
	return n, nil
}

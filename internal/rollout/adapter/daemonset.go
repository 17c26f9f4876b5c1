// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

var daemonSet = &Adapter{
	For:              target.DaemonSet,
	PercentPartition: true,
	DefaultPolicy:    "Standard",
	Fields:           rollingUpdate("rollingUpdateType"),
	Facts:            daemonSetFacts,
	Revisions: func(u *unstructured.Unstructured) (string, string) {
		return daemonSetRevision(u), ""
	},
}

// daemonSetRevision is the name of the update revision: the status has only its hash.
func daemonSetRevision(u *unstructured.Unstructured) string {
	hash := status(u, "updateRevision")
	if hash == "" {
		hash = status(u, "daemonSetHash")
	}
	if hash == "" || strings.HasPrefix(hash, u.GetName()+"-") {
		return hash
	}
	return u.GetName() + "-" + hash
}

func daemonSetFacts(u *unstructured.Unstructured) (verdict.Facts, error) {
	desired := count(u, "desiredNumberScheduled")
	resolve := func(field string, absent int32, r percent.Rounding) (int, string, error) {
		v, raw := intOr(u, ruPath(field), intstr.FromInt32(absent))
		n, err := percent.Of(v, int32(desired), r)
		if err != nil {
			return 0, "", fmt.Errorf("reading %s: %w", ruPath(field), err)
		}
		return max(0, int(n)), raw, nil
	}
	keep, raw, err := resolve("partition", 0, percent.Down)
	if err != nil {
		return verdict.Facts{}, err
	}
	keep = min(keep, desired)
	surge, surgeRaw, err := resolve("maxSurge", 0, percent.Up)
	if err != nil {
		return verdict.Facts{}, err
	}
	absent := int32(0)
	if surgeRaw == "" {
		absent = 1
	}
	down, downRaw, err := resolve("maxUnavailable", absent, percent.Up)
	if err != nil {
		return verdict.Facts{}, err
	}
	if down == 0 && surge == 0 {
		down = 1
	}
	available, updated := count(u, "numberAvailable"), count(u, "updatedNumberScheduled")
	f := verdict.Facts{
		Generation: u.GetGeneration(), ObservedGeneration: int64(count(u, "observedGeneration")),
		Desired: desired, Total: count(u, "currentNumberScheduled"), Ready: count(u, "numberReady"), Available: available,
		// The status does not count which of the unavailable Pods are updated: none is
		// called available that may not be.
		Updated: updated, UpdatedReady: max(0, updated-(desired-count(u, "numberReady"))), UpdatedAvailable: max(0, updated-(desired-available)),
		Partition:      verdict.Partition{Raw: raw, Keep: keep, Target: desired - keep},
		MaxUnavailable: down, MaxUnavailableRaw: orDefault(downRaw, strconv.Itoa(int(absent))), MaxSurge: surge,
		Paused: paused(u), Manual: onDelete(u), AllAvailable: true,
		UpdateRevision: daemonSetRevision(u),
	}
	return f, nil
}

// NodeSelector is the selector on nodes that an update is limited to; nil when it is not.
func (w Workload) NodeSelector() (labels.Selector, error) {
	if w.Kind != target.DaemonSet {
		return nil, nil //nolint:nilnil // no selector is an answer
	}
	raw, ok, err := unstructured.NestedMap(w.Live.Object, "spec", "updateStrategy", "rollingUpdate", "selector")
	if err != nil || !ok {
		return nil, err
	}
	s := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, s); err != nil {
		return nil, fmt.Errorf("reading spec.updateStrategy.rollingUpdate.selector: %w", err)
	}
	return metav1.LabelSelectorAsSelector(s)
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
)

// Pause sets or removes the pause field.
func Pause(paused bool) Change {
	return func(w adapter.Workload) ([]Op, error) {
		switch {
		case w.Paused() == paused:
			return nil, nil
		case paused:
			return Set(w, w.At.Paused, true), nil
		}
		return Unset(w, w.At.Paused), nil
	}
}

// ParsePartition reads a partition as typed: a number of Pods or a percentage of
// replicas, without sign. The error is one sentence for the user.
func ParsePartition(text string) (intstr.IntOrString, error) {
	v := intstr.Parse(text)
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return v, fmt.Errorf("partition %s is negative: it is the number of pods that stay at the old revision", text)
		}
		return v, nil
	}
	if err := percent.Check(v); err != nil {
		return v, fmt.Errorf("partition %q is neither a number of pods nor a percentage such as 30%%", text)
	}
	if over(text) {
		return v, fmt.Errorf("partition %s is over 100%%: it is the share of pods that stay at the old revision", text)
	}
	return v, nil
}

// Fixed turns a percentage into a number of Pods, for kinds that take no other: rounded up,
// so that not more Pods are updated than asked, but one at least when it is below 100%.
func Fixed(v intstr.IntOrString, replicas int) (intstr.IntOrString, error) {
	if v.Type == intstr.Int {
		return v, nil
	}
	keep, err := percent.Of(v, int32(replicas), percent.Up)
	if err != nil {
		return v, err
	}
	if int(keep) == replicas && keep > 0 {
		if exact, err := percent.Of(v, 1000000, percent.Up); err == nil && exact < 1000000 {
			keep--
		}
	}
	return intstr.FromInt32(keep), nil
}

// over reports a percentage above 100.
func over(text string) bool {
	n, err := percent.Of(intstr.FromString(text), 1000000, percent.Down)
	return err != nil || n > 1000000
}

// Updated turns "how many are to be updated" into a partition: a percentage stays one,
// so that it follows scaling, a number is taken from replicas.
func Updated(text string, replicas int) (intstr.IntOrString, error) {
	v, err := ParsePartition(text)
	if err != nil {
		return v, errors.New(strings.Replace(err.Error(), "partition", "--updated", 1))
	}
	if v.Type == intstr.Int {
		return intstr.FromInt32(int32(max(0, replicas-int(v.IntVal)))), nil
	}
	var share float64
	if _, err := fmt.Sscanf(text, "%f%%", &share); err != nil {
		return v, fmt.Errorf("--updated %q: %w", text, err)
	}
	return intstr.FromString(fmt.Sprintf("%g%%", 100-share)), nil
}

// Partition sets the partition.
func Partition(v intstr.IntOrString) Change {
	return func(w adapter.Workload) ([]Op, error) {
		if _, ok := w.Value(w.At.Partition); !ok && v == intstr.FromInt32(0) {
			return nil, nil // absent means 0
		}
		return Set(w, w.At.Partition, plainValue(v)), nil
	}
}

func plainValue(v intstr.IntOrString) any {
	if v.Type == intstr.Int {
		return int64(v.IntVal)
	}
	return v.StrVal
}

// UndoOptions say what goes with a template that is put back.
type UndoOptions struct {
	// KeepPartition leaves the partition also when the target is the current revision.
	KeepPartition bool
	// Resume clears the pause in the same patch.
	Resume bool
	// Reason is stored as the change cause; empty: that of the target.
	Reason string
}

// Undo puts the template of to back. Where to is the current revision, so that a canary
// is taken back, the partition goes to 0 in the same patch: it would protect the very
// Pods that must leave (cli.md 5.3).
func Undo(to adapter.Revision, o UndoOptions) Change {
	return func(w adapter.Workload) ([]Op, error) {
		live, err := w.Template()
		if err != nil {
			return nil, err
		}
		raw, err := to.RawTemplate()
		if err != nil {
			return nil, err
		}
		if to.Template == nil {
			return nil, fmt.Errorf("revision %s cannot be read", to.Name)
		}
		var ops []Op
		if !adapter.SameTemplate(live, to.Template) {
			ops = append(ops, Op{Op: "replace", Path: w.At.Template.Pointer(), Value: raw})
		}
		if ClearsPartition(w, to) && !o.KeepPartition {
			ops = append(ops, Set(w, w.At.Partition, int64(0))...)
		}
		if o.Resume && w.Paused() {
			ops = append(ops, Unset(w, w.At.Paused)...)
		}
		if len(ops) == 0 {
			return nil, nil
		}
		if cause := firstOf(o.Reason, to.Cause); cause != "" {
			ops = append(ops, Annotate(w, adapter.ChangeCauseAnnotation, cause)...)
		}
		return ops, nil
	}
}

// ClearsPartition reports that an undo to this revision has to set the partition to 0.
func ClearsPartition(w adapter.Workload, to adapter.Revision) bool {
	v, ok := w.Value(w.At.Partition)
	if !ok || !isCurrent(w, to) {
		return false
	}
	n, isInt := v.(int64)
	return !isInt || n != 0
}

// isCurrent reports that to is the revision that kept Pods are at. Where the status does
// not name it, that is any but the update revision which has Pods.
func isCurrent(w adapter.Workload, to adapter.Revision) bool {
	if current := w.CurrentRevision(); current != "" {
		return to.Name == current
	}
	return !to.Has(adapter.RoleUpdate) && to.Pods > 0
}

// StoresTemplate checks that the live template is the wanted one; defaults that the
// server added are no difference.
func StoresTemplate(want *corev1.PodTemplateSpec) func(adapter.Workload) error {
	return func(after adapter.Workload) error {
		got, err := after.Template()
		if err != nil {
			return err
		}
		if adapter.SameTemplate(want, got) || equality.Semantic.DeepDerivative(want.Spec, got.Spec) {
			return nil
		}
		return fmt.Errorf("%w: %s differs from what was sent", ErrNotStored, after.At.Template)
	}
}

// Annotate sets an annotation of the workload itself, which makes no revision.
func Annotate(w adapter.Workload, key, value string) []Op {
	return Set(w, adapter.Path{"metadata", "annotations", key}, value)
}

// Remark stores why a template changes; nothing when reason is empty.
func Remark(w adapter.Workload, reason string) []Op {
	if reason == "" {
		return nil
	}
	return Annotate(w, adapter.ChangeCauseAnnotation, reason)
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// RestartedAtAnnotation is kubectl's mark on a template that is restarted.
const RestartedAtAnnotation = "kubectl.kubernetes.io/restartedAt"

// RestartTemplate changes the template so that every Pod is recreated. An annotation
// does under a policy that recreates; under an in-place policy it would be applied
// without a restart, so a variable of every container is set instead.
func RestartTemplate(now time.Time, env string) Change {
	return func(w adapter.Workload) ([]Op, error) {
		stamp := now.UTC().Format(time.RFC3339)
		policy, _ := w.Value(w.At.Policy)
		switch policy {
		case "InPlaceOnly":
			return nil, errors.New("podUpdatePolicy is InPlaceOnly: a changed template cannot recreate pods")
		case "InPlaceIfPossible":
			return setEnv(w, env, stamp)
		}
		return Set(w, join(w.At.Template, "metadata", "annotations", RestartedAtAnnotation), stamp), nil
	}
}

func setEnv(w adapter.Workload, name, value string) ([]Op, error) {
	t, err := w.Template()
	if err != nil {
		return nil, err
	}
	var ops []Op
	for i, c := range t.Spec.Containers {
		at := fmt.Sprintf("%s/spec/containers/%d", w.At.Template.Pointer(), i)
		ops = append(ops, Op{Op: "test", Path: at + "/name", Value: c.Name})
		entry := map[string]any{"name": name, "value": value}
		switch j := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }); {
		case j >= 0:
			ops = append(ops, Op{Op: "replace", Path: fmt.Sprintf("%s/env/%d", at, j), Value: entry})
		case len(c.Env) == 0:
			ops = append(ops, Op{Op: "add", Path: at + "/env", Value: []any{entry}})
		default:
			ops = append(ops, Op{Op: "add", Path: fmt.Sprintf("%s/env/%d", at, len(c.Env)), Value: entry})
		}
	}
	return ops, nil
}

func join(p adapter.Path, more ...string) adapter.Path { return append(slices.Clone(p), more...) }

// SetEnv sets a variable in every container of the template.
func SetEnv(w adapter.Workload, name, value string) ([]Op, error) { return setEnv(w, name, value) }

// SetTemplateMetadata sets a label or annotation of the template; field is labels or
// annotations.
func SetTemplateMetadata(w adapter.Workload, field, key, value string) []Op {
	return Set(w, join(w.At.Template, "metadata", field, key), value)
}

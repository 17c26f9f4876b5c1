// SPDX-License-Identifier: Apache-2.0

// Package adapter is the table of where each kind of workload keeps what a rollout is
// about (cli.md 3.2): one row per kind, one set of field paths per version. Commands
// know rows, never kinds. It reads and prints nothing.
package adapter

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Path is a field as a list of keys.
type Path []string

// String is the path with dots, as users write it.
func (p Path) String() string { return strings.Join(p, ".") }

// Pointer is the path as an RFC 6901 JSON pointer.
func (p Path) Pointer() string {
	var b strings.Builder
	for _, k := range p {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k))
	}
	return b.String()
}

// Fields are the paths of one kind at one version; nil where the kind has no such field.
type Fields struct {
	Template       Path
	Paused         Path
	Partition      Path
	MaxUnavailable Path
	Policy         Path
}

// Adapter is the row of one kind.
type Adapter struct {
	For *target.Kind
	// Fields by version.
	Fields map[string]Fields
	// PercentPartition: the partition may be a percentage.
	PercentPartition bool
	// DefaultPolicy is the update policy of an object that names none.
	DefaultPolicy string
	// Scale: the kind has the scale subresource.
	Scale bool
	// Marks: Pods labelled for deletion are replaced by the controller.
	Marks bool
	// Revisions reads the names of the update and the current revision from the status; nil
	// means they are there as updateRevision and currentRevision.
	Revisions func(*unstructured.Unstructured) (update, current string)
	// Facts reads what the verdict needs.
	Facts func(*unstructured.Unstructured) (verdict.Facts, error)
}

// all is the table.
var all = []*Adapter{cloneSet, statefulSet, daemonSet}

// Kinds lists the kinds that have a row, in the order shown to users.
func Kinds() []*target.Kind {
	var ks []*target.Kind
	for _, a := range all {
		ks = append(ks, a.For)
	}
	return ks
}

// Having lists the kinds whose row has the field that pick returns.
func Having(pick func(Fields) Path) []*target.Kind {
	var ks []*target.Kind
	for _, a := range all {
		for _, f := range a.Fields {
			if pick(f) != nil && !slices.Contains(ks, a.For) {
				ks = append(ks, a.For)
			}
		}
	}
	return ks
}

// Of returns the row of k, nil when there is none.
func Of(k *target.Kind) *Adapter {
	for _, a := range all {
		if a.For == k {
			return a
		}
	}
	return nil
}

// Workload is an object together with its row.
type Workload struct {
	target.Object
	*Adapter
	// At are the field paths of the version read.
	At Fields
}

// Wrap finds the row of o.
func Wrap(o target.Object) (Workload, error) {
	a := Of(o.Kind)
	if a == nil {
		return Workload{}, fmt.Errorf("%s has no rollout", o.Kind.Spelling())
	}
	f, ok := a.Fields[o.GVK.Version]
	if !ok {
		return Workload{}, &target.NotServedError{Kind: o.Kind, Served: []string{o.GVK.Version}}
	}
	return Workload{Object: o, Adapter: a, At: f}, nil
}

// Facts reads what the verdict needs.
func (w Workload) Facts() (verdict.Facts, error) {
	f, err := w.Adapter.Facts(w.Live)
	if err != nil {
		return f, err
	}
	f.Object = w.Short()
	return f, nil
}

// Wanted are the facts by the spec alone: what the controller said of the spec before does
// not count, as after a change that it cannot have seen.
func (w Workload) Wanted() (verdict.Facts, error) {
	w.Live = w.Live.DeepCopy()
	unstructured.RemoveNestedField(w.Live.Object, "status", "expectedUpdatedReplicas")
	return w.Facts()
}

// Template decodes the live Pod template.
func (w Workload) Template() (*corev1.PodTemplateSpec, error) {
	raw, _, err := unstructured.NestedMap(w.Live.Object, w.At.Template...)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", w.At.Template, err)
	}
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, t); err != nil {
		return nil, fmt.Errorf("reading %s: %w", w.At.Template, err)
	}
	return t, nil
}

// Selector is spec.selector; it selects nothing when absent.
func (w Workload) Selector() (labels.Selector, error) { return selector(w.Live) }

// Paused is the value of the pause field.
func (w Workload) Paused() bool {
	v, _, _ := unstructured.NestedBool(w.Live.Object, w.At.Paused...)
	return v
}

// Value returns the value at p as it is in the object, and whether it is there.
func (w Workload) Value(p Path) (any, bool) {
	v, ok, err := unstructured.NestedFieldNoCopy(w.Live.Object, p...)
	return v, ok && err == nil
}

func status(u *unstructured.Unstructured, field string) string {
	s, _, _ := unstructured.NestedString(u.Object, "status", field)
	return s
}

// UpdateRevision is the name of the revision that Pods go to, as the status has it.
func (w Workload) UpdateRevision() string {
	update, _ := w.revisionNames()
	return update
}

// CurrentRevision is the name of the revision that kept Pods are at; "" for kinds whose
// status does not name it.
func (w Workload) CurrentRevision() string {
	_, current := w.revisionNames()
	return current
}

func (w Workload) revisionNames() (update, current string) {
	if w.Adapter.Revisions != nil {
		return w.Adapter.Revisions(w.Live)
	}
	return status(w.Live, "updateRevision"), status(w.Live, "currentRevision")
}

// Policy is the update policy as in the object, "" when absent.
func (w Workload) Policy() string {
	v, _ := w.Value(w.At.Policy)
	s, _ := v.(string)
	return s
}

// RecreatesOnly reports a policy under which every update replaces the Pod.
func (w Workload) RecreatesOnly() bool { return !strings.HasPrefix(w.Policy(), "InPlace") }

// PolicyText is field and value of the update policy for a sentence, e.g. "podUpdatePolicy
// is ReCreate".
func (w Workload) PolicyText() string {
	value := w.Policy()
	if value == "" {
		value = w.DefaultPolicy
	}
	return w.At.Policy[len(w.At.Policy)-1] + " is " + value
}

// Lifecycle decodes spec.lifecycle; nil when the object has none or it cannot be read.
func (w Workload) Lifecycle() *v1beta1.Lifecycle {
	raw, ok, err := unstructured.NestedMap(w.Live.Object, "spec", "lifecycle")
	if err != nil || !ok {
		return nil
	}
	l := &v1beta1.Lifecycle{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(raw, l) != nil {
		return nil
	}
	return l
}

// Conditions decodes status.conditions, leaving out those that cannot be read.
func (w Workload) Conditions() []metav1.Condition {
	list, _, _ := unstructured.NestedSlice(w.Live.Object, "status", "conditions")
	var out []metav1.Condition
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		c := metav1.Condition{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(m, &c) == nil {
			out = append(out, c)
		}
	}
	return out
}

func number(u *unstructured.Unstructured, fields ...string) (int, bool) {
	n, ok, err := unstructured.NestedInt64(u.Object, fields...)
	return int(n), ok && err == nil
}

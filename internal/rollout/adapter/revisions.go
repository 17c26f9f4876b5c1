// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/internal/revision"
)

// ChangeCauseAnnotation is kubectl's note on why a revision was made.
const ChangeCauseAnnotation = "kubernetes.io/change-cause"

// Roles of a revision (cli.md 3.3).
const (
	RoleUpdate  = "update"
	RoleCurrent = "current"
	RoleLive    = "live"
)

// Revision is one stored template of a workload.
type Revision struct {
	// Name identifies it; Number does not, as a rollback gives an old template a new one.
	Name string
	// Hash is the part of Name that Pods carry.
	Hash   string
	Number int64
	// Roles are update, current and live, in this order.
	Roles []string
	// Pods is how many active Pods are at it; -1 when they could not be listed.
	Pods    int
	Created time.Time
	// Cause is the change cause, "" when none was given.
	Cause string
	// Images of the containers, in order.
	Images []string
	// Source is the object as stored.
	Source *appsv1.ControllerRevision
	// Template is decoded from it; nil when it cannot be decoded.
	Template *corev1.PodTemplateSpec
}

// Has reports a role.
func (r Revision) Has(role string) bool { return slices.Contains(r.Roles, role) }

// Title is "revision 7 (web-7c9f)".
func (r Revision) Title() string { return fmt.Sprintf("revision %d (%s)", r.Number, r.Name) }

// Owned returns those of revs that w controls, in order: number, age, name. The UID
// decides, never a label.
func (w Workload) Owned(revs []appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	var own []*appsv1.ControllerRevision
	for i := range revs {
		if ref := metav1.GetControllerOf(&revs[i]); ref != nil && ref.UID == w.Live.GetUID() {
			own = append(own, &revs[i])
		}
	}
	revision.Sort(own)
	return own
}

// Revisions describes the stored revisions of w, oldest first. pods nil means unknown.
func (w Workload) Revisions(stored []*appsv1.ControllerRevision, pods []*corev1.Pod) []Revision {
	live, liveErr := w.Template()
	var list []Revision
	for _, s := range stored {
		r := Revision{
			Name: s.Name, Hash: revision.ShortHash(s.Name), Number: s.Revision, Pods: -1,
			Created: s.CreationTimestamp.Time, Cause: s.Annotations[ChangeCauseAnnotation], Source: s,
		}
		if t, err := revision.Template(s); err == nil {
			r.Template = t
			for _, c := range t.Spec.Containers {
				r.Images = append(r.Images, c.Image)
			}
		}
		if named(s, w.UpdateRevision()) {
			r.Roles = append(r.Roles, RoleUpdate)
		}
		if named(s, w.CurrentRevision()) {
			r.Roles = append(r.Roles, RoleCurrent)
		}
		if liveErr == nil && r.Template != nil && SameTemplate(live, r.Template) {
			r.Roles = append(r.Roles, RoleLive)
		}
		if pods != nil {
			r.Pods = 0
			for _, p := range pods {
				if revision.SameRevision(p.Labels[appsv1.ControllerRevisionHashLabelKey], s.Name) {
					r.Pods++
				}
			}
		}
		list = append(list, r)
	}
	return list
}

// named compares what Pods carry: a status may hold the hash of a revision without the
// name of the workload.
func named(r *appsv1.ControllerRevision, name string) bool {
	return name != "" && revision.SameRevision(name, r.Name)
}

// SameTemplate compares templates by meaning: equal quantities are equal however they
// are written, and an empty map or list equals an absent one.
func SameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	x.CreationTimestamp, y.CreationTimestamp = metav1.Time{}, metav1.Time{}
	return equality.Semantic.DeepEqual(x, y)
}

// RawTemplate is the template as stored in the revision, without the patch directive
// that revisions carry at some levels; ready to be put into the object.
func (r Revision) RawTemplate() (map[string]any, error) {
	var data struct {
		Spec struct {
			Template map[string]any `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Source.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("reading revision %s: %w", r.Name, err)
	}
	if data.Spec.Template == nil {
		return nil, fmt.Errorf("revision %s holds no Pod template", r.Name)
	}
	withoutDirective(data.Spec.Template)
	if meta, ok := data.Spec.Template["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp") // null in every stored revision, absent in what users write
	}
	return data.Spec.Template, nil
}

func withoutDirective(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "$patch")
		for _, child := range v {
			withoutDirective(child)
		}
	case []any:
		for _, child := range v {
			withoutDirective(child)
		}
	}
}

// FindRevision returns the revision that word names: its number, its name, or the hash
// at the end of its name.
func FindRevision(list []Revision, word string) (Revision, bool) {
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		for i := range slices.Backward(list) {
			if list[i].Number == n {
				return list[i], true
			}
		}
	}
	for _, r := range list {
		if r.Name == word || r.Hash == word {
			return r, true
		}
	}
	return Revision{}, false
}

// Numbers lists the revisions for a sentence: "1, 2, 5".
func Numbers(list []Revision) string {
	var words []string
	for _, r := range list {
		words = append(words, strconv.FormatInt(r.Number, 10))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// Live returns the newest revision whose template is the live one.
func Live(list []Revision) (Revision, bool) {
	for i := range slices.Backward(list) {
		if list[i].Has(RoleLive) {
			return list[i], true
		}
	}
	return Revision{}, false
}

// Before returns the newest revision whose template differs from the live one: what
// undo goes back to when nothing is said.
func Before(list []Revision) (Revision, bool) {
	for i := range slices.Backward(list) {
		if !list[i].Has(RoleLive) && list[i].Template != nil {
			return list[i], true
		}
	}
	return Revision{}, false
}

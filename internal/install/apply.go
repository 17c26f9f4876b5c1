// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Action is what an apply did, or would do, to an object.
type Action string

// The actions. Uncheckable is the answer of a dry run about an object whose namespace or
// kind does not exist yet.
const (
	Created     Action = "created"
	Configured  Action = "configured"
	Unchanged   Action = "unchanged"
	Deleted     Action = "deleted"
	Uncheckable Action = "not checkable yet"
)

// Change is one object and what happened to it.
type Change struct {
	Object *unstructured.Unstructured
	Action Action
	// Diffs are the fields that differ, for Configured.
	Diffs []FieldDiff
	// Reason says why an object is Uncheckable.
	Reason string
	// UID is that of the live object, empty when it does not exist.
	UID string
}

// DryRun is how much of an apply is done.
type DryRun string

// The modes. DryRunClient reads only, DryRunServer sends writes that are not stored.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// ApplyOptions say how objects are written.
type ApplyOptions struct {
	DryRun DryRun
	// ForceConflicts takes fields from other field managers.
	ForceConflicts bool
	// Adopt removes the marks of Helm and takes fields from other field managers.
	Adopt bool
	// FieldManager owns the fields; empty is FieldManager.
	FieldManager string
}

// FieldConflict is one field that somebody else owns.
type FieldConflict struct {
	Field, Manager string
}

// A ConflictError says which fields of an object others own.
type ConflictError struct {
	Object string
	Fields []FieldConflict
	err    error
}

// Error implements error with one field and its owner per line.
func (e *ConflictError) Error() string {
	lines := []string{e.Object + " has fields that others own:"}
	for _, f := range e.Fields {
		lines = append(lines, fmt.Sprintf("%s → %s", f.Field, f.Manager))
	}
	return strings.Join(lines, "\n    ")
}

// Unwrap returns the API's error.
func (e *ConflictError) Unwrap() error { return e.err }

// applyOne brings one object to the cluster with server-side apply. It sends no request
// that changes anything when nothing would change.
func (c *Cluster) applyOne(ctx context.Context, want *unstructured.Unstructured, o ApplyOptions) (Change, error) {
	live, err := c.live(ctx, want)
	if err != nil {
		return Change{}, err
	}
	change := Change{Object: want, Action: Created}
	want = want.DeepCopy()
	if live != nil {
		change.UID = string(live.GetUID())
		change.Diffs = Drift(live, want)
		change.Action = Configured
		if len(change.Diffs) == 0 {
			change.Action = Unchanged
			// The manager's copy is up to date: emptying it would only make it write again.
			keepTemplate(want, live)
		}
	}
	if o.DryRun == DryRunClient || (change.Action == Unchanged && !o.Adopt && owned(live)) {
		return change, nil
	}
	if err := c.refuseLostVersion(live, want); err != nil {
		return Change{}, err
	}
	if change.Action == Unchanged {
		// What conflicts then is a value with defaults against the same value without.
		o.ForceConflicts = true
	}
	sent, err := c.send(ctx, want, o)
	if o.DryRun == DryRunServer && uncheckable(err) {
		change.Action, change.Reason = Uncheckable, reasonOf(err)
		return change, nil
	}
	if err != nil {
		return Change{}, err
	}
	if o.Adopt && live != nil && o.DryRun == DryRunNone {
		if err := c.removeHelmMarks(ctx, live); err != nil {
			return Change{}, err
		}
	}
	if o.DryRun != DryRunServer {
		change.UID = string(sent.GetUID())
	}
	return change, nil
}

// owned reports that this tool has applied the object before.
func owned(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
	})
}

func keepTemplate(want, live *unstructured.Unstructured) {
	if !strings.HasSuffix(want.GetKind(), "WebhookConfiguration") || live.GetAnnotations()[annotationTemplate] == "" {
		return
	}
	annotations := want.GetAnnotations()
	delete(annotations, annotationTemplate)
	want.SetAnnotations(annotations)
}

func (c *Cluster) send(ctx context.Context, want *unstructured.Unstructured, o ApplyOptions) (*unstructured.Unstructured, error) {
	manager := o.FieldManager
	if manager == "" {
		manager = FieldManager
	}
	try := func(force bool) (*unstructured.Unstructured, error) {
		body := want.DeepCopy()
		opts := []client.ApplyOption{client.FieldOwner(manager)}
		if force {
			opts = append(opts, client.ForceOwnership)
		}
		if o.DryRun == DryRunServer {
			opts = append(opts, client.DryRunAll)
		}
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), opts...)
		return body, err
	}
	sent, err := try(o.ForceConflicts || o.Adopt)
	if apierrors.IsConflict(err) {
		conflict := conflictOf(want, err)
		foreign := slices.DeleteFunc(slices.Clone(conflict.Fields), func(f FieldConflict) bool { return ownManager(f.Manager) })
		if len(conflict.Fields) == 0 || len(foreign) > 0 {
			conflict.Fields = foreign
			return nil, conflict
		}
		sent, err = try(true)
	}
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", Name(want), err)
	}
	return sent, nil
}

// ownManager reports a field manager that is part of the product: its fields are the
// template annotation and caBundle, and it writes them again when needed.
func ownManager(name string) bool {
	return name == FieldManager || name == "kruise-manager" || name == "manager"
}

var conflictManager = regexp.MustCompile(`^conflict with "([^"]*)"`)

func conflictOf(want *unstructured.Unstructured, err error) *ConflictError {
	conflict := &ConflictError{Object: Name(want), err: err}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			manager := cause.Message
			if m := conflictManager.FindStringSubmatch(cause.Message); m != nil {
				manager = m[1]
			}
			conflict.Fields = append(conflict.Fields, FieldConflict{Field: strings.TrimPrefix(cause.Field, "."), Manager: manager})
		}
	}
	return conflict
}

func uncheckable(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(errors.Unwrap(err)) || meta.IsNoMatchError(err)
}

func reasonOf(err error) string {
	if apierrors.IsNotFound(err) {
		return "its namespace does not exist yet"
	}
	return "its kind is not served yet"
}

// removeHelmMarks takes an object out of Helm's hands, so that the next helm command does
// not revert or delete it (install.md 12).
func (c *Cluster) removeHelmMarks(ctx context.Context, live *unstructured.Unstructured) error {
	if _, ok := live.GetAnnotations()[annotationHelmRelease]; !ok {
		return nil
	}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":null,"meta.helm.sh/release-namespace":null},"labels":{"helm.sh/chart":null}}}`))
	if err := c.Client.Patch(ctx, live.DeepCopy(), patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("removing the marks of Helm from %s: %w", Name(live), err)
	}
	return nil
}

// refuseLostVersion keeps stored objects readable: a version that objects are stored in
// must not vanish from a CRD.
func (c *Cluster) refuseLostVersion(live, want *unstructured.Unstructured) error {
	if live == nil || want.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
	versions, _, _ := unstructured.NestedSlice(want.Object, "spec", "versions")
	for _, s := range stored {
		if !slices.ContainsFunc(versions, func(v any) bool { m, _ := v.(map[string]any); return m["name"] == s }) {
			return &LostVersionError{CRD: want.GetName(), Version: s}
		}
	}
	return nil
}

// A LostVersionError says that a CRD would lose a version in which objects are stored.
type LostVersionError struct{ CRD, Version string }

// Error implements error.
func (e *LostVersionError) Error() string {
	return fmt.Sprintf("CustomResourceDefinition %s would lose version %s, in which objects are stored: store them in the new version first (migrate storage-version)", e.CRD, e.Version)
}

// SPDX-License-Identifier: Apache-2.0

// Package apply writes small changes to workloads (cli.md 1.13): a JSON Patch that is
// tested against the object it was computed from, computed anew when somebody else was
// faster, checked afterwards, and not sent at all when it would change nothing.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
)

// DryRun is the value of --dry-run.
type DryRun string

// The values of --dry-run.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// Suffix is what a result line ends in.
func (d DryRun) Suffix() string {
	switch d {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}

// Options say how a change is sent.
type Options struct {
	DryRun DryRun
	// FieldManager owns the changed fields.
	FieldManager string
}

// Op is one operation of RFC 6902.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// MarshalJSON leaves the value out of a remove.
func (o Op) MarshalJSON() ([]byte, error) {
	m := map[string]any{"op": o.Op, "path": o.Path}
	if o.Op != "remove" {
		m["value"] = o.Value
	}
	return json.Marshal(m)
}

// Change computes the operations that bring w to what was asked. None means that
// nothing would change. It is called again on the fresh object after a conflict, so it
// must check its preconditions itself, and may return an error.
type Change func(w adapter.Workload) ([]Op, error)

// Outcome is what became of a change.
type Outcome struct {
	// Changed is false when nothing had to be written.
	Changed bool
	// Before is the object that the change was computed from; After is what the server
	// answered, or what it would hold after a client dry run.
	Before, After adapter.Workload
	// Ops without the tests.
	Ops []Op
}

// maxAttempts bounds the retries after somebody else's write.
const maxAttempts = 5

// ErrNotStored is wrapped when the server accepted a change but holds something else.
var ErrNotStored = errors.New("accepted but not stored as asked")

// Patch sends change for w; a client dry run asks no server, and c may be nil. stored, when not nil, replaces the comparison of the answer
// with the values asked for.
func Patch(ctx context.Context, c client.Client, w adapter.Workload, o Options, change Change, stored func(after adapter.Workload) error) (Outcome, error) {
	for attempt := 1; ; attempt++ {
		ops, err := change(w)
		if err != nil {
			return Outcome{Before: w, After: w}, err
		}
		out := Outcome{Before: w, After: w, Ops: ops}
		if len(ops) == 0 {
			return out, nil
		}
		out.Changed = true
		after, err := send(ctx, c, w, o, ops)
		if err == nil {
			out.After = after
			if stored == nil {
				stored = func(after adapter.Workload) error { return holds(after.Live, ops) }
			}
			return out, stored(after)
		}
		if o.DryRun == DryRunClient { // nobody else writes to the copy
			return out, fmt.Errorf("changing %s: %w", w.Object, err)
		}
		fresh, again := raced(ctx, c, w, err)
		if !again || attempt >= maxAttempts {
			return out, fmt.Errorf("patching %s: %w", w.Object, err)
		}
		w = fresh
	}
}

// raced reports that err came from a write of somebody else, and returns the object as
// it is now.
func raced(ctx context.Context, c client.Client, w adapter.Workload, err error) (adapter.Workload, bool) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return w, false
	}
	obj, gerr := fetch.Again(ctx, c, w.Object)
	if gerr != nil || obj.Live.GetResourceVersion() == w.Live.GetResourceVersion() || obj.Live.GetUID() != w.Live.GetUID() {
		return w, false
	}
	w.Object = obj
	return w, true
}

func send(ctx context.Context, c client.Client, w adapter.Workload, o Options, ops []Op) (adapter.Workload, error) {
	tested := ops
	if rv := w.Live.GetResourceVersion(); rv != "" || o.DryRun != DryRunClient { // a manifest has none
		tested = append([]Op{{Op: "test", Path: "/metadata/resourceVersion", Value: rv}}, ops...)
	}
	data, err := json.Marshal(tested)
	if err != nil {
		return w, fmt.Errorf("encoding the patch: %w", err)
	}
	if o.DryRun == DryRunClient {
		return locally(w, data)
	}
	u := w.Live.DeepCopy()
	opts := []client.PatchOption{client.FieldOwner(o.FieldManager)}
	if o.DryRun == DryRunServer {
		opts = append(opts, client.DryRunAll)
	}
	if err := c.Patch(ctx, u, client.RawPatch(types.JSONPatchType, data), opts...); err != nil {
		return w, err
	}
	w.Live = u
	return w, nil
}

// locally applies the patch to a copy of the object.
func locally(w adapter.Workload, patch []byte) (adapter.Workload, error) {
	doc, err := json.Marshal(w.Live.Object)
	if err != nil {
		return w, fmt.Errorf("encoding %s: %w", w.Object, err)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return w, fmt.Errorf("encoding the patch: %w", err)
	}
	if doc, err = p.Apply(doc); err != nil {
		return w, fmt.Errorf("applying the patch: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(doc); err != nil {
		return w, fmt.Errorf("reading the patched object: %w", err)
	}
	w.Live = u
	return w, nil
}

// holds compares the answer of the server with what the operations asked for.
func holds(u *unstructured.Unstructured, ops []Op) error {
	for _, op := range ops {
		got, there := lookup(u.Object, op.Path)
		switch {
		case op.Op == "test": // it spoke of the object before
		case op.Op == "remove":
			if there {
				return fmt.Errorf("%w: %s is still %s", ErrNotStored, fieldOf(op.Path), text(got))
			}
		case isParent(op, ops):
		case !there:
			return fmt.Errorf("%w: %s is absent, asked was %s", ErrNotStored, fieldOf(op.Path), text(op.Value))
		case !sameValue(got, op.Value):
			return fmt.Errorf("%w: %s is %s, asked was %s", ErrNotStored, fieldOf(op.Path), text(got), text(op.Value))
		}
	}
	return nil
}

// isParent: op only made room for a later one.
func isParent(op Op, ops []Op) bool {
	for _, other := range ops {
		if strings.HasPrefix(other.Path, op.Path+"/") {
			return true
		}
	}
	return false
}

func lookup(v any, pointer string) (any, bool) {
	for _, key := range strings.Split(pointer, "/")[1:] {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch node := v.(type) {
		case map[string]any:
			child, ok := node[key]
			if !ok {
				return nil, false
			}
			v = child
		case []any:
			var i int
			if _, err := fmt.Sscan(key, &i); err != nil || i < 0 || i >= len(node) {
				return nil, false
			}
			v = node[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func sameValue(a, b any) bool { return reflect.DeepEqual(plain(a), plain(b)) }

// plain brings a value to the types that JSON has.
func plain(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var p any
	if json.Unmarshal(data, &p) != nil {
		return v
	}
	return p
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func fieldOf(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}

// Set returns the operations that put value at path, adding the parents that are
// missing and replacing none that exist. None when the value is there already.
func Set(w adapter.Workload, path adapter.Path, value any) []Op {
	if got, ok := w.Value(path); ok && sameValue(got, value) {
		return nil
	}
	var ops []Op
	for i := 1; i < len(path); i++ {
		if got, ok := w.Value(path[:i]); !ok || got == nil {
			ops = append(ops, Op{Op: "add", Path: path[:i].Pointer(), Value: map[string]any{}})
		}
	}
	return append(ops, Op{Op: "add", Path: path.Pointer(), Value: value})
}

// Unset returns the operations that remove path; none when it is absent.
func Unset(w adapter.Workload, path adapter.Path) []Op {
	if _, ok := w.Value(path); !ok {
		return nil
	}
	return []Op{{Op: "remove", Path: path.Pointer()}}
}

// Join concatenates operations that were computed from the same object, without making
// room twice for the same parent.
func Join(lists ...[]Op) []Op {
	var all []Op
	made := map[string]bool{}
	for _, ops := range lists {
		for _, op := range ops {
			m, isMap := op.Value.(map[string]any)
			parent := op.Op == "add" && isMap && len(m) == 0
			if parent && made[op.Path] {
				continue
			}
			made[op.Path] = made[op.Path] || parent
			all = append(all, op)
		}
	}
	return all
}

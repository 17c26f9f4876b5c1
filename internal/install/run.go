// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RunOptions say how an installation is brought to the cluster.
type RunOptions struct {
	ApplyOptions
	// Prune deletes what an earlier version applied and this one does not.
	Prune bool
	// Wait waits until everything works, at most for Timeout.
	Wait    bool
	Timeout time.Duration
	// WebhooksLast lets webhooks fail open until the manager is ready. It needs Wait.
	WebhooksLast bool
	// DaemonWait is the share of daemon Pods to wait for: "all", "none" or "90%".
	DaemonWait string
	// ProbeNamespace is where the dry-run creation of a CloneSet is tried.
	ProbeNamespace string
	// NamespaceWait is how long a Namespace may go on terminating; 0 is 30 s.
	NamespaceWait time.Duration
}

// Result is what Run did.
type Result struct {
	Changes []Change
	Pruned  []Entry
	// Waited is set when everything was seen to work.
	Waited bool
}

// Count returns how many objects had an action.
func (r Result) Count(a Action) int {
	n := 0
	for _, c := range r.Changes {
		if c.Action == a {
			n++
		}
	}
	return n
}

// steps of a run: what is applied together, in order.
var runSteps = []struct {
	title string
	kinds []string
}{
	{"namespaces", []string{"Namespace"}},
	{"CRDs", []string{"CustomResourceDefinition"}},
	{"permissions, certificates and Services", nil},
	{"webhooks", []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}},
	{"manager and daemon", []string{"Deployment", "DaemonSet"}},
}

// Plan compares a rendering with the cluster and changes nothing: mode DryRunServer sends
// every object for checking, DryRunClient only reads.
func (c *Cluster) Plan(ctx context.Context, m *Manifests, o ApplyOptions, mode DryRun) ([]Change, error) {
	o.DryRun = mode
	var changes []Change
	for _, obj := range m.Objects {
		change, err := c.applyOne(ctx, obj, o)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// Run applies a rendering, in an order in which nothing that exists breaks on the way,
// and remembers it in the inventory. Every step can be repeated; on an error the result
// says what is already done.
func (c *Cluster) Run(ctx context.Context, m *Manifests, previous *Inventory, o RunOptions, p Progress) (Result, error) {
	r := &run{Cluster: c, m: m, o: o, p: p, previous: previous}
	for i := range runSteps {
		if len(r.objects(i)) > 0 {
			r.steps++
		}
	}
	for _, more := range []bool{o.Prune && previous != nil, o.Wait, r.remembers()} {
		if more {
			r.steps++
		}
	}
	err := r.do(ctx)
	return r.result, err
}

type run struct {
	*Cluster
	m        *Manifests
	o        RunOptions
	p        Progress
	previous *Inventory
	steps    int
	n        int
	result   Result
	uids     map[string]string
}

func (r *run) next(format string, args ...any) {
	r.n++
	r.p.step(r.n, r.steps, format, args...)
}

func (r *run) do(ctx context.Context) error {
	r.uids = map[string]string{}
	for i, s := range runSteps {
		objs := r.objects(i)
		if len(objs) > 0 {
			r.next("%s", s.title)
		}
		if err := r.apply(ctx, objs); err != nil {
			return err
		}
		if err := r.settle(ctx, s.title); err != nil {
			return err
		}
	}
	if r.o.Prune && r.previous != nil {
		r.next("removing what is not part of it any more")
		if err := r.prune(ctx); err != nil {
			return err
		}
	}
	if r.o.Wait {
		r.next("waiting until it works")
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	if !r.remembers() {
		return nil
	}
	r.next("inventory")
	return r.finish(ctx)
}

// remembers reports that there is an inventory: CRDs alone have no namespace for it.
func (r *run) remembers() bool { return !r.m.Values.CRDs.Only }

// objects returns those of one step, webhooks failing open when they come last.
func (r *run) objects(step int) []*unstructured.Unstructured {
	var objs []*unstructured.Unstructured
	for _, o := range r.m.Objects {
		mine := slices.Contains(runSteps[step].kinds, o.GetKind())
		if runSteps[step].kinds == nil {
			mine = !slices.ContainsFunc(runSteps, func(s struct {
				title string
				kinds []string
			}) bool {
				return slices.Contains(s.kinds, o.GetKind())
			})
		}
		if !mine {
			continue
		}
		if r.webhooksLast() && strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			o = failOpen(o)
		}
		objs = append(objs, o)
	}
	return objs
}

func (r *run) webhooksLast() bool { return r.o.WebhooksLast && r.o.Wait }

func failOpen(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, h := range hooks {
		if m, ok := h.(map[string]any); ok {
			m["failurePolicy"] = "Ignore"
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	return o
}

func (r *run) apply(ctx context.Context, objs []*unstructured.Unstructured) error {
	for _, obj := range objs {
		change, err := r.applyOne(ctx, obj, r.o.ApplyOptions)
		if err != nil {
			return err
		}
		r.uids[Name(obj)] = change.UID
		r.result.Changes = append(r.result.Changes, change)
		r.p.object(change)
	}
	return nil
}

// settle waits for what the next step needs.
func (r *run) settle(ctx context.Context, title string) error {
	switch title {
	case "namespaces":
		if !r.remembers() {
			return nil
		}
		if err := r.namespacesUsable(ctx); err != nil {
			return err
		}
		return r.begin(ctx)
	case "CRDs":
		var names []string
		for _, o := range r.m.Objects {
			if o.GetKind() == "CustomResourceDefinition" {
				names = append(names, o.GetName())
			}
		}
		return r.waitFor(ctx, []Condition{r.crdsEstablished(names)}, time.Minute, r.p)
	}
	return nil
}

// begin remembers what is about to be applied, so that an interrupted run can be pruned
// and removed as well.
func (r *run) begin(ctx context.Context) error {
	inv := r.inventory()
	if r.previous != nil {
		inv.Objects = mergeEntries(inv.Objects, r.previous.Objects)
	}
	return r.writeInventory(ctx, r.m.Values.Installation.Namespace, inv)
}

func (r *run) finish(ctx context.Context) error {
	inv := r.inventory()
	inv.Complete = true
	if r.previous != nil && !r.o.Prune {
		inv.Objects = mergeEntries(inv.Objects, r.previous.Objects)
	} else if r.previous != nil {
		// CRDs and Namespaces are never pruned; removal still has to know them.
		for _, e := range r.previous.Objects {
			if e.Kind == "Namespace" || e.Kind == "CustomResourceDefinition" {
				inv.Objects = mergeEntries(inv.Objects, []Entry{e})
			}
		}
	}
	ns := r.m.Values.Installation.Namespace
	if err := r.writeInventory(ctx, ns, inv); err != nil {
		return err
	}
	return r.savePrevious(ctx, ns, r.m)
}

func (r *run) inventory() *Inventory {
	inv := &Inventory{Version: r.m.Version, Values: r.m.Values}
	for _, o := range r.m.Objects {
		inv.Objects = append(inv.Objects, entryOf(o, r.uids[Name(o)]))
	}
	return inv
}

func (r *run) prune(ctx context.Context) error {
	for _, e := range r.previous.Obsolete(r.m.Objects, false) {
		done, err := r.deleteEntry(ctx, e)
		if err != nil {
			return err
		}
		if done {
			r.result.Pruned = append(r.result.Pruned, e)
			r.p.object(Change{Object: e.object(), Action: Deleted})
		}
	}
	return nil
}

// deleteEntry deletes an object that an inventory lists. One that was made anew by
// somebody else (another UID, without our label) stays.
func (c *Cluster) deleteEntry(ctx context.Context, e Entry) (bool, error) {
	live, err := c.get(ctx, e.gvk(), e.Namespace, e.Name)
	if err != nil || live == nil {
		return false, err
	}
	ours := live.GetLabels()[labelPartOf] == "kruise" || (e.UID != "" && e.UID == string(live.GetUID()))
	if !ours {
		return false, nil
	}
	uid := live.GetUID()
	err = c.Client.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %s: %w", e, err)
	}
	return true, nil
}

// Prune deletes what the inventory lists and the rendering does not, and forgets it.
func (c *Cluster) Prune(ctx context.Context, m *Manifests, inv *Inventory, includeCRDs bool, p Progress) ([]Entry, error) {
	var pruned []Entry
	for _, e := range inv.Obsolete(m.Objects, includeCRDs) {
		done, err := c.deleteEntry(ctx, e)
		if err != nil {
			return pruned, err
		}
		if done {
			pruned = append(pruned, e)
			p.object(Change{Object: e.object(), Action: Deleted})
		}
		inv.Objects = slices.DeleteFunc(inv.Objects, e.same)
	}
	return pruned, c.writeInventory(ctx, m.Values.Installation.Namespace, inv)
}

// failClosed applies the webhooks with their rendered failure policy.
func (r *run) failClosed(ctx context.Context) error {
	for _, o := range r.m.Objects {
		if !strings.HasSuffix(o.GetKind(), "WebhookConfiguration") {
			continue
		}
		change, err := r.applyOne(ctx, o, r.o.ApplyOptions)
		if err != nil {
			return err
		}
		r.p.note("%s %s: webhooks now fail closed", Name(o), change.Action)
	}
	return nil
}

func mergePatch(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }

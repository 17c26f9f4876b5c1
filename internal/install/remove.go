// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Uninstall executes a removal in the order of install.md 7. It can be repeated after an
// interruption.
func (c *Cluster) Uninstall(ctx context.Context, r *Removal, o UninstallOptions, p Progress) error {
	u := &removing{Cluster: c, r: r, o: o, p: p}
	steps := []struct {
		title string
		do    func(context.Context) error
	}{
		{"webhook configurations", func(ctx context.Context) error { return u.objects(ctx, webhooksOnly) }},
		{"conversion of CRDs", u.resetConversion},
		{"finalizers", u.removeFinalizers},
	}
	if o.PurgeCRDs {
		steps = append(steps, step{"custom resources", u.deleteResources})
	}
	steps = append(steps,
		step{"manager and daemon", u.workloads},
		// Until it was gone, the manager may have put some back.
		step{"finalizers that came back", u.removeFinalizers},
		step{"permissions and the rest", func(ctx context.Context) error { return u.objects(ctx, others) }})
	if o.PurgeCRDs {
		steps = append(steps, step{"CRDs", u.deleteCRDs})
	}
	steps = append(steps, step{"namespaces", u.deleteNamespaces})
	for i, s := range steps {
		p.step(i+1, len(steps), "%s", s.title)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("removing %s: %w", s.title, err)
		}
	}
	return nil
}

type step = struct {
	title string
	do    func(context.Context) error
}

type removing struct {
	*Cluster
	r *Removal
	o UninstallOptions
	p Progress
}

func webhooksOnly(e Entry) bool  { return strings.HasSuffix(e.Kind, "WebhookConfiguration") }
func workloadsOnly(e Entry) bool { return e.Kind == "Deployment" || e.Kind == "DaemonSet" }
func others(e Entry) bool        { return !webhooksOnly(e) && !workloadsOnly(e) }

func (u *removing) timeout() time.Duration {
	if u.o.StepTimeout > 0 {
		return u.o.StepTimeout
	}
	return time.Minute
}

func (u *removing) objects(ctx context.Context, which func(Entry) bool) error {
	for _, e := range u.r.Objects {
		if !which(e) {
			continue
		}
		done, err := u.deleteEntry(ctx, e)
		if err != nil {
			return err
		}
		if done {
			u.p.object(Change{Object: e.object(), Action: Deleted})
		}
	}
	return nil
}

// workloads deletes manager and daemon, and waits until their Pods are gone.
func (u *removing) workloads(ctx context.Context) error {
	if err := u.objects(ctx, workloadsOnly); err != nil {
		return err
	}
	gone := Condition{ID: "pods-gone", Check: func(ctx context.Context) (bool, string, error) {
		var left []string
		for _, label := range []string{"controller-manager", "daemon"} {
			pods, err := u.list(ctx, gvkPod, client.InNamespace(u.r.Namespace), client.MatchingLabels{"control-plane": label})
			if err != nil {
				return false, "", err
			}
			for _, pod := range pods {
				left = append(left, pod.GetName())
			}
		}
		return len(left) == 0, "Pods still there: " + strings.Join(left, ", "), nil
	}}
	return u.waitFor(ctx, []Condition{gone}, u.timeout(), u.p)
}

// resetConversion lets the API server convert alone, as the webhook is about to be gone.
func (u *removing) resetConversion(ctx context.Context) error {
	for _, name := range u.r.CRDs {
		crd, err := u.get(ctx, gvkCRD, "", name)
		if err != nil {
			return err
		}
		if crd == nil {
			continue
		}
		if strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); strategy != "Webhook" {
			continue
		}
		patch := mergePatch(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		if err := u.Client.Patch(ctx, crd, patch, client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("resetting the conversion of %s: %w", name, err)
		}
		u.p.note("conversion of %s reset", name)
	}
	return nil
}

// removeFinalizers takes the product's own finalizers from its objects, which nobody
// would take off any more.
func (u *removing) removeFinalizers(ctx context.Context) error {
	return u.eachResource(ctx, false, func(item *unstructured.Unstructured) error {
		kept := slices.DeleteFunc(slices.Clone(item.GetFinalizers()), ownFinalizer)
		if len(kept) == len(item.GetFinalizers()) {
			return nil
		}
		before := item.DeepCopy()
		item.SetFinalizers(kept)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := u.Client.Patch(ctx, item, patch, client.FieldOwner(FieldManager)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing finalizers of %s: %w", Name(item), err)
		}
		u.p.note("finalizers of %s removed", Name(item))
		return nil
	})
}

// ownFinalizer reports a finalizer of the product's groups.
func ownFinalizer(f string) bool {
	domain, _, _ := strings.Cut(f, "/")
	return domain == "kruise.io" || strings.HasSuffix(domain, ".kruise.io")
}

// eachResource visits every custom resource. With wait it then waits until they are gone,
// and leaves out those that the manager makes again as long as it runs: they go with
// their CRD.
func (u *removing) eachResource(ctx context.Context, wait bool, visit func(*unstructured.Unstructured) error) error {
	for _, name := range u.r.CRDs {
		crd, err := u.get(ctx, gvkCRD, "", name)
		if err != nil {
			return err
		}
		if crd == nil {
			continue
		}
		gvk := storageVersion(crd)
		if wait && slices.Contains(systemKinds, gvk.Kind) {
			continue
		}
		items, err := u.list(ctx, gvk)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := visit(&item); err != nil {
				return err
			}
		}
		if !wait || len(items) == 0 {
			continue
		}
		gone := Condition{ID: "gone", Check: func(ctx context.Context) (bool, string, error) {
			left, err := u.list(ctx, gvk)
			var stuck []string
			for _, l := range left {
				stuck = append(stuck, fmt.Sprintf("%s (finalizers %s)", Name(&l), strings.Join(l.GetFinalizers(), ", ")))
			}
			return len(left) == 0, strings.Join(stuck, ", "), err
		}}
		if err := u.waitFor(ctx, []Condition{gone}, u.timeout(), u.p); err != nil {
			return err
		}
	}
	return nil
}

func (u *removing) deleteResources(ctx context.Context) error {
	policy := metav1.DeletePropagationBackground
	if u.o.OrphanWorkloads {
		policy = metav1.DeletePropagationOrphan
	}
	return u.eachResource(ctx, true, func(item *unstructured.Unstructured) error {
		err := u.Client.Delete(ctx, item, client.PropagationPolicy(policy))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", Name(item), err)
		}
		u.p.object(Change{Object: item, Action: Deleted})
		return nil
	})
}

func (u *removing) deleteCRDs(ctx context.Context) error {
	for _, name := range u.r.CRDs {
		if err := u.deleteAndWait(ctx, named(gvkCRD, name)); err != nil {
			return err
		}
	}
	return nil
}

func (u *removing) deleteNamespaces(ctx context.Context) error {
	for _, name := range u.r.Namespaces {
		if err := u.deleteAndWait(ctx, named(gvkNamespace, name)); err != nil {
			return err
		}
	}
	return nil
}

func (u *removing) deleteAndWait(ctx context.Context, o *unstructured.Unstructured) error {
	err := u.Client.Delete(ctx, o.DeepCopy())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && !apierrors.IsConflict(err) { // a conflict: it is being deleted already
		return fmt.Errorf("deleting %s: %w", Name(o), err)
	}
	gone := Condition{ID: "gone", Check: func(ctx context.Context) (bool, string, error) {
		live, err := u.live(ctx, o)
		if err != nil || live == nil {
			return err == nil, "", err
		}
		return false, Name(o) + " is still there: " + strings.Join(remaining(live), "; "), nil
	}}
	if err := u.waitFor(ctx, []Condition{gone}, u.timeout(), u.p); err != nil {
		return err
	}
	u.p.object(Change{Object: o, Action: Deleted})
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
)

// Want says how much Snapshot fetches besides the workload itself.
type Want struct {
	Pods, Revisions, Events bool
	// Gates reads the manager's feature gates, on which it depends what is done in place,
	// and what the planner of the kind looks at: nodes for a DaemonSet, claims for a
	// StatefulSet.
	Gates bool
	// Images reads how far the images that are pulled beforehand have come.
	Images bool
	// Nodes adds nodes, node images, node agents and the manager: what `why` looks at.
	Nodes bool
}

// Everything is what `why` looks at.
var Everything = Want{Pods: true, Revisions: true, Events: true, Gates: true, Nodes: true}

// pageSize bounds one list request.
const pageSize = 500

// Snapshot fetches what is wanted about w, which was read already. What the user may not
// list is left out and named in Hidden; only the workload itself is indispensable.
func Snapshot(ctx context.Context, c client.Client, w adapter.Workload, want Want) (diagnose.Snapshot, error) {
	s := diagnose.Snapshot{Workload: w, Gates: diagnose.DefaultGates()}
	facts, err := w.Facts()
	if err != nil {
		return s, err
	}
	s.Facts = facts
	r := reader{ctx: ctx, c: c, ns: w.Live.GetNamespace(), s: &s}
	if want.Pods {
		r.pods()
	}
	if want.Revisions {
		r.revisions()
	}
	if want.Events {
		r.events()
	}
	if want.Gates {
		r.gates()
		r.planned()
	}
	if want.Nodes {
		r.nodes()
	} else if want.Images {
		r.images()
	}
	diagnose.Refine(&s)
	return s, r.err
}

// reader collects; the first error that is not a missing permission ends it.
type reader struct {
	ctx context.Context
	c   client.Client
	ns  string
	s   *diagnose.Snapshot
	err error
}

// hidden notes a missing permission, or keeps the error.
func (r *reader) hidden(err error, what string) bool {
	switch {
	case err == nil:
		return false
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		r.s.Hidden = append(r.s.Hidden, "cannot list "+what)
	case r.err == nil:
		r.err = fmt.Errorf("listing %s: %w", what, err)
	}
	return true
}

// list fills l page by page and calls each page's use.
func (r *reader) list(l client.ObjectList, use func(), opts ...client.ListOption) error {
	if r.err != nil {
		return nil //nolint:nilerr // the first error is kept already
	}
	token := ""
	for {
		all := append([]client.ListOption{client.Limit(pageSize), client.Continue(token)}, opts...)
		if err := r.c.List(r.ctx, l, all...); err != nil {
			return err
		}
		use()
		if token = l.GetContinue(); token == "" {
			return nil
		}
	}
}

func (r *reader) pods() {
	sel, err := r.s.Workload.Selector()
	if err != nil {
		r.err = err
		return
	}
	var l corev1.PodList
	uid := r.s.Workload.Live.GetUID()
	err = r.list(&l, func() {
		for i := range l.Items {
			p := l.Items[i].DeepCopy()
			if ref := metav1.GetControllerOf(p); ref == nil || ref.UID != uid {
				continue
			}
			if diagnose.Active(p) {
				r.s.Pods = append(r.s.Pods, p)
			} else {
				r.s.Inactive = append(r.s.Inactive, p)
			}
		}
	}, client.InNamespace(r.ns), client.MatchingLabelsSelector{Selector: sel})
	if r.hidden(err, "pods") {
		r.s.Pods, r.s.Inactive = nil, nil
		return
	}
	if r.s.Pods == nil {
		r.s.Pods = []*corev1.Pod{}
	}
	byName := func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(r.s.Pods, byName)
	slices.SortFunc(r.s.Inactive, byName)
}

func (r *reader) revisions() {
	var l appsv1.ControllerRevisionList
	var all []appsv1.ControllerRevision
	err := r.list(&l, func() { all = append(all, l.Items...) }, client.InNamespace(r.ns))
	if r.hidden(err, "controllerrevisions") {
		return
	}
	r.s.Stored = r.s.Workload.Owned(all)
}

func (r *reader) events() {
	of := map[string]bool{r.s.Workload.Kind.Kind + "/" + r.s.Workload.Live.GetName(): true}
	for _, p := range append(slices.Clone(r.s.Pods), r.s.Inactive...) {
		of["Pod/"+p.Name] = true
	}
	var l corev1.EventList
	err := r.list(&l, func() {
		for _, e := range l.Items {
			if of[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] {
				r.s.Events = append(r.s.Events, e)
			}
		}
	}, client.InNamespace(r.ns))
	r.hidden(err, "events")
	slices.SortStableFunc(r.s.Events, func(a, b corev1.Event) int { return diagnose.When(a).Compare(diagnose.When(b)) })
}

// PodEvents are the events of one Pod, oldest first; none when they cannot be listed.
func PodEvents(ctx context.Context, c client.Client, p *corev1.Pod) ([]corev1.Event, error) {
	r := reader{ctx: ctx, c: c, ns: p.Namespace, s: &diagnose.Snapshot{Pods: []*corev1.Pod{p}}}
	var l corev1.EventList
	err := r.list(&l, func() {
		for _, e := range l.Items {
			if e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == p.Name {
				r.s.Events = append(r.s.Events, e)
			}
		}
	}, client.InNamespace(p.Namespace))
	r.hidden(err, "events")
	slices.SortStableFunc(r.s.Events, func(a, b corev1.Event) int { return diagnose.When(a).Compare(diagnose.When(b)) })
	return r.s.Events, r.err
}

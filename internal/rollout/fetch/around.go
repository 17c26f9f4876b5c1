// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Where the programs of this product run (install.md).
const (
	systemNamespace   = "kruise-system"
	managerLease      = "kruise-manager"
	managerDeployment = "kruise-controller-manager"
)

var (
	managerLabels = client.MatchingLabels{"control-plane": "controller-manager"}
	daemonLabels  = client.MatchingLabels{"control-plane": "daemon"}
)

// nodes reads what is around the Pods: their nodes, the node agents, pre-pulled images
// and the manager. Each of them may be missing.
func (r *reader) nodes() {
	r.s.NodeImages = map[string]*v1beta1.NodeImage{}
	if r.s.Nodes == nil {
		r.s.Nodes = map[string]*corev1.Node{}
	}
	hiddenNodes, hiddenImages := false, false
	for _, p := range r.s.Pods {
		name := p.Spec.NodeName
		if name == "" || r.s.NodeImages[name] != nil {
			continue
		}
		if !hiddenNodes && r.s.Nodes[name] == nil {
			node := &corev1.Node{}
			if err := r.c.Get(r.ctx, client.ObjectKey{Name: name}, node); err == nil {
				r.s.Nodes[name] = node
			} else {
				hiddenNodes = r.unreadable(err, "nodes")
			}
		}
		if !hiddenImages {
			ni := &v1beta1.NodeImage{}
			if err := r.c.Get(r.ctx, client.ObjectKey{Name: name}, ni); err == nil {
				r.s.NodeImages[name] = ni
			} else {
				hiddenImages = r.unreadable(err, "nodeimages")
			}
		}
	}
	r.daemons()
	r.manager()
	r.jobs()
	r.requests()
}

// unreadable is hidden for a single object, which may as well not exist.
func (r *reader) unreadable(err error, what string) bool {
	return !apierrors.IsNotFound(err) && r.hidden(err, what)
}

// gates reads the feature gates of the running manager from its command line. Without
// permission or without a manager the defaults stand.
func (r *reader) gates() {
	d := &appsv1.Deployment{}
	if r.err != nil || r.c.Get(r.ctx, client.ObjectKey{Namespace: systemNamespace, Name: managerDeployment}, d) != nil {
		return
	}
	if set := gatesOf(d); set != nil {
		r.s.Gates = GatesOf(set)
		r.s.Gates.Known = true
	}
}

// gatesOf reads the gates from the manager's command line; nil when they are those of
// another release and not ours to guess.
func gatesOf(d *appsv1.Deployment) *features.Set {
	set := features.New()
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range append(slices.Clone(c.Command), c.Args...) {
			if v, ok := strings.CutPrefix(arg, "--feature-gates="); ok && set.Set(v) != nil {
				return nil
			}
		}
	}
	return set
}

// planned reads what the planner of the kind looks at besides Pods and revisions.
func (r *reader) planned() {
	switch r.s.Workload.Kind {
	case target.DaemonSet:
		var l corev1.NodeList
		nodes := map[string]*corev1.Node{}
		err := r.list(&l, func() {
			for i := range l.Items {
				nodes[l.Items[i].Name] = l.Items[i].DeepCopy()
			}
		})
		if !r.hidden(err, "nodes") && r.err == nil {
			r.s.Nodes, r.s.AllNodes = nodes, true
		}
	case target.StatefulSet:
		set, err := adapter.StatefulSet(r.s.Workload.Live)
		if err != nil || len(set.Spec.VolumeClaimTemplates) == 0 {
			return
		}
		var l corev1.PersistentVolumeClaimList
		r.hidden(r.list(&l, func() {
			for i := range l.Items {
				r.s.Claims = append(r.s.Claims, l.Items[i].DeepCopy())
			}
		}, client.InNamespace(r.ns)), "persistentvolumeclaims")
		if !statefulset.ExpandsClaims(set, r.s.Gates.StatefulSet) {
			return
		}
		r.s.StorageClasses = map[string]*storagev1.StorageClass{}
		var classes storagev1.StorageClassList
		r.hidden(r.list(&classes, func() {
			for i := range classes.Items {
				r.s.StorageClasses[classes.Items[i].Name] = classes.Items[i].DeepCopy()
			}
		}), "storageclasses")
	}
}

func (r *reader) jobs() {
	var l v1beta1.ImagePullJobList
	live := r.s.Workload.Live
	uid, asked := live.GetUID(), pull.PredownloadFor(r.s.Workload.Kind.Kind, live.GetName())
	_ = r.list(&l, func() {
		for _, j := range l.Items {
			ref := metav1.GetControllerOf(&j)
			if ref != nil && ref.UID == uid || ref == nil && j.Labels[pull.PredownloadForLabel] == asked {
				r.s.Jobs = append(r.s.Jobs, j)
			}
		}
	}, client.InNamespace(r.ns))
}

// requests are the restarts of containers in the namespace.
func (r *reader) requests() {
	if r.err != nil {
		return
	}
	// Where they are hidden or not served, a Pod has just one finding less.
	if all, err := List[v1beta1.ContainerRecreateRequest](r.ctx, r.c, target.ContainerRecreateRequest, client.InNamespace(r.ns)); err == nil {
		r.s.Requests = all
	}
}

// images reads the jobs that pull beforehand and, where there is one, what the nodes have.
// It is a detail of a rollout: where it is hidden, nothing is said of it.
func (r *reader) images() {
	r.jobs()
	if len(r.s.Jobs) == 0 || r.err != nil {
		return
	}
	all, err := List[v1beta1.NodeImage](r.ctx, r.c, target.NodeImage)
	if err != nil {
		return
	}
	r.s.NodeImages = map[string]*v1beta1.NodeImage{}
	for i := range all {
		r.s.NodeImages[all[i].Name] = &all[i]
	}
}

// NodeAgents are the Pods of the node agents.
func NodeAgents(ctx context.Context, c client.Client) ([]corev1.Pod, error) {
	return List[corev1.Pod](ctx, c, target.Pod, client.InNamespace(systemNamespace), daemonLabels)
}

func (r *reader) daemons() {
	var l corev1.PodList
	found := map[string]*corev1.Pod{}
	err := r.list(&l, func() {
		for i := range l.Items {
			found[l.Items[i].Spec.NodeName] = l.Items[i].DeepCopy()
		}
	}, client.InNamespace(systemNamespace), daemonLabels)
	if !r.hidden(err, "pods in "+systemNamespace) && len(found) > 0 {
		r.s.Daemons = found
	}
}

func (r *reader) manager() {
	var l corev1.PodList
	m := &diagnose.Manager{}
	err := r.list(&l, func() {
		for i := range l.Items {
			m.Total++
			if diagnose.PodReady(&l.Items[i]) {
				m.Ready++
			}
		}
	}, client.InNamespace(systemNamespace), managerLabels)
	if err != nil || r.err != nil {
		return
	}
	lease := &coordinationv1.Lease{}
	if err := r.c.Get(r.ctx, client.ObjectKey{Namespace: systemNamespace, Name: managerLease}, lease); err == nil {
		if lease.Spec.HolderIdentity != nil {
			m.Holder = *lease.Spec.HolderIdentity
		}
		if lease.Spec.RenewTime != nil {
			m.Renewed = lease.Spec.RenewTime.Time
		}
	}
	r.s.Manager = m
}

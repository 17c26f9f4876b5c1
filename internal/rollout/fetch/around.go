// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
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
	r.s.Nodes, r.s.NodeImages = map[string]*corev1.Node{}, map[string]*v1beta1.NodeImage{}
	hiddenNodes, hiddenImages := false, false
	for _, p := range r.s.Pods {
		name := p.Spec.NodeName
		if name == "" || r.s.Nodes[name] != nil {
			continue
		}
		if !hiddenNodes {
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
	set := features.New()
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range append(slices.Clone(c.Command), c.Args...) {
			if v, ok := strings.CutPrefix(arg, "--feature-gates="); ok && set.Set(v) != nil {
				return // gates of another release: not ours to guess
			}
		}
	}
	r.s.Gates = diagnose.Gates{
		Known: true,
		Plan: cloneset.Gates{
			PartitionRollback:       set.Enabled(features.CloneSetPartitionRollback),
			PreparingUpdateAsUpdate: set.Enabled(features.PreparingUpdateAsUpdate),
			ShortHash:               set.Enabled(features.CloneSetShortHash),
		},
		InPlace: inplace.Options{
			VerticalScaling:                     set.Enabled(features.InPlaceWorkloadVerticalScaling),
			EnvFromMetadata:                     set.Enabled(features.InPlaceUpdateEnvFromMetadata),
			RecreateOnVolumeClaimTemplateChange: set.Enabled(features.RecreatePodWhenChangeVCTInCloneSetGate),
		},
	}
}

func (r *reader) jobs() {
	var l v1beta1.ImagePullJobList
	uid := r.s.Workload.Live.GetUID()
	_ = r.list(&l, func() {
		for _, j := range l.Items {
			if ref := metav1.GetControllerOf(&j); ref != nil && ref.UID == uid {
				r.s.Jobs = append(r.s.Jobs, j)
			}
		}
	}, client.InNamespace(r.ns))
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

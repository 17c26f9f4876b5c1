// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/events"
	"github.com/kruisectl/kruisectl/internal/imageref"
)

// observe gathers the snapshot and brings the copies of the pull secrets up to date.
func (r *Reconciler) observe(ctx context.Context, job *v1beta1.ImagePullJob) (*Snapshot, error) {
	image, err := imageref.Parse(job.Spec.Image)
	if err != nil {
		return nil, r.invalid(job, err)
	}
	nodes, err := r.nodes(ctx, job)
	if err != nil {
		return nil, err
	}
	secrets, err := r.secrets.Sync(ctx, client.ObjectKeyFromObject(job), job.Spec.PullSecrets)
	if err != nil {
		return nil, fmt.Errorf("copying pull secrets: %w", err)
	}
	if len(secrets.Missing) > 0 && job.Status.StartTime == nil {
		// Once: the job is looked at again and again until it ends.
		events.Send(r.events, job, events.Warning, EventSecretMissing, "pull secrets do not exist: %s", strings.Join(secrets.Missing, ", "))
	}
	return &Snapshot{Job: job, Image: image, Nodes: nodes, Secrets: secrets.References}, nil
}

// invalid reports a spec that no retry makes valid.
func (r *Reconciler) invalid(job *v1beta1.ImagePullJob, err error) error {
	events.Send(r.events, job, events.Warning, EventInvalid, "%s", err.Error())
	return reconcile.TerminalError(err)
}

// nodes returns the matching NodeImages in the order in which they get the task: by name,
// or, for jobs of a workload, in the order in which it updates its Pods. They are read-only.
func (r *Reconciler) nodes(ctx context.Context, job *v1beta1.ImagePullJob) ([]*v1beta1.NodeImage, error) {
	match, err := newMatcher(job)
	if err != nil {
		return nil, r.invalid(job, err)
	}
	var nodes []*v1beta1.NodeImage
	if match.pods == nil {
		var list v1beta1.NodeImageList
		if err := r.client.List(ctx, &list, client.MatchingLabelsSelector{Selector: match.labels}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing NodeImages: %w", err)
		}
		for i := range list.Items {
			if match.name(list.Items[i].Name) {
				nodes = append(nodes, &list.Items[i])
			}
		}
		sortByName(nodes)
		return nodes, nil
	}
	order, err := updateOrder(ctx, r.client, job)
	if err != nil {
		return nil, err
	}
	names, err := podNodes(ctx, r.client, job.Namespace, match.pods, order)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		node := &v1beta1.NodeImage{}
		switch err := r.client.Get(ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy); {
		case apierrors.IsNotFound(err): // virtual nodes have none
		case err != nil:
			return nil, fmt.Errorf("reading NodeImage %s: %w", name, err)
		default:
			nodes = append(nodes, node)
		}
	}
	if order == nil {
		sortByName(nodes)
	}
	return nodes, nil
}

func sortByName(nodes []*v1beta1.NodeImage) {
	slices.SortFunc(nodes, func(a, b *v1beta1.NodeImage) int { return strings.Compare(a.Name, b.Name) })
}

// SPDX-License-Identifier: Apache-2.0

package imagelistpulljob

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/owned"
)

// Kinds of expectations. A child that is being made has no name yet: what is expected is a
// child for an image, with the template as it is now.
const (
	kindList  = "ImageListPullJob"
	kindChild = "ImagePullJob"
	kindImage = "ImagePullJob for"
)

// imageObject names the child that is being made by its image and the hash of its template.
func imageObject(child *v1beta1.ImagePullJob) expectation.Object {
	return expectation.Object{Kind: kindImage, Name: child.Labels[hashLabel] + " " + child.Spec.Image}
}

func (r *Reconciler) wrote(job *v1beta1.ImageListPullJob) {
	r.written.ExpectVersion(client.ObjectKeyFromObject(job), expectation.Object{Kind: kindList, Name: job.Name}, job.UID, job.ResourceVersion)
}

// cached looks up what is expected among what one pass has read from the cache.
func (r *Reconciler) cached(ctx context.Context, job *v1beta1.ImageListPullJob, children []*v1beta1.ImagePullJob) expectation.Lookup {
	return func(o expectation.Object) (expectation.Seen, bool) {
		switch o.Kind {
		case kindList:
			return owned.Seen(job), true
		case kindImage:
			return byImage(children, o)
		}
		seen, found, err := get(ctx, r.client, job.Namespace, o)
		return seen, found && err == nil
	}
}

// reader asks the API server for the same.
func (r *Reconciler) reader(job *v1beta1.ImageListPullJob) expectation.Read {
	return func(ctx context.Context, o expectation.Object) (expectation.Seen, bool, error) {
		if o.Kind != kindImage {
			return get(ctx, r.live, job.Namespace, o)
		}
		var list v1beta1.ImagePullJobList
		if err := r.live.List(ctx, &list, client.InNamespace(job.Namespace)); err != nil {
			return expectation.Seen{}, false, fmt.Errorf("listing ImagePullJobs: %w", err)
		}
		var children []*v1beta1.ImagePullJob
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], job) {
				children = append(children, &list.Items[i])
			}
		}
		seen, found := byImage(children, o)
		return seen, found, nil
	}
}

func byImage(children []*v1beta1.ImagePullJob, o expectation.Object) (expectation.Seen, bool) {
	i := slices.IndexFunc(children, func(c *v1beta1.ImagePullJob) bool { return imageObject(c) == o })
	if i < 0 {
		return expectation.Seen{}, false
	}
	return owned.Seen(children[i]), true
}

func get(ctx context.Context, from client.Reader, namespace string, o expectation.Object) (expectation.Seen, bool, error) {
	var obj client.Object = &v1beta1.ImagePullJob{}
	if o.Kind == kindList {
		obj = &v1beta1.ImageListPullJob{}
	}
	switch err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.Name}, obj); {
	case apierrors.IsNotFound(err):
		return expectation.Seen{}, false, nil
	case err != nil:
		return expectation.Seen{}, false, fmt.Errorf("reading %s: %w", o, err)
	}
	return owned.Seen(obj), true, nil
}

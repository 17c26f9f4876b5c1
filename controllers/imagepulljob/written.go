// SPDX-License-Identifier: Apache-2.0

package imagepulljob

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/owned"
)

// Kinds of objects that a job expects to see as it wrote them.
const (
	kindJob       = "ImagePullJob"
	kindNodeImage = "NodeImage"
)

// wrote notes that the API server answered a write of job with obj: its own object or a
// NodeImage.
func (r *Reconciler) wrote(job *v1beta1.ImagePullJob, obj client.Object) {
	kind := kindNodeImage
	if _, own := obj.(*v1beta1.ImagePullJob); own {
		kind = kindJob
	}
	r.written.ExpectVersion(client.ObjectKeyFromObject(job), expectation.Object{Kind: kind, Name: obj.GetName()}, obj.GetUID(), obj.GetResourceVersion())
}

func (r *Reconciler) cached(ctx context.Context, namespace string) expectation.Lookup {
	read := r.read(r.client, namespace)
	return func(o expectation.Object) (expectation.Seen, bool) {
		seen, found, err := read(ctx, o)
		return seen, found && err == nil
	}
}

func (*Reconciler) read(from client.Reader, namespace string) expectation.Read {
	return func(ctx context.Context, o expectation.Object) (expectation.Seen, bool, error) {
		var obj client.Object = &v1beta1.NodeImage{}
		key := types.NamespacedName{Name: o.Name}
		if o.Kind == kindJob {
			obj, key.Namespace = &v1beta1.ImagePullJob{}, namespace
		}
		switch err := from.Get(ctx, key, obj, client.UnsafeDisableDeepCopy); {
		case apierrors.IsNotFound(err):
			return expectation.Seen{}, false, nil
		case err != nil:
			return expectation.Seen{}, false, fmt.Errorf("reading %s: %w", o, err)
		}
		return owned.Seen(obj), true, nil
	}
}

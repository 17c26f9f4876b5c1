// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Verdict is what becomes of an object that a workload may own.
type Verdict string

// The verdicts of Judge.
const (
	Keep    Verdict = "Keep"    // it is the workload's and stays so
	Release Verdict = "Release" // it is the workload's and does not fit any more
	Adopt   Verdict = "Adopt"   // it is nobody's and fits
	Ignore  Verdict = "Ignore"
)

// Claimer decides and writes which objects belong to a workload: the rules of Kubernetes'
// own controllers. It serves one pass over one workload and one goroutine.
type Claimer struct {
	Writer
	// Live is asked once, before the first adoption, whether the workload still lives.
	Live client.Reader
	// Owner is the workload, as it was read, and Kind its kind.
	Owner client.Object
	Kind  schema.GroupVersionKind
	// Selector is the workload's.
	Selector labels.Selector
	// Fits is asked besides the selector; nil: the selector is all.
	Fits func(client.Object) bool

	asked bool
	alive bool
}

// Judge tells what becomes of obj. It is pure.
func (c *Claimer) Judge(obj client.Object) Verdict {
	fits := c.Selector.Matches(labels.Set(obj.GetLabels())) && (c.Fits == nil || c.Fits(obj))
	ending := c.Owner.GetDeletionTimestamp() != nil
	ref := metav1.GetControllerOfNoCopy(obj)
	switch {
	case ref != nil && ref.UID != c.Owner.GetUID():
		return Ignore
	case ref != nil && fits:
		return Keep
	case ref != nil && ending: // the garbage collector takes it
		return Ignore
	case ref != nil:
		return Release
	case fits && !ending && obj.GetDeletionTimestamp() == nil:
		return Adopt
	}
	return Ignore
}

// Claim carries out the verdict on obj, which is only read. It returns the object as it is
// then when it belongs to the workload, else nil.
func (c *Claimer) Claim(ctx context.Context, obj client.Object) (client.Object, error) {
	key := client.ObjectKeyFromObject(c.Owner)
	switch c.Judge(obj) {
	case Keep:
		return obj, nil
	case Release:
		_, err := c.Writer.Release(ctx, key, obj, c.Owner.GetUID())
		return nil, err
	case Adopt:
		alive, err := c.lives(ctx)
		if err != nil || !alive {
			return nil, err
		}
		got, err := c.Writer.Adopt(ctx, key, obj, *metav1.NewControllerRef(c.Owner, c.Kind))
		if apierrors.IsNotFound(err) {
			return nil, nil // gone meanwhile
		}
		return got, err
	}
	return nil, nil
}

// lives asks the API server whether the workload is the one that was read and not on its
// way out: the cache may be behind.
func (c *Claimer) lives(ctx context.Context) (bool, error) {
	if c.asked {
		return c.alive, nil
	}
	fresh, ok := c.Owner.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("%T copies to another type", c.Owner)
	}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(c.Owner), fresh)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s %s: %w", c.Kind.Kind, client.ObjectKeyFromObject(c.Owner), err)
	}
	c.asked = true
	c.alive = err == nil && fresh.GetUID() == c.Owner.GetUID() && fresh.GetDeletionTimestamp() == nil
	return c.alive, nil
}

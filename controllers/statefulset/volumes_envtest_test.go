// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package statefulset

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Storage classes of the tests.
const (
	expandable = "expandable"
	fixed      = "fixed"
)

func createClasses(ctx context.Context, c client.Client) error {
	for _, name := range []string{expandable, fixed} {
		class := &storagev1.StorageClass{
			ObjectMeta:           metav1.ObjectMeta{Name: name},
			Provisioner:          "test.example.com/driver",
			AllowVolumeExpansion: new(name == expandable),
		}
		if err := c.Create(ctx, class); err != nil {
			return err
		}
	}
	return nil
}

// heldAnnotation on a claim keeps the fake driver from expanding its volume; with value
// restartGrows only until a Pod starts anew with it.
const (
	heldAnnotation = "test/held"
	restartGrows   = "until restart"
)

// driver stands in for the volume controllers and the garbage collector: it binds claims,
// expands their volumes, lets go of claims that no Pod uses, and deletes claims whose
// owners are all gone.
type driver struct{ client client.Client }

func (d *driver) run(ctx context.Context) {
	every(ctx, 50*time.Millisecond, func() {
		var claims corev1.PersistentVolumeClaimList
		var pods corev1.PodList
		var sets v1beta1.StatefulSetList
		// Claims first: an owner that is made after them is not missed.
		for _, list := range []client.ObjectList{&claims, &pods, &sets} {
			if err := d.client.List(ctx, list); err != nil {
				return
			}
		}
		owners, used := map[types.UID]bool{}, map[client.ObjectKey]*corev1.Pod{}
		for _, s := range sets.Items {
			owners[s.UID] = true
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			owners[p.UID] = true
			for _, v := range p.Spec.Volumes {
				if v.PersistentVolumeClaim != nil {
					used[client.ObjectKey{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}] = p
				}
			}
		}
		for i := range claims.Items {
			d.sync(ctx, &claims.Items[i], owners, used) // errors are conflicts: the next tick tries again
		}
	})
}

func (d *driver) sync(ctx context.Context, c *corev1.PersistentVolumeClaim, owners map[types.UID]bool, used map[client.ObjectKey]*corev1.Pod) {
	const protection = "kubernetes.io/pvc-protection"
	orphaned := len(c.OwnerReferences) > 0
	for _, ref := range c.OwnerReferences {
		orphaned = orphaned && !owners[ref.UID]
	}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity := c.Status.Capacity[corev1.ResourceStorage]
	switch {
	case c.DeletionTimestamp != nil:
		if i := slices.Index(c.Finalizers, protection); i >= 0 && used[client.ObjectKeyFromObject(c)] == nil {
			c.Finalizers = slices.Delete(c.Finalizers, i, i+1)
			_ = d.client.Update(ctx, c)
		}
	case orphaned:
		_ = d.client.Delete(ctx, c, client.Preconditions{UID: &c.UID})
	case c.Spec.VolumeName == "":
		c.Spec.VolumeName = "pv-" + string(c.UID)
		_ = d.client.Update(ctx, c)
	case size.Cmp(capacity) > 0 && c.Annotations[heldAnnotation] == restartGrows:
		d.growAtRestart(ctx, c, used[client.ObjectKeyFromObject(c)])
	case c.Status.Phase != corev1.ClaimBound || size.Cmp(capacity) > 0 && c.Annotations[heldAnnotation] == "":
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		c.Status.Conditions = nil
		_ = d.client.Status().Update(ctx, c)
	}
}

// growAtRestart has the claim wait for another Pod than the one that runs, as if it had
// waited for long; then it grows.
func (d *driver) growAtRestart(ctx context.Context, c *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	const runs = "test/pod-at-expansion"
	switch {
	case pod == nil:
	case c.Annotations[runs] == "":
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, runs, string(pod.UID))
		_ = d.client.Update(ctx, c)
	case c.Annotations[runs] != string(pod.UID):
		delete(c.Annotations, heldAnnotation)
		_ = d.client.Update(ctx, c)
	case len(c.Status.Conditions) == 0:
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
			Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
		_ = d.client.Status().Update(ctx, c)
	}
}

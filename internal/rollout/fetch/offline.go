// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Offline makes a snapshot of w out of objects that somebody saved, e.g. with kubectl get
// -o yaml: its Pods, revisions, nodes and claims, and the manager's Deployment for the
// feature gates. Without the latter the gates are set, or the defaults where set is nil.
func Offline(w adapter.Workload, objects []*unstructured.Unstructured, set *features.Set) (diagnose.Snapshot, error) {
	s := diagnose.Snapshot{Workload: w, Gates: diagnose.DefaultGates(), Pods: []*corev1.Pod{}}
	facts, err := w.Facts()
	if err != nil {
		return s, err
	}
	s.Facts = facts
	s.Nodes, s.StorageClasses = map[string]*corev1.Node{}, map[string]*storagev1.StorageClass{}
	for _, u := range objects {
		if err := collect(&s, u); err != nil {
			return s, err
		}
	}
	if set != nil {
		s.Gates = GatesOf(set)
		s.Gates.Known = true
	}
	byName := func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(s.Pods, byName)
	slices.SortFunc(s.Inactive, byName)
	var revisions []appsv1.ControllerRevision
	for _, r := range s.Stored {
		revisions = append(revisions, *r)
	}
	s.Stored = w.Owned(revisions)
	diagnose.Refine(&s)
	return s, nil
}

func collect(s *diagnose.Snapshot, u *unstructured.Unstructured) error {
	switch u.GroupVersionKind().GroupKind().String() {
	case "Pod":
		p, err := as[corev1.Pod](u)
		if err != nil || !ownedBy(p, s.Workload) {
			return err
		}
		if diagnose.Active(p) {
			s.Pods = append(s.Pods, p)
		} else {
			s.Inactive = append(s.Inactive, p)
		}
	case "ControllerRevision.apps":
		r, err := as[appsv1.ControllerRevision](u)
		if err != nil {
			return err
		}
		s.Stored = append(s.Stored, r)
	case "Node":
		n, err := as[corev1.Node](u)
		if err != nil {
			return err
		}
		s.Nodes[n.Name], s.AllNodes = n, true
	case "PersistentVolumeClaim":
		c, err := as[corev1.PersistentVolumeClaim](u)
		if err != nil || c.Namespace != s.Workload.Live.GetNamespace() {
			return err
		}
		s.Claims = append(s.Claims, c)
	case "StorageClass.storage.k8s.io":
		c, err := as[storagev1.StorageClass](u)
		if err != nil {
			return err
		}
		s.StorageClasses[c.Name] = c
	case "Deployment.apps":
		d, err := as[appsv1.Deployment](u)
		if err != nil || d.Namespace != systemNamespace || d.Name != managerDeployment {
			return err
		}
		if set := gatesOf(d); set != nil {
			s.Gates = GatesOf(set)
			s.Gates.Known = true
		}
	}
	return nil
}

func as[T any](u *unstructured.Unstructured) (*T, error) {
	var v T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &v); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return &v, nil
}

func ownedBy(p *corev1.Pod, w adapter.Workload) bool {
	ref := metav1.GetControllerOf(p)
	return ref != nil && ref.UID == w.Live.GetUID() && p.Namespace == w.Live.GetNamespace()
}

// Saved finds the workload that k and name mean among saved objects; namespace "" matches
// the only one of that name.
func Saved(objects []*unstructured.Unstructured, k *target.Kind, namespace, name string) (adapter.Workload, error) {
	var found []*unstructured.Unstructured
	for _, u := range objects {
		if u.GroupVersionKind().GroupKind() == k.GroupKind && u.GetName() == name && (namespace == "" || u.GetNamespace() == namespace) {
			found = append(found, u)
		}
	}
	switch len(found) {
	case 0:
		return adapter.Workload{}, fmt.Errorf("the present objects hold no %s named %q", k.Word(), name)
	case 1:
	default:
		return adapter.Workload{}, fmt.Errorf("the present objects hold %s of several namespaces; say which with -n", target.Short(k, name))
	}
	u := found[0]
	return adapter.Wrap(target.Object{Kind: k, GVK: u.GroupVersionKind(), Live: u})
}

// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// page is how many objects one list call returns at most.
const page = 500

// CRD is where the objects of a CustomResourceDefinition are found. It is read from the
// definition in the request: a REST mapper does not know one that is seconds old.
type CRD struct {
	Resource schema.GroupVersionResource
}

// parseCRD reads the spec of a CRD of apiextensions v1 or v1beta1. The version is the
// stored one, or any that is served when that one is not.
func parseCRD(spec []byte) (CRD, error) {
	var s struct {
		Group   string `json:"group"`
		Version string `json:"version"` // v1beta1 alone
		Names   struct {
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	}
	if err := json.Unmarshal(spec, &s); err != nil {
		return CRD{}, fmt.Errorf("decoding its spec: %w", err)
	}
	version := s.Version
	for _, v := range s.Versions {
		if v.Served && (v.Storage || version == "" || len(s.Versions) == 1) {
			version = v.Name
			if v.Storage {
				break
			}
		}
	}
	if s.Group == "" || s.Names.Plural == "" || version == "" {
		return CRD{}, errors.New("it names no group, plural or served version")
	}
	return CRD{Resource: schema.GroupVersionResource{Group: s.Group, Version: version, Resource: s.Names.Plural}}, nil
}

// Live counts by asking the API server.
type Live struct {
	Reader   client.Reader // not a cache
	Metadata metadata.Interface
}

// ActivePods implements Counter.
func (l Live) ActivePods(ctx context.Context, namespace string) (int, error) {
	n := 0
	list := &corev1.PodList{}
	for {
		err := l.Reader.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(list.Continue))
		if err != nil {
			return 0, fmt.Errorf("listing Pods of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				n++
			}
		}
		if list.Continue == "" {
			return n, nil
		}
	}
}

// BoundClaims implements Counter.
func (l Live) BoundClaims(ctx context.Context, namespace string) (int, error) {
	n := 0
	list := &corev1.PersistentVolumeClaimList{}
	for {
		err := l.Reader.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(list.Continue))
		if err != nil {
			return 0, fmt.Errorf("listing PersistentVolumeClaims of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil && list.Items[i].Status.Phase == corev1.ClaimBound {
				n++
			}
		}
		if list.Continue == "" {
			return n, nil
		}
	}
}

// CustomResources implements Counter. It stops at the first page that has any.
func (l Live) CustomResources(ctx context.Context, crd CRD) (int, error) {
	o := metav1.ListOptions{Limit: page}
	for {
		list, err := l.Metadata.Resource(crd.Resource).List(ctx, o)
		if apierrors.IsNotFound(err) { // no longer or not yet served: nothing can be in it
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("listing %s: %w", crd.Resource.GroupResource(), err)
		}
		n := 0
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				n++
			}
		}
		if n > 0 || list.Continue == "" {
			return n, nil
		}
		o.Continue = list.Continue
	}
}

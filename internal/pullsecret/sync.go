// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Syncer carries plans out. It may be used concurrently.
type Syncer struct {
	// Client writes, and reads the metadata of secrets of all namespaces from a cache.
	Client client.Client
	// Copies reads whole secrets of Namespace, from a cache of that namespace alone.
	Copies client.Reader
	// Live reads single secrets, and those of Namespace, from the API server: the data of all
	// secrets of a cluster is not for keeping in memory.
	Live client.Reader
	// Namespace holds the copies.
	Namespace string

	mu      sync.Mutex
	sources map[types.NamespacedName]*corev1.Secret // as last read, while some job wants them
}

// Result is what a job has to know of its secrets.
type Result struct {
	References []v1beta1.ReferenceObject
	Missing    []string
}

// Sync makes the copies that an active job wants. A conflict means that another job's
// change came first: try again.
func (s *Syncer) Sync(ctx context.Context, job types.NamespacedName, wanted []string) (Result, error) {
	if len(wanted) == 0 {
		return Result{}, nil
	}
	snap := Snapshot{Namespace: s.Namespace, Job: job, Wanted: wanted}
	if job.Namespace != s.Namespace {
		copies, err := s.copies(ctx, s.Copies)
		if err != nil {
			return Result{}, err
		}
		snap.Copies, snap.Sources = copies, map[string]*corev1.Secret{}
		for _, name := range wanted {
			source, err := s.source(ctx, types.NamespacedName{Namespace: job.Namespace, Name: name})
			if err != nil {
				return Result{}, err
			}
			if source != nil {
				snap.Sources[name] = source
			}
		}
	}
	plan := Decide(snap)
	if err := s.act(ctx, plan, job); err != nil {
		return Result{}, err
	}
	return Result{References: plan.References, Missing: plan.Missing}, nil
}

// Release takes a finished or deleted job off all copies and deletes those that no job
// wants any more. It needs no namespace to exist: what is gone is released. It asks the API
// server: nobody looks for copies that the cache does not show yet again.
func (s *Syncer) Release(ctx context.Context, job types.NamespacedName) error {
	copies, err := s.copies(ctx, s.Live)
	if err != nil {
		return err
	}
	plan := Decide(Snapshot{Namespace: s.Namespace, Job: job, Released: true, Copies: copies})
	return s.act(ctx, plan, job)
}

// Used reports whether a copy in the cache names job.
func (s *Syncer) Used(ctx context.Context, job types.NamespacedName) (bool, error) {
	copies, err := s.copies(ctx, s.Copies)
	return slices.ContainsFunc(copies, func(c *corev1.Secret) bool { return references(c).has(job) }), err
}

// copies lists the secrets of Namespace. They are read-only.
func (s *Syncer) copies(ctx context.Context, from client.Reader) ([]*corev1.Secret, error) {
	var list corev1.SecretList
	if err := from.List(ctx, &list, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Secrets of namespace %s: %w", s.Namespace, err)
	}
	copies := make([]*corev1.Secret, 0, len(list.Items))
	for i := range list.Items {
		copies = append(copies, &list.Items[i])
	}
	return copies, nil
}

// source returns the secret, or nil when there is none. It asks the API server only when
// the cached metadata tells that the secret is another than the one read last.
func (s *Syncer) source(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	switch err := s.Client.Get(ctx, key, meta); {
	case apierrors.IsNotFound(err):
		s.forget(key)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the metadata of Secret %s: %w", key, err)
	}
	s.mu.Lock()
	known := s.sources[key]
	s.mu.Unlock()
	if known != nil && known.UID == meta.UID && known.ResourceVersion == meta.ResourceVersion {
		return known, nil
	}
	var secret corev1.Secret
	switch err := s.Live.Get(ctx, key, &secret); {
	case apierrors.IsNotFound(err):
		s.forget(key)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources == nil {
		s.sources = map[types.NamespacedName]*corev1.Secret{}
	}
	s.sources[key] = &secret
	return &secret, nil
}

func (s *Syncer) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sources, key)
}

func (s *Syncer) act(ctx context.Context, plan Plan, job types.NamespacedName) error {
	var errs []error
	for _, secret := range plan.Create {
		errs = append(errs, s.create(ctx, secret, job))
	}
	for _, secret := range plan.Update {
		if err := s.Client.Update(ctx, secret); err != nil {
			errs = append(errs, fmt.Errorf("updating Secret %s/%s: %w", secret.Namespace, secret.Name, err))
		}
	}
	for _, secret := range plan.Delete {
		// Only the object that was seen: a job may have added itself since.
		err := s.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting Secret %s/%s: %w", secret.Namespace, secret.Name, err))
			continue
		}
		namespace, name := splitKey(secret.Annotations[SourceAnnotation])
		s.forget(types.NamespacedName{Namespace: namespace, Name: name})
	}
	return errors.Join(errs...)
}

// create makes a copy, or joins the one that another pass made a moment ago and the cache
// does not show yet.
func (s *Syncer) create(ctx context.Context, secret *corev1.Secret, job types.NamespacedName) error {
	err := s.Client.Create(ctx, secret.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	var have corev1.Secret
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(secret), &have); err != nil {
		return fmt.Errorf("reading Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if have.DeletionTimestamp != nil || have.Annotations[SourceAnnotation] != secret.Annotations[SourceAnnotation] {
		return fmt.Errorf("secret %s/%s exists and is not a copy of %s", secret.Namespace, secret.Name, secret.Annotations[SourceAnnotation])
	}
	if references(&have).has(job) {
		return nil
	}
	have.Annotations[ReferencesAnnotation] = references(&have).with(job).String()
	have.Data = secret.Data
	if err := s.Client.Update(ctx, &have); err != nil {
		return fmt.Errorf("updating Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func splitKey(key string) (namespace, name string) {
	if k := References(map[string]string{ReferencesAnnotation: key}); len(k) == 1 {
		return k[0].Namespace, k[0].Name
	}
	return "", ""
}

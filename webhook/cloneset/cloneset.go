// SPDX-License-Identifier: Apache-2.0

// Package cloneset registers admission and conversion of CloneSets. The rules are in
// internal/valid and apis; what only the cluster knows is looked up here (cloneset.md 5).
package cloneset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

var kind = v1beta1.GroupVersion.WithKind("CloneSet")

// Options are what admission of CloneSets needs.
type Options struct {
	Features *features.Set
	// Cached and Live look up Pods that podsToDelete names; Live is asked when the cache
	// does not know one.
	Cached, Live client.Reader
	// Denials records protected deletions; nil records nothing.
	Denials *protection.Recorder
}

// Register serves admission of CloneSets under the paths that platform.md 3.5 fixes.
func Register(hs admit.Handlers, o Options) {
	rules := admit.Rules[*v1beta1.CloneSet]{
		Kind: kind,
		Versions: []admit.Version[*v1beta1.CloneSet]{
			admit.Hub("v1beta1", func(old, cs *v1beta1.CloneSet) {
				var before *corev1.PodTemplateSpec
				if old != nil {
					before = &old.Spec.Template
				}
				v1beta1.SetDefaultsCloneSet(cs, o.templates(before, &cs.Spec.Template))
			}),
			admit.Spoke("v1alpha1", v1alpha1.CloneSetToHub, func(old, cs *v1alpha1.CloneSet) {
				var before *corev1.PodTemplateSpec
				if old != nil {
					before = &old.Spec.Template
				}
				v1alpha1.SetDefaultsCloneSet(cs, o.templates(before, &cs.Spec.Template))
			}),
		},
		Validate: o.validate,
		Delete:   o.delete,
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-cloneset", "/mutate-apps-kruise-io-v1alpha1-cloneset")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-cloneset", "/validate-apps-kruise-io-v1alpha1-cloneset")
}

// Converter converts CloneSets of all versions for /convert.
func Converter() (*v1beta1.CloneSet, conversion.SpokeConverter[*v1beta1.CloneSet]) {
	return &v1beta1.CloneSet{}, conversion.NewSpokeConverter(&v1alpha1.CloneSet{}, v1alpha1.CloneSetFromHub, v1alpha1.CloneSetToHub)
}

// templates returns the defaults of templates, which only a new or changed Pod template
// gets: an unchanged one that gained defaults would restart every Pod.
func (o Options) templates(old, obj *corev1.PodTemplateSpec) v1beta1.DefaultOptions {
	if o.Features.Enabled(features.TemplateNoDefaults) || old != nil && apiequality.Semantic.DeepEqual(old, obj) {
		return v1beta1.DefaultOptions{}
	}
	return o.allTemplates()
}

func (o Options) allTemplates() v1beta1.DefaultOptions {
	ports := o.Features.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates)
	return v1beta1.DefaultOptions{
		Template: func(t *corev1.PodTemplateSpec) {
			poddefaults.Template(t, poddefaults.Options{HostNetworkHostPorts: ports})
		},
		Claim: poddefaults.Claim,
	}
}

func (o Options) validate(ctx context.Context, r admit.Request[*v1beta1.CloneSet]) (field.ErrorList, error) {
	pods, err := o.podsToDelete(ctx, r.Old, r.New)
	if err != nil {
		return nil, err
	}
	vo := valid.Options{
		V1alpha1:        r.Version == "v1alpha1",
		Pods:            pods,
		VerticalScaling: o.Features.Enabled(features.InPlaceWorkloadVerticalScaling),
	}
	var errs field.ErrorList
	if cs, ok := r.Written.(*v1alpha1.CloneSet); ok {
		errs = valid.CloneSetV1alpha1(cs)
	}
	if r.Old == nil {
		return append(errs, valid.CloneSet(o.defaulted(r.New), vo)...), nil
	}
	return append(errs, valid.CloneSetUpdate(o.defaulted(r.Old), o.defaulted(r.New), vo)...), nil
}

// defaulted returns a copy with every default, for the rules to look at: what is stored may
// lack them, because of the gate TemplateNoDefaults or because it is older than the webhooks.
func (o Options) defaulted(cs *v1beta1.CloneSet) *v1beta1.CloneSet {
	full := cs.DeepCopy()
	v1beta1.SetDefaultsCloneSet(full, o.allTemplates())
	return full
}

// podsToDelete looks up the Pods that the request newly names.
func (o Options) podsToDelete(ctx context.Context, old, cs *v1beta1.CloneSet) (map[string]*corev1.Pod, error) {
	pods := map[string]*corev1.Pod{}
	for _, name := range cs.Spec.ScaleStrategy.PodsToDelete {
		if old != nil && slices.Contains(old.Spec.ScaleStrategy.PodsToDelete, name) {
			continue
		}
		pod := &corev1.Pod{}
		key := types.NamespacedName{Namespace: cs.Namespace, Name: name}
		err := o.Cached.Get(ctx, key, pod)
		if apierrors.IsNotFound(err) { // it may be younger than the cache
			err = o.Live.Get(ctx, key, pod)
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking up Pod %s of podsToDelete: %w", key, err)
		}
		pods[name] = pod
	}
	return pods, nil
}

func (o Options) delete(ctx context.Context, r admit.Request[*v1beta1.CloneSet]) error {
	if !o.Features.Enabled(features.ResourcesDeletionProtection) {
		return nil
	}
	denial := valid.CloneSetDelete(r.Old)
	if denial != nil {
		if err := o.Denials.Deletion("CloneSet", r.Old.Namespace, r.Old.Name, r.User); err != nil {
			log.FromContext(ctx).Error(err, "A denied deletion is missing in the protection log")
		}
	}
	return denial
}

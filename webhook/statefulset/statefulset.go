// SPDX-License-Identifier: Apache-2.0

// Package statefulset registers admission and conversion of StatefulSets of our API. The rules
// are in internal/valid and apis; what only the cluster knows is looked up here
// (statefulset.md 5).
package statefulset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
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

// Options are what admission of StatefulSets needs.
type Options struct {
	Features *features.Set
	// Live lists StorageClasses when an update changes the size of claims. It is no cache:
	// whoever has just allowed a class to expand volumes is not told otherwise.
	Live client.Reader
	// Denials records protected deletions; nil records nothing.
	Denials *protection.Recorder
}

// Register serves admission of StatefulSets under the paths that statefulset.md 5 fixes.
func Register(hs admit.Handlers, o Options) {
	rules := admit.Rules[*v1beta1.StatefulSet]{
		Kind: v1beta1.GroupVersion.WithKind("StatefulSet"),
		Versions: []admit.Version[*v1beta1.StatefulSet]{
			admit.Hub("v1beta1", func(old, set *v1beta1.StatefulSet) {
				var before *corev1.PodTemplateSpec
				if old != nil {
					before = &old.Spec.Template
				}
				v1beta1.SetDefaultsStatefulSet(set, o.defaults(before, &set.Spec.Template))
				set.Status = v1beta1.StatefulSetStatus{}
			}),
			admit.Spoke("v1alpha1", v1alpha1.StatefulSetToHub, func(old, set *v1alpha1.StatefulSet) {
				var before *corev1.PodTemplateSpec
				if old != nil {
					before = &old.Spec.Template
				}
				v1alpha1.SetDefaultsStatefulSet(set, o.defaults(before, &set.Spec.Template))
				set.Status = v1alpha1.StatefulSetStatus{}
			}),
		},
		Validate: o.validate,
		Delete:   o.delete,
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-statefulset", "/mutate-apps-kruise-io-v1alpha1-statefulset")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-statefulset", "/validate-apps-kruise-io-v1alpha1-statefulset")
}

// Converter converts StatefulSets of all versions for /convert.
func Converter() (*v1beta1.StatefulSet, conversion.SpokeConverter[*v1beta1.StatefulSet]) {
	return &v1beta1.StatefulSet{}, conversion.NewSpokeConverter(&v1alpha1.StatefulSet{}, v1alpha1.StatefulSetFromHub, v1alpha1.StatefulSetToHub)
}

// defaults returns what the gates say, with the defaults of templates only for a new or changed
// Pod template: an unchanged one that gained defaults would restart every Pod.
func (o Options) defaults(old, obj *corev1.PodTemplateSpec) v1beta1.DefaultOptions {
	out := v1beta1.DefaultOptions{
		AutoDeletePVC: o.Features.Enabled(features.StatefulSetAutoDeletePVC),
		AutoResizePVC: o.Features.Enabled(features.StatefulSetAutoResizePVCGate),
	}
	if o.Features.Enabled(features.TemplateNoDefaults) || old != nil && apiequality.Semantic.DeepEqual(old, obj) {
		return out
	}
	ports := o.Features.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates)
	out.Template = func(t *corev1.PodTemplateSpec) {
		poddefaults.Template(t, poddefaults.Options{HostNetworkHostPorts: ports})
	}
	out.Claim = func(c *corev1.PersistentVolumeClaim) {
		poddefaults.Claim(c)
		if c.Status.Phase == "" { // as the API server and OpenKruise store it
			c.Status.Phase = corev1.ClaimPending
		}
	}
	return out
}

func (o Options) validate(ctx context.Context, r admit.Request[*v1beta1.StatefulSet]) (field.ErrorList, error) {
	vo := valid.Options{
		V1alpha1:        r.Version == "v1alpha1",
		VerticalScaling: o.Features.Enabled(features.InPlaceWorkloadVerticalScaling),
		ResizeClaims:    o.Features.Enabled(features.StatefulSetAutoResizePVCGate),
	}
	set := o.defaulted(r.New)
	if r.Old == nil {
		return valid.StatefulSet(set, vo), nil
	}
	old := o.defaulted(r.Old)
	if valid.StatefulSetResizes(old, set, vo) {
		var err error
		if vo.StorageClasses, err = o.storageClasses(ctx); err != nil {
			return nil, err
		}
	}
	return valid.StatefulSetUpdate(old, set, vo), nil
}

// defaulted returns a copy with the defaults of the kind, for the rules to look at: what is
// stored may lack them, because it was written as v1alpha1 or is older than the webhooks.
func (o Options) defaulted(set *v1beta1.StatefulSet) *v1beta1.StatefulSet {
	full := set.DeepCopy()
	v1beta1.SetDefaultsStatefulSet(full, v1beta1.DefaultOptions{
		AutoDeletePVC: o.Features.Enabled(features.StatefulSetAutoDeletePVC),
		AutoResizePVC: o.Features.Enabled(features.StatefulSetAutoResizePVCGate),
	})
	return full
}

func (o Options) storageClasses(ctx context.Context) (map[string]*storagev1.StorageClass, error) {
	list := &storagev1.StorageClassList{}
	if err := o.Live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing StorageClasses to see whether claims can grow: %w", err)
	}
	classes := map[string]*storagev1.StorageClass{}
	for i := range list.Items {
		classes[list.Items[i].Name] = &list.Items[i]
	}
	return classes, nil
}

func (o Options) delete(ctx context.Context, r admit.Request[*v1beta1.StatefulSet]) error {
	if !o.Features.Enabled(features.ResourcesDeletionProtection) {
		return nil
	}
	denial := valid.StatefulSetDelete(r.Old)
	if denial != nil {
		if err := o.Denials.Deletion("StatefulSet", r.Old.Namespace, r.Old.Name, r.User); err != nil {
			log.FromContext(ctx).Error(err, "A denied deletion is missing in the protection log")
		}
	}
	return denial
}

// SPDX-License-Identifier: Apache-2.0

// Package daemonset registers admission and conversion of DaemonSets of our API. The rules are
// in internal/valid and apis (daemonset.md 5). There is no deletion protection for this kind.
package daemonset

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Register serves admission of DaemonSets under the paths that daemonset.md 5 fixes.
func Register(hs admit.Handlers, set *features.Set) {
	rules := admit.Rules[*v1beta1.DaemonSet]{
		Kind: v1beta1.GroupVersion.WithKind("DaemonSet"),
		Versions: []admit.Version[*v1beta1.DaemonSet]{
			admit.Hub("v1beta1", func(_, ds *v1beta1.DaemonSet) {
				v1beta1.SetDefaultsDaemonSet(ds, v1beta1.DefaultOptions{})
			}),
			admit.Spoke("v1alpha1", v1alpha1.DaemonSetToHub, func(_, ds *v1alpha1.DaemonSet) {
				v1alpha1.SetDefaultsDaemonSet(ds, v1beta1.DefaultOptions{})
			}),
		},
		Validate: func(_ context.Context, r admit.Request[*v1beta1.DaemonSet]) (field.ErrorList, error) {
			ports := set.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates)
			o := valid.Options{V1alpha1: r.Version == "v1alpha1"}
			if r.Old == nil {
				return valid.DaemonSet(defaulted(r.New, ports), o), nil
			}
			return valid.DaemonSetUpdate(defaulted(r.Old, ports), defaulted(r.New, ports), o), nil
		},
	}
	hs.Add(rules.Mutator(), "/mutate-apps-kruise-io-daemonset", "/mutate-apps-kruise-io-v1alpha1-daemonset")
	hs.Add(rules.Validator(), "/validate-apps-kruise-io-daemonset", "/validate-apps-kruise-io-v1alpha1-daemonset")
}

// Converter converts DaemonSets of all versions for /convert.
func Converter() (*v1beta1.DaemonSet, conversion.SpokeConverter[*v1beta1.DaemonSet]) {
	return &v1beta1.DaemonSet{}, conversion.NewSpokeConverter(&v1alpha1.DaemonSet{}, v1alpha1.DaemonSetFromHub, v1alpha1.DaemonSetToHub)
}

// defaulted returns a copy with every default, those of the template among them, for the rules
// to look at: the template is stored as written.
func defaulted(ds *v1beta1.DaemonSet, hostPorts bool) *v1beta1.DaemonSet {
	full := ds.DeepCopy()
	v1beta1.SetDefaultsDaemonSet(full, v1beta1.DefaultOptions{})
	poddefaults.Template(&full.Spec.Template, poddefaults.Options{HostNetworkHostPorts: hostPorts})
	return full
}

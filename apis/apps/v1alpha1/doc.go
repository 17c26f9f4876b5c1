// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the older served version of the apps.kruise.io API. What does not differ
// from v1beta1, the hub of conversion, is that version's type.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kruise.io
package v1alpha1

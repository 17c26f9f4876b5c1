// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the stored version of the apps.kruise.io API. It is the hub
// of conversion: every other version converts to and from it. Field names, types,
// defaults and printer columns are the wire contract of OpenKruise 1.x.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kruise.io
package v1beta1

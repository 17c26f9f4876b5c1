// SPDX-License-Identifier: Apache-2.0

// Package apis is the root of the API types: one folder a group, in it one package a version.
// It holds no code. Generating writes the deepcopy functions of every version and, into
// manifests/crds, the CustomResourceDefinitions.
package apis

//go:generate go run ../hack/crdgen -root ..

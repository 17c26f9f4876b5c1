// SPDX-License-Identifier: Apache-2.0

// Package statefulset decides the next step of an Advanced StatefulSet: which Pods and
// claims to create, delete, update and expand, which must wait and why, and what its
// status is (statefulset.md 6 to 10).
//
// The controller executes the Plan that Decide returns; the CLI and the terminal UI show
// it, and Preview runs it over a model of the cluster to tell beforehand what a whole
// rollout will do to each Pod. Everything here is a function of a Snapshot and a time:
// no client, no clock, no log.
package statefulset

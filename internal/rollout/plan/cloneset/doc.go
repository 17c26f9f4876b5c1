// SPDX-License-Identifier: Apache-2.0

// Package cloneset decides the next step of a CloneSet: which Pods to create, delete and
// update, which must wait and why, and what its status is (cloneset.md 3, 7 and 10 to 12).
//
// The controller executes the Plan that Decide returns; the CLI and the terminal UI show
// it, and Preview runs it over a model of the cluster to tell beforehand what a whole
// rollout will do to each Pod. Everything here is a function of a Snapshot and a time:
// no client, no clock, no log.
package cloneset

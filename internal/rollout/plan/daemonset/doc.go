// SPDX-License-Identifier: Apache-2.0

// Package daemonset decides the next step of a DaemonSet: on which nodes to create Pods,
// which Pods to delete and update, which must wait and why, and what its status is
// (daemonset.md 3, 6 to 8 and 12).
//
// The controller executes the Plan that Decide returns; the CLI and the terminal UI show
// it, and Preview runs it over a model of the cluster to tell beforehand what a whole
// rollout will do to each Pod. Everything here is a function of a Snapshot and a time:
// no client, no clock, no log.
package daemonset

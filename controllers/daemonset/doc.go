// SPDX-License-Identifier: Apache-2.0

// Package daemonset runs Advanced DaemonSets: it observes a set, the nodes and its Pods,
// lets the pure package internal/rollout/plan/daemonset decide, and executes the plan
// (daemonset.md 7).
//
// The life of one pass: observe.go gathers the snapshot and returns none while the cache
// is behind our own writes; Decide makes the plan; act.go executes it; status.go writes
// what became of it, once and only if it differs.
package daemonset

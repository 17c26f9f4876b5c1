// SPDX-License-Identifier: Apache-2.0

// Package cloneset runs CloneSets: it observes a set and its Pods, lets the pure package
// internal/rollout/plan/cloneset decide, and executes the plan (cloneset.md 9).
//
// The life of one pass: observe.go gathers the snapshot and returns none while the cache
// is behind our own writes; Decide makes the plan; act.go executes it; status.go writes
// what became of it, once and only if it differs.
package cloneset

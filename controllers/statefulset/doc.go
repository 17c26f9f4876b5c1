// SPDX-License-Identifier: Apache-2.0

// Package statefulset runs Advanced StatefulSets: it observes a set, its Pods and claims,
// lets the pure package internal/rollout/plan/statefulset decide, and executes the plan
// (statefulset.md 7).
//
// The life of one pass: observe.go gathers the snapshot, with adopt.go claiming what
// belongs to the set, and returns none while the cache is behind our own writes; Decide
// makes the plan; act.go executes it, with identity.go saying what children look like;
// status.go writes what became of it, once and only if it differs.
package statefulset

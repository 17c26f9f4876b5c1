// SPDX-License-Identifier: Apache-2.0

// Package inplace decides how a running Pod is brought to another revision without being
// deleted: whether it can be done, what to write next, and when it is done. Its rules are
// those of inplace-update.md; workloads decide which Pods are updated and when.
//
// The package is pure. Compare takes two revisions and returns an UpdateSpec or the
// reasons why the Pod must be recreated. Begin and Next take a Pod and return the Pod as
// it should be written next; package podupdate does the writing. All state is in the
// Pod's annotations, so a restarted controller goes on where the last one stopped.
//
//	Compare ─▶ NotReady ─▶ Begin ─▶ Next … Next ─▶ Done
//	           (status)    (spec)   (grace over, next batch, ready)
package inplace

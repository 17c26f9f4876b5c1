// SPDX-License-Identifier: Apache-2.0

// Package runtimehash knows the hashes by which a running container is compared with
// the spec it should have been started from, and the annotation that carries them.
//
// The node agent records the hashes, the manager compares them: both use this package,
// because a difference of one byte between them restarts containers for ever. The forms
// are those of inplace-update.md 9.1 and daemon.md 6; the package reads no clock and no API.
package runtimehash

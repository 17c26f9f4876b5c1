// SPDX-License-Identifier: Apache-2.0

// Package prepull plays the controllers of ImageListPullJob, ImagePullJob and NodeImage
// together, on an API server in memory whose caches lag, with node agents, users and nodes
// that do as they like. It holds tests only.
package prepull

// SPDX-License-Identifier: Apache-2.0

// Package recreate is the node's part of ContainerRecreateRequests: it takes the requests of
// a Pod one after the other, stops their containers through the runtime and reports each of
// them. The kubelet starts the containers again; the manager reports when they are ready, and
// guards deadlines. Order and Decide are the pure part. Rules: container-recreate.md 6.
//
// What is promised when things go wrong: a container is stopped at most once for a request,
// also when the agent restarts between the stop and the report of it; a stop under way
// ends whatever becomes of the request, and is then reported to it; no request holds up the
// next one after its end.
package recreate

// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one Linux machine, from package registries alone: the control
// plane as processes of the machine, and nodes that are each a network and a mount namespace with its own containerd,
// kubelet and kube-proxy. Simulated nodes, played by one process, stand in for large clusters.
//
// Up starts a cluster, Down removes every trace of one, Load gives tests a running one to use and to disturb.
// One cluster with real nodes fits on a machine; clusters without real nodes need no root and do not get in each
// other's way.
package cluster

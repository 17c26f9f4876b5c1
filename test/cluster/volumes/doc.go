// SPDX-License-Identifier: Apache-2.0

// Package volumes is the CSI driver of a local cluster: volumes are directories of the machine, and each belongs to the
// node whose processes it was made for, so that a Pod with a claim comes back to its node, as with disks of a node.
// Sizes are kept and grow as Kubernetes asks for it, but nothing enforces them.
//
// One controller process makes, expands and deletes volumes for the external provisioner and resizer; one process a node
// mounts them into Pods and registers with the kubelet.
package volumes

// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
)

// mounter binds directories; tests have another one.
type mounter interface {
	mounted(path string) bool
	bind(source, target string, readOnly bool) error
	unmount(target string) error
}

// node mounts the volumes of one node into its Pods. It runs in the namespaces of the node.
type node struct {
	csi.UnimplementedNodeServer
	name    string
	store   store
	mounter mounter
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name, AccessibleTopology: topology(n.name)}, nil
}

func (*node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var list []*csi.NodeServiceCapability
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		list = append(list, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: list}, nil
}

// NodePublishVolume mounts a volume for a Pod.
func (n *node) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := req.GetTargetPath()
	if target == "" {
		return nil, status.Error(codes.InvalidArgument, "the request does not say where to mount the volume")
	}
	if req.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "the request does not say how the volume is used")
	}
	if err := supported([]*csi.VolumeCapability{req.GetVolumeCapability()}); err != nil {
		return nil, err
	}
	v, err := n.here(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if n.mounter.mounted(target) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, status.Errorf(codes.Internal, "creating the mount point: %v", err)
	}
	if err := n.mounter.bind(n.store.files(v.Node, v.ID), target, req.GetReadonly()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := req.GetTargetPath()
	if target == "" || req.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the request must name a volume and where it is mounted")
	}
	if n.mounter.mounted(target) {
		if err := n.mounter.unmount(target); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	// Not RemoveAll: were the volume still mounted, its files would go.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.Internal, "removing the mount point: %v", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume has nothing to do: a directory has the size that its record says.
func (n *node) NodeExpandVolume(_ context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	v, err := n.mountedAt(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if !within(v.Capacity, req.GetCapacityRange()) {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes", v.ID, v.Capacity)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Capacity}, nil
}

// NodeGetVolumeStats says how large a volume is; what of it is used is not measured and counts as nothing.
func (n *node) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	v, err := n.mountedAt(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: v.Capacity, Available: v.Capacity},
	}}, nil
}

// here returns a volume that must be on this node.
func (n *node) here(id string) (volume, error) {
	if id == "" {
		return volume{}, status.Error(codes.InvalidArgument, "the request names no volume")
	}
	v, err := n.store.get(id)
	if err != nil {
		return volume{}, readStatus(err)
	}
	if v.Node != n.name {
		return volume{}, status.Errorf(codes.FailedPrecondition, "volume %s is on node %s, not on %s", id, v.Node, n.name)
	}
	return v, nil
}

// mountedAt returns a volume that must be on this node and mounted at path.
func (n *node) mountedAt(id, path string) (volume, error) {
	if path == "" {
		return volume{}, status.Error(codes.InvalidArgument, "the request does not say where the volume is mounted")
	}
	v, err := n.here(id)
	if err != nil {
		return volume{}, err
	}
	if !n.mounter.mounted(path) {
		return volume{}, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", id, path)
	}
	return v, nil
}

// kernel mounts for real.
type kernel struct{}

func (kernel) mounted(path string) bool { return slices.Contains(machine.MountsBelow(path), path) }

func (kernel) bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(fmt.Errorf("mounting %s read-only: %w", target, err), unix.Unmount(target, 0))
	}
	return nil
}

func (kernel) unmount(target string) error {
	if err := unix.Unmount(target, 0); err != nil {
		return fmt.Errorf("unmounting %s: %w", target, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller makes, expands and deletes volumes. All nodes are on this machine, so that it can do it by itself.
type controller struct {
	csi.UnimplementedControllerServer
	store store
	mu    sync.Mutex // one change at a time: they are short
}

func (*controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var list []*csi.ControllerServiceCapability
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		list = append(list, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: list}, nil
}

// CreateVolume makes a volume on the node that comes first in the request's topology. A second request for the same name
// returns the first volume if it does.
func (c *controller) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "a volume needs a name")
	}
	if err := supported(req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if req.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes start empty: there are no snapshots and clones")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := idOf(req.GetName())
	v, err := c.store.get(id)
	switch {
	case err == nil:
		if !within(v.Capacity, req.GetCapacityRange()) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is there with another size: %d bytes", id, v.Capacity)
		}
	case errors.Is(err, errNoVolume):
		v = volume{ID: id, Name: req.GetName(), Node: chosenNode(req.GetAccessibilityRequirements())}
		if v.Node == "" {
			return nil, status.Error(codes.ResourceExhausted, "the request names no node, and a volume must be on one")
		}
		if v.Capacity, err = size(req.GetCapacityRange()); err != nil {
			return nil, err
		}
		if err := c.store.put(v); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	default:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:           v.ID,
		CapacityBytes:      v.Capacity,
		AccessibleTopology: []*csi.Topology{topology(v.Node)},
	}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the request names no volume")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.store.remove(req.GetVolumeId()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume records the new size. The node has its part in it, as with file systems that must grow where
// they are mounted, so that both halves of an expansion happen.
func (c *controller) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	want, err := size(req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.store.get(req.GetVolumeId())
	if err != nil {
		return nil, readStatus(err)
	}
	if want > v.Capacity { // a volume never shrinks
		v.Capacity = want
		if err := c.store.put(v); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Capacity, NodeExpansionRequired: true}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := c.store.get(req.GetVolumeId()); err != nil {
		return nil, readStatus(err)
	}
	if err := supported(req.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: req.GetVolumeCapabilities(),
	}}, nil
}

// readStatus is the status of an error of store.get.
func readStatus(err error) error {
	if errors.Is(err, errNoVolume) {
		return status.Error(codes.NotFound, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// supported says what is wrong with the ways in which a volume is to be used: it is a directory of one node.
func supported(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return status.Error(codes.InvalidArgument, "the request does not say how the volume is used")
	}
	for _, c := range capabilities {
		if c.GetBlock() != nil {
			return status.Error(codes.InvalidArgument, "volumes are directories: no block devices")
		}
		switch mode := c.GetAccessMode().GetMode(); mode {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return status.Errorf(codes.InvalidArgument, "a volume is on one node: it cannot have the access mode %s", mode)
		}
	}
	return nil
}

// size is the smallest size in the range, at least one byte.
func size(r *csi.CapacityRange) (int64, error) {
	want := max(r.GetRequiredBytes(), 1)
	if r.GetLimitBytes() > 0 && want > r.GetLimitBytes() {
		return 0, status.Errorf(codes.OutOfRange, "no size is at least %d and at most %d bytes", want, r.GetLimitBytes())
	}
	return want, nil
}

func within(size int64, r *csi.CapacityRange) bool {
	return size >= r.GetRequiredBytes() && (r.GetLimitBytes() == 0 || size <= r.GetLimitBytes())
}

// chosenNode is the node that the request prefers, "" if it names none. With a class that waits for the first consumer
// the preferred one is the scheduler's choice.
func chosenNode(r *csi.TopologyRequirement) string {
	for _, list := range [][]*csi.Topology{r.GetPreferred(), r.GetRequisite()} {
		for _, t := range list {
			if node := t.GetSegments()[TopologyKey]; node != "" {
				return node
			}
		}
	}
	return ""
}

func topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: node}}
}

// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const gi = int64(1) << 30

func mode(m csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: m},
	}
}

var writer = mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)

// request asks for a volume of the given bytes on node1.
func request(name string, bytes int64, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	req := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapabilities: []*csi.VolumeCapability{writer},
		AccessibilityRequirements: &csi.TopologyRequirement{
			Requisite: []*csi.Topology{topology("node2"), topology("node1")}, Preferred: []*csi.Topology{topology("node1")},
		},
	}
	for _, c := range change {
		c(req)
	}
	return req
}

func TestCreateVolume(t *testing.T) {
	cases := map[string]struct {
		req      *csi.CreateVolumeRequest
		node     string
		capacity int64
		code     codes.Code
	}{
		"the volume is on the preferred node": {req: request("pvc-1", gi), node: "node1", capacity: gi},
		"a claim of one byte gets one":        {req: request("pvc-1", 1), node: "node1", capacity: 1},
		"a volume has at least one byte":      {req: request("pvc-1", 0), node: "node1", capacity: 1},
		"without a preference the first node that is possible is taken": {
			req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements.Preferred = nil }), node: "node2", capacity: gi,
		},
		"a volume must be on some node": {
			req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = nil }), code: codes.ResourceExhausted,
		},
		"a limit below the size asked for cannot be kept": {
			req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = gi - 1 }), code: codes.OutOfRange,
		},
		"several nodes cannot share a volume": {
			req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
			}), code: codes.InvalidArgument,
		},
		"a directory is no block device": {
			req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}}
			}), code: codes.InvalidArgument,
		},
		"a volume needs a name":               {req: request("", gi), code: codes.InvalidArgument},
		"a name that is a path stays a name":  {req: request("../../etc", gi), node: "node1", capacity: gi},
		"a volume cannot start from snapshot": {req: request("pvc-1", gi, func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }), code: codes.InvalidArgument},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &controller{store: store{t.TempDir()}}
			got, err := c.CreateVolume(t.Context(), tc.req)
			require.Equal(t, tc.code, status.Code(err), "%v", err)
			if tc.code != codes.OK {
				return
			}
			require.Equal(t, tc.capacity, got.GetVolume().GetCapacityBytes())
			require.Equal(t, tc.node, got.GetVolume().GetAccessibleTopology()[0].GetSegments()[TopologyKey])
			files := c.store.files(tc.node, got.GetVolume().GetVolumeId())
			info, err := os.Stat(files)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o777), info.Mode().Perm(), "containers of any user write")
			rel, err := filepath.Rel(c.store.dir, files)
			require.NoError(t, err)
			require.True(t, filepath.IsLocal(rel))
		})
	}
}

func TestVolumeLife(t *testing.T) {
	c := &controller{store: store{t.TempDir()}}
	first, err := c.CreateVolume(t.Context(), request("pvc-1", gi))
	require.NoError(t, err)
	id := first.GetVolume().GetVolumeId()
	again, err := c.CreateVolume(t.Context(), request("pvc-1", gi, func(r *csi.CreateVolumeRequest) {
		r.AccessibilityRequirements.Preferred = []*csi.Topology{topology("node2")}
	}))
	require.NoError(t, err)
	require.Equal(t, "node1", again.GetVolume().GetAccessibleTopology()[0].GetSegments()[TopologyKey], "a volume does not move")
	_, err = c.CreateVolume(t.Context(), request("pvc-1", 2*gi))
	require.Equal(t, codes.AlreadyExists, status.Code(err))

	expand := func(bytes int64) (*csi.ControllerExpandVolumeResponse, error) {
		return c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		})
	}
	for _, step := range []struct{ ask, get int64 }{{2 * gi, 2 * gi}, {2 * gi, 2 * gi}, {gi, 2 * gi}, {3 * gi, 3 * gi}} {
		got, err := expand(step.ask)
		require.NoError(t, err)
		require.Equal(t, step.get, got.GetCapacityBytes(), "asked for %d", step.ask)
		require.True(t, got.GetNodeExpansionRequired())
	}

	_, err = c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{writer}})
	require.NoError(t, err)

	for range 2 { // the second deletion finds nothing
		_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
		require.NoError(t, err)
	}
	require.NoDirExists(t, c.store.files("node1", id))
	require.NoFileExists(t, c.store.record(id))
	_, err = expand(4 * gi)
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{writer}})
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestDeleteLeavesTheRestOfTheMachineAlone(t *testing.T) {
	c := &controller{store: store{filepath.Join(t.TempDir(), "volumes")}}
	victim := filepath.Join(filepath.Dir(c.store.dir), "victim.json")
	require.NoError(t, os.WriteFile(victim, []byte(`{"id":".","node":".."}`), 0o644))
	_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "../../victim"})
	require.NoError(t, err)
	require.FileExists(t, victim)
}

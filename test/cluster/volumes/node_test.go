// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// mounts remembers what is mounted where.
type mounts map[string]mount

type mount struct {
	source   string
	readOnly bool
}

func (m mounts) mounted(path string) bool { _, ok := m[path]; return ok }

func (m mounts) bind(source, target string, readOnly bool) error {
	if m.mounted(target) {
		return errors.New("mounted twice")
	}
	m[target] = mount{source, readOnly}
	return nil
}

func (m mounts) unmount(target string) error {
	delete(m, target)
	return nil
}

// mountable is a node1 with the volume pvc-1 and a place to mount it.
func mountable(t *testing.T) (n *node, target string) {
	t.Helper()
	s := store{t.TempDir()}
	_, err := (&controller{store: s}).CreateVolume(t.Context(), request("pvc-1", gi))
	require.NoError(t, err)
	return &node{name: "node1", store: s, mounter: mounts{}}, filepath.Join(t.TempDir(), "pod", "mount")
}

func publish(target string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target, VolumeCapability: writer}
}

func TestMountAndUnmount(t *testing.T) {
	n, target := mountable(t)
	for range 2 { // the kubelet asks again after its own restart
		_, err := n.NodePublishVolume(t.Context(), publish(target))
		require.NoError(t, err)
	}
	require.Equal(t, mounts{target: {source: n.store.files("node1", "pvc-1")}}, n.mounter)
	require.DirExists(t, target)

	req := &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target}
	for range 2 {
		_, err := n.NodeUnpublishVolume(t.Context(), req)
		require.NoError(t, err)
	}
	require.Empty(t, n.mounter)
	require.NoDirExists(t, target)
	require.DirExists(t, n.store.files("node1", "pvc-1"), "the volume stays")
}

func TestUnmountKeepsFilesThatAreInTheWay(t *testing.T) {
	n, target := mountable(t)
	require.NoError(t, os.MkdirAll(target, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(target, "precious"), nil, 0o644))
	_, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target})
	require.Equal(t, codes.Internal, status.Code(err))
	require.FileExists(t, filepath.Join(target, "precious"))
}

func TestMountReadOnly(t *testing.T) {
	n, target := mountable(t)
	req := publish(target)
	req.Readonly = true
	_, err := n.NodePublishVolume(t.Context(), req)
	require.NoError(t, err)
	require.True(t, n.mounter.(mounts)[target].readOnly)
}

func TestMountIsRefused(t *testing.T) {
	cases := map[string]struct {
		change func(*node, *csi.NodePublishVolumeRequest)
		code   codes.Code
	}{
		"on another node":               {func(n *node, _ *csi.NodePublishVolumeRequest) { n.name = "node2" }, codes.FailedPrecondition},
		"of an unknown volume":          {func(_ *node, r *csi.NodePublishVolumeRequest) { r.VolumeId = "pvc-2" }, codes.NotFound},
		"of no volume":                  {func(_ *node, r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument},
		"to nowhere":                    {func(_ *node, r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, codes.InvalidArgument},
		"without saying what it is for": {func(_ *node, r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n, target := mountable(t)
			req := publish(target)
			tc.change(n, req)
			_, err := n.NodePublishVolume(t.Context(), req)
			require.Equal(t, tc.code, status.Code(err), "%v", err)
			require.Empty(t, n.mounter)
		})
	}
}

func TestNodeFollowsTheSize(t *testing.T) {
	n, target := mountable(t)
	expand := func(bytes int64) (*csi.NodeExpandVolumeResponse, error) {
		return n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
			VolumeId: "pvc-1", VolumePath: target, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
		})
	}
	_, err := expand(gi)
	require.Equal(t, codes.NotFound, status.Code(err), "it is not mounted")
	_, err = n.NodePublishVolume(t.Context(), publish(target))
	require.NoError(t, err)
	_, err = expand(2 * gi)
	require.Equal(t, codes.OutOfRange, status.Code(err), "the controller comes first")
	_, err = (&controller{store: n.store}).ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gi},
	})
	require.NoError(t, err)
	got, err := expand(2 * gi)
	require.NoError(t, err)
	require.Equal(t, 2*gi, got.GetCapacityBytes())
	stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: target})
	require.NoError(t, err)
	require.Equal(t, 2*gi, stats.GetUsage()[0].GetTotal())
}

// dial connects to a driver as Kubernetes does. The connection waits until the socket is there.
func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// start runs a node's process; the function returned ends it and gives its error.
func start(t *testing.T, n *node, dir string) (registry string, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	registry = filepath.Join(dir, "registry", "reg.sock")
	go func() {
		ended <- serveNode(ctx, n, filepath.Join(dir, "csi.sock"), registry, slog.New(slog.DiscardHandler))
	}()
	return registry, func() error { cancel(); return <-ended }
}

func TestKubeletFindsTheDriver(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("registration", func(t *testing.T) {
		n, target := mountable(t)
		registry, end := start(t, n, t.TempDir())
		reg := registration.NewRegistrationClient(dial(t, registry))
		info, err := reg.GetInfo(t.Context(), &registration.InfoRequest{})
		require.NoError(t, err)
		require.Equal(t, registration.CSIPlugin, info.GetType())
		require.Equal(t, DriverName, info.GetName())

		driver := dial(t, info.GetEndpoint())
		got, err := csi.NewNodeClient(driver).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		require.NoError(t, err)
		require.Equal(t, "node1", got.GetNodeId())
		require.Equal(t, map[string]string{TopologyKey: "node1"}, got.GetAccessibleTopology().GetSegments())
		plugin, err := csi.NewIdentityClient(driver).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
		require.NoError(t, err)
		require.Equal(t, DriverName, plugin.GetName())
		_, err = csi.NewNodeClient(driver).NodePublishVolume(t.Context(), publish(target))
		require.NoError(t, err)

		_, err = reg.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true})
		require.NoError(t, err)
		require.NoError(t, end())
	})
}

func TestRefusedDriverEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("refusal", func(t *testing.T) {
		n, _ := mountable(t)
		registry, end := start(t, n, t.TempDir())
		reg := registration.NewRegistrationClient(dial(t, registry))
		_, _ = reg.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "no such version"}) // the answer may be lost
		require.ErrorContains(t, end(), "the kubelet refuses the driver: no such version")
	})
}

func TestSocketOfAKilledProcessIsReplaced(t *testing.T) {
	n, _ := mountable(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "csi.sock"), nil, 0o600))
	registry, end := start(t, n, dir)
	_, err := registration.NewRegistrationClient(dial(t, registry)).GetInfo(t.Context(), &registration.InfoRequest{})
	require.NoError(t, err)
	require.NoError(t, end())
}

func TestClasses(t *testing.T) {
	expandable := map[string]bool{}
	defaults := 0
	for _, c := range Classes() {
		require.Equal(t, Driver().Name, c.Provisioner)
		expandable[c.Name] = *c.AllowVolumeExpansion
		if c.Annotations[defaultClassMark] == "true" {
			defaults++
		}
	}
	require.Equal(t, map[string]bool{ClassDefault: false, ClassExpandable: true, ClassFixed: false}, expandable)
	require.Equal(t, 1, defaults, "claims without a class need exactly one")
}

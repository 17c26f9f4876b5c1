// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

// Server is a fake runtime behind a unix socket.
type Server struct {
	Socket string

	rt     *Runtime
	server *grpc.Server
	runtimev1.UnimplementedImageServiceServer
	runtimev1.UnimplementedRuntimeServiceServer

	// NoCRI makes the server answer as docker's own containerd does: Unimplemented.
	NoCRI bool
}

// Serve starts rt behind dir/file and stops it at the end of the test.
func Serve(t testing.TB, rt *Runtime, dir, file string) *Server {
	t.Helper()
	s := &Server{Socket: filepath.Join(dir, file), rt: rt}
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	t.Cleanup(s.Stop)
	return s
}

// Start listens again after Stop.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	s.server = grpc.NewServer(grpc.WaitForHandlers(true))
	runtimev1.RegisterImageServiceServer(s.server, s)
	runtimev1.RegisterRuntimeServiceServer(s.server, s)
	server := s.server
	go func() { _ = server.Serve(listener) }() // ends with Stop
}

// Stop closes the socket and all connections, as a restart of the runtime does.
func (s *Server) Stop() { s.server.Stop() }

// ImageFsInfo implements the CRI.
func (s *Server) ImageFsInfo(context.Context, *runtimev1.ImageFsInfoRequest) (*runtimev1.ImageFsInfoResponse, error) {
	if s.NoCRI {
		return nil, status.Error(codes.Unimplemented, "unknown service runtime.v1.ImageService")
	}
	return &runtimev1.ImageFsInfoResponse{}, nil
}

// Version implements the CRI.
func (s *Server) Version(context.Context, *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return &runtimev1.VersionResponse{Version: "0.1.0", RuntimeName: s.rt.Name(), RuntimeVersion: "fake", RuntimeApiVersion: "v1"}, nil
}

// ListImages implements the CRI.
func (s *Server) ListImages(ctx context.Context, _ *runtimev1.ListImagesRequest) (*runtimev1.ListImagesResponse, error) {
	images, err := s.rt.Images(ctx)
	if err != nil {
		return nil, grpcError(err)
	}
	answer := &runtimev1.ListImagesResponse{}
	for _, image := range images {
		answer.Images = append(answer.Images, &runtimev1.Image{Id: image.ID, RepoTags: image.RepoTags, RepoDigests: image.RepoDigests})
	}
	return answer, nil
}

// PullImage implements the CRI.
func (s *Server) PullImage(ctx context.Context, r *runtimev1.PullImageRequest) (*runtimev1.PullImageResponse, error) {
	pull := cri.Pull{Reference: r.GetImage().GetImage()}
	if r.GetSandboxConfig() == nil {
		return nil, status.Error(codes.InvalidArgument, "no sandbox config")
	}
	pull.SandboxLabels, pull.SandboxAnnotations = r.GetSandboxConfig().GetLabels(), r.GetSandboxConfig().GetAnnotations()
	if a := r.GetAuth(); a != nil {
		pull.Auth = &cri.Auth{Username: a.GetUsername(), Password: a.GetPassword(), IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken()}
	}
	ref, err := s.rt.PullImage(ctx, pull)
	if err != nil {
		return nil, grpcError(err)
	}
	return &runtimev1.PullImageResponse{ImageRef: ref}, nil
}

// ListContainers implements the CRI.
func (s *Server) ListContainers(ctx context.Context, r *runtimev1.ListContainersRequest) (*runtimev1.ListContainersResponse, error) {
	filter := cri.Filter{ID: r.GetFilter().GetId(), PodUID: r.GetFilter().GetLabelSelector()[cri.LabelPodUID]}
	containers, err := s.rt.Containers(ctx, filter)
	if err != nil {
		return nil, grpcError(err)
	}
	answer := &runtimev1.ListContainersResponse{}
	for _, c := range containers {
		answer.Containers = append(answer.Containers, &runtimev1.Container{
			Id: c.ID, Metadata: &runtimev1.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
			State: stateNumber(c.State), CreatedAt: nanoseconds(c.Created), Labels: c.Labels, Annotations: c.Annotations,
		})
	}
	return answer, nil
}

// ContainerStatus implements the CRI, with the verbose information in containerd's form.
func (s *Server) ContainerStatus(ctx context.Context, r *runtimev1.ContainerStatusRequest) (*runtimev1.ContainerStatusResponse, error) {
	c, err := s.rt.Container(ctx, r.GetContainerId())
	if known, ok := s.rt.Known(r.GetContainerId()); ok && known.NilStatus && errors.Is(err, cri.ErrNotFound) {
		return &runtimev1.ContainerStatusResponse{}, nil
	}
	if err != nil {
		return nil, grpcError(err)
	}
	answer := &runtimev1.ContainerStatusResponse{Status: &runtimev1.ContainerStatus{
		Id: c.ID, Metadata: &runtimev1.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		State: stateNumber(c.State), CreatedAt: nanoseconds(c.Created), StartedAt: nanoseconds(c.Started), FinishedAt: nanoseconds(c.Finished),
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		Image: &runtimev1.ImageSpec{Image: c.Image}, ImageRef: c.ImageRef, Labels: c.Labels, Annotations: c.Annotations,
	}}
	if r.GetVerbose() && c.Env != nil {
		env := []string{}
		for name, value := range c.Env {
			env = append(env, name+"="+value)
		}
		info, err := json.Marshal(map[string]any{"runtimeSpec": map[string]any{"process": map[string]any{"env": env}}})
		if err != nil {
			return nil, grpcError(err)
		}
		answer.Info = map[string]string{"info": string(info)}
	}
	return answer, nil
}

// ListPodSandbox implements the CRI. The ID that it lists is the Pod's UID: PodSandboxStatus
// is asked with it.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimev1.ListPodSandboxRequest) (*runtimev1.ListPodSandboxResponse, error) {
	uid := r.GetFilter().GetLabelSelector()[cri.LabelPodUID]
	s.rt.mu.Lock()
	defer s.rt.mu.Unlock()
	if s.rt.down {
		return nil, grpcError(ErrUnavailable)
	}
	answer := &runtimev1.ListPodSandboxResponse{}
	if sandbox, ok := s.rt.sandboxes[uid]; ok {
		answer.Items = append(answer.Items, &runtimev1.PodSandbox{Id: uid, State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: nanoseconds(sandbox.Created)})
	}
	return answer, nil
}

// PodSandboxStatus implements the CRI.
func (s *Server) PodSandboxStatus(ctx context.Context, r *runtimev1.PodSandboxStatusRequest) (*runtimev1.PodSandboxStatusResponse, error) {
	sandbox, err := s.rt.Sandbox(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, grpcError(err)
	}
	status := &runtimev1.PodSandboxStatus{
		Id: sandbox.ID, State: runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: nanoseconds(sandbox.Created),
		Labels: sandbox.Labels, Annotations: sandbox.Annotations, Network: &runtimev1.PodSandboxNetworkStatus{Ip: sandbox.IP()},
		Linux: &runtimev1.LinuxPodSandboxStatus{Namespaces: &runtimev1.Namespace{Options: &runtimev1.NamespaceOption{}}},
	}
	if sandbox.HostNetwork {
		status.Linux.Namespaces.Options.Network = runtimev1.NamespaceMode_NODE
	}
	for _, ip := range sandbox.IPs[min(1, len(sandbox.IPs)):] {
		status.Network.AdditionalIps = append(status.Network.AdditionalIps, &runtimev1.PodIP{Ip: ip})
	}
	return &runtimev1.PodSandboxStatusResponse{Status: status}, nil
}

// ExecSync implements the CRI.
func (s *Server) ExecSync(ctx context.Context, r *runtimev1.ExecSyncRequest) (*runtimev1.ExecSyncResponse, error) {
	stdout, err := s.rt.Exec(ctx, r.GetContainerId(), r.GetCmd(), time.Duration(r.GetTimeout())*time.Second)
	var exit *cri.ExitError
	switch {
	case errors.As(err, &exit):
		return &runtimev1.ExecSyncResponse{Stdout: stdout, Stderr: []byte(exit.Stderr), ExitCode: exit.Code}, nil
	case err != nil:
		return nil, grpcError(err)
	}
	return &runtimev1.ExecSyncResponse{Stdout: stdout}, nil
}

// StopContainer implements the CRI.
func (s *Server) StopContainer(ctx context.Context, r *runtimev1.StopContainerRequest) (*runtimev1.StopContainerResponse, error) {
	if err := s.rt.Stop(ctx, r.GetContainerId(), time.Duration(r.GetTimeout())*time.Second); err != nil {
		return nil, grpcError(err)
	}
	return &runtimev1.StopContainerResponse{}, nil
}

func grpcError(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, cri.ErrNotFound), errors.Is(err, cri.ErrNoSandbox):
		code = codes.NotFound
	case errors.Is(err, cri.ErrTimedOut):
		code = codes.DeadlineExceeded
	case errors.Is(err, cri.ErrUnavailable):
		code = codes.Unavailable
	case errors.Is(err, ErrUnauthenticated):
		code = codes.Unauthenticated
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}

func stateNumber(s cri.State) runtimev1.ContainerState {
	switch s {
	case cri.StateCreated:
		return runtimev1.ContainerState_CONTAINER_CREATED
	case cri.StateRunning:
		return runtimev1.ContainerState_CONTAINER_RUNNING
	case cri.StateExited:
		return runtimev1.ContainerState_CONTAINER_EXITED
	default:
		return runtimev1.ContainerState_CONTAINER_UNKNOWN
	}
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Paths of the driver inside a node.
const (
	nodeSocket         = "/var/lib/kubelet/plugins/" + DriverName + "/csi.sock"
	registrationSocket = "/var/lib/kubelet/plugins_registry/" + DriverName + "-reg.sock"
)

// ServeController serves the controller at a Unix socket until ctx ends. Volumes are kept below dir.
func ServeController(ctx context.Context, dir, socket string, log *slog.Logger) error {
	return serve(ctx, socket, log, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, identity{})
		csi.RegisterControllerServer(s, &controller{store: store{dir}})
	})
}

// ServeNode serves the volumes below dir to the node of the given name, in whose namespaces the calling process must be,
// and registers with its kubelet. It returns when ctx ends or when the kubelet refuses the driver.
func ServeNode(ctx context.Context, dir, name string, log *slog.Logger) error {
	return serveNode(ctx, &node{name: name, store: store{dir}, mounter: kernel{}}, nodeSocket, registrationSocket, log)
}

func serveNode(ctx context.Context, n *node, socket, registry string, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	drivers := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		drivers <- serve(ctx, socket, log, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, identity{})
			csi.RegisterNodeServer(s, n)
			close(ready)
		})
	}()
	select {
	case <-ready:
	case err := <-drivers:
		return err
	}
	// Only now: the kubelet calls the driver as soon as it sees the registration.
	err := serve(ctx, registry, log, func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, &registrar{endpoint: socket, refused: cancel})
	})
	cancel(nil)
	if err = errors.Join(err, <-drivers); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// serve answers at a Unix socket until ctx ends. register is called when the socket is there.
func serve(ctx context.Context, socket string, log *slog.Logger, register func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return fmt.Errorf("creating the directory of a socket: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return fmt.Errorf("removing an old socket: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serving volumes: %w", err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(logged(log)))
	register(s)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving volumes at %s: %w", socket, err)
	}
	return nil
}

// logged writes one line a call.
func logged(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if err != nil {
			log.Warn(info.FullMethod, "request", req, "error", err)
		} else {
			log.Info(info.FullMethod, "request", req)
		}
		return resp, err
	}
}

// registrar tells the kubelet where the driver is.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
	refused  context.CancelCauseFunc
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: DriverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus ends the process if the kubelet refuses the driver: started again it tries again.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		r.refused(fmt.Errorf("the kubelet refuses the driver: %s", s.GetError()))
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"net"
	"os"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"
)

// containerdPipe is the only runtime of Windows nodes.
const containerdPipe = `\\.\pipe\containerd-containerd`

// candidates are the paths to try.
func candidates(Options) []string { return []string{containerdPipe} }

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// endpoint is gRPC's name of a pipe, and how to connect to it.
func endpoint(path string) (string, []grpc.DialOption) {
	return "passthrough:///" + path, []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, pipe string) (net.Conn, error) {
		return winio.DialPipeContext(ctx, pipe)
	})}
}

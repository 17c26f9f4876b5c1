// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package cri

import (
	"os"

	"google.golang.org/grpc"
)

// candidates are the paths to try, best first.
func candidates(o Options) []string {
	if o.SocketFile != "" {
		return under(o.Dir, []string{o.SocketFile})
	}
	return under(o.Dir, unixSockets)
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// endpoint is gRPC's name of a socket, and how to connect to it.
func endpoint(path string) (string, []grpc.DialOption) { return "unix://" + path, nil }

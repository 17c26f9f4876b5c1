// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

// A runtime that is away must be told from one that answers that a registry is.
func TestUnavailable(t *testing.T) {
	rt := fakecri.New("containerd")
	client, server := dial(t, rt)
	pull := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.PullImage(ctx, cri.Pull{Reference: "nginx:1"})
		return err
	}
	rt.Script("nginx:1", fakecri.PullScript{Failures: 1, Err: status.Error(codes.Unavailable, "503 Service Unavailable")})
	err := pull()
	require.EqualError(t, err, "503 Service Unavailable")
	require.NotErrorIs(t, err, cri.ErrUnavailable, "the registry is away")

	rt.Script("nginx:1", fakecri.PullScript{Failures: 1, Err: status.Error(codes.Unavailable, "server is not initialized yet")})
	require.ErrorIs(t, pull(), cri.ErrUnavailable, "containerd is starting")

	rt.Script("nginx:1", fakecri.PullScript{Failures: 1, Err: status.Error(codes.Canceled, "context canceled")})
	require.ErrorIs(t, pull(), cri.ErrUnavailable, "containerd is ending: it was not us who canceled")

	rt.Script("nginx:1", fakecri.PullScript{Hang: true})
	broken := make(chan error, 1)
	go func() { broken <- pull() }()
	require.Eventually(t, func() bool { return rt.CallsOf("PullImage") == 4 }, time.Minute, time.Millisecond)
	server.Stop()
	require.ErrorIs(t, <-broken, cri.ErrUnavailable, "it went away during the call")
	require.ErrorIs(t, pull(), cri.ErrUnavailable, "it is away")
}

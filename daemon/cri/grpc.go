// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessage bounds one answer: lists of a full node are megabytes.
	maxMessage = 16 << 20
	// callTimeout bounds calls that answer from memory.
	callTimeout = 5 * time.Second
	// slack is how much longer than its own timeout an exec or a stop may take.
	slack = 5 * time.Second
	// maxReconnect bounds the wait between attempts to reach a runtime that went away: it
	// is back within seconds, and pulls wait for it.
	maxReconnect = 3 * time.Second
)

// remote is a runtime behind a unix socket.
type remote struct {
	name       string
	conn       *grpc.ClientConn
	images     runtimev1.ImageServiceClient
	containers runtimev1.RuntimeServiceClient
}

// Dial connects to the runtime behind a socket and proves that it serves CRI v1 (daemon.md
// 2.3). The caller closes the connection with the returned function.
func Dial(ctx context.Context, socket string) (Runtime, func() error, error) {
	return dial(ctx, socket, nil)
}

func dial(ctx context.Context, socket string, observe func(Call)) (Runtime, func() error, error) {
	target, options := endpoint(socket)
	conn, err := grpc.NewClient(target, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(observer(observe)),
		// A connection at rest costs a file descriptor; to open it again would cost more.
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: callTimeout,
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect},
		}),
	)...)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s: %w", socket, err)
	}
	r := &remote{conn: conn, images: runtimev1.NewImageServiceClient(conn), containers: runtimev1.NewRuntimeServiceClient(conn)}
	if err := r.probe(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("probing %s: %w", socket, err), conn.Close())
	}
	return r, conn.Close, nil
}

// observer tells observe of each call, and marks the errors of a runtime that is away, or that
// is going and cancels what it was asked.
func observer(observe func(Call)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		started := time.Now()
		var trailer metadata.MD
		err := invoke(ctx, method, request, reply, conn, append(options, grpc.Trailer(&trailer))...)
		if observe != nil {
			observe(Call{Method: path.Base(method), Code: status.Code(err).String(), Took: time.Since(started)})
		}
		if away(err, trailer) || status.Code(err) == codes.Canceled && ctx.Err() == nil {
			return &callError{text: status.Convert(err).Message(), err: errors.Join(ErrUnavailable, err)}
		}
		return err
	}
}

// away reports whether an error is of the connection and not of the runtime: a runtime that
// answers sends a trailer. It may answer Unavailable too, for a registry that is; one that
// is just starting says so.
func away(err error, trailer metadata.MD) bool {
	return status.Code(err) == codes.Unavailable && (len(trailer) == 0 || strings.Contains(err.Error(), "not initialized"))
}

// probe asks for what a runtime without CRI v1 cannot answer, and for its name.
func (r *remote) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	if _, err := r.images.ImageFsInfo(ctx, &runtimev1.ImageFsInfoRequest{}); err != nil {
		return fmt.Errorf("asking for the image file system: %w", err)
	}
	if _, err := r.images.ListImages(ctx, &runtimev1.ListImagesRequest{}); err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	version, err := r.containers.Version(ctx, &runtimev1.VersionRequest{Version: "0.1.0"})
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	if version.GetRuntimeName() == "" {
		return errors.New("the runtime has no name")
	}
	r.name = version.GetRuntimeName()
	return nil
}

func (r *remote) Name() string { return r.name }

func (r *remote) Images(ctx context.Context) ([]Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.images.ListImages(ctx, &runtimev1.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	images := make([]Image, 0, len(answer.GetImages()))
	for _, image := range answer.GetImages() {
		images = append(images, Image{ID: image.GetId(), RepoTags: image.GetRepoTags(), RepoDigests: image.GetRepoDigests()})
	}
	return images, nil
}

func (r *remote) PullImage(ctx context.Context, pull Pull) (string, error) {
	request := &runtimev1.PullImageRequest{
		Image: &runtimev1.ImageSpec{Image: pull.Reference},
		// Never nil, with metadata: some runtimes dereference both without looking.
		SandboxConfig: &runtimev1.PodSandboxConfig{
			Metadata:    &runtimev1.PodSandboxMetadata{},
			Labels:      pull.SandboxLabels,
			Annotations: pull.SandboxAnnotations,
		},
	}
	if pull.Auth != nil {
		request.Auth = &runtimev1.AuthConfig{
			Username: pull.Auth.Username, Password: pull.Auth.Password,
			IdentityToken: pull.Auth.IdentityToken, RegistryToken: pull.Auth.RegistryToken,
		}
	}
	answer, err := r.images.PullImage(ctx, request)
	if err != nil {
		// Runtimes say themselves what they were pulling, and the text is for users.
		return "", plain(err)
	}
	return answer.GetImageRef(), nil
}

func (r *remote) Containers(ctx context.Context, filter Filter) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &runtimev1.ListContainersRequest{Filter: &runtimev1.ContainerFilter{Id: filter.ID}}
	if filter.PodUID != "" {
		request.Filter.LabelSelector = map[string]string{LabelPodUID: filter.PodUID}
	}
	answer, err := r.containers.ListContainers(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	containers := make([]Container, 0, len(answer.GetContainers()))
	for _, c := range answer.GetContainers() {
		containers = append(containers, Container{
			ID: c.GetId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			State: stateOf(c.GetState()), Created: timeOf(c.GetCreatedAt()),
			Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		})
	}
	slices.SortStableFunc(containers, func(a, b Container) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt))
	})
	return containers, nil
}

func (r *remote) Container(ctx context.Context, id string) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.containers.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Status{}, fmt.Errorf("reading the status of container %s: %w", id, notFound(err))
	}
	s := answer.GetStatus()
	if s == nil {
		// Seen in the wild for containers that are being removed.
		return Status{}, fmt.Errorf("reading the status of container %s: empty answer: %w", id, ErrNotFound)
	}
	return Status{
		Container: Container{
			ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
			State: stateOf(s.GetState()), Created: timeOf(s.GetCreatedAt()),
			Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		},
		Started: timeOf(s.GetStartedAt()), Finished: timeOf(s.GetFinishedAt()),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
		Image: s.GetImage().GetImage(), ImageRef: s.GetImageRef(),
		Env: envOf(answer.GetInfo()),
	}, nil
}

func (r *remote) Sandbox(ctx context.Context, podUID string) (Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.containers.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{Filter: &runtimev1.PodSandboxFilter{
		LabelSelector: map[string]string{LabelPodUID: podUID},
		State:         &runtimev1.PodSandboxStateValue{State: runtimev1.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return Sandbox{}, fmt.Errorf("listing sandboxes of Pod %s: %w", podUID, err)
	}
	if len(list.GetItems()) == 0 {
		return Sandbox{}, fmt.Errorf("listing sandboxes of Pod %s: %w", podUID, ErrNoSandbox)
	}
	newest := slices.MaxFunc(list.GetItems(), func(a, b *runtimev1.PodSandbox) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	answer, err := r.containers.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: newest.GetId()})
	s := answer.GetStatus()
	if status.Code(err) == codes.NotFound || err == nil && s == nil {
		return Sandbox{}, fmt.Errorf("reading sandbox %s: %w", newest.GetId(), ErrNoSandbox)
	}
	if err != nil {
		return Sandbox{}, fmt.Errorf("reading sandbox %s: %w", newest.GetId(), err)
	}
	sandbox := Sandbox{
		ID: s.GetId(), Created: timeOf(s.GetCreatedAt()), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimev1.NamespaceMode_NODE,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		sandbox.IPs = append(sandbox.IPs, ip)
	}
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		sandbox.IPs = append(sandbox.IPs, more.GetIp())
	}
	return sandbox, nil
}

func (r *remote) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+slack)
	defer cancel()
	answer, err := r.containers.ExecSync(ctx, &runtimev1.ExecSyncRequest{
		ContainerId: id, Cmd: command, Timeout: int64(max(1, timeout.Seconds())),
	})
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, fmt.Errorf("running %q in container %s: %w", command, id, ErrTimedOut)
	case err != nil:
		return nil, fmt.Errorf("running %q in container %s: %w", command, id, notFound(err))
	case answer.GetExitCode() != 0:
		return answer.GetStdout(), fmt.Errorf("running %q in container %s: %w", command, id,
			&ExitError{Code: answer.GetExitCode(), Stderr: string(answer.GetStderr())})
	}
	return answer.GetStdout(), nil
}

func (r *remote) Stop(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+slack)
	defer cancel()
	_, err := r.containers.StopContainer(ctx, &runtimev1.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())})
	if err != nil {
		return fmt.Errorf("stopping container %s: %w", id, notFound(err))
	}
	return nil
}

// callError is an error of a call without gRPC's words around it.
type callError struct {
	text string
	err  error
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.err }

func plain(err error) error {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return &callError{text: s.Message(), err: err}
	}
	return err
}

// notFound adds ErrNotFound to a gRPC error of that code.
func notFound(err error) error {
	if status.Code(err) == codes.NotFound {
		return errors.Join(ErrNotFound, err)
	}
	return err
}

func stateOf(s runtimev1.ContainerState) State {
	switch s {
	case runtimev1.ContainerState_CONTAINER_CREATED:
		return StateCreated
	case runtimev1.ContainerState_CONTAINER_RUNNING:
		return StateRunning
	case runtimev1.ContainerState_CONTAINER_EXITED:
		return StateExited
	default:
		return StateUnknown
	}
}

// timeOf converts CRI's nanoseconds since 1970; 0 or less is the zero time.
func timeOf(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

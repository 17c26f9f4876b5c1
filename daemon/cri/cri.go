// SPDX-License-Identifier: Apache-2.0

// Package cri is the only place that speaks to a container runtime. Runtime says in our
// words what the node agent needs of it; Dial implements it over the CRI gRPC API (v1),
// Detect finds the runtimes of a node. The fake is in daemon/cri/fakecri. Rules: daemon.md
// 2 and 3.
package cri

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotFound: the runtime does not know the container.
	ErrNotFound = errors.New("container not found")
	// ErrNoSandbox: the runtime runs no sandbox of the Pod.
	ErrNoSandbox = errors.New("Pod sandbox not found")
	// ErrUnavailable: the runtime is away or went away during the call. It says nothing of
	// what was asked.
	ErrUnavailable = errors.New("the container runtime does not answer")
	// ErrTimedOut: a command in a container did not end in time.
	ErrTimedOut = errors.New("command timed out")
)

// ExitError is the non-zero exit of a command in a container.
type ExitError struct {
	Code   int32
	Stderr string
}

// Error names the exit code.
func (e *ExitError) Error() string { return fmt.Sprintf("command exited with code %d", e.Code) }

// Runtime is one container runtime. All methods may be called concurrently; all errors are
// worth a retry unless they say otherwise. The connection is re-established by itself.
type Runtime interface {
	// Name is the scheme of the runtime's container IDs: containerd, cri-o or docker.
	Name() string
	// Images lists all images on the node.
	Images(ctx context.Context) ([]Image, error)
	// PullImage returns the runtime's reference of the pulled image. It takes as long as it
	// takes: only ctx bounds it.
	PullImage(ctx context.Context, pull Pull) (string, error)
	// Containers lists containers, exited ones included, newest first.
	Containers(ctx context.Context, filter Filter) ([]Container, error)
	// Container returns everything about a container, or ErrNotFound.
	Container(ctx context.Context, id string) (Status, error)
	// Sandbox returns the newest ready sandbox of a Pod, or ErrNoSandbox. The UID is that of
	// the label LabelPodUID.
	Sandbox(ctx context.Context, podUID string) (Sandbox, error)
	// Exec runs a command in a running container and returns its stdout, or ErrTimedOut, or
	// an *ExitError. The timeout has a resolution of seconds and must be positive.
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	// Stop asks the container to stop and kills it after grace, in whole seconds. It returns
	// when the container has exited, and is a no-op on exited containers.
	Stop(ctx context.Context, id string, grace time.Duration) error
}

// Image is one image on the node.
type Image struct {
	ID string
	// RepoTags and RepoDigests are full references, such as docker.io/library/nginx:1.18.
	RepoTags    []string
	RepoDigests []string
}

// Pull is a request for one image.
type Pull struct {
	// Reference is name:tag or name@digest.
	Reference string
	// Auth is nil for an anonymous pull.
	Auth *Auth
	// SandboxLabels and SandboxAnnotations go into the sandbox config, which some runtimes
	// and their plugins read.
	SandboxLabels      map[string]string
	SandboxAnnotations map[string]string
}

// Auth are the credentials of one registry.
type Auth struct {
	Username, Password string
	// IdentityToken and RegistryToken are for registries that want no password.
	IdentityToken, RegistryToken string
}

// Filter restricts a list of containers; its fields are ANDed, the zero value lists all.
type Filter struct {
	PodUID string
	ID     string
}

// State is the life of a container.
type State string

// The states of a container.
const (
	StateCreated State = "Created"
	StateRunning State = "Running"
	StateExited  State = "Exited"
	StateUnknown State = "Unknown"
)

// Labels and annotations that the kubelet writes on containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                = "io.kubernetes.container.hash"         // hexadecimal
	AnnotationRestartCount        = "io.kubernetes.container.restartCount" // decimal
	AnnotationPreStop             = "io.kubernetes.container.preStopHandler"
	AnnotationPorts               = "io.kubernetes.container.ports"
	AnnotationGracePeriod         = "io.kubernetes.pod.terminationGracePeriod" // seconds
	AnnotationDeletionGracePeriod = "io.kubernetes.pod.deletionGracePeriod"    // seconds
)

// Container is what a list says of a container.
type Container struct {
	// ID has no scheme.
	ID      string
	Name    string
	Attempt uint32
	State   State
	// Created is when the runtime created the container, by the node's clock.
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
}

// Status is all that a runtime knows of a container. Times are by the node's clock.
type Status struct {
	Container
	Started, Finished time.Time
	ExitCode          int32
	Reason, Message   string
	Image, ImageRef   string
	// Env is the environment the container was created with, the image's variables
	// included. It is nil when the runtime does not tell; then Exec may.
	Env map[string]string
}

// Sandbox is what the containers of a Pod share.
type Sandbox struct {
	// ID has no scheme.
	ID string
	// IPs are the Pod's addresses, the primary one first; none when it has the node's network.
	IPs []string
	// HostNetwork tells that the Pod has the node's network.
	HostNetwork bool
	Created     time.Time
	Labels      map[string]string
	Annotations map[string]string
}

// IP is the primary address, empty when it has none.
func (s Sandbox) IP() string {
	if len(s.IPs) == 0 {
		return ""
	}
	return s.IPs[0]
}

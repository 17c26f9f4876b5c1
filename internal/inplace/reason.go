// SPDX-License-Identifier: Apache-2.0

package inplace

import "fmt"

// Reason says why a Pod must be recreated or what an in-place update waits for.
type Reason struct {
	// Code is one of the constants of this package: stable, for tools.
	Code string `json:"code"`
	// Path is the field as a user writes it, with containers by name, for example
	// spec.template.spec.containers[app].env[0].value; for a wait it is a field of the Pod.
	Path string `json:"path,omitempty"`
	// Message is one sentence for people; it holds no values of env or volumes.
	Message string `json:"message"`
}

// String is the path and the message.
func (r Reason) String() string {
	if r.Path == "" {
		return r.Message
	}
	return r.Path + ": " + r.Message
}

// Codes of reasons why a Pod has to be recreated (inplace-update.md 4).
const (
	MissingRevision             = "MissingRevision"
	UnreadableRevision          = "UnreadableRevision"
	VolumeClaimTemplatesChanged = "VolumeClaimTemplatesChanged"
	OutsideTemplate             = "OutsideTemplate"
	ContainersChanged           = "ContainersChanged"
	InitContainersChanged       = "InitContainersChanged"
	FieldNotUpdatable           = "FieldNotUpdatable"
	VerticalScalingDisabled     = "VerticalScalingDisabled"
	ResourceNotResizable        = "ResourceNotResizable"
	QOSClassChanged             = "QOSClassChanged"
)

// Codes of what an in-place update waits for (inplace-update.md 7 and 12).
const (
	WaitGracePeriod     = "GracePeriod"
	WaitKubelet         = "KubeletBehind"
	WaitImage           = "ImageNotChanged"
	WaitStatus          = "ContainerStatusMissing"
	WaitRuntimeMeta     = "RuntimeMetaMissing"
	WaitEnv             = "EnvNotChanged"
	WaitResize          = "ResizeNotDone"
	WaitResizeDeferred  = "ResizeDeferred"
	WaitResizeFeasible  = "ResizeInfeasible"
	WaitContainersReady = "ContainersNotReady"
	WaitNextBatch       = "NextBatchDue"
	WaitInvalidState    = "InvalidState"
)

func reason(code, path, format string, args ...any) Reason {
	return Reason{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

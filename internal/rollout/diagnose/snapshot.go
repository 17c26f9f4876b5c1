// SPDX-License-Identifier: Apache-2.0

// Package diagnose says why a Pod or a workload does not move (cli.md 6). It is a set
// of pure functions over objects that somebody else has fetched; each finding has a
// stable code, the evidence it rests on, and what to do next.
package diagnose

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/cloneset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/daemonset"
	"github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Snapshot is what was read of one workload, at one time.
type Snapshot struct {
	Workload adapter.Workload
	Facts    verdict.Facts
	// Pods are owned and active, sorted by name; Inactive are terminating, failed or
	// succeeded. Both nil when Pods could not be listed.
	Pods, Inactive []*corev1.Pod
	// Stored are the revisions it controls, oldest first.
	Stored []*appsv1.ControllerRevision
	// Events are those of the workload and its Pods, oldest first.
	Events []corev1.Event
	// Nodes by name, as far as they could be read.
	Nodes map[string]*corev1.Node
	// AllNodes says that Nodes holds every node of the cluster: a DaemonSet has to know.
	AllNodes bool
	// Claims are those of the workload's namespace, for a StatefulSet.
	Claims []*corev1.PersistentVolumeClaim
	// StorageClasses by name, for a StatefulSet that expands claims.
	StorageClasses map[string]*storagev1.StorageClass
	// NodeImages by node name, as far as they could be read.
	NodeImages map[string]*v1beta1.NodeImage
	// Requests are the restarts of containers in its namespace.
	Requests []v1beta1.ContainerRecreateRequest
	// Jobs are the image pre-pull jobs of the workload, and those that people started for it.
	Jobs []v1beta1.ImagePullJob
	// Daemons are the node agents' Pods by node; nil when they could not be listed.
	Daemons map[string]*corev1.Pod
	// Manager describes the controller that acts on the workload; nil when unknown.
	Manager *Manager
	// Gates are those of the running manager, or the defaults.
	Gates Gates
	// Hidden are details that could not be read, each as "cannot list pods".
	Hidden []string

	// planned is the plan at a time, kept by Planned.
	planned   *Plan
	plannedAt time.Time
}

// Gates are the feature gates that change what a rollout does.
type Gates struct {
	Plan        cloneset.Gates
	StatefulSet statefulset.Gates
	DaemonSet   daemonset.Gates
	InPlace     inplace.Options
	// Known: read from the running manager; otherwise they are the defaults.
	Known bool
}

// DefaultGates are the gates of an installation that sets none.
func DefaultGates() Gates {
	return Gates{
		StatefulSet: statefulset.Gates{AutoDeletePVC: true, PodIndexLabel: true},
		InPlace:     inplace.Options{EnvFromMetadata: true},
	}
}

// Manager is what is known of the controller manager.
type Manager struct {
	// Holder is the leader's identity, Renewed when it last renewed its lease.
	Holder  string
	Renewed time.Time
	// Ready of Total Pods are ready.
	Ready, Total int
}

// Report is the diagnosis of one object.
type Report struct {
	// Object is TYPE/NAME.
	Object string
	// Headline is one sentence on how it stands.
	Headline string
	// Findings are ordered: blockers, causes, notes; by code within.
	Findings []verdict.Finding
}

// Blocked reports that at least one finding is a blocker.
func (r Report) Blocked() bool {
	return slices.ContainsFunc(r.Findings, func(f verdict.Finding) bool { return f.Severity == verdict.Blocker })
}

// First returns the code of the first finding that is more than a note, "" when there
// is none.
func (r Report) First() (verdict.Finding, bool) {
	if len(r.Findings) == 0 || r.Findings[0].Severity == verdict.Note {
		return verdict.Finding{}, false
	}
	return r.Findings[0], true
}

var rank = map[verdict.Severity]int{verdict.Blocker: 0, verdict.Cause: 1, verdict.Note: 2}

func sorted(fs []verdict.Finding) []verdict.Finding {
	slices.SortStableFunc(fs, func(a, b verdict.Finding) int {
		if d := rank[a.Severity] - rank[b.Severity]; d != 0 {
			return d
		}
		return strings.Compare(a.Code, b.Code)
	})
	return fs
}

// eventsOf returns the events about one object, oldest first.
func (s Snapshot) eventsOf(kind, name string) []corev1.Event {
	var list []corev1.Event
	for _, e := range s.Events {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
			list = append(list, e)
		}
	}
	return list
}

// When is the time of the last occurrence of an event.
func When(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

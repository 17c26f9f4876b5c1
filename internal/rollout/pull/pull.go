// SPDX-License-Identifier: Apache-2.0

// Package pull reads how an image pre-pull stands, node by node, by joining the job with
// the NodeImages (cli.md 7.2); it estimates what is left, finds where an image is, and makes
// the jobs that pull again or pull for a workload. It is pure.
package pull

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/imageref"
	"github.com/kruisectl/kruisectl/internal/percent"
)

// Row is one node.
type Row struct {
	Node string `json:"node"`
	// Phase is Queued, Waiting, Pulling, Succeeded or Failed.
	Phase string `json:"phase"`
	// Progress is between 0 and 100.
	Progress int32 `json:"progress"`
	// Tries counts how often the node was given this image, from 1; 0 when it was not yet.
	Tries int64 `json:"tries"`
	// Version is that of the task in the NodeImage.
	Version int64     `json:"version"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Digest is the image that was pulled, "" when the node did not say.
	Digest  string `json:"digest,omitempty"`
	Message string `json:"message"`
}

// Done reports that nothing more happens on the node.
func (r Row) Done() bool { return r.Succeeded() || r.Failed() }

// Succeeded reports that the node has the image.
func (r Row) Succeeded() bool { return r.Phase == string(v1beta1.ImagePhaseSucceeded) }

// Failed reports that the node gave up.
func (r Row) Failed() bool { return r.Phase == string(v1beta1.ImagePhaseFailed) }

// Took is how long the node has been, or was, at it; 0 when it has not begun.
func (r Row) Took(now time.Time) time.Duration {
	switch {
	case r.Started.IsZero():
		return 0
	case r.Ended.IsZero():
		return max(0, now.Sub(r.Started))
	}
	return max(0, r.Ended.Sub(r.Started))
}

// DeadlineMessage is what a job says that its deadline has ended (images.md 6.3).
const DeadlineMessage = "job exceeds activeDeadlineSeconds"

// PhaseQueued is a node that has not been given the task yet.
const PhaseQueued = "Queued"

// Verdict is how a job stands.
type Verdict string

// The verdicts.
const (
	Active    Verdict = "Active"
	Succeeded Verdict = "Succeeded"
	Failed    Verdict = "Failed"
	Enough    Verdict = "Enough" // not done, but --min-succeeded is met
)

// Input is what Of joins.
type Input struct {
	Job *v1beta1.ImagePullJob
	// NodeImages of the cluster; nil when they cannot be read, then there are rows only for
	// what the job itself says.
	NodeImages []v1beta1.NodeImage
	// PodNodes are the nodes that a Pod selector means now.
	PodNodes []string
	// MinSucceeded, when not nil, is enough: a number of nodes or a percentage of those
	// desired.
	MinSucceeded *intstr.IntOrString
}

// Status is a job with its rows.
type Status struct {
	Job     *v1beta1.ImagePullJob
	Verdict Verdict
	// Message is one sentence.
	Message string
	// Rows are sorted by node.
	Rows []Row
	// Queued nodes wait for a place.
	Queued int32
	// Deadline is when the job gives up; zero when it has none or has not begun.
	Deadline time.Time
}

// Of joins a job with the NodeImages.
func Of(in Input) Status {
	s := in.Job.Status
	st := Status{Job: in.Job, Rows: rows(in), Queued: max(0, s.Desired-s.Active-s.Succeeded-s.Failed)}
	if d := in.Job.Spec.CompletionPolicy.ActiveDeadlineSeconds; d != nil && s.StartTime != nil {
		st.Deadline = s.StartTime.Add(time.Duration(*d) * time.Second)
	}
	never := in.Job.Spec.CompletionPolicy.Type == v1beta1.Never
	finished := s.CompletionTime != nil || never && s.Desired > 0 && s.Succeeded+s.Failed >= s.Desired
	deadline := s.Message == DeadlineMessage
	switch {
	case in.MinSucceeded != nil && enough(s, *in.MinSucceeded):
		st.Verdict = Enough
	case finished && (s.Failed > 0 || deadline):
		st.Verdict = Failed
	case finished:
		st.Verdict = Succeeded
	default:
		st.Verdict = Active
	}
	st.Message = st.sentence()
	return st
}

func (st Status) sentence() string {
	s := st.Job.Status
	switch {
	case s.StartTime == nil && s.CompletionTime == nil && s.Desired == 0:
		return "its controller has not begun"
	case s.Desired == 0 && s.CompletionTime != nil:
		return "no node is selected"
	}
	text := fmt.Sprintf("%d of %d nodes succeeded, %d failed, %d active", s.Succeeded, s.Desired, s.Failed, s.Active)
	if st.Queued > 0 && st.Verdict == Active {
		text += fmt.Sprintf(", %d queued", st.Queued)
	}
	if st.Verdict == Failed && s.Message != "" && s.Message != "job has completed" {
		text += ": " + s.Message
	}
	return text
}

func enough(s v1beta1.ImagePullJobStatus, want intstr.IntOrString) bool {
	n, err := percent.Of(want, s.Desired, percent.Up)
	return err == nil && s.Desired > 0 && s.Succeeded >= n
}

func rows(in Input) []Row {
	ref, err := imageref.Parse(in.Job.Spec.Image)
	if err != nil {
		return nil
	}
	var list []Row
	seen := map[string]bool{}
	selected := selection(in)
	for i := range in.NodeImages {
		ni := &in.NodeImages[i]
		tag, ours := task(ni, ref, in.Job)
		switch {
		case ours:
			r := row(ni, ref, tag)
			if in.Job.Status.CompletionTime != nil && !r.Done() && slices.Contains(in.Job.Status.FailedNodes, ni.Name) {
				r.Phase, r.Message = string(v1beta1.ImagePhaseFailed), "was "+strings.ToLower(r.Phase)+" when the job ended"
			}
			list = append(list, r)
			seen[ni.Name] = true
		case in.Job.Status.CompletionTime == nil && selected(ni):
			list = append(list, Row{Node: ni.Name, Phase: PhaseQueued, Message: "waits for a place" + places(in.Job)})
			seen[ni.Name] = true
		}
	}
	for _, n := range in.Job.Status.FailedNodes {
		if !seen[n] {
			list = append(list, Row{Node: n, Phase: string(v1beta1.ImagePhaseFailed), Message: "the task is cleaned up; see the events of the job"})
		}
	}
	slices.SortFunc(list, func(a, b Row) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// places says how many nodes pull at once.
func places(job *v1beta1.ImagePullJob) string {
	switch n := Parallelism(job); n {
	case 0:
		return " (parallelism 0: the job is paused)"
	default:
		return fmt.Sprintf(" (parallelism %d)", n)
	}
}

// Parallelism is how many nodes pull at once; 0 pauses the job.
func Parallelism(job *v1beta1.ImagePullJob) int {
	if job.Spec.Parallelism == nil {
		return 1
	}
	return max(0, job.Spec.Parallelism.IntValue())
}

// task returns the tag that the job put on the node.
func task(ni *v1beta1.NodeImage, ref imageref.Ref, job *v1beta1.ImagePullJob) (v1beta1.ImageTagSpec, bool) {
	for _, t := range ni.Spec.Images[ref.Name].Tags {
		if t.Tag != ref.Tag {
			continue
		}
		for _, o := range t.OwnerReferences {
			if o.UID == job.UID {
				return t, true
			}
		}
	}
	return v1beta1.ImageTagSpec{}, false
}

func row(ni *v1beta1.NodeImage, ref imageref.Ref, t v1beta1.ImageTagSpec) Row {
	r := Row{Node: ni.Name, Phase: string(v1beta1.ImagePhaseWaiting), Tries: t.Version + 1, Version: t.Version, Message: "waits for the node agent"}
	if t.CreatedAt != nil {
		r.Started = t.CreatedAt.Time
	}
	for _, s := range ni.Status.ImageStatuses[ref.Name].Tags {
		if s.Tag != ref.Tag || s.Version != t.Version {
			continue
		}
		r.Phase, r.Progress, r.Message, r.Digest = string(s.Phase), s.Progress, s.Message, s.ImageID
		if r.Succeeded() {
			r.Progress = 100
		}
		if s.StartTime != nil {
			r.Started = s.StartTime.Time
		}
		if s.CompletionTime != nil {
			r.Ended = s.CompletionTime.Time
		}
	}
	return r
}

// FailedNodes are the nodes that failed, sorted: those of the rows and those that only the
// job knows.
func (st Status) FailedNodes() []string {
	names := slices.Clone(st.Job.Status.FailedNodes)
	for _, r := range st.Rows {
		if r.Failed() {
			names = append(names, r.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

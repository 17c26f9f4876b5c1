// SPDX-License-Identifier: Apache-2.0

// Package pull reads how an image pre-pull stands, node by node, by joining the job with
// the NodeImages (cli.md 7.2). It is pure.
package pull

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// Tries is the version of the task: it grows with each new attempt of a job.
	Tries   int64     `json:"tries"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Message string    `json:"message"`
}

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

// Status is a job with its rows.
type Status struct {
	Job     *v1beta1.ImagePullJob
	Verdict Verdict
	// Message is one sentence.
	Message string
	Rows    []Row
}

// Of joins job with the NodeImages. minSucceeded, when not nil, is enough: a number of
// nodes or a percentage of those desired.
func Of(job *v1beta1.ImagePullJob, nodeImages []v1beta1.NodeImage, minSucceeded *intstr.IntOrString) Status {
	st := Status{Job: job, Rows: rows(job, nodeImages)}
	s := job.Status
	done := fmt.Sprintf("%d of %d nodes succeeded, %d failed, %d active", s.Succeeded, s.Desired, s.Failed, s.Active)
	never := job.Spec.CompletionPolicy.Type == v1beta1.Never
	finished := s.CompletionTime != nil || never && s.Desired > 0 && s.Succeeded+s.Failed >= s.Desired
	switch {
	case minSucceeded != nil && enough(s, *minSucceeded):
		st.Verdict = Enough
	case finished && s.Failed > 0:
		st.Verdict = Failed
	case finished:
		st.Verdict = Succeeded
	default:
		st.Verdict = Active
	}
	st.Message = done
	if s.Message != "" && st.Verdict != Active {
		st.Message += ": " + s.Message
	}
	return st
}

func enough(s v1beta1.ImagePullJobStatus, want intstr.IntOrString) bool {
	n, err := percent.Of(want, s.Desired, percent.Up)
	return err == nil && s.Desired > 0 && s.Succeeded >= n
}

func rows(job *v1beta1.ImagePullJob, nodeImages []v1beta1.NodeImage) []Row {
	ref, err := imageref.Parse(job.Spec.Image)
	if err != nil {
		return nil
	}
	var list []Row
	seen := map[string]bool{}
	for i := range nodeImages {
		ni := &nodeImages[i]
		tag, ours := task(ni, ref, job)
		switch {
		case ours:
			list = append(list, row(ni, ref, tag))
			seen[ni.Name] = true
		case job.Status.CompletionTime == nil && selected(job, ni):
			list = append(list, Row{Node: ni.Name, Phase: PhaseQueued, Message: "waits for a place (parallelism)"})
			seen[ni.Name] = true
		}
	}
	for _, n := range job.Status.FailedNodes {
		if !seen[n] {
			list = append(list, Row{Node: n, Phase: string(v1beta1.ImagePhaseFailed), Message: "the task is cleaned up; see the events of the node's agent"})
		}
	}
	slices.SortFunc(list, func(a, b Row) int { return cmp.Compare(a.Node, b.Node) })
	return list
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
	r := Row{Node: ni.Name, Phase: string(v1beta1.ImagePhaseWaiting), Tries: t.Version}
	if t.CreatedAt != nil {
		r.Started = t.CreatedAt.Time
	}
	for _, s := range ni.Status.ImageStatuses[ref.Name].Tags {
		if s.Tag != ref.Tag || s.Version != t.Version {
			continue
		}
		r.Phase, r.Progress, r.Message = string(s.Phase), s.Progress, s.Message
		if s.StartTime != nil {
			r.Started = s.StartTime.Time
		}
		if s.CompletionTime != nil {
			r.Ended = s.CompletionTime.Time
		}
	}
	return r
}

// selected evaluates the node selector. Which nodes a Pod selector means is not known
// here, so it selects none.
func selected(job *v1beta1.ImagePullJob, ni *v1beta1.NodeImage) bool {
	if job.Spec.PodSelector != nil {
		return false
	}
	sel := job.Spec.Selector
	switch {
	case sel == nil:
		return true
	case len(sel.Names) > 0:
		return slices.Contains(sel.Names, ni.Name)
	}
	s, err := metav1.LabelSelectorAsSelector(&sel.LabelSelector)
	return err == nil && s.Matches(labels.Set(ni.Labels))
}

// Name is the name of a job for an image and a selection: the same command makes the same
// name, so that it is found again.
func Name(image, selection string) (string, error) {
	ref, err := imageref.Parse(image)
	if err != nil {
		return "", err
	}
	last := ref.Name[strings.LastIndexByte(ref.Name, '/')+1:]
	last = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(last))
	h := fnv.New32a()
	_, _ = h.Write([]byte(ref.String() + "\x00" + selection))
	sum := strconv.FormatUint(uint64(h.Sum32()), 36)
	return "pull-" + strings.Trim(last, "-") + "-" + (sum + "00000")[:5], nil
}

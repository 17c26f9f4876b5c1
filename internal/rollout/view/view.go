// SPDX-License-Identifier: Apache-2.0

// Package view is the read model of a rollout: what line output, JSON and the terminal
// UI show, computed once and never written to afterwards. It also is the boundary that
// the terminal UI is written against: Source and Action.
package view

import (
	"context"
	"time"

	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
)

// Rollout is one workload at one time. Slices and maps in it are shared: do not write.
type Rollout struct {
	// Context is the kubeconfig context.
	Context string
	Object  Object
	// Facts are the numbers, Result what they mean.
	Facts  verdict.Facts
	Result verdict.Result
	// Update and Current are the revisions that Pods go to and come from; Current is nil
	// when there is only one, both are nil while the controller has not spoken.
	Update, Current *Revision
	// Revisions are all stored ones, newest first.
	Revisions []Revision
	// Policy is the update policy of Pods, e.g. InPlaceIfPossible.
	Policy string
	// Pods are sorted into groups: failing, missing, updating, updated, kept, surplus.
	Pods []Pod
	// Findings hold the workload, as `why` lists them.
	Findings []verdict.Finding
	// Events of the workload and its Pods, newest first.
	Events []Event
	// Hidden are details the user may not read, e.g. "cannot list pods".
	Hidden []string
	// Pulls are the images that are pulled beforehand, and on how many nodes they are.
	Pulls []pull.Coverage
	// Started is when the present rollout began, as far as Pods tell; zero when unknown.
	Started time.Time
	// At is when it was read.
	At time.Time
	// Progress is between 0 and 100: available updated Pods of the target.
	Progress int
	// Remaining is the expected time to the target; 0 when unknown (cli.md 3.5).
	Remaining time.Duration
}

// Object identifies the workload.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Typed is TYPE/NAME, as commands take it; Result is "<type>.<group>/<name>".
	Typed  string `json:"-"`
	Result string `json:"-"`
}

// Revision is one stored template.
type Revision struct {
	Name    string    `json:"name"`
	Hash    string    `json:"hash"`
	Number  int64     `json:"number"`
	Roles   []string  `json:"roles"`
	Pods    int       `json:"pods"` // -1 when unknown
	Created time.Time `json:"created"`
	Cause   string    `json:"changeCause"`
	Images  []string  `json:"images"`
	// InPlace says how a Pod gets here from the revision before: "yes", "no" or "" when
	// there is none before.
	InPlace string `json:"inPlace"`
}

// Group is where a Pod stands in the rollout.
type Group string

// The groups, in display order.
const (
	GroupFailing  Group = "failing"
	GroupUpdating Group = "updating"
	GroupUpdated  Group = "updated"
	GroupKept     Group = "kept"
	GroupSurplus  Group = "surplus"
	// GroupMissing are Pods that do not exist and should: ordinals of a StatefulSet, nodes
	// of a DaemonSet.
	GroupMissing Group = "missing"
)

// How a Pod came to its revision.
const (
	HowInPlace  = "in-place"
	HowRecreate = "recreate"
	HowNew      = "new"
	HowNone     = "-"
)

// Pod is one row.
type Pod struct {
	// Name is "" for the missing Pod of a node.
	Name string `json:"name"`
	UID  string `json:"uid"`
	Node string `json:"node"`
	// Hash is the short revision hash, Number its number; 0 when not stored.
	Hash   string `json:"revision"`
	Number int64  `json:"revisionNumber"`
	// Updated: at the update revision.
	Updated bool   `json:"updated"`
	Group   Group  `json:"group"`
	How     string `json:"how"`
	// State is one word, e.g. Ready, Updating, CrashLoopBackOff; Since is when it began.
	State     string    `json:"state"`
	Since     time.Time `json:"since"`
	Ready     bool      `json:"ready"`
	Available bool      `json:"available"`
	Restarts  int       `json:"restarts"`
	Created   time.Time `json:"created"`
	// Why is the code of the first finding, WhyText its sentence.
	Why     string `json:"why"`
	WhyText string `json:"whyText"`
	// Held is the rule that keeps it at its revision, "" when none does; HeldText its
	// sentence.
	Held     string `json:"held"`
	HeldText string `json:"heldText"`
	// Batch counts the rounds of the rollout from 1; 0 when it has not been updated.
	Batch int `json:"batch"`
	// Images are the images in the Pod's spec.
	Images []string `json:"images"`
}

// Event is one event.
type Event struct {
	Time    time.Time `json:"time"`
	Object  string    `json:"object"`
	Warning bool      `json:"warning"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// Source delivers a rollout as it changes. It is made for one reader.
type Source interface {
	// Next blocks until something changed since the last call, at most four times a
	// second, and returns the whole rollout. The first call returns at once. When the
	// workload is gone it returns a Rollout with verdict Gone and then io.EOF. While the
	// connection is lost it goes on trying; Lost says so.
	Next(ctx context.Context) (Rollout, error)
	// Lost is since when the server has not answered; zero while it does. It may be
	// called from another goroutine than Next.
	Lost() time.Time
	// Actions are what can be done to r, in display order.
	Actions(r Rollout) []Action
	// Why diagnoses one Pod, or the workload when pod is "".
	Why(ctx context.Context, pod string) (diagnose.Report, error)
	// Close ends the watches.
	Close()
}

// Action is something a person may do to a rollout.
type Action struct {
	// Name is pause, resume, promote, full, abort, undo or restart.
	Name string
	// Title says what it will do now, e.g. "set partition 70% -> 50%".
	Title string
	// Disabled is why it cannot be done; "" when it can.
	Disabled string
	// Confirm is what to ask before doing it: lines of a plan. Empty: do not ask.
	Confirm []string
	// Command is the command line that does the same.
	Command string
	// Do does it and returns the sentence that the command would print. It may take
	// seconds; never call it from a UI's update loop.
	Do func(ctx context.Context) (string, error)
}

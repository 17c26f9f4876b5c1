// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"strings"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

// ways counts how Pods that are not at the update revision get there, whether or not
// they may now.
func (f *Forecast) ways() map[string]int {
	n := map[string]int{}
	for _, r := range f.Pods {
		if r.Way != "" {
			n[r.Way]++
		}
	}
	return n
}

func (f *Forecast) judge(r run, cmp inplace.Comparison, same bool) {
	n := f.ways()
	if len(f.Pods) == 0 && !same { // nothing to simulate: the fields alone decide
		switch {
		case cmp.InPlace != nil && strings.HasPrefix(f.Policy, "InPlace"):
			n[inPlace] = 1
		case f.Policy == "InPlaceOnly":
			n[blocked] = 1
		default:
			n[recreate] = 1
		}
	}
	first := f.firstReason(cmp)
	switch {
	case n[blocked] > 0:
		f.Verdict = Refused
		f.Message = "podUpdatePolicy InPlaceOnly forbids recreation, and it is needed for " + f.firstPath(cmp)
	case n[recreate] > 0:
		f.Verdict = Recreate
		f.Message = fmt.Sprintf("%s deleted and replaced: %s", areOf(n[recreate]), first)
		if k := n[inPlace]; k > 0 {
			f.Message += fmt.Sprintf("; %s updated in place", areOf(k))
		}
	case n[inPlace] > 0:
		f.judgeInPlace(n[inPlace], cmp)
	default:
		f.Verdict, f.Message = NoChange, "every pod is at this template"
		if len(f.Pods) == 0 {
			f.Message = "there is no pod"
		}
		if f.Created > 0 {
			f.Message += fmt.Sprintf("; %d are made", f.Created)
		}
		return
	}
	f.pace(r)
}

func (f *Forecast) judgeInPlace(pods int, cmp inplace.Comparison) {
	f.Verdict = InPlace
	var names []string
	if cmp.InPlace != nil {
		names = restarts(cmp.InPlace)
		if len(names)+len(cmp.InPlace.ContainerResources) == 0 {
			f.Verdict = MetadataOnly
			f.Message = keepsOf(pods) + " IP and volumes, no container restarts"
			return
		}
	}
	f.Message = keepsOf(pods) + " IP and volumes"
	switch len(names) {
	case 0:
	case 1:
		f.Message += ", 1 container restarts each: " + names[0]
	default:
		f.Message += fmt.Sprintf(", %d containers restart each: %s", len(names), strings.Join(names, ", "))
	}
}

// firstPath is the first field that forces recreation.
func (f *Forecast) firstPath(cmp inplace.Comparison) string {
	for _, r := range cmp.Recreate {
		if r.Path != "" {
			return r.Path
		}
	}
	return f.firstReason(cmp)
}

func (f *Forecast) firstReason(cmp inplace.Comparison) string {
	if len(cmp.Recreate) > 0 {
		return cmp.Recreate[0].String()
	}
	for _, r := range f.Pods {
		if len(r.Fields) > 0 {
			return r.Fields[0].String()
		}
	}
	return f.policyText
}

// firstHeld is why the first kept Pod that is to be updated waits.
func (f *Forecast) firstHeld() string {
	for _, r := range f.Pods {
		if r.Way != "" && r.Why != "" {
			return r.Why
		}
	}
	return "nothing is to be updated"
}

// pace says how many Pods change at a time and what holds the rest.
func (f *Forecast) pace(r run) {
	switch {
	case f.Verdict == Refused:
		return
	case r.manual:
		f.Batches = "none: the update strategy is OnDelete, a pod changes when it is deleted"
		return
	case r.paused:
		f.Batches = "none: it is paused"
		return
	case f.LastBatch == 0:
		f.Batches = "none now: " + f.firstHeld()
		return
	}
	f.Batches = fmt.Sprintf("%d, up to %d at a time (%s), partition %s", f.LastBatch, max(1, r.atOnce), r.limit, r.partition)
	if r.keep > 0 {
		f.Batches += fmt.Sprintf(" keeps %d", r.keep)
	}
}

func areOf(n int) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}

func keepsOf(n int) string {
	if n == 1 {
		return "1 pod keeps"
	}
	return fmt.Sprintf("%d pods keep", n)
}

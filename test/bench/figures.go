// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// figures are the results of one run.
type figures struct {
	Workload       string `json:"workload"`
	Pods           int    `json:"pods"`
	Nodes          int    `json:"nodes"`
	MaxUnavailable string `json:"maxUnavailable"`

	CreateSeconds  float64 `json:"createSeconds"`
	RolloutSeconds float64 `json:"rolloutSeconds"`
	// FloorSeconds is what the simulated nodes alone would take for the rollout.
	FloorSeconds float64 `json:"floorSeconds"`

	Writes        writes             `json:"writes"`
	WritesPerPod  map[string]float64 `json:"writesPerPod"`
	TotalPerPod   float64            `json:"totalWritesPerPod"`
	RestartedPods int                `json:"podsUpdatedInPlace"`

	ManagerCPUSeconds float64 `json:"managerCPUSeconds"`
	ManagerPeakBytes  int64   `json:"managerPeakBytes"`
}

// perPod divides the counted writes by the number of Pods.
func (f *figures) perPod() {
	f.WritesPerPod = map[string]float64{}
	for k, n := range f.Writes.Succeeded {
		f.WritesPerPod[k] = float64(n) / float64(f.Pods)
	}
	f.TotalPerPod = float64(f.Writes.Total) / float64(f.Pods)
}

func (f *figures) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %d Pods on %d simulated nodes, updated in place, maxUnavailable %s\n", f.Workload, f.Pods, f.Nodes, f.MaxUnavailable)
	fmt.Fprintf(out, "  %-34s %10.1f s\n", "creating all Pods", f.CreateSeconds)
	fmt.Fprintf(out, "  %-34s %10.1f s\n", "rollout", f.RolloutSeconds)
	fmt.Fprintf(out, "  %-34s %10.2f of the %.1f s that the nodes take\n", "", f.RolloutSeconds/f.FloorSeconds, f.FloorSeconds)
	fmt.Fprintf(out, "  %-34s %10d\n", "Pods updated in place", f.RestartedPods)
	fmt.Fprintf(out, "  %-34s %10.2f\n", "API writes of the manager per Pod", f.TotalPerPod)
	for _, k := range slices.Sorted(maps.Keys(f.WritesPerPod)) {
		fmt.Fprintf(out, "    %-32s %10.3f\n", k, f.WritesPerPod[k])
	}
	fmt.Fprintf(out, "    %-32s %10d\n", "conflicts, in all", f.Writes.Conflicts)
	fmt.Fprintf(out, "    %-32s %10d\n", "refused or failed, in all", f.Writes.Failed)
	fmt.Fprintf(out, "  %-34s %10.1f s\n", "CPU of the leading manager", f.ManagerCPUSeconds)
	fmt.Fprintf(out, "  %-34s %10.1f MiB\n", "peak memory of the leading manager", float64(f.ManagerPeakBytes)/(1<<20))
}

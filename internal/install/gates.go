// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/features"
)

// Program is one of the programs that have feature gates.
type Program string

// The programs.
const (
	ProgramManager Program = "manager"
	ProgramDaemon  Program = "daemon"
)

// GateState is a gate as it is in an installation.
type GateState struct {
	features.Info
	// Manager and Daemon are the effective values; nil when the program is not there.
	Manager, Daemon *bool
	// Because says where the value of the manager is from.
	Because string
}

// Current is the value in effect, nil without an installation.
func (g GateState) Current() *bool {
	if g.Manager != nil {
		return g.Manager
	}
	return g.Daemon
}

// Disagree reports that manager and daemon run with different values of a gate that
// matters to both.
func (g GateState) Disagree() bool {
	return g.Manager != nil && g.Daemon != nil && *g.Manager != *g.Daemon &&
		slices.Contains(Programs(g.Name), ProgramDaemon)
}

// Programs returns those in which a gate has an effect.
func Programs(g features.Gate) []Program {
	switch g {
	case features.DaemonWatchingPod:
		return []Program{ProgramDaemon}
	case features.KruiseDaemon, features.ImagePullJobGate, features.InPlaceUpdateEnvFromMetadata,
		features.PodProbeMarkerGate, features.EnhancedLivenessProbe:
		return []Program{ProgramManager, ProgramDaemon}
	}
	return []Program{ProgramManager}
}

// GateFlags are the values of --feature-gates of an installation.
type GateFlags struct {
	Manager, Daemon       string
	HasManager, HasDaemon bool
}

// Flags reads them from the workloads.
func (e Existing) Flags() GateFlags {
	var f GateFlags
	if e.Manager != nil {
		f.HasManager = true
		f.Manager, _ = containerArgs(e.Manager).get("feature-gates")
	}
	if e.Daemon != nil {
		f.HasDaemon = true
		f.Daemon, _ = containerArgs(e.Daemon).get("feature-gates")
	}
	return f
}

// Gates returns every gate with its state under f. Names that a program would refuse are
// an error.
func Gates(f GateFlags) ([]GateState, []string, error) {
	var states []GateState
	var warnings []string
	for _, i := range features.All() {
		states = append(states, GateState{Info: i})
	}
	read := func(value string, set func(s *GateState, e features.State)) error {
		gates, err := features.Parse(value)
		if err != nil {
			return err
		}
		warnings = append(warnings, gates.Warnings()...)
		for i, e := range gates.Effective() {
			set(&states[i], e)
		}
		return nil
	}
	if f.HasManager {
		err := read(f.Manager, func(s *GateState, e features.State) { s.Manager, s.Because = new(e.Enabled), e.Because })
		if err != nil {
			return nil, nil, fmt.Errorf("--feature-gates of the manager: %w", err)
		}
	}
	if f.HasDaemon {
		managerWarnings := warnings
		err := read(f.Daemon, func(s *GateState, e features.State) {
			s.Daemon = new(e.Enabled)
			if !f.HasManager {
				s.Because = e.Because
			}
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--feature-gates of the daemon: %w", err)
		}
		if f.HasManager {
			warnings = managerWarnings
		}
	}
	return states, warnings, nil
}

// GateChange is a gate whose effective value changes.
type GateChange struct {
	Name   features.Gate `json:"name"`
	Before bool          `json:"before"`
	After  bool          `json:"after"`
	// Because is empty for a gate that was named, else what forces it.
	Because string `json:"because,omitempty"`
}

// A ContradictionError says that a gate cannot have the value that was asked for.
type ContradictionError struct {
	Gate    features.Gate
	Asked   bool
	Because string
}

// Error implements error.
func (e *ContradictionError) Error() string {
	return fmt.Sprintf("%s=%t has no effect: it is %s", e.Gate, e.Asked, e.Because)
}

// ChangeGates returns the value of --feature-gates after setting some gates, and every gate
// whose effective value changes. Entries that only repeat a default are left out, groups
// and explicit entries below them stay.
func ChangeGates(value string, asked map[features.Gate]bool) (string, []GateChange, error) {
	before, err := features.Parse(value)
	if err != nil {
		return "", nil, err
	}
	after, err := features.Parse(value)
	if err != nil {
		return "", nil, err
	}
	for _, g := range sortedKeys(asked) {
		if err := after.Set(fmt.Sprintf("%s=%t", g, asked[g])); err != nil {
			return "", nil, err
		}
	}
	was := map[features.Gate]bool{}
	for _, s := range before.Effective() {
		was[s.Name] = s.Enabled
	}
	var changes []GateChange
	for _, s := range after.Effective() {
		want, named := asked[s.Name]
		if named && s.Enabled != want {
			return "", nil, &ContradictionError{Gate: s.Name, Asked: want, Because: s.Because}
		}
		if s.Enabled != was[s.Name] {
			c := GateChange{Name: s.Name, Before: was[s.Name], After: s.Enabled}
			if !named {
				c.Because = s.Because
			}
			changes = append(changes, c)
		}
	}
	return minimal(after), changes, nil
}

// minimal drops entries without which the effective values are the same.
func minimal(s *features.Set) string {
	want := s.Effective()
	entries := splitEntries(s.String())
	for _, e := range slices.Clone(entries) {
		without := slices.DeleteFunc(slices.Clone(entries), func(x string) bool { return x == e })
		shorter, err := features.Parse(joinEntries(without))
		if err != nil {
			continue
		}
		same := true
		for i, st := range shorter.Effective() {
			same = same && st.Enabled == want[i].Enabled
		}
		if same {
			entries = without
		}
	}
	return joinEntries(entries)
}

func splitEntries(value string) []string {
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}

func joinEntries(entries []string) string { return strings.Join(entries, ",") }

// PatchGates writes the value of --feature-gates into the arguments of manager and daemon
// of an installation that has no inventory. One with an inventory is rendered and applied
// anew instead, as gates decide about objects too.
func (c *Cluster) PatchGates(ctx context.Context, e Existing, value string, mode DryRun) ([]Change, error) {
	var changes []Change
	for _, live := range []*unstructured.Unstructured{e.Manager, e.Daemon} {
		if live == nil {
			continue
		}
		before := containerArgs(live)
		after := slices.Clone(before)
		after.set("feature-gates", value)
		change := Change{Object: live, Action: Unchanged}
		if !slices.Equal(before, after) {
			change.Action = Configured
			change.Diffs = []FieldDiff{{Path: "spec.template.spec.containers[0].args", Live: before, Want: after}}
			if err := c.patchArgs(ctx, live, after, mode); err != nil {
				return changes, err
			}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

func (c *Cluster) patchArgs(ctx context.Context, live *unstructured.Unstructured, after args, mode DryRun) error {
	if mode == DryRunClient {
		return nil
	}
	body, err := json.Marshal([]op{
		{Op: "test", Path: "/metadata/resourceVersion", Value: live.GetResourceVersion()},
		{Op: "add", Path: pointer(at(container, "args")...), Value: []string(after)},
	})
	if err != nil {
		return fmt.Errorf("encoding patch: %w", err)
	}
	opts := []client.PatchOption{client.FieldOwner(FieldManager)}
	if mode == DryRunServer {
		opts = append(opts, client.DryRunAll)
	}
	if err := c.Client.Patch(ctx, live.DeepCopy(), client.RawPatch(types.JSONPatchType, body), opts...); err != nil {
		return fmt.Errorf("changing the arguments of %s: %w", Name(live), err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/install"
)

type gatesChange struct {
	*factory.Factory
	on        bool
	namespace string
	force     bool
	export    bool
	dryRun    string
	run       runFlags
	output    out.Output
}

func newGatesChange(f *factory.Factory, on bool) *cobra.Command {
	o := &gatesChange{Factory: f, on: on}
	verb, word := "enable", "on"
	if !on {
		verb, word = "disable", "off"
	}
	cmd := &cobra.Command{
		Use:   verb + " NAME...",
		Short: "Turn gates " + word + " in manager and daemon, showing all that changes",
		Example: "  kruisectl feature-gates " + verb + " CloneSetShortHash\n" +
			"  kruisectl feature-gates " + verb + " PreDownloadImageForInPlaceUpdate --dry-run",
		ValidArgsFunction: completeGates,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return out.UsageNext(cmd.CommandPath()+" CloneSetShortHash", errors.New("name at least one feature gate"))
			}
			return nil
		},
		Annotations: map[string]string{out.ExitCodes: "4 when --timeout passes first, 9 when a confirmation is missing"},
		RunE:        func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.namespace, "namespace-name", install.DefaultNamespace, "namespace of the installation")
	fs.BoolVar(&o.force, "force", false, "change an installation that Helm or a GitOps tool manages")
	fs.BoolVar(&o.export, "export", false, "print the value of --feature-gates and change nothing")
	fs.StringVar(&o.dryRun, "dry-run", "none", "none, client or server: print what would change")
	fs.Lookup("dry-run").NoOptDefVal = "client"
	fs.BoolVar(&o.run.wait, "wait", true, "wait until manager and daemon run with the new value")
	fs.DurationVar(&o.run.timeout, "timeout", 5*time.Minute, "longest time to wait")
	o.output.AddTo(fs)
	out.Group(fs, "Target", "namespace-name")
	out.Group(fs, "Safety", "force", "export", "dry-run")
	out.Group(fs, "Wait", "wait", "timeout")
	return cmd
}

func (o *gatesChange) do(ctx context.Context, args []string) error {
	mode, err := dryRunMode(o.dryRun)
	if err != nil {
		return err
	}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	asked := map[features.Gate]bool{}
	for _, a := range args {
		info, err := features.Lookup(a)
		if err != nil {
			return out.UsageNext(o.Name()+" feature-gates list", err)
		}
		asked[info.Name] = o.on
	}
	if mode != install.DryRunNone || o.export {
		o.DryRunOnly()
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return err
	}
	e, err := c.Detect(ctx, o.namespace)
	if err != nil {
		return &out.Failure{Doing: "look for the installation", Cause: err}
	}
	if e.Owner == install.OwnerNone || e.Manager == nil {
		return notInstalled(o.Factory)
	}
	value, changes, err := install.ChangeGates(e.Flags().Manager, asked)
	if err != nil {
		return &out.Failure{Doing: o.doing(args), Cause: err, Next: o.Name() + " feature-gates list"}
	}
	if o.export {
		fmt.Fprintln(o.Out, value)
		return nil
	}
	if err := o.owner(e, value, args); err != nil {
		return err
	}
	return o.change(ctx, c, e, value, changes, args, mode, format)
}

func (o *gatesChange) doing(args []string) string {
	verb := "enable"
	if !o.on {
		verb = "disable"
	}
	for i, a := range args {
		if i > 0 {
			verb += ","
		}
		verb += " " + a
	}
	return verb
}

// owner refuses what Helm or a GitOps tool would revert, with the line to write instead.
func (o *gatesChange) owner(e install.Existing, value string, args []string) error {
	if o.force || (e.Owner != install.OwnerHelm && e.Owner != install.OwnerGitOps) {
		return nil
	}
	return &out.Failure{Doing: o.doing(args), Why: e.Release + " manages the installation and would revert it",
		Next: fmt.Sprintf("featureGates: %q   # in its values", value)}
}

func (o *gatesChange) change(ctx context.Context, c *install.Cluster, e install.Existing, value string, changes []install.GateChange, args []string, mode install.DryRun, format out.Format) error {
	risky := o.explain(changes)
	flags := e.Flags()
	same := len(changes) == 0 && sameGates(flags.Manager, value) && (!flags.HasDaemon || sameGates(flags.Daemon, value))
	if same {
		return o.done(value, changes, "unchanged", format)
	}
	if mode != install.DryRunNone {
		suffix := map[install.DryRun]string{install.DryRunClient: "(dry run)", install.DryRunServer: "(server dry run)"}[mode]
		if e.Inventory == nil {
			if _, err := c.PatchGates(ctx, e, value, mode); err != nil {
				return &out.Failure{Doing: o.doing(args), Cause: err}
			}
		}
		return o.done(value, changes, "would be set "+suffix, format)
	}
	question := "Restart manager and daemon with the new gates" + o.Factory.ContextWords() + "?"
	if risky {
		question = "This is risky. " + question
	}
	if err := o.Factory.Confirm(ctx, o.doing(args), question); err != nil {
		return err
	}
	if err := o.write(ctx, c, e, value); err != nil {
		return o.run.failure(o.Factory, o.doing(args), err)
	}
	return o.done(value, changes, "set", format)
}

func sameGates(a, b string) bool {
	x, errX := features.Parse(a)
	y, errY := features.Parse(b)
	if errX != nil || errY != nil {
		return a == b
	}
	return slices.EqualFunc(x.Effective(), y.Effective(), func(p, q features.State) bool { return p.Enabled == q.Enabled })
}

// explain prints every gate that changes, and reports whether one of them is risky.
func (o *gatesChange) explain(changes []install.GateChange) bool {
	risky := false
	for _, c := range changes {
		line := fmt.Sprintf("  %s: %t %s %t", c.Name, c.Before, o.ErrStyle().Arrow(), c.After)
		if c.Because != "" {
			line += " (" + c.Because + ")"
		}
		fmt.Fprintln(o.ErrOut, line)
		if info, err := features.Lookup(string(c.Name)); err == nil && info.Risky != "" && c.After {
			fmt.Fprintf(o.ErrOut, "    risk: %s\n", info.Risky)
			risky = true
		}
	}
	return risky
}

// write applies the installation anew with the gates, as they decide about objects too,
// or patches the arguments of one that has no inventory.
func (o *gatesChange) write(ctx context.Context, c *install.Cluster, e install.Existing, value string) error {
	if e.Inventory == nil {
		if _, err := c.PatchGates(ctx, e, value, install.DryRunNone); err != nil {
			return err
		}
		if !o.run.wait {
			return nil
		}
		p, stop := progress(o.Factory)
		defer stop()
		return c.WaitRollouts(ctx, e, o.run.timeout, p)
	}
	v := e.Inventory.Values
	v.FeatureGates = value
	m, err := render(o.Factory, v)
	if err != nil {
		return err
	}
	o.run.daemonWait, o.run.probeNamespace = "90%", "default"
	_, err = o.run.execute(ctx, o.Factory, c, m, e, true)
	return err
}

func (o *gatesChange) done(value string, changes []install.GateChange, word string, format out.Format) error {
	if !format.People() {
		doc := out.Envelope("FeatureGateChange", o.ContextName())
		doc["featureGates"], doc["changes"], doc["result"] = value, append([]install.GateChange{}, changes...), word
		return format.Write(o.Out, doc)
	}
	fmt.Fprintf(o.Out, "feature gates %s: %s\n", word, orDash(value))
	return nil
}

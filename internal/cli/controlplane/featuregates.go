// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/install"
)

func newFeatureGates(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "feature-gates",
		Aliases: []string{"features", "gates"},
		Short:   "List, explain and change feature gates",
		Example: "  kruisectl feature-gates list --changed",
	}
	cmd.AddCommand(newGatesList(f), newGatesDescribe(f), newGatesChange(f, true), newGatesChange(f, false))
	return cmd
}

type gatesList struct {
	*factory.Factory
	namespace        string
	enabled, changed bool
	stage            string
	component        string
	output           out.Output
}

func newGatesList(f *factory.Factory) *cobra.Command {
	o := &gatesList{Factory: f}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List every gate with its default, its value and where that is from",
		Example: "  kruisectl feature-gates list\n" +
			"  kruisectl feature-gates list --changed -o json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.namespace, "namespace-name", install.DefaultNamespace, "namespace of the installation")
	fs.BoolVar(&o.enabled, "enabled", false, "only gates that are on")
	fs.BoolVar(&o.changed, "changed", false, "only gates that are not at their default")
	fs.StringVar(&o.stage, "stage", "", "only gates of this stage: Alpha or Beta")
	fs.StringVar(&o.component, "component", "", "only gates of this program: manager or daemon")
	o.output.AddTo(fs, "wide")
	out.Group(fs, "Target", "namespace-name", "enabled", "changed", "stage", "component")
	return cmd
}

func (o *gatesList) do(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.stage != "" && !strings.EqualFold(o.stage, "Alpha") && !strings.EqualFold(o.stage, "Beta") {
		return out.Usagef("--stage is %q: use Alpha or Beta", o.stage)
	}
	if o.component != "" && o.component != "manager" && o.component != "daemon" {
		return out.Usagef("--component is %q: use manager or daemon", o.component)
	}
	states, warnings, err := o.states(ctx)
	if err != nil {
		return err
	}
	states = slices.DeleteFunc(states, func(g install.GateState) bool { return !o.shows(g) })
	for _, w := range warnings {
		warning(o.Factory, w)
	}
	if !format.People() {
		doc := out.Envelope("FeatureGateList", o.ContextName())
		items := []map[string]any{}
		for _, g := range states {
			items = append(items, gateDocument(g))
		}
		doc["items"], doc["warnings"] = items, append([]string{}, warnings...)
		return format.Write(o.Out, doc)
	}
	style := o.OutStyle()
	t := out.Table{Columns: []out.Column{{Name: "NAME"}, {Name: "STAGE"}, {Name: "DEFAULT"}, {Name: "CURRENT"}, {Name: "SOURCE"},
		{Name: "COMPONENTS", Drop: 1}, {Name: "EFFECT", Drop: 2}}}
	for _, g := range states {
		t.Rows = append(t.Rows, []string{string(g.Name), string(g.Stage), fmt.Sprint(g.Default), current(g), source(g), components(g.Name), g.Effect})
	}
	return t.Print(o.Out, style, format.Name == "wide")
}

// states reads the flags of the installation. Without a cluster, or without an
// installation, the values are unknown, which is a note and no error.
func (o *gatesList) states(ctx context.Context) ([]install.GateState, []string, error) {
	flags := install.GateFlags{}
	c, err := cluster(o.Factory)
	switch {
	case errors.Is(err, factory.ErrNoCluster):
		o.Note("no cluster is configured, so only defaults are shown")
	case err != nil:
		return nil, nil, err
	default:
		e, err := c.Detect(ctx, o.namespace)
		switch {
		case err != nil:
			o.Note("the installation cannot be read, so only defaults are shown: %v", err)
		case e.Owner == install.OwnerNone:
			o.Note("not installed, so only defaults are shown")
		default:
			flags = e.Flags()
		}
	}
	states, warnings, err := install.Gates(flags)
	if err != nil {
		return nil, nil, &out.Failure{Doing: "read the feature gates of the installation", Cause: err}
	}
	return states, warnings, nil
}

func (o *gatesList) shows(g install.GateState) bool {
	now := g.Current()
	switch {
	case o.enabled && (now == nil || !*now):
		return false
	case o.changed && (now == nil || *now == g.Default) && !g.Disagree():
		return false
	case o.stage != "" && !strings.EqualFold(o.stage, string(g.Stage)):
		return false
	case o.component != "" && !slices.Contains(install.Programs(g.Name), install.Program(o.component)):
		return false
	}
	return true
}

func current(g install.GateState) string {
	now := g.Current()
	switch {
	case now == nil:
		return "-"
	case g.Disagree():
		return fmt.Sprintf("manager=%t daemon=%t", *g.Manager, *g.Daemon)
	}
	return fmt.Sprint(*now)
}

// source is where a value is from, in a word or two.
func source(g install.GateState) string {
	switch b := g.Because; {
	case g.Current() == nil:
		return "-"
	case b == "":
		return "default"
	case b == "set explicitly":
		return "flag"
	case strings.HasPrefix(b, "set by AllAlpha"):
		return "AllAlpha"
	case strings.HasPrefix(b, "set by AllBeta"):
		return "AllBeta"
	default:
		forced := "forced off by "
		if *g.Current() {
			forced = "forced on by "
		}
		return forced + strings.TrimPrefix(b, "forced by ")
	}
}

func components(name features.Gate) string {
	var list []string
	for _, p := range install.Programs(name) {
		list = append(list, string(p))
	}
	return strings.Join(list, ",")
}

func gateDocument(g install.GateState) map[string]any {
	doc := map[string]any{
		"name": g.Name, "stage": g.Stage, "default": g.Default, "effect": g.Effect,
		"components": install.Programs(g.Name), "source": source(g), "disagree": g.Disagree(),
		"current": nil, "manager": nil, "daemon": nil,
	}
	if now := g.Current(); now != nil {
		doc["current"] = *now
	}
	if g.Manager != nil {
		doc["manager"] = *g.Manager
	}
	if g.Daemon != nil {
		doc["daemon"] = *g.Daemon
	}
	return doc
}

func newGatesDescribe(f *factory.Factory) *cobra.Command {
	var output out.Output
	cmd := &cobra.Command{
		Use:               "describe NAME",
		Short:             "Explain one gate: effect, what it needs, what it implies, risk",
		Example:           "  kruisectl feature-gates describe PreDownloadImageForInPlaceUpdate",
		ValidArgsFunction: completeGates,
		Args:              oneGate,
		RunE: func(_ *cobra.Command, args []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			info, err := features.Lookup(args[0])
			if err != nil {
				return out.UsageNext(f.Name()+" feature-gates list", err)
			}
			return describeGate(f, info, format)
		},
	}
	output.AddTo(cmd.Flags())
	return cmd
}

func oneGate(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return out.UsageNext(cmd.CommandPath()+" PodWebhook", errors.New("name one feature gate"))
	}
	return nil
}

func completeGates(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, i := range features.All() {
		names = append(names, fmt.Sprintf("%s\t%s", i.Name, i.Effect))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func describeGate(f *factory.Factory, i features.Info, format out.Format) error {
	implies := []features.Gate{}
	for _, other := range features.All() {
		if slices.Contains(other.TurnedOnBy, i.Name) {
			implies = append(implies, other.Name)
		}
	}
	if !format.People() {
		doc := out.Envelope("FeatureGate", "")
		doc["name"], doc["stage"], doc["default"], doc["effect"] = i.Name, i.Stage, i.Default, i.Effect
		doc["components"], doc["requires"], doc["impliedBy"], doc["implies"], doc["risk"] = install.Programs(i.Name),
			append([]features.Gate{}, i.DependsOn...), append([]features.Gate{}, i.TurnedOnBy...), implies, i.Risky
		return format.Write(f.Out, doc)
	}
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintln(f.Out, out.Wrap(fmt.Sprintf("%-13s%s", name+":", value), 80, strings.Repeat(" ", 13)))
		}
	}
	row("Name", string(i.Name))
	row("Stage", string(i.Stage))
	row("Default", fmt.Sprint(i.Default))
	row("Components", components(i.Name))
	row("Effect", i.Effect)
	row("Requires", joinGates(i.DependsOn))
	row("Turns on", joinGates(implies))
	row("Turned on by", joinGates(i.TurnedOnBy))
	row("Risk", i.Risky)
	return nil
}

func joinGates(gates []features.Gate) string {
	var s []string
	for _, g := range gates {
		s = append(s, string(g))
	}
	return strings.Join(s, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

type upgradeOptions struct {
	*factory.Factory
	values      valueFlags
	run         runFlags
	to          string
	resetValues bool
	reuseValues bool
	allowSkip   bool
	force       bool
	rollback    bool
	prune       bool
}

func newUpgrade(f *factory.Factory) *cobra.Command {
	o := &upgradeOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Bring the installation to the version of this tool, or to other values",
		Long: "Bring the installation to the version of this tool, keeping its values, with flags\n" +
			"on top. Shows every change first and asks about those that matter.",
		Example: "  kruisectl upgrade\n" +
			"  kruisectl upgrade --dry-run=client\n" +
			"  kruisectl upgrade --replicas 3 --yes\n" +
			"  kruisectl upgrade --rollback-on-failure --timeout 2m",
		Args: noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "3 when it failed and the old version was put back, 4 when --timeout passes first, 9 when a confirmation is missing",
			out.SeeAlso:   "install, status, manifest diff",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	o.values.addTo(cmd.Flags())
	o.run.addTo(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVar(&o.to, "to", "", "`VERSION` to upgrade to; only that of this tool is possible")
	fs.BoolVar(&o.reuseValues, "reuse-values", true, "start from the values of the installation")
	fs.BoolVar(&o.resetValues, "reset-values", false, "start from the defaults instead")
	fs.BoolVar(&o.allowSkip, "allow-skip", false, "do not ask when minor versions are skipped")
	fs.BoolVar(&o.force, "force", false, "allow going back to an older version")
	fs.BoolVar(&o.rollback, "rollback-on-failure", false, "put the old version back when the new one does not work in time")
	fs.BoolVar(&o.prune, "prune", true, "delete objects that are not part of it any more; never CRDs or namespaces")
	out.Group(fs, "Change", "to", "reuse-values", "reset-values")
	out.Group(fs, "Safety", "allow-skip", "force", "rollback-on-failure", "prune")
	return cmd
}

func (o *upgradeOptions) do(ctx context.Context) error {
	mode, err := o.run.mode()
	if err != nil {
		return err
	}
	format, err := o.run.output.Format()
	if err != nil {
		return err
	}
	if o.to != "" && o.to != install.ManifestsVersion() {
		return out.Usagef("--to is %s: this tool upgrades to %s only, use the kruisectl of that version", o.to, install.ManifestsVersion())
	}
	fresh, err := o.values.values(o.Factory, "generic")
	if err != nil {
		return err
	}
	if mode != install.DryRunNone {
		o.DryRunOnly()
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return err
	}
	e, err := c.Detect(ctx, fresh.Installation.Namespace)
	if err != nil {
		return &out.Failure{Doing: "look for the installation", Cause: err}
	}
	if err := o.admit(e); err != nil {
		return err
	}
	old, err := valuesOf(o.Factory, e)
	if err != nil {
		return err
	}
	v := fresh
	if o.reuseValues && !o.resetValues {
		if v, err = o.values.onto(o.Factory, install.Rebase(old, e.Version)); err != nil {
			return err
		}
	}
	m, err := render(o.Factory, v)
	if err != nil {
		return err
	}
	if o.run.export {
		return writeStream(o.Factory, m)
	}
	if err := o.skew(e, m); err != nil {
		return err
	}
	if err := o.run.preflight(ctx, o.Factory, c, m, e); err != nil {
		return err
	}
	return o.apply(ctx, c, m, e, old, mode, format)
}

func (o *upgradeOptions) admit(e install.Existing) error {
	const doing = "upgrade"
	switch e.Owner {
	case install.OwnerNone:
		return notInstalled(o.Factory)
	case install.OwnerGitOps:
		return &out.Failure{Doing: doing, Why: e.Release + " manages the installation and would revert every change",
			Next: o.Name() + " manifest render --dir DIR   # and commit DIR to its repository"}
	case install.OwnerHelm, install.OwnerBare:
		if !o.run.adopt {
			return &out.Failure{Doing: doing, Why: fmt.Sprintf("the installation was not made by this tool (%s)", orDash(e.Release)),
				Next: o.Name() + " install --adopt"}
		}
	}
	return nil
}

// skew refuses to go back and lists what may be in the way of going on.
func (o *upgradeOptions) skew(e install.Existing, m *install.Manifests) error {
	s := install.CompareVersions(e.Version, m.Version)
	switch {
	case s.Downgrade && !o.force:
		return &out.Failure{Doing: "upgrade", Why: fmt.Sprintf("version %s is installed, this tool is for the older %s", e.Version, m.Version),
			Next: "use kruisectl " + e.Version + ", or add --force to go back"}
	case s.SkippedMinors > 0 && !o.allowSkip && !o.Global.Yes:
		o.Note("%s skipped between %s and %s", out.Plural(s.SkippedMinors, "minor version"), e.Version, m.Version)
	}
	return nil
}

func (o *upgradeOptions) apply(ctx context.Context, c *install.Cluster, m *install.Manifests, e install.Existing, old install.Values, mode install.DryRun, format out.Format) error {
	planMode := mode
	if planMode == install.DryRunNone {
		planMode = install.DryRunClient
	}
	plan, err := c.Plan(ctx, m, o.run.applyOptions(mode), planMode)
	if err != nil {
		return o.run.failure(o.Factory, "plan the upgrade", err)
	}
	var obsolete []install.Entry
	if o.prune && e.Inventory != nil {
		obsolete = e.Inventory.Obsolete(m.Objects, false)
	}
	nothing := len(obsolete) == 0 && e.Inventory != nil && e.Inventory.Complete && e.Version == m.Version
	for _, ch := range plan {
		nothing = nothing && ch.Action == install.Unchanged
	}
	diffs := install.CompareValues(old, m.Values)
	if mode != install.DryRunNone {
		return o.printDryRun(ctx, c, m, plan, obsolete, diffs, mode, format)
	}
	if nothing && len(diffs) == 0 {
		if format.People() {
			fmt.Fprintf(o.Out, "version %s is up to date, nothing changed\n", m.Version)
			return nil
		}
		return writeResult(o.Factory, format, m, install.Result{Changes: plan, Waited: false})
	}
	if err := o.run.rehearse(ctx, c, m); err != nil {
		return o.run.failure(o.Factory, "upgrade", err)
	}
	fmt.Fprintf(o.ErrOut, "Upgrade from %s to %s:\n", orDash(e.Version), m.Version)
	o.printChanges(plan, obsolete, diffs)
	if err := o.Factory.Confirm(ctx, "upgrade", "Go on"+o.Factory.ContextWords()+"?"); err != nil {
		return err
	}
	previous, err := o.previous(ctx, c, m)
	if err != nil {
		return err
	}
	res, err := o.run.execute(ctx, o.Factory, c, m, e, o.prune)
	if err != nil {
		return o.failed(ctx, c, e, previous, err)
	}
	if !format.People() {
		return writeResult(o.Factory, format, m, res)
	}
	fmt.Fprintf(o.Out, "version %s upgraded to %s: %d objects created, %d configured, %d deleted\n", orDash(e.Version), m.Version,
		res.Count(install.Created), res.Count(install.Configured), len(res.Pruned))
	return nil
}

func (o *upgradeOptions) printChanges(plan []install.Change, obsolete []install.Entry, diffs []install.ValueDiff) {
	for _, d := range diffs {
		fmt.Fprintf(o.ErrOut, "  value %s\n", d)
	}
	printPlan(o.Factory, plan, obsolete)
}

func (o *upgradeOptions) printDryRun(ctx context.Context, c *install.Cluster, m *install.Manifests, plan []install.Change, obsolete []install.Entry, diffs []install.ValueDiff, mode install.DryRun, format out.Format) error {
	problems, err := c.OutdatedObjects(ctx)
	if err != nil {
		return o.run.failure(o.Factory, "look at Kruise objects", err)
	}
	if !format.People() {
		doc := out.Envelope("InstallPlan", o.ContextName())
		doc["version"], doc["dryRun"], doc["changes"], doc["values"] = m.Version, string(mode), changeList(plan), diffs
		doc["objects"] = problems
		return format.Write(o.Out, doc)
	}
	o.printChanges(plan, obsolete, diffs)
	for _, p := range problems {
		fmt.Fprintf(o.ErrOut, "  %s\n    fix: %s\n", p.Message, p.Fix)
	}
	suffix := "(dry run)"
	if mode == install.DryRunServer {
		suffix = "(server dry run)"
	}
	fmt.Fprintf(o.Out, "version %s would be brought to the cluster %s\n", m.Version, suffix)
	return nil
}

// previous returns what to go back to, when that is asked for.
func (o *upgradeOptions) previous(ctx context.Context, c *install.Cluster, m *install.Manifests) (*install.Manifests, error) {
	if !o.rollback {
		return nil, nil
	}
	p, err := c.Previous(ctx, m.Values.Installation.Namespace)
	if err != nil {
		return nil, &out.Failure{Doing: "read what to go back to", Cause: err}
	}
	if p == nil {
		return nil, &out.Failure{Doing: "upgrade with --rollback-on-failure", Why: "what was installed before is not recorded",
			Next: "leave out --rollback-on-failure"}
	}
	return p, nil
}

// failed puts the old version back when that was asked for.
func (o *upgradeOptions) failed(ctx context.Context, c *install.Cluster, e install.Existing, previous *install.Manifests, err error) error {
	if previous == nil || errors.Is(err, context.Canceled) {
		return o.run.failure(o.Factory, "upgrade", err)
	}
	fmt.Fprintf(o.ErrOut, "the new version does not work: %v\nputting version %s back\n", err, previous.Version)
	back := o.run
	back.adopt, back.forceConflicts, back.webhooksLast = false, true, false
	if _, backErr := back.execute(ctx, o.Factory, c, previous, e, false); backErr != nil {
		return o.run.failure(o.Factory, "put version "+previous.Version+" back", errors.Join(backErr, err))
	}
	return &out.Failure{Doing: "upgrade", Why: "version " + previous.Version + " runs again", Cause: err,
		Next: o.Name() + " doctor", Code: out.CodeFailed}
}

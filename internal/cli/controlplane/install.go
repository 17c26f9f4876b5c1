// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

// runFlags are the flags of install and upgrade that do not shape the manifests.
type runFlags struct {
	dryRun         string
	wait           bool
	timeout        time.Duration
	skipPreflight  bool
	skip           []string
	adopt          bool
	forceConflicts bool
	export         bool
	webhooksLast   bool
	daemonWait     string
	probeNamespace string
	output         out.Output
}

func (r *runFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&r.dryRun, "dry-run", "none", "none, client (read only) or server (let the server check)")
	fs.Lookup("dry-run").NoOptDefVal = "client"
	fs.BoolVar(&r.wait, "wait", true, "wait until everything works")
	fs.DurationVar(&r.timeout, "timeout", 5*time.Minute, "longest time to wait")
	fs.BoolVar(&r.skipPreflight, "skip-preflight", false, "do not check first whether it can work here")
	fs.StringSliceVar(&r.skip, "skip", nil, "checks to leave out, by id")
	fs.BoolVar(&r.adopt, "adopt", false, "take over an installation made by Helm or by other manifests")
	fs.BoolVar(&r.forceConflicts, "force-conflicts", false, "take fields that other field managers own")
	fs.BoolVar(&r.export, "export", false, "print the manifests and do nothing")
	fs.BoolVar(&r.webhooksLast, "webhooks-last", true, "on a first install, let webhooks fail open until the manager is ready")
	fs.StringVar(&r.daemonWait, "daemon-wait", "90%", "share of daemon Pods to wait for: all, none or a percentage")
	fs.StringVar(&r.probeNamespace, "probe-namespace", "default", "namespace for the trial creation of a CloneSet, which is not stored")
	r.output.AddTo(fs)
	out.Group(fs, "Safety", "dry-run", "skip-preflight", "skip", "adopt", "force-conflicts", "export", "webhooks-last")
	out.Group(fs, "Wait", "wait", "timeout", "daemon-wait", "probe-namespace")
}

// mode validates the flags and returns the dry-run mode.
func (r *runFlags) mode() (install.DryRun, error) {
	if _, err := install.ParseShare(r.daemonWait); err != nil {
		return "", out.Usagef("--daemon-wait: %w", err)
	}
	if r.timeout <= 0 {
		return "", out.Usagef("--timeout is %s: use a positive duration such as 5m", r.timeout)
	}
	return dryRunMode(r.dryRun)
}

func dryRunMode(value string) (install.DryRun, error) {
	switch m := install.DryRun(value); m {
	case install.DryRunNone, install.DryRunClient, install.DryRunServer:
		return m, nil
	}
	return "", out.Usagef("--dry-run is %q: use none, client or server", value)
}

func (r *runFlags) applyOptions(mode install.DryRun) install.ApplyOptions {
	return install.ApplyOptions{DryRun: mode, Adopt: r.adopt, ForceConflicts: r.forceConflicts}
}

type installOptions struct {
	*factory.Factory
	values valueFlags
	run    runFlags
}

func newInstall(f *factory.Factory) *cobra.Command {
	o := &installOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install manager, webhooks, node daemon and CRDs",
		Long: "Install manager, webhooks, node daemon and CRDs, and wait until they work. Running\n" +
			"it again changes nothing.",
		Example: "  kruisectl install\n" +
			"  kruisectl install --dry-run=server\n" +
			"  kruisectl install --profile ha --feature-gates CloneSetShortHash=true\n" +
			"  kruisectl install --values values.yaml --set manager.replicas=3",
		Args: noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "4 when --timeout passes first, 9 when a confirmation is missing",
			out.SeeAlso:   "preflight, status, upgrade, manifest render",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	o.values.addTo(cmd.Flags())
	o.run.addTo(cmd.Flags())
	return cmd
}

func (o *installOptions) do(ctx context.Context) error {
	mode, err := o.run.mode()
	if err != nil {
		return err
	}
	format, err := o.run.output.Format()
	if err != nil {
		return err
	}
	if o.run.export {
		v, err := o.values.values(o.Factory, "generic")
		if err != nil {
			return err
		}
		return printManifests(o.Factory, v)
	}
	// What is wrong on any cluster is said before one is asked.
	if v, err := o.values.values(o.Factory, "generic"); err != nil {
		return err
	} else if _, _, err := v.Check(); err != nil {
		return out.Usage(err)
	}
	if mode != install.DryRunNone {
		o.DryRunOnly()
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return err
	}
	v, err := o.values.values(o.Factory, c.Platform(ctx))
	if err != nil {
		return err
	}
	m, err := render(o.Factory, v)
	if err != nil {
		return err
	}
	existing, err := c.Detect(ctx, v.Installation.Namespace)
	if err != nil {
		return &out.Failure{Doing: "look for an existing installation", Cause: err}
	}
	if err := o.admit(existing, m); err != nil {
		return err
	}
	if m, err = o.keepLiveValues(existing, m); err != nil {
		return err
	}
	if err := o.run.preflight(ctx, o.Factory, c, m, existing); err != nil {
		return err
	}
	return o.apply(ctx, c, m, existing, mode, format)
}

// admit refuses what install must not do to an installation that exists (cli.md 4.3, 2).
func (o *installOptions) admit(e install.Existing, m *install.Manifests) error {
	const doing = "install"
	if e.Owner != install.OwnerNone && e.Namespace != m.Values.Installation.Namespace {
		return &out.Failure{Doing: doing, Why: fmt.Sprintf("an installation exists in namespace %s", e.Namespace),
			Next: fmt.Sprintf("%s status\n%s install --namespace-name %s", o.Name(), o.Name(), e.Namespace)}
	}
	switch e.Owner {
	case install.OwnerGitOps:
		return &out.Failure{Doing: doing, Why: e.Release + " manages the installation and would revert every change",
			Next: o.Name() + " manifest render --dir DIR   # and commit DIR to its repository"}
	case install.OwnerHelm:
		if !o.run.adopt {
			return &out.Failure{Doing: doing, Why: fmt.Sprintf("Helm release %s manages the installation", e.Release),
				Next: "helm upgrade …   # to keep using Helm\n" + o.Name() + " install --adopt   # to manage it with this tool"}
		}
	case install.OwnerBare:
		if !o.run.adopt {
			return &out.Failure{Doing: doing, Why: fmt.Sprintf("another installation exists in namespace %s (image %s)", e.Namespace, orDash(e.Image)),
				Next: o.Name() + " install --adopt   # to take it over; Pods of workloads are not restarted"}
		}
	case install.OwnerSelf:
		if !e.Inventory.Complete {
			o.Note("an earlier run was interrupted; going on")
			return nil
		}
		diffs := install.CompareValues(e.Inventory.Values, m.Values)
		if e.Version != m.Version || len(diffs) > 0 {
			why := fmt.Sprintf("version %s is installed already", e.Version)
			cause := error(nil)
			if len(diffs) > 0 {
				cause = errors.New("with other values:" + lines(diffs))
			}
			return &out.Failure{Doing: doing, Why: why, Cause: cause, Next: o.Name() + " upgrade"}
		}
	}
	return nil
}

// keepLiveValues renders anew for an installation that is taken over: gates, ports and
// placement stay as they are, with flags on top. Gates decide what Pods look like, so
// losing one could restart them.
func (o *installOptions) keepLiveValues(e install.Existing, m *install.Manifests) (*install.Manifests, error) {
	if !o.run.adopt || (e.Owner != install.OwnerHelm && e.Owner != install.OwnerBare) {
		return m, nil
	}
	live, err := install.LiveValues(e)
	if err != nil {
		return nil, &out.Failure{Doing: "read the values of the installation", Cause: err}
	}
	v, err := o.values.onto(o.Factory, live)
	if err != nil {
		return nil, err
	}
	for _, d := range install.CompareValues(m.Values, v) {
		o.Note("kept from the installation: %s is %s", d.Key, d.After)
	}
	return render(o.Factory, v)
}

func lines(diffs []install.ValueDiff) string {
	s := ""
	for _, d := range diffs {
		s += "\n" + d.String()
	}
	return s
}

func (o *installOptions) apply(ctx context.Context, c *install.Cluster, m *install.Manifests, e install.Existing, mode install.DryRun, format out.Format) error {
	planMode := mode
	if planMode == install.DryRunNone {
		planMode = install.DryRunClient
	}
	plan, err := c.Plan(ctx, m, o.run.applyOptions(mode), planMode)
	if err != nil {
		return o.run.failure(o.Factory, "plan the installation", err)
	}
	if mode != install.DryRunNone {
		return o.printDryRun(m, plan, mode, format)
	}
	changesSomething := false
	for _, ch := range plan {
		changesSomething = changesSomething || ch.Action == install.Configured
	}
	if changesSomething {
		if err := o.run.rehearse(ctx, c, m); err != nil {
			return o.run.failure(o.Factory, "install", err)
		}
		fmt.Fprintln(o.ErrOut, "This will:")
		printPlan(o.Factory, plan, nil)
		if err := o.Factory.Confirm(ctx, "install", "Go on"+o.where()+"?"); err != nil {
			return err
		}
	}
	res, err := o.run.execute(ctx, o.Factory, c, m, e, false)
	if err != nil {
		return o.run.failure(o.Factory, "install", err)
	}
	if e.Owner == install.OwnerHelm {
		o.Note("delete the records of the Helm release, and never run helm uninstall, which would delete the CRDs:\n  kubectl -n %s delete secret -l owner=helm,name=%s", releaseNamespace(e.Release), releaseName(e.Release))
	}
	return o.report(m, e, res, format)
}

// where names the context for questions.
func (o *installOptions) where() string { return o.Factory.ContextWords() }

func (o *installOptions) printDryRun(m *install.Manifests, plan []install.Change, mode install.DryRun, format out.Format) error {
	if !format.People() {
		doc := out.Envelope("InstallPlan", o.ContextName())
		doc["version"], doc["dryRun"], doc["changes"] = m.Version, string(mode), changeList(plan)
		return format.Write(o.Out, doc)
	}
	printPlan(o.Factory, plan, nil)
	for _, ch := range plan {
		if ch.Action == install.Uncheckable {
			fmt.Fprintf(o.ErrOut, "  %s: %s\n", install.Name(ch.Object), ch.Reason)
		}
	}
	if mode == install.DryRunClient {
		data, err := m.YAML()
		if err != nil {
			return err
		}
		if _, err := o.Out.Write(data); err != nil {
			return fmt.Errorf("writing the manifests: %w", err)
		}
		fmt.Fprintf(o.ErrOut, "version %s would be installed (dry run)\n", m.Version)
		return nil
	}
	fmt.Fprintf(o.Out, "version %s would be installed (server dry run)\n", m.Version)
	return nil
}

func (o *installOptions) report(m *install.Manifests, e install.Existing, res install.Result, format out.Format) error {
	if !format.People() {
		return writeResult(o.Factory, format, m, res)
	}
	if e.Owner == install.OwnerSelf && e.Inventory.Complete && res.Count(install.Unchanged) == len(res.Changes) {
		fmt.Fprintf(o.Out, "version %s is installed already, nothing changed\n", m.Version)
		return nil
	}
	fmt.Fprintf(o.Out, "version %s installed in namespace %s: %d objects created, %d configured, %d unchanged\n", m.Version,
		m.Values.Installation.Namespace, res.Count(install.Created), res.Count(install.Configured), res.Count(install.Unchanged))
	o.Note("feature gates: %s\nnext: %s status", orDash(m.Values.FeatureGates), o.Name())
	return nil
}

func writeResult(f *factory.Factory, format out.Format, m *install.Manifests, res install.Result) error {
	doc := out.Envelope("InstallResult", f.ContextName())
	doc["version"], doc["namespace"] = m.Version, m.Values.Installation.Namespace
	doc["featureGates"] = m.Values.FeatureGates
	doc["changes"], doc["waited"] = changeList(res.Changes), res.Waited
	pruned := []string{}
	for _, e := range res.Pruned {
		pruned = append(pruned, e.String())
	}
	doc["pruned"] = pruned
	return format.Write(f.Out, doc)
}

// execute applies and waits, showing progress.
func (r *runFlags) execute(ctx context.Context, f *factory.Factory, c *install.Cluster, m *install.Manifests, e install.Existing, prune bool) (install.Result, error) {
	p, stop := progress(f)
	defer stop()
	return c.Run(ctx, m, e.Inventory, install.RunOptions{
		ApplyOptions: r.applyOptions(install.DryRunNone), Prune: prune,
		Wait: r.wait, Timeout: r.timeout, DaemonWait: r.daemonWait, ProbeNamespace: r.probeNamespace,
		WebhooksLast: r.webhooksLast && (e.Owner == install.OwnerNone || e.Manager == nil),
	}, p)
}

// rehearse lets the server check every object before the first one is written, so that
// a conflict or a refusal leaves nothing half done.
func (r *runFlags) rehearse(ctx context.Context, c *install.Cluster, m *install.Manifests) error {
	_, err := c.Plan(ctx, m, r.applyOptions(install.DryRunServer), install.DryRunServer)
	return err
}

// failure gives an error of a run its three parts and its exit code.
func (r *runFlags) failure(f *factory.Factory, doing string, err error) error {
	var (
		timeout     *install.TimeoutError
		terminating *install.TerminatingError
		conflict    *install.ConflictError
		lost        *install.LostVersionError
		preflight   *out.Failure
	)
	fail := &out.Failure{Doing: doing, Cause: err}
	switch {
	case errors.As(err, &preflight):
		return err
	case errors.Is(err, context.Canceled) || isSignal(err):
		fail.Why = "interrupted; what was applied stays"
		fail.Next = f.Name() + " install   # again; it goes on where it is\n" + f.Name() + " status"
	case errors.As(err, &timeout):
		fail.Why = fmt.Sprintf("not working after %s", timeout.Timeout)
		fail.Cause = errors.New("still missing:" + bullet(timeout.Missing))
		fail.Next = f.Name() + " status\n" + f.Name() + " doctor\n" + f.Name() + " install   # again; it goes on where it is"
		fail.Code = out.CodeTimeout
	case errors.As(err, &terminating):
		fail.Why = "namespace " + terminating.Namespace + " is being deleted"
		fail.Cause = errors.New("what holds it:" + bullet(terminating.Remaining))
		fail.Next = "kubectl get namespace " + terminating.Namespace + " -o yaml"
	case errors.As(err, &conflict):
		fail.Cause = errors.New(conflict.Error())
		fail.Next = "add --force-conflicts to take the fields"
	case errors.As(err, &lost):
		fail.Next = "kubectl get --raw /apis/apps.kruise.io   # the versions that are served"
	case errors.Is(err, install.ErrNoNamespace):
		fail.Next = "kubectl create namespace …   # or leave out --create-namespace=false"
	}
	return fail
}

func isSignal(err error) bool {
	var s *out.Signal
	return errors.As(err, &s)
}

func bullet(items []string) string {
	s := ""
	for _, i := range items {
		s += "\n" + i
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

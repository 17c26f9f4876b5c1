// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

type uninstallOptions struct {
	*factory.Factory
	namespace string
	keepCRDs  bool
	opts      install.UninstallOptions
	dryRun    string
	output    out.Output
}

func newUninstall(f *factory.Factory) *cobra.Command {
	o := &uninstallOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the installation in a safe order; CRDs and workloads stay",
		Long: "Remove webhooks, manager, daemon and permissions, in an order in which nothing\n" +
			"hangs. CRDs and the objects users made stay unless --purge-crds is given.",
		Example: "  kruisectl uninstall --dry-run\n" +
			"  kruisectl uninstall\n" +
			"  kruisectl uninstall --purge-crds",
		Args: noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "4 when something does not go away in time, 9 when a confirmation is missing",
			out.SeeAlso:   "status, install",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.namespace, "namespace-name", install.DefaultNamespace, "namespace of the installation")
	fs.BoolVar(&o.keepCRDs, "keep-crds", true, "keep CRDs and all objects users made")
	fs.BoolVar(&o.opts.PurgeCRDs, "purge-crds", false, "delete the CRDs as well; refused while users' objects exist")
	fs.BoolVar(&o.opts.Force, "force", false, "with --purge-crds: delete users' objects and their Pods")
	fs.BoolVar(&o.opts.OrphanWorkloads, "orphan-workloads", false, "with --purge-crds: delete users' objects but leave their Pods")
	fs.BoolVar(&o.opts.KeepNamespace, "keep-namespace", false, "keep the namespaces")
	fs.StringVar(&o.dryRun, "dry-run", "none", "none, client or server: print the plan only")
	fs.Lookup("dry-run").NoOptDefVal = "client"
	o.output.AddTo(fs)
	out.Group(fs, "Target", "namespace-name")
	out.Group(fs, "Safety", "keep-crds", "purge-crds", "force", "orphan-workloads", "keep-namespace", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("force", "orphan-workloads")
	return cmd
}

func (o *uninstallOptions) do(ctx context.Context) error {
	mode, err := dryRunMode(o.dryRun)
	if err != nil {
		return err
	}
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if (o.opts.Force || o.opts.OrphanWorkloads) && !o.opts.PurgeCRDs {
		return out.Usagef("--force and --orphan-workloads are about what --purge-crds deletes; without it users' objects stay")
	}
	if !o.keepCRDs && !o.opts.PurgeCRDs {
		return out.UsageNext(o.Name()+" uninstall --purge-crds", errors.New("--keep-crds=false does not delete CRDs"))
	}
	if mode != install.DryRunNone {
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
	if err := o.admit(e); err != nil {
		return err
	}
	r, err := c.PlanUninstall(ctx, e, o.opts)
	var left *install.RemainingError
	switch {
	case errors.Is(err, install.ErrNotInstalled):
		return o.nothing(r, format)
	case errors.As(err, &left):
		printRemaining(o.ErrOut, r.Remaining)
		return &out.Failure{Doing: "uninstall", Cause: err, Next: strings.Join([]string{
			o.Name() + " uninstall   # keeps CRDs, objects and Pods",
			o.Name() + " uninstall --purge-crds --orphan-workloads   # keeps Pods",
			o.Name() + " uninstall --purge-crds --force",
		}, "\n")}
	case err != nil:
		return &out.Failure{Doing: "plan the removal", Cause: err}
	}
	return o.remove(ctx, c, r, mode, format)
}

func (o *uninstallOptions) admit(e install.Existing) error {
	switch e.Owner {
	case install.OwnerHelm:
		return &out.Failure{Doing: "uninstall", Why: fmt.Sprintf("Helm release %s manages the installation", e.Release),
			Next: "helm uninstall " + releaseName(e.Release) + " -n " + releaseNamespace(e.Release) + "   # deletes CRDs and their objects\n" +
				o.Name() + " install --adopt   # first, to remove it with this tool and keep them"}
	case install.OwnerGitOps:
		return &out.Failure{Doing: "uninstall", Why: e.Release + " would bring the installation back",
			Next: "remove it from its repository"}
	case install.OwnerBare:
		return &out.Failure{Doing: "uninstall", Why: "the installation in namespace " + e.Namespace + " was not made by this tool",
			Next: o.Name() + " install --adopt   # first, to remove it with this tool"}
	}
	return nil
}

func (o *uninstallOptions) nothing(r *install.Removal, format out.Format) error {
	if !format.People() {
		doc := out.Envelope("UninstallResult", o.ContextName())
		doc["removed"], doc["crds"] = []string{}, r.CRDs
		return format.Write(o.Out, doc)
	}
	text := "not installed, nothing to remove"
	if len(r.CRDs) > 0 {
		text += fmt.Sprintf("; %s left", out.Plural(len(r.CRDs), "CRD"))
	}
	fmt.Fprintln(o.Out, text)
	return nil
}

func (o *uninstallOptions) remove(ctx context.Context, c *install.Cluster, r *install.Removal, mode install.DryRun, format out.Format) error {
	if mode != install.DryRunNone || format.People() {
		o.printPlan(r)
	}
	if mode != install.DryRunNone && !format.People() {
		return o.document(r, mode, format)
	}
	if mode != install.DryRunNone {
		suffix := map[install.DryRun]string{install.DryRunClient: "(dry run)", install.DryRunServer: "(server dry run)"}[mode]
		fmt.Fprintf(o.Out, "%s would be removed %s\n", out.Plural(len(r.Objects), "object"), suffix)
		return nil
	}
	if err := o.ask(ctx, r); err != nil {
		return err
	}
	p, stop := progress(o.Factory)
	err := c.Uninstall(ctx, r, o.opts, p)
	stop()
	if err != nil {
		fail := &out.Failure{Doing: "uninstall", Cause: err, Next: o.Name() + " uninstall   # again; it goes on where it is"}
		var timeout *install.TimeoutError
		if errors.As(err, &timeout) {
			fail.Code = out.CodeTimeout
		}
		return fail
	}
	if !format.People() {
		return o.document(r, mode, format)
	}
	o.summary(r)
	return nil
}

func (o *uninstallOptions) document(r *install.Removal, mode install.DryRun, format out.Format) error {
	doc := out.Envelope("UninstallResult", o.ContextName())
	removed := []string{}
	for _, e := range r.Objects {
		removed = append(removed, e.String())
	}
	doc["removed"], doc["remaining"], doc["dryRun"] = removed, append([]install.KindCount{}, r.Remaining...), string(mode)
	doc["crds"], doc["purgedCRDs"], doc["keptNamespaces"] = append([]string{}, r.CRDs...), o.opts.PurgeCRDs, r.KeptNamespaces
	return format.Write(o.Out, doc)
}

func (o *uninstallOptions) ask(ctx context.Context, r *install.Removal) error {
	if o.opts.PurgeCRDs {
		word := "delete"
		if name := o.ContextName(); name != "" {
			word += " " + name
		}
		return o.Factory.ConfirmWord(ctx, "uninstall", "This deletes the CRDs and all their objects.", word)
	}
	return o.Factory.Confirm(ctx, "uninstall", fmt.Sprintf("Remove the installation in namespace %s%s?", r.Namespace, o.Factory.ContextWords()))
}

func (o *uninstallOptions) printPlan(r *install.Removal) {
	w := o.ErrOut
	fmt.Fprintf(w, "Removes the installation in namespace %s%s, in this order:\n", r.Namespace, o.Factory.ContextWords())
	for _, e := range r.Objects {
		fmt.Fprintf(w, "  %s\n", e)
	}
	if o.opts.PurgeCRDs {
		for _, name := range r.CRDs {
			fmt.Fprintf(w, "  CustomResourceDefinition/%s with all its objects\n", name)
		}
	}
	for _, name := range r.Namespaces {
		fmt.Fprintf(w, "  Namespace/%s\n", name)
	}
	var kept []string
	for name, why := range r.KeptNamespaces {
		kept = append(kept, fmt.Sprintf("  keeps Namespace/%s: %s", name, why))
	}
	slices.Sort(kept)
	for _, line := range kept {
		fmt.Fprintln(w, line)
	}
	if !o.opts.PurgeCRDs && len(r.CRDs) > 0 {
		fmt.Fprintf(w, "  keeps %s and their objects\n", out.Plural(len(r.CRDs), "CRD"))
	}
	printRemaining(w, r.Remaining)
	for _, name := range r.Protected {
		fmt.Fprintf(w, "  %s carries the label that protects it from deletion\n", name)
	}
}

func printRemaining(w io.Writer, remaining []install.KindCount) {
	if len(remaining) == 0 {
		return
	}
	t := out.Table{Columns: []out.Column{{Name: "KIND"}, {Name: "NAMESPACE"}, {Name: "COUNT", Right: true}, {Name: "PODS", Right: true}, {Name: "NAMES"}}, Indent: "  "}
	for _, r := range remaining {
		names := r.Names
		if len(names) > 5 {
			names = append(slices.Clone(names[:5]), "…")
		}
		t.Rows = append(t.Rows, []string{r.Kind, r.Namespace, fmt.Sprint(len(r.Names)), fmt.Sprint(r.Pods), strings.Join(names, ", ")})
	}
	_ = t.Print(w, out.Style{}, false)
}

func (o *uninstallOptions) summary(r *install.Removal) {
	fmt.Fprintf(o.Out, "%s removed from namespace %s\n", out.Plural(len(r.Objects), "object"), r.Namespace)
	if o.opts.PurgeCRDs {
		return
	}
	pods := 0
	for _, k := range r.Remaining {
		pods += k.Pods
	}
	if len(r.Remaining) > 0 {
		o.Note("%s of users stay, and their %s keep running without a controller. Pods with the readiness\n"+
			"gates InPlaceUpdateReady or KruisePodReady that are created from now on never become Ready without a manager.",
			out.Plural(countNames(r.Remaining), "object"), out.Plural(pods, "Pod"))
	}
}

func countNames(remaining []install.KindCount) int {
	n := 0
	for _, r := range remaining {
		n += len(r.Names)
	}
	return n
}

// releaseName and releaseNamespace are the parts of namespace/name.
func releaseName(release string) string {
	_, name, _ := strings.Cut(release, "/")
	return name
}

func releaseNamespace(release string) string {
	ns, _, _ := strings.Cut(release, "/")
	return ns
}

// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

func newManifest(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "manifest",
		Short:   "Render, compare and prune the manifests of an installation",
		Example: "  kruisectl manifest render | kubectl apply -f -",
	}
	cmd.AddCommand(newManifestRender(f), newManifestDiff(f), newManifestPrune(f), newManifestImages(f), newManifestValues(f))
	return cmd
}

type renderOptions struct {
	*factory.Factory
	values     valueFlags
	dir        string
	split      string
	order      string
	force      bool
	fromValues string
}

func newManifestRender(f *factory.Factory) *cobra.Command {
	o := &renderOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the manifests; equal flags give equal bytes",
		Long: "Print the manifests that install would apply. No cluster is asked, and equal\n" +
			"flags give equal bytes.",
		Example: "  kruisectl manifest render | kubectl apply -f -\n" +
			"  kruisectl manifest render --profile ha --dir deploy/kruise\n" +
			"  kruisectl manifest render --from-values deploy/kruise/VALUES.yaml",
		Args:        noArgs,
		Annotations: map[string]string{out.SeeAlso: "install --export, manifest diff"},
		RunE:        func(*cobra.Command, []string) error { return o.do() },
	}
	o.values.addTo(cmd.Flags())
	fs := cmd.Flags()
	fs.StringVar(&o.dir, "dir", "", "write files to this directory, with a kustomization that lists them")
	fs.StringVar(&o.split, "split", "object", "with --dir, a file for each: object, component, or none for one file")
	fs.StringVar(&o.order, "order", "apply", "apply or alphabetical")
	fs.BoolVar(&o.force, "force", false, "write to a directory that holds other files")
	fs.StringVar(&o.fromValues, "from-values", "", "a VALUES.yaml that --dir wrote; same as --values")
	out.Group(fs, "Safety", "force")
	return cmd
}

func (o *renderOptions) do() error {
	if o.fromValues != "" {
		o.values.files = append([]string{o.fromValues}, o.values.files...)
	}
	switch install.Split(o.split) {
	case install.SplitObject, install.SplitComponent, install.SplitNone:
	default:
		return out.Usagef("--split is %q: use object, component or none", o.split)
	}
	if o.order != "apply" && o.order != "alphabetical" {
		return out.Usagef("--order is %q: use apply or alphabetical", o.order)
	}
	v, err := o.values.values(o.Factory, "generic")
	if err != nil {
		return err
	}
	m, err := render(o.Factory, v)
	if err != nil {
		return err
	}
	if o.order == "alphabetical" {
		install.SortAlphabetically(m.Objects)
	}
	if o.dir == "" {
		return writeStream(o.Factory, m)
	}
	files, err := m.WriteDir(o.dir, install.Split(o.split), o.force)
	if errors.Is(err, install.ErrForeignFiles) {
		return &out.Failure{Doing: "render to " + o.dir, Cause: err, Next: "add --force to write beside them, or name another directory"}
	}
	if err != nil {
		return &out.Failure{Doing: "render to " + o.dir, Cause: err}
	}
	fmt.Fprintf(o.Out, "%s written to %s\n", out.Plural(len(files), "file"), o.dir)
	return nil
}

func printManifests(f *factory.Factory, v install.Values) error {
	m, err := render(f, v)
	if err != nil {
		return err
	}
	return writeStream(f, m)
}

func writeStream(f *factory.Factory, m *install.Manifests) error {
	data, err := m.YAML()
	if err != nil {
		return err
	}
	if _, err := f.Out.Write(data); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	return nil
}

func newManifestImages(f *factory.Factory) *cobra.Command {
	values := &valueFlags{}
	var output out.Output
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List the images of an installation, for mirroring",
		Example: "  kruisectl manifest images\n" +
			"  kruisectl manifest images --registry mirror.local",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			v, err := values.values(f, "generic")
			if err != nil {
				return err
			}
			m, err := render(f, v)
			if err != nil {
				return err
			}
			images := install.Images(m.Objects)
			if !format.People() {
				doc := out.Envelope("ImageList", "")
				doc["images"] = images
				return format.Write(f.Out, doc)
			}
			fmt.Fprintln(f.Out, strings.Join(images, "\n"))
			return nil
		},
	}
	values.addTo(cmd.Flags())
	output.AddTo(cmd.Flags())
	return cmd
}

func newManifestValues(f *factory.Factory) *cobra.Command {
	values := &valueFlags{}
	var live bool
	var output out.Output
	cmd := &cobra.Command{
		Use:   "values",
		Short: "Print the default values, or those of the installation",
		Example: "  kruisectl manifest values --profile ha > values.yaml\n" +
			"  kruisectl manifest values --live",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			v, err := values.values(f, "generic")
			if err != nil {
				return err
			}
			if live {
				if v, err = liveValues(cmd.Context(), f, v.Installation.Namespace); err != nil {
					return err
				}
			}
			if !format.People() && format.Name != "yaml" {
				return format.Write(f.Out, v)
			}
			_, err = f.Out.Write(v.YAML())
			return err
		},
	}
	values.addTo(cmd.Flags())
	cmd.Flags().BoolVar(&live, "live", false, "read the values of the installation in the cluster")
	output.AddTo(cmd.Flags())
	out.Group(cmd.Flags(), "Target", "live")
	return cmd
}

func liveValues(ctx context.Context, f *factory.Factory, namespace string) (install.Values, error) {
	c, err := cluster(f)
	if err != nil {
		return install.Values{}, err
	}
	e, err := c.Detect(ctx, namespace)
	if err != nil {
		return install.Values{}, &out.Failure{Doing: "read the values of the installation", Cause: err}
	}
	return valuesOf(f, e)
}

// valuesOf returns the values of an installation: those of its inventory, else what can
// be read from its workloads.
func valuesOf(f *factory.Factory, e install.Existing) (install.Values, error) {
	switch {
	case e.Inventory != nil:
		return e.Inventory.Values, nil
	case e.Owner == install.OwnerNone:
		return install.Values{}, notInstalled(f)
	}
	v, err := install.LiveValues(e)
	if err != nil {
		return install.Values{}, &out.Failure{Doing: "read the values of the installation", Cause: err}
	}
	return v, nil
}

func notInstalled(f *factory.Factory) error {
	return &out.Failure{Doing: "find an installation", Why: "not installed", Next: f.Name() + " install"}
}

func newManifestPrune(f *factory.Factory) *cobra.Command {
	values := &valueFlags{}
	var dryRun string
	var includeCRDs bool
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "Delete objects of the installation that are not part of it any more",
		Example: "  kruisectl manifest prune --dry-run\n  kruisectl manifest prune --yes",
		Args:    noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "9 when a confirmation is missing",
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			mode, err := dryRunMode(dryRun)
			if err != nil {
				return err
			}
			return prune(cmd.Context(), f, values, mode, includeCRDs)
		},
	}
	values.addTo(cmd.Flags())
	cmd.Flags().StringVar(&dryRun, "dry-run", "none", "none, client or server: list only")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
	cmd.Flags().BoolVar(&includeCRDs, "include-crds", false, "delete CRDs too, and with them their objects")
	out.Group(cmd.Flags(), "Safety", "dry-run", "include-crds")
	return cmd
}

func prune(ctx context.Context, f *factory.Factory, values *valueFlags, mode install.DryRun, includeCRDs bool) error {
	base, err := values.values(f, "generic")
	if err != nil {
		return err
	}
	if mode != install.DryRunNone {
		f.DryRunOnly()
	}
	c, err := cluster(f)
	if err != nil {
		return err
	}
	inv, err := c.ReadInventory(ctx, base.Installation.Namespace)
	if err != nil {
		return &out.Failure{Doing: "prune", Cause: err}
	}
	if inv == nil {
		return notInstalled(f)
	}
	v, err := values.onto(f, inv.Values)
	if err != nil {
		return err
	}
	m, err := render(f, v)
	if err != nil {
		return err
	}
	obsolete := inv.Obsolete(m.Objects, includeCRDs)
	if len(obsolete) == 0 {
		fmt.Fprintln(f.Out, "nothing to prune")
		return nil
	}
	suffix := map[install.DryRun]string{install.DryRunClient: " (dry run)", install.DryRunServer: " (server dry run)"}[mode]
	for _, e := range obsolete {
		fmt.Fprintf(f.Out, "%s%s\n", e, suffix)
	}
	if mode != install.DryRunNone {
		return nil
	}
	if err := f.Confirm(ctx, "prune", fmt.Sprintf("Delete these %s%s?", out.Plural(len(obsolete), "object"), f.ContextWords())); err != nil {
		return err
	}
	pruned, err := c.Prune(ctx, m, inv, includeCRDs, install.Progress{})
	if err != nil {
		return &out.Failure{Doing: "prune", Cause: err}
	}
	fmt.Fprintf(f.Out, "%s deleted\n", out.Plural(len(pruned), "object"))
	return nil
}

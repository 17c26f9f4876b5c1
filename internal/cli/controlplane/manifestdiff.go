// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

type diffOptions struct {
	*factory.Factory
	values   valueFlags
	files    []string
	ignore   []string
	exitCode bool
	summary  bool
	output   out.Output
}

func newManifestDiff(f *factory.Factory) *cobra.Command {
	o := &diffOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the installation with the manifests",
		Long: "Compare the cluster with what the installation was made from, with flags on top,\n" +
			"or with files. What the manager fills in at run time is not a difference.",
		Example: "  kruisectl manifest diff\n" +
			"  kruisectl manifest diff --replicas 3\n" +
			"  kruisectl manifest diff -f deploy/kruise",
		Args:        noArgs,
		Annotations: map[string]string{out.ExitCodes: "0 no difference, 1 differences, above 1 an error; --exit-code=false makes differences 0"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	o.values.addTo(cmd.Flags())
	fs := cmd.Flags()
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "file or directory with manifests to compare with; may be repeated")
	fs.StringArrayVar(&o.ignore, "ignore", nil, "path of a field to leave out, such as spec.replicas; may be repeated")
	fs.BoolVar(&o.exitCode, "exit-code", true, "exit with 1 when there are differences")
	fs.BoolVar(&o.summary, "summary", false, "names of objects only")
	o.output.AddTo(fs)
	out.Group(fs, "Target", "filename", "ignore")
	return cmd
}

func (o *diffOptions) do(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	base, err := o.values.values(o.Factory, "generic")
	if err != nil {
		return err
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return diffFailure(err)
	}
	e, err := c.Detect(ctx, base.Installation.Namespace)
	if err != nil {
		return diffFailure(err)
	}
	m, err := o.wanted(base, e)
	if err != nil {
		return err
	}
	diffs, err := c.Diff(ctx, m, e.Inventory)
	if err != nil {
		return diffFailure(err)
	}
	diffs = install.IgnoreFields(diffs, o.ignore)
	if err := o.print(diffs, format); err != nil {
		return err
	}
	if len(diffs) > 0 && o.exitCode {
		return out.Silent(out.CodeError)
	}
	return nil
}

// diffFailure keeps errors apart from differences, which are exit code 1.
func diffFailure(err error) error {
	return &out.Failure{Doing: "compare with the cluster", Cause: err, Code: out.CodeUsage}
}

// wanted is what to compare with: files, or the installation's values with flags on top.
func (o *diffOptions) wanted(base install.Values, e install.Existing) (*install.Manifests, error) {
	if len(o.files) > 0 {
		return manifestsFromFiles(o.Factory, o.files)
	}
	if e.Inventory == nil {
		return render(o.Factory, base)
	}
	v, err := o.values.onto(o.Factory, e.Inventory.Values)
	if err != nil {
		return nil, err
	}
	return render(o.Factory, v)
}

func (o *diffOptions) print(diffs []install.ObjectDiff, format out.Format) error {
	if !format.People() {
		doc := out.Envelope("DiffReport", o.ContextName())
		list := []map[string]any{}
		for _, d := range diffs {
			list = append(list, map[string]any{"object": d.Name, "state": d.State, "fields": d.Lines()})
		}
		doc["differences"], doc["count"] = list, len(diffs)
		return format.Write(o.Out, doc)
	}
	for _, d := range diffs {
		if d.State != install.StateDiffers {
			fmt.Fprintf(o.Out, "%s: %s\n", d.Name, d.State)
			continue
		}
		fmt.Fprintf(o.Out, "%s\n", d.Name)
		if !o.summary {
			for _, l := range d.Lines() {
				fmt.Fprintf(o.Out, "  %s\n", l)
			}
		}
	}
	return nil
}

// manifestsFromFiles reads YAML files and directories of them.
func manifestsFromFiles(f *factory.Factory, names []string) (*install.Manifests, error) {
	m := &install.Manifests{}
	read := func(name string) error {
		data, err := readFile(f, name)
		if err != nil {
			return out.Usagef("-f %s: %w", name, unwrapPath(err))
		}
		objs, err := install.ParseStream(data)
		if err != nil {
			return out.Usagef("-f %s: %w", name, err)
		}
		m.Objects = append(m.Objects, objs...)
		return nil
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || (err == nil && !info.IsDir()) {
			if err := read(name); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, out.Usagef("-f %s: %w", name, unwrapPath(err))
		}
		resources, err := resourcesOf(name)
		if err != nil {
			return nil, err
		}
		for _, r := range resources {
			if err := read(r); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// resourcesOf lists the files of a directory that render wrote, or all YAML files of
// another one.
func resourcesOf(dir string) ([]string, error) {
	var k struct{ Resources []string }
	if data, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml")); err == nil {
		if err := yaml.Unmarshal(data, &k); err != nil {
			return nil, out.Usagef("-f %s: %w", dir, err)
		}
	}
	if len(k.Resources) == 0 {
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				return nil, out.Usagef("-f %s: %w", dir, err)
			}
			k.Resources = append(k.Resources, found...)
		}
		return k.Resources, nil
	}
	for i, r := range k.Resources {
		k.Resources[i] = filepath.Join(dir, r)
	}
	return k.Resources, nil
}

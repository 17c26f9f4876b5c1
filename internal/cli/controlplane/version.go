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
	"github.com/kruisectl/kruisectl/internal/version"
)

type versionOptions struct {
	*factory.Factory
	namespace string
	client    bool
	check     bool
	output    out.Output
}

func newVersion(f *factory.Factory) *cobra.Command {
	o := &versionOptions{Factory: f}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of this tool, the cluster and what is installed",
		Example: "  kruisectl version\n  kruisectl version --client -o json\n  kruisectl version --check",
		Args:    noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "3 with --check when versions do not fit together",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.namespace, "namespace-name", install.DefaultNamespace, "namespace of the installation")
	fs.BoolVar(&o.client, "client", false, "do not ask the cluster")
	fs.BoolVar(&o.check, "check", false, "exit with 3 when versions do not fit together")
	o.output.AddTo(fs)
	out.Group(fs, "Target", "namespace-name", "client")
	return cmd
}

func (o *versionOptions) do(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	info := version.Get()
	doc := out.Envelope("VersionInfo", "")
	doc["client"] = map[string]any{"version": info.Version, "commit": info.Commit, "go": info.Go, "manifests": install.ManifestsVersion()}
	rows := [][2]string{{"kruisectl", info.Version}, {"commit", info.Commit}, {"go", info.Go}, {"manifests", install.ManifestsVersion()}}
	var warnings []string
	var unreachable error
	if !o.client {
		var server install.ServerVersions
		if server, unreachable = o.server(ctx); unreachable == nil {
			doc["server"] = server
			rows = append(rows, [2]string{"kubernetes", server.Kubernetes}, [2]string{"installed", server.Installed},
				[2]string{"manager", server.Manager}, [2]string{"daemon", server.Daemon}, [2]string{"CRDs", server.CRDs})
			warnings = server.Skew(install.ManifestsVersion())
		}
	}
	doc["warnings"] = append([]string{}, warnings...)
	if format.People() {
		for _, r := range rows {
			fmt.Fprintf(o.Out, "%-12s%s\n", r[0]+":", orDash(r[1]))
		}
	} else if err := format.Write(o.Out, doc); err != nil {
		return err
	}
	for _, w := range warnings {
		warning(o.Factory, w)
	}
	if unreachable != nil {
		fmt.Fprintln(o.ErrOut, "server: not reachable:", reason(unreachable))
		if o.check {
			return out.Silent(out.CodeError)
		}
	}
	if o.check && len(warnings) > 0 {
		return out.Silent(out.CodeFailed)
	}
	return nil
}

// reason is the last part of an error, which says why.
func reason(err error) error {
	if errors.Is(err, factory.ErrNoCluster) {
		return factory.ErrNoCluster
	}
	return err
}

func (o *versionOptions) server(ctx context.Context) (install.ServerVersions, error) {
	c, err := cluster(o.Factory)
	if err != nil {
		return install.ServerVersions{}, err
	}
	return c.Versions(ctx, o.namespace)
}

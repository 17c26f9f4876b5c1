// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

type statusOptions struct {
	*factory.Factory
	namespace string
	component string
	wait      bool
	timeout   time.Duration
	output    out.Output
}

// componentTitles are the names of components for people, by id.
var componentTitles = map[string]string{
	"manager": "manager", "webhooks": "webhooks", "daemon": "daemon", "crds": "CRDs", "gates": "feature gates", "objects": "objects",
}

func newStatus(f *factory.Factory) *cobra.Command {
	o := &statusOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the health of the installation",
		Example: "  kruisectl status\n" +
			"  kruisectl status --wait --timeout 2m\n" +
			"  kruisectl status -o json",
		Args: noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "0 healthy, 1 not installed, 3 degraded, 4 when --timeout passes first",
			out.SeeAlso:   "doctor, version",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.namespace, "namespace-name", install.DefaultNamespace, "namespace of the installation")
	fs.StringVar(&o.component, "component", "", "only this one: manager, webhooks, daemon, crds, gates or objects")
	fs.BoolVar(&o.wait, "wait", false, "wait until it is healthy")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest time to wait")
	o.output.AddTo(fs, "wide")
	out.Group(fs, "Target", "namespace-name", "component")
	out.Group(fs, "Wait", "wait", "timeout")
	return cmd
}

func (o *statusOptions) do(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.component != "" && componentTitles[o.component] == "" {
		return out.Usagef("--component is %q: use manager, webhooks, daemon, crds, gates or objects", o.component)
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return err
	}
	s, err := o.read(ctx, c)
	if o.wait {
		s, err = o.untilHealthy(ctx, c, s, err)
	}
	if errors.Is(err, install.ErrNotInstalled) {
		return notInstalled(o.Factory)
	}
	if err != nil {
		return &out.Failure{Doing: "read the status of the installation", Cause: err}
	}
	if err := o.print(s, format); err != nil {
		return err
	}
	switch {
	case s.Healthy():
		return nil
	case o.wait:
		return out.Silent(out.CodeTimeout)
	}
	return out.Silent(out.CodeFailed)
}

func (o *statusOptions) read(ctx context.Context, c *install.Cluster) (install.Status, error) {
	e, err := c.Detect(ctx, o.namespace)
	if err != nil {
		return install.Status{}, err
	}
	s, err := c.ReadStatus(ctx, e)
	if err == nil && o.component != "" {
		s.Components = slices.DeleteFunc(s.Components, func(c install.ComponentStatus) bool { return c.ID != o.component })
	}
	return s, err
}

func (o *statusOptions) untilHealthy(ctx context.Context, c *install.Cluster, s install.Status, err error) (install.Status, error) {
	p := o.Progress(false, factory.Heartbeat)
	defer p.Finish()
	deadline := o.Clock.Now().Add(o.timeout)
	for err != nil || !s.Healthy() {
		p.Update("waiting: " + troubles(s, err))
		p.Beat()
		if !o.Clock.Now().Before(deadline) {
			return s, err
		}
		if sleepErr := o.Sleep(ctx, time.Second); sleepErr != nil {
			return s, sleepErr
		}
		s, err = o.read(ctx, c)
	}
	return s, nil
}

func troubles(s install.Status, err error) string {
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, c := range s.Components {
		if c.State == install.HealthDegraded || c.State == install.HealthFailed {
			parts = append(parts, fmt.Sprintf("%s %s (%s)", c.ID, c.Ready, c.Message))
		}
	}
	return strings.Join(parts, "; ")
}

func (o *statusOptions) print(s install.Status, format out.Format) error {
	if !format.People() {
		doc := out.Envelope("InstallStatus", o.ContextName())
		doc["namespace"], doc["version"], doc["installedBy"] = s.Namespace, s.Version, string(s.InstalledBy)
		doc["healthy"], doc["components"] = s.Healthy(), s.Components
		return format.Write(o.Out, doc)
	}
	style := o.OutStyle()
	t := out.Table{Columns: []out.Column{{Name: "COMPONENT"}, {Name: "STATE"}, {Name: "READY"}, {Name: "VERSION", Drop: 1}, {Name: "DETAIL"}}}
	for _, c := range s.Components {
		t.Rows = append(t.Rows, []string{componentTitles[c.ID], healthWord(style, c.State), orDash(c.Ready), orDash(c.Version), orDash(c.Message)})
	}
	return t.Print(o.Out, style, format.Name == "wide")
}

func healthWord(style out.Style, h install.Health) string {
	switch h {
	case install.HealthOK:
		return style.Symbol(out.OK) + " ok"
	case install.HealthDegraded:
		return style.Symbol(out.Warning) + " degraded"
	case install.HealthFailed:
		return style.Symbol(out.Failed) + " failed"
	}
	return "-"
}

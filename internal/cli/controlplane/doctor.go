// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

// sections of checks, those before installing and those of an installation.
var (
	preSections    = []string{"cluster", "permissions", "nodes", "conflicts", "network", "certs"}
	doctorSections = []string{"cluster", "manager", "webhooks", "crds", "daemon", "objects", "client"}
)

type checkOptions struct {
	*factory.Factory
	values   valueFlags
	pre      bool
	sections []string
	skip     []string
	failOn   string
	output   out.Output
}

func newPreflight(f *factory.Factory) *cobra.Command {
	o := &checkOptions{Factory: f, pre: true}
	cmd := &cobra.Command{
		Use:     "preflight",
		Short:   "Check whether the product can be installed here",
		Example: "  kruisectl preflight\n  kruisectl preflight --profile ha -o json",
		Args:    noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "3 on errors, 10 on warnings with --fail-on=warning",
			out.SeeAlso:   "install, doctor",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	o.values.addTo(cmd.Flags())
	o.addTo(cmd.Flags())
	return cmd
}

func newDoctor(f *factory.Factory) *cobra.Command {
	o := &checkOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for problems of the installation and its objects",
		Example: "  kruisectl doctor\n" +
			"  kruisectl doctor --section webhooks\n" +
			"  kruisectl doctor -o junit > doctor.xml",
		Args: noArgs,
		Annotations: map[string]string{
			out.ExitCodes: "3 on errors, 10 on warnings with --fail-on=warning",
			out.SeeAlso:   "status, preflight, why",
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.do(cmd.Context()) },
	}
	o.values.addTo(cmd.Flags())
	o.addTo(cmd.Flags())
	cmd.Flags().BoolVar(&o.pre, "pre", false, "the checks of preflight instead")
	out.Group(cmd.Flags(), "Target", "pre")
	return cmd
}

func (o *checkOptions) addTo(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.sections, "section", nil, "only these sections; may be repeated")
	fs.StringSliceVar(&o.skip, "skip", nil, "checks to leave out, by id; may be repeated")
	fs.StringVar(&o.failOn, "fail-on", "error", "exit with a code for error or for warning")
	o.output.AddTo(fs, "short", "junit", "github", "gitlab")
	out.Group(fs, "Target", "section", "skip")
}

func (o *checkOptions) do(ctx context.Context) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if o.failOn != "error" && o.failOn != "warning" {
		return out.Usagef("--fail-on is %q: use error or warning", o.failOn)
	}
	known := doctorSections
	if o.pre {
		known = preSections
	}
	for _, s := range o.sections {
		if !slices.Contains(known, s) {
			return out.Usagef("--section is %q: use %s", s, strings.Join(known, ", "))
		}
	}
	v, err := o.values.values(o.Factory, "generic")
	if err != nil {
		return err
	}
	c, err := cluster(o.Factory)
	if err != nil {
		return err
	}
	checks, err := o.run(ctx, c, v)
	if err != nil {
		return err
	}
	if err := printChecks(o.Factory, checks, format); err != nil {
		return err
	}
	_, warnings, errs, _ := install.Tally(checks)
	switch {
	case errs > 0:
		return out.Silent(out.CodeFailed)
	case warnings > 0 && o.failOn == "warning":
		return out.Silent(out.CodeWarnings)
	}
	return nil
}

func (o *checkOptions) run(ctx context.Context, c *install.Cluster, v install.Values) ([]install.Check, error) {
	opts := install.CheckOptions{Sections: o.sections, Skip: o.skip, Program: o.Name()}
	e, err := c.Detect(ctx, v.Installation.Namespace)
	if err != nil {
		return nil, &out.Failure{Doing: "look for an installation", Cause: err}
	}
	if o.pre {
		m, err := render(o.Factory, v)
		if err != nil {
			return nil, err
		}
		return c.Preflight(ctx, m, e, opts), nil
	}
	if v, err = valuesOf(o.Factory, e); err != nil {
		return nil, err
	}
	m, err := render(o.Factory, v)
	if err != nil {
		return nil, err
	}
	return c.Doctor(ctx, m, e, opts), nil
}

// preflight runs the checks before a run; errors stop it, warnings are printed.
func (r *runFlags) preflight(ctx context.Context, f *factory.Factory, c *install.Cluster, m *install.Manifests, e install.Existing) error {
	if r.skipPreflight {
		return nil
	}
	skip := append([]string{"existing"}, r.skip...)
	checks := c.Preflight(ctx, m, e, install.CheckOptions{Skip: skip, Program: f.Name()})
	var errs, hints []string
	for _, check := range checks {
		switch check.State {
		case install.CheckError:
			errs = append(errs, check.Message+" ("+check.ID+")")
			if check.Hint != "" {
				hints = append(hints, check.Hint)
			}
		case install.CheckWarning:
			warning(f, check.Message+" ("+check.ID+")")
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &out.Failure{Doing: "install", Why: "it would not work here", Cause: fmt.Errorf("%s", strings.Join(errs, "\n")),
		Next: strings.Join(append(hints, f.Name()+" preflight", "--skip ID leaves a check out, --skip-preflight all"), "\n")}
}

var checkStates = map[install.CheckState]out.State{
	install.CheckOK: out.OK, install.CheckWarning: out.Warning, install.CheckError: out.Failed, install.CheckSkipped: out.Unknown,
}

func printChecks(f *factory.Factory, checks []install.Check, format out.Format) error {
	ok, warnings, errs, skipped := install.Tally(checks)
	switch format.Name {
	case "", "wide", "short":
		printCheckLines(f, checks, format.Name == "short")
		fmt.Fprintf(f.Out, "%d ok, %s, %s, %d skipped\n", ok, out.Plural(warnings, "warning"), out.Plural(errs, "error"), skipped)
		return nil
	case "junit":
		return printJUnit(f.Out, checks)
	case "github":
		for _, c := range checks {
			if level := map[install.CheckState]string{install.CheckError: "error", install.CheckWarning: "warning"}[c.State]; level != "" {
				fmt.Fprintf(f.Out, "::%s title=%s::%s\n", level, c.ID, strings.ReplaceAll(c.Message, "\n", " "))
			}
		}
		return nil
	case "gitlab":
		return printCodeQuality(f.Out, checks)
	}
	doc := out.Envelope("CheckReport", f.ContextName())
	doc["checks"], doc["ok"], doc["warnings"], doc["errors"], doc["skipped"] = checks, ok, warnings, errs, skipped
	return format.Write(f.Out, doc)
}

func printCheckLines(f *factory.Factory, checks []install.Check, short bool) {
	style := f.OutStyle()
	section := ""
	for _, c := range checks {
		if short && c.State == install.CheckOK {
			continue
		}
		if c.Section != section {
			section = c.Section
			fmt.Fprintln(f.Out, style.Bold(section))
		}
		word := map[install.CheckState]string{install.CheckWarning: "warning: ", install.CheckError: "error: ", install.CheckSkipped: "skipped: "}[c.State]
		fmt.Fprintf(f.Out, "  %s %s%s (%s)\n", style.Symbol(checkStates[c.State]), word, c.Message, c.ID)
		if c.Hint != "" {
			fmt.Fprintf(f.Out, "      next: %s\n", c.Hint)
		}
	}
}

// printJUnit writes one test case per check.
func printJUnit(w io.Writer, checks []install.Check) error {
	type message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Failure *message `xml:"failure,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
		Output  string   `xml:"system-out,omitempty"`
	}
	type suite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	_, _, errs, skipped := install.Tally(checks)
	s := suite{Name: "kruisectl", Tests: len(checks), Failures: errs, Skipped: skipped}
	for _, c := range checks {
		tc := testCase{Name: c.ID, Class: c.Section}
		switch c.State {
		case install.CheckError:
			tc.Failure = &message{Message: c.Message, Text: c.Hint}
		case install.CheckSkipped:
			tc.Skipped = &message{Message: c.Message}
		default:
			tc.Output = c.Message
		}
		s.Cases = append(s.Cases, tc)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// printCodeQuality writes GitLab's code quality report.
func printCodeQuality(w io.Writer, checks []install.Check) error {
	issues := []map[string]any{}
	for _, c := range checks {
		severity := map[install.CheckState]string{install.CheckError: "critical", install.CheckWarning: "minor"}[c.State]
		if severity == "" {
			continue
		}
		issues = append(issues, map[string]any{
			"description": c.Message, "check_name": c.ID, "fingerprint": c.Section + "/" + c.ID, "severity": severity,
			"location": map[string]any{"path": "cluster", "lines": map[string]any{"begin": 1}},
		})
	}
	format, err := out.ParseFormat("json", []string{"json"})
	if err != nil {
		return err
	}
	return format.Write(w, issues)
}

// SPDX-License-Identifier: Apache-2.0

// Package controlplane installs, upgrades, removes and inspects what runs in the cluster:
// the commands install, upgrade, uninstall, status, manifest, preflight, doctor,
// feature-gates and version (cli.md 4). What they do is in internal/install; here are
// flags, questions and printing.
package controlplane

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	return []*cobra.Command{
		newInstall(f), newUpgrade(f), newUninstall(f), newStatus(f), newManifest(f),
		newFeatureGates(f), newPreflight(f), newDoctor(f), newVersion(f),
	}
}

// cluster opens the connection of a command.
func cluster(f *factory.Factory) (*install.Cluster, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	d, err := f.Discovery()
	if err != nil {
		return nil, err
	}
	return &install.Cluster{Client: c, Version: d, Clock: f.Clock}, nil
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return out.Usagef("%q takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// confirm asks a question that defaults to no. It returns an error with exit code 9 when
// the answer is no or cannot be had; the plan was printed before.
func confirm(ctx context.Context, f *factory.Factory, doing, question string) error {
	if f.Global.Yes {
		return nil
	}
	if !f.Interactive() {
		return &out.Failure{Doing: doing, Why: "this needs a confirmation, and nobody can be asked",
			Next: "add --yes", Code: out.CodeConfirm}
	}
	fmt.Fprintf(f.ErrOut, "%s [y/N] ", question)
	answer, err := readLine(ctx, f.In)
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return &out.Failure{Doing: doing, Why: "not confirmed, nothing was changed", Code: out.CodeConfirm}
	}
	return nil
}

// confirmWord asks for a word to be typed.
func confirmWord(ctx context.Context, f *factory.Factory, doing, question, word string) error {
	if f.Global.Yes {
		return nil
	}
	if !f.Interactive() {
		return &out.Failure{Doing: doing, Why: "this needs a confirmation, and nobody can be asked",
			Next: "add --yes", Code: out.CodeConfirm}
	}
	fmt.Fprintf(f.ErrOut, "%s\nType %q to go on: ", question, word)
	answer, err := readLine(ctx, f.In)
	if err != nil {
		return err
	}
	if answer != word {
		return &out.Failure{Doing: doing, Why: "not confirmed, nothing was changed", Code: out.CodeConfirm}
	}
	return nil
}

// readLine reads one line from the terminal, or ends with ctx.
func readLine(ctx context.Context, in interface{ Read([]byte) (int, error) }) (string, error) {
	type result struct {
		line string
		err  error
	}
	ch := make(chan result, 1)
	go func() {
		var line string
		_, err := fmt.Fscanln(in, &line)
		if err != nil && line == "" {
			err = nil // an empty line or the end of input is a no
		}
		ch <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-ch:
		return r.line, r.err
	}
}

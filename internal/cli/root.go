// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tree of kruisectl: names, help, global flags, and what
// happens around every command (environment, errors, panics, exit codes). What a
// command does is in the packages below it and in internal/rollout.
package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/container"
	"github.com/kruisectl/kruisectl/internal/cli/controlplane"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/image"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/cli/probe"
	"github.com/kruisectl/kruisectl/internal/cli/rollout"
	"github.com/kruisectl/kruisectl/internal/cli/scale"
	"github.com/kruisectl/kruisectl/internal/cli/set"
	"github.com/kruisectl/kruisectl/internal/cli/why"
)

// groups of the root help, in the order of cli.md 1.15.
var groups = []struct{ id, title string }{
	{"control-plane", "Control plane:"},
	{"rollouts", "Rollouts:"},
	{"workloads", "Workloads:"},
	{"insight", "Insight:"},
	{"images", "Images and containers:"},
	{"other", "Other:"},
}

// New returns the whole command tree. Making it opens no file and no connection.
func New(f *factory.Factory) *cobra.Command { return newRoot(f, &config{}) }

func newRoot(f *factory.Factory, cfg *config) *cobra.Command {
	f.ProtectedContext = cfg.protected
	root := &cobra.Command{
		Use:   "kruisectl",
		Short: "Install, drive and explain Kruise workloads",
		Long: "Install, drive and explain Kruise workloads: in-place updates, canaries by\n" +
			"partition, image pre-pull, and why a rollout does not move.",
		Example: "  kruisectl rollout status cloneset/web\n" +
			"  kruisectl rollout preview -f web.yaml\n" +
			"  kruisectl why cloneset/web",
		SilenceErrors:     true,
		SilenceUsage:      true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: f.Name()},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	f.Flags.AddFlags(root.PersistentFlags())
	f.Global.AddTo(root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := fromEnvironment(cmd, f.Getenv); err != nil {
			return out.Usage(err)
		}
		if err := cfg.apply(cmd); err != nil {
			return out.Usage(err)
		}
		if err := f.Global.Validate(); err != nil {
			return out.Usage(err)
		}
		return f.Global.Trace()
	}
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("control-plane", controlplane.Commands(f)...)
	add("rollouts", rollout.Commands(f, screen)...)
	add("workloads", append(scale.Commands(f), set.Commands(f)...)...)
	add("insight", append(why.Commands(f), probe.Commands(f)...)...)
	add("images", image.Commands(f, imageScreen)...)
	add("images", container.Commands(f)...)
	add("workloads", newCreate(f))
	add("other", newCompletion(), newOptions())
	root.SetHelpCommandGroupID("other")
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.ErrOut)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(f.Out, cmd, f.Name()) })
	asGroups(root)
	explainRBAC(f, root)
	return root
}

// asGroups gives every command that only holds others a body: without arguments its
// help, with an argument the error for an unknown command.
func asGroups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		asGroups(c)
	}
	if cmd.Runnable() || !cmd.HasSubCommands() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	}
	path := cmd.CommandPath()
	err := fmt.Errorf("unknown command %q for %q", word, path)
	near := out.Nearest(word, names, 3)
	if len(near) == 0 {
		return out.UsageNext(path+" --help", err)
	}
	for i, n := range near {
		near[i] = path + " " + n
	}
	return out.UsageNext(strings.Join(near, "\n"), err)
}

// flagError turns pflag's messages into usage errors that name the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	word, ok := strings.CutPrefix(text, "unknown flag: --")
	if !ok {
		return out.UsageNext(cmd.CommandPath()+" --help", err)
	}
	near := out.Nearest(word, flagNames(cmd), 3)
	for i, n := range near {
		near[i] = "--" + n
	}
	err = fmt.Errorf("unknown flag --%s for %q", word, cmd.CommandPath())
	if len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, ", "))
	}
	return out.UsageNext(cmd.CommandPath()+" --help", err)
}

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell",
		Example: "  source <(kruisectl completion bash)\n" +
			"  kruisectl completion zsh > \"${fpath[1]}/_kruisectl\"",
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			if len(args) == 1 {
				switch args[0] {
				case "bash":
					return root.GenBashCompletionV2(w, true)
				case "zsh":
					return root.GenZshCompletion(w)
				case "fish":
					return root.GenFishCompletion(w, true)
				case "powershell":
					return root.GenPowerShellCompletionWithDesc(w)
				}
			}
			return out.UsageNext(cmd.CommandPath()+" bash", fmt.Errorf("name one shell: %s", strings.Join(shells, ", ")))
		},
	}
}

// newCreate holds the generators of objects.
func newCreate(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Create objects",
		Example: "  kruisectl create containerrecreaterequest r1 --pod web-x7k9w",
	}
	cmd.AddCommand(container.NewCreate(f))
	return cmd
}

func newOptions() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "List the flags that every command has",
		Example: "  kruisectl options",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "Flags that every command has:")
			writeFlags(cmd.OutOrStdout(), cmd.Root().PersistentFlags())
			return nil
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return out.Usagef("%q takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// helpWidth is the number of cells that no line of help exceeds.
const helpWidth = 80

// writeHelp prints the help of one command in the form of cli.md 1.15. Texts are written
// for kruisectl; under another name every command line in them is changed to it.
func writeHelp(w io.Writer, cmd *cobra.Command, program string) {
	text := &strings.Builder{}
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintln(text, reflow(about))
	fmt.Fprintf(text, "\nUsage:\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(text, "  %s COMMAND\n", cmd.CommandPath())
	} else {
		fmt.Fprintln(text, out.Wrap("  "+strings.TrimSuffix(cmd.UseLine(), " [flags]")+" [flags]", helpWidth, "      "))
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(text, "\nAliases: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Example != "" {
		example := cmd.Example
		if program != "kruisectl" {
			example = strings.ReplaceAll(example, "kruisectl ", program+" ")
		}
		fmt.Fprintf(text, "\nExamples:\n%s\n", example)
	}
	writeCommands(text, cmd)
	if cmd.HasParent() {
		writeFlagGroups(text, cmd)
	}
	if codes := cmd.Annotations[out.ExitCodes]; codes != "" {
		fmt.Fprintf(text, "\nExit codes:\n%s\n", out.Wrap("  "+codes, helpWidth, "  "))
	}
	if also := cmd.Annotations[out.SeeAlso]; also != "" {
		fmt.Fprintf(text, "\nSee also: %s\n", also)
	}
	fmt.Fprintf(text, "\nFlags of every command: %s options\n", cmd.Root().CommandPath())
	fmt.Fprint(w, text.String())
}

// reflow fills paragraphs anew to the width of help. Lines that start with a space, such
// as lists, stay as they are.
func reflow(text string) string {
	var lines []string
	paragraph := ""
	flush := func() {
		if paragraph != "" {
			lines = append(lines, out.Wrap(paragraph, helpWidth, ""))
			paragraph = ""
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			lines = append(lines, line)
			continue
		}
		paragraph = strings.TrimSpace(paragraph + " " + line)
	}
	flush()
	return strings.Join(lines, "\n")
}

func writeCommands(w io.Writer, cmd *cobra.Command) {
	width := 0
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			width = max(width, len(c.Name()))
		}
	}
	section := func(title, group string) {
		started := false
		for _, c := range cmd.Commands() {
			if !c.IsAvailableCommand() || c.GroupID != group {
				continue
			}
			if !started {
				fmt.Fprintf(w, "\n%s\n", title)
				started = true
			}
			line := fmt.Sprintf("  %-*s  %s", width, c.Name(), c.Short)
			fmt.Fprintln(w, out.Wrap(line, helpWidth, strings.Repeat(" ", width+4)))
		}
	}
	for _, g := range cmd.Groups() {
		section(g.Title, g.ID)
	}
	title := "Commands:"
	section(title, "")
}

// flagGroups is the order of the groups of flags.
var flagGroups = []string{"Target", "Change", "Safety", "Wait", "Output"}

func writeFlagGroups(w io.Writer, cmd *cobra.Command) {
	sets := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(fl *pflag.Flag) {
		if fl.Hidden || fl.Name == "help" || cmd.Root().PersistentFlags().Lookup(fl.Name) != nil {
			return
		}
		group := "Output"
		if g := fl.Annotations[out.FlagGroup]; len(g) > 0 {
			group = g[0]
		}
		if sets[group] == nil {
			sets[group] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		sets[group].AddFlag(fl)
	})
	for _, g := range flagGroups {
		if sets[g] == nil {
			continue
		}
		fmt.Fprintf(w, "\n%s flags:\n", g)
		writeFlags(w, sets[g])
	}
}

// writeFlags prints flags one per paragraph, the description wrapped under itself.
func writeFlags(w io.Writer, fs *pflag.FlagSet) {
	fs.VisitAll(func(fl *pflag.Flag) {
		if fl.Hidden {
			return
		}
		left := "      --" + fl.Name
		if fl.Shorthand != "" && fl.ShorthandDeprecated == "" {
			left = "  -" + fl.Shorthand + ", --" + fl.Name
		}
		kind, usage := pflag.UnquoteUsage(fl)
		if kind != "" {
			left += " " + kind
		}
		usage = strings.TrimSuffix(usage, ".")
		if showsDefault(fl) {
			usage += " (default " + fl.DefValue + ")"
		}
		const column = 30
		if len(left) >= column-1 {
			fmt.Fprintln(w, left)
			left = ""
		}
		fmt.Fprintln(w, out.Wrap(fmt.Sprintf("%-*s%s", column, left, usage), helpWidth, strings.Repeat(" ", column)))
	})
}

func showsDefault(fl *pflag.Flag) bool {
	switch fl.DefValue {
	case "", "false", "0", "[]", "0s", "<nil>":
		return false
	}
	return !strings.Contains(fl.DefValue, "/")
}

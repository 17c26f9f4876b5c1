// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// Every help text is a golden file, has an example that parses, and fits the width.
func TestHelp(t *testing.T) {
	root := New(factory.New("kruisectl", genericiooptions.NewTestIOStreamsDiscard()))
	walk(root, func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		t.Run(c.CommandPath(), func(t *testing.T) {
			var b bytes.Buffer
			writeHelp(&b, c, "kruisectl")
			for line := range strings.Lines(b.String()) {
				if n := out.Cells(strings.TrimRight(line, "\n")); n > helpWidth {
					t.Errorf("line of %d cells: %s", n, line)
				}
			}
			checkExamples(t, c)
			golden(t, "help/"+strings.ReplaceAll(c.CommandPath(), " ", "-"), b.String())
		})
	})
}

// checkExamples parses the flags of each example line with the command it names.
func checkExamples(t *testing.T, c *cobra.Command) {
	t.Helper()
	if c.Example == "" {
		t.Error("no example")
	}
	for line := range strings.Lines(c.Example) {
		line = strings.TrimSpace(line)
		words, ok := strings.CutPrefix(line, "kruisectl ")
		if !ok {
			continue
		}
		root := New(factory.New("kruisectl", genericiooptions.NewTestIOStreamsDiscard()))
		cmd, rest, err := root.Find(shellWords(words))
		if err != nil || cmd == root {
			t.Errorf("example %q names no command: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("example %q: %v", line, err)
		}
	}
}

// shellWords splits at spaces outside single quotes, and drops redirections.
func shellWords(line string) []string {
	var words []string
	quoted := false
	word := ""
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == ' ' && !quoted:
			if word == ">" || word == "|" {
				return words
			}
			if word != "" {
				words = append(words, word)
			}
			word = ""
		default:
			word += string(r)
		}
	}
	return words
}

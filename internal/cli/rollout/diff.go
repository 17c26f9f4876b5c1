// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
)

// printUnified writes a unified diff; nothing when the texts are equal.
func printUnified(w io.Writer, style out.Style, from, to, left, right string) {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(left), B: difflib.SplitLines(right), FromFile: from, ToFile: to, Context: 3,
	})
	if err != nil {
		return
	}
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "+"):
			line = style.Paint(out.OK, strings.TrimRight(line, "\n")) + "\n"
		case strings.HasPrefix(line, "-"):
			line = style.Paint(out.Failed, strings.TrimRight(line, "\n")) + "\n"
		case strings.HasPrefix(line, "@@"):
			line = style.Paint(out.Progressing, strings.TrimRight(line, "\n")) + "\n"
		}
		fmt.Fprint(w, line)
	}
}

// stepVerdict says how a Pod gets from revision a to b.
func stepVerdict(s diagnose.Snapshot, a, b adapter.Revision) string {
	if a.Template != nil && b.Template != nil && adapter.SameTemplate(a.Template, b.Template) {
		return "verdict: NO CHANGE"
	}
	c := inplace.Compare(a.Source, b.Source, diagnose.EngineOptions(s))
	switch {
	case c.InPlace == nil && len(c.Recreate) > 0:
		return "verdict: RECREATE - " + c.Recreate[0].String()
	case s.Workload.RecreatesOnly():
		return "verdict: RECREATE - " + s.Workload.PolicyText() + " (it could be done in place)"
	}
	return "verdict: IN PLACE" + restarts(c.InPlace)
}

// restarts names the containers that an in-place update restarts.
func restarts(u *inplace.UpdateSpec) string {
	names := restarted(u)
	if len(names) == 0 {
		return " - no container restarts"
	}
	verb := " restart"
	if len(names) == 1 {
		verb = " restarts"
	}
	return " - " + strings.Join(names, ", ") + verb
}

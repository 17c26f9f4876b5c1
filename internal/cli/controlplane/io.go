// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/install"
)

func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

// progress prints a run on stderr: a line per step and per object that changes.
func progress(f *factory.Factory) (install.Progress, func()) {
	p := f.Progress(false, 30*time.Second)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := f.Clock.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C():
				p.Beat()
			}
		}
	}()
	return install.Progress{
			Step: func(n, of int, text string) { p.Note(fmt.Sprintf("[%d/%d] %s", n, of, text)) },
			Object: func(c install.Change) {
				if c.Action != install.Unchanged {
					p.Note(fmt.Sprintf("      %s %s", install.Name(c.Object), c.Action))
				}
			},
			Waiting: func(text string) {
				if !f.ErrTerminal().TTY {
					text = strings.ReplaceAll(text, "\n", "; ") // a line of a log is one line
				}
				p.Update("waiting: " + text)
			},
			Note:    func(text string) { p.Note("      " + text) },
		}, func() {
			close(stop)
			<-done
			p.Finish()
		}
}

// counts says how many objects of which kind get which action: "create 3
// CustomResourceDefinitions, change 1 Deployment, leave 12 as they are".
func counts(changes []install.Change) []string {
	byAction := map[install.Action]map[string]int{}
	for _, c := range changes {
		if byAction[c.Action] == nil {
			byAction[c.Action] = map[string]int{}
		}
		byAction[c.Action][c.Object.GetKind()]++
	}
	var lines []string
	for _, a := range []install.Action{install.Created, install.Configured, install.Uncheckable, install.Unchanged} {
		if len(byAction[a]) == 0 {
			continue
		}
		var kinds []string
		total := 0
		for kind, n := range byAction[a] {
			kinds = append(kinds, out.Plural(n, kind))
			total += n
		}
		slices.Sort(kinds)
		verb := map[install.Action]string{install.Created: "create", install.Configured: "change",
			install.Uncheckable: "create, not checkable yet", install.Unchanged: "leave as they are"}[a]
		if a == install.Unchanged {
			lines = append(lines, fmt.Sprintf("%s: %s", verb, out.Plural(total, "object")))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", verb, strings.Join(kinds, ", ")))
	}
	return lines
}

// printPlan prints what will be done on stderr, with every changed field.
func printPlan(f *factory.Factory, changes []install.Change, pruned []install.Entry) {
	for _, line := range counts(changes) {
		fmt.Fprintln(f.ErrOut, "  "+line)
	}
	for _, c := range changes {
		if c.Action != install.Configured {
			continue
		}
		fmt.Fprintf(f.ErrOut, "  %s\n", install.Name(c.Object))
		for _, d := range c.Diffs {
			fmt.Fprintf(f.ErrOut, "    %s\n", d)
		}
	}
	for _, e := range pruned {
		fmt.Fprintf(f.ErrOut, "  delete: %s\n", e)
	}
}

// changeList is the form of changes in documents.
func changeList(changes []install.Change) []map[string]any {
	list := []map[string]any{}
	for _, c := range changes {
		gvk := c.Object.GroupVersionKind()
		entry := map[string]any{
			"kind": gvk.Kind, "group": gvk.Group, "namespace": c.Object.GetNamespace(), "name": c.Object.GetName(),
			"action": actionWord(c.Action),
		}
		if c.Reason != "" {
			entry["reason"] = c.Reason
		}
		var fields []string
		for _, d := range c.Diffs {
			fields = append(fields, d.String())
		}
		if len(fields) > 0 {
			entry["fields"] = fields
		}
		list = append(list, entry)
	}
	return list
}

func actionWord(a install.Action) string {
	switch a {
	case install.Created:
		return "Created"
	case install.Configured:
		return "Configured"
	case install.Unchanged:
		return "Unchanged"
	case install.Deleted:
		return "Deleted"
	}
	return "Uncheckable"
}

// warning prints a warning on stderr; --quiet drops it.
func warning(f *factory.Factory, text string) {
	if !f.Global.Quiet {
		fmt.Fprintln(f.ErrOut, "warning:", text)
	}
}

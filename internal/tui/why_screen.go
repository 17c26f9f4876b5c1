// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/kruisectl/kruisectl/internal/look"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// whyScreen explains one Pod, or the workload when pod is "" (cli.md 14.4).
type whyScreen struct {
	pod    string
	loaded bool
	report diagnose.Report
	err    error
	offset int // first line shown
}

func newWhyScreen(pod string) whyScreen { return whyScreen{pod: pod} }

// Title names what is explained.
func (w whyScreen) Title(r view.Rollout) string {
	if w.pod == "" {
		return "why " + r.Object.Namespace + "/" + r.Object.Typed
	}
	return "why " + r.Object.Namespace + "/pod/" + w.pod
}

// Update takes answers to its own question and scrolls.
func (w whyScreen) Update(msg tea.Msg, s scene) (screen, tea.Cmd) {
	switch msg := msg.(type) {
	case whyMsg:
		if msg.pod == w.pod {
			w.loaded, w.report, w.err = true, msg.report, msg.err
		}
	case tea.KeyMsg:
		last := max(len(w.lines(s))-1, 0)
		switch {
		case key.Matches(msg, s.keys.down):
			w.offset = min(w.offset+1, last)
		case key.Matches(msg, s.keys.up):
			w.offset = max(w.offset-1, 0)
		case key.Matches(msg, s.keys.top):
			w.offset = 0
		case key.Matches(msg, s.keys.bottom):
			w.offset = last
		}
	}
	return w, nil
}

// View draws headline, findings and the Pod's row.
func (w whyScreen) View(s scene) string {
	f := &frame{theme: s.theme, size: s.size}
	top(f, s, w.Title(s.rollout))
	f.line(" " + w.headline(s))
	f.rule()
	lines := w.lines(s)
	const footer = 3
	height := f.left(footer)
	from := max(0, min(w.offset, len(lines)-height))
	for _, l := range lines[from:min(len(lines), from+height)] {
		f.line(l)
	}
	f.fill(footer)
	f.rule()
	f.line(" " + keyLine(s.keys.down, s.keys.up, s.keys.back, s.keys.help, s.keys.quit))
	statusLine(f, s, fmt.Sprintf("%d findings", len(w.report.Findings)))
	return f.String()
}

func (w whyScreen) headline(s scene) string {
	switch {
	case w.err != nil:
		return s.theme.state[look.Failed].Render(s.theme.mark(look.Failed)) + " " + w.err.Error()
	case !w.loaded:
		return "reading ..."
	}
	state := look.OK
	for _, f := range w.report.Findings {
		switch f.Severity {
		case verdict.Blocker:
			state = look.Failed
		case verdict.Cause:
			if state == look.OK {
				state = look.Progressing
			}
		}
	}
	return s.theme.state[state].Render(s.theme.mark(state)) + " " + w.report.Headline
}

// lines are all findings, then what is known of the Pod.
func (w whyScreen) lines(s scene) []string {
	var lines []string
	for _, f := range w.report.Findings {
		label := strings.ToUpper(string(f.Severity))
		lines = append(lines, wrap(fmt.Sprintf(" %-8s %s ", label, f.Code), f.Message, s.size.Width)...)
		for _, k := range slices.Sorted(maps.Keys(f.Evidence)) {
			lines = append(lines, wrap(fmt.Sprintf("          %-30s ", k), f.Evidence[k], s.size.Width)...)
		}
		if f.Since != nil {
			lines = append(lines, "          since "+since(*f.Since, s.now))
		}
		if f.Next != "" {
			lines = append(lines, wrap("          next: ", f.Next, s.size.Width)...)
		}
	}
	for _, p := range s.rollout.Pods {
		if p.Name != w.pod {
			continue
		}
		lines = append(lines, "",
			fmt.Sprintf(" POD       %s on %s, revision %d (%s), %s", p.Name, p.Node, p.Number, p.Hash, p.How),
			fmt.Sprintf(" STATE     %s for %s, restarts %d", p.State, since(p.Since, s.now), p.Restarts))
		for _, image := range p.Images {
			lines = append(lines, " IMAGE     "+image)
		}
	}
	return lines
}

// wrap breaks text at spaces so that it fits beside a prefix; further lines are indented
// as far as the prefix reaches.
func wrap(prefix, text string, width int) []string {
	room := max(width-len(prefix), 20)
	if len(text) <= room {
		return []string{prefix + text}
	}
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		if current != "" && len(current)+1+len(word) > room {
			lines, current = append(lines, current), ""
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	lines = append(lines, current)
	for i := range lines {
		if i == 0 {
			lines[i] = prefix + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", len(prefix)) + lines[i]
		}
	}
	return lines
}

// helpScreen lists all keys.
type helpScreen struct{}

// Title is what the first line says.
func (helpScreen) Title(view.Rollout) string { return "keys" }

// Update does nothing: leaving is a global key.
func (h helpScreen) Update(tea.Msg, scene) (screen, tea.Cmd) { return h, nil }

// View lists every key of the key map.
func (h helpScreen) View(s scene) string {
	f := &frame{theme: s.theme, size: s.size}
	top(f, s, h.Title(s.rollout))
	k := s.keys
	for _, b := range []key.Binding{
		k.down, k.up, k.top, k.bottom, k.why, k.whySet, k.pause, k.promote, k.full, k.abort, k.undo, k.restart, k.back, k.help, k.quit, k.kill,
	} {
		f.linef("   %-8s %s", b.Help().Key, b.Help().Desc)
	}
	f.fill(2)
	f.rule()
	f.line(" " + keyLine(k.back, k.quit))
	return f.String()
}

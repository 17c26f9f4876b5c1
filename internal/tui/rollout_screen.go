// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/kruisectl/kruisectl/internal/look"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// rolloutScreen shows one rollout: verdict, revisions, progress, Pods by group, events
// (cli.md 14.3). It remembers the Pod under the cursor by UID, so that a row keeps its
// place in the eye of the reader when rows move.
type rolloutScreen struct{ selected string }

// Title names the workload.
func (rolloutScreen) Title(r view.Rollout) string { return r.Object.Namespace + "/" + r.Object.Typed }

// cursor is the index of the selected Pod; 0 when it is gone.
func (r rolloutScreen) cursor(pods []view.Pod) int {
	for i, p := range pods {
		if p.UID == r.selected {
			return i
		}
	}
	return 0
}

// Update moves the cursor and reports what the user wants.
func (r rolloutScreen) Update(msg tea.Msg, s scene) (screen, tea.Cmd) {
	k, ok := msg.(tea.KeyMsg)
	if !ok {
		return r, nil
	}
	pods := s.rollout.Pods
	move := func(to int) (screen, tea.Cmd) {
		if len(pods) > 0 {
			r.selected = pods[max(0, min(to, len(pods)-1))].UID
		}
		return r, nil
	}
	switch {
	case key.Matches(k, s.keys.down):
		return move(r.cursor(pods) + 1)
	case key.Matches(k, s.keys.up):
		return move(r.cursor(pods) - 1)
	case key.Matches(k, s.keys.top):
		return move(0)
	case key.Matches(k, s.keys.bottom):
		return move(len(pods) - 1)
	case key.Matches(k, s.keys.why) && len(pods) > 0:
		p := pods[r.cursor(pods)]
		if p.Group == view.GroupMissing { // the answer is with the workload
			return r, send(openWhyMsg{})
		}
		return r, send(openWhyMsg{pod: p.Name})
	case key.Matches(k, s.keys.whySet):
		return r, send(openWhyMsg{})
	}
	return r, r.action(k, s)
}

// action finds the action of a key; of pause and resume the one that the workload offers.
func (rolloutScreen) action(k tea.KeyMsg, s scene) tea.Cmd {
	name := ""
	for _, a := range s.keys.actionKeys() {
		if key.Matches(k, a.key) && (name == "" || offers(s.actions, a.name)) {
			name = a.name
		}
	}
	if name == "" {
		return nil
	}
	return send(askMsg{action: name})
}

func offers(actions []view.Action, name string) bool {
	for _, a := range actions {
		if a.Name == name && a.Disabled == "" {
			return true
		}
	}
	return false
}

func send(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }

// View draws the screen. Low terminals lose the events first, then the plan line.
func (r rolloutScreen) View(s scene) string {
	f := &frame{theme: s.theme, size: s.size}
	top(f, s, r.Title(s.rollout))
	r.summary(f, s)
	f.rule()
	events := 0
	if s.size.Height >= 20 {
		events = min(3, len(s.rollout.Events))
	}
	footer := s.footer()
	below := footer
	if events > 0 {
		below += events + 2
	}
	r.pods(f, s, f.left(below))
	if events > 0 {
		f.fill(below)
		f.rule()
		r.events(f, s, events)
	}
	f.fill(footer)
	f.rule()
	r.footer(f, s)
	return f.String()
}

// low terminals keep verdict, progress and Pods, and one line of keys.
func (s scene) low() bool { return s.size.Height < 16 }

// footer is how many lines keys and status take, the rule above them included.
func (s scene) footer() int {
	if s.low() {
		return 2
	}
	return 4
}

// top is the first line of every screen and the rule below it.
func top(f *frame, s scene, what string) {
	mode := "read-write"
	if s.readOnly {
		mode = "read-only"
	}
	live := "live " + s.now.UTC().Format("15:04:05Z")
	if !s.lost.IsZero() {
		live = "stale " + age(s.now.Sub(s.lost))
	}
	left := " " + s.theme.title.Render("kruisectl") + "   " + what
	if s.size.Width >= 80 && s.rollout.Context != "" {
		left = " " + s.theme.title.Render("kruisectl") + "   ctx " + s.rollout.Context + "   " + what
	}
	right := live + "    " + mode
	if s.size.Width < 60 {
		right = live
	}
	f.line(between(left, right, s.size.Width))
	f.rule()
}

// headline makes "PARTITION REACHED" of PartitionReached.
func headline(v verdict.Verdict) string {
	var b strings.Builder
	for i, c := range string(v) {
		if i > 0 && unicode.IsUpper(c) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToUpper(c))
	}
	return b.String()
}

func (rolloutScreen) summary(f *frame, s scene) {
	r := s.rollout
	state := look.Of(r.Result.Verdict)
	started := ""
	if !r.Started.IsZero() && s.size.Width >= 60 {
		started = "started " + since(r.Started, s.now) + " ago "
	}
	word := s.theme.state[state].Render(s.theme.mark(state) + " " + headline(r.Result.Verdict))
	f.line(between(" "+word+"   "+r.Result.Message, started, s.size.Width))
	if s.low() {
		f.line(progress(s))
		return
	}
	f.line(" " + revisions(r))
	f.line(progress(s))
	for _, p := range r.Pulls {
		state := look.Progressing
		switch {
		case p.Present == p.Nodes:
			state = look.OK
		case p.Failed > 0:
			state = look.Failed
		}
		f.line(" pulled   " + s.theme.bar(p.Present, p.Nodes, max(10, min(32, s.size.Width-60))) + "  " + s.theme.state[state].Render(p.String()))
	}
	f.line(" " + nextLine(r))
}

// revisions says where Pods come from and go to.
func revisions(r view.Rollout) string {
	if r.Update == nil {
		return "revision -"
	}
	text := "revision " + revision(*r.Update)
	if r.Current != nil {
		text += "  <-  " + revision(*r.Current)
	}
	return text
}

func revision(v view.Revision) string {
	text := fmt.Sprintf("%d %s", v.Number, v.Name)
	if len(v.Images) > 0 {
		text += " (" + strings.Join(v.Images, ", ") + ")"
	}
	return text
}

func progress(s scene) string {
	n := s.rollout.Facts
	surplus := max(n.Total-n.Desired, 0)
	unavailable := max(n.Desired-n.Available, 0)
	tail := fmt.Sprintf("  %d/%d    available %d/%d    surplus %d    unavailable %d/%d",
		n.Updated, n.Desired, n.UpdatedAvailable, n.Partition.Target, surplus, unavailable, n.MaxUnavailable)
	if s.size.Width < 80 {
		tail = fmt.Sprintf("  %d/%d  available %d/%d", n.Updated, n.Desired, n.UpdatedAvailable, n.Partition.Target)
	}
	width := max(10, min(32, s.size.Width-len(tail)-10))
	return " updated  " + s.theme.bar(n.Updated, n.Desired, width) + tail
}

// nextLine is the first blocker, or what happens next.
func nextLine(r view.Rollout) string {
	for _, f := range append(append([]verdict.Finding{}, r.Result.Blockers...), r.Findings...) {
		if f.Severity == verdict.Blocker {
			return f.Code + " " + f.Message
		}
	}
	if r.Remaining > 0 {
		return "about " + age(r.Remaining) + " left"
	}
	for _, p := range r.Pods {
		if p.Held != "" && p.HeldText != "" {
			return p.Name + " waits: " + p.HeldText
		}
	}
	return ""
}

var podColumns = []column{
	{name: "POD", width: 16}, {name: "NODE", width: 10, drop: 5}, {name: "REV", width: 4}, {name: "HOW", width: 9, drop: 3},
	{name: "STATE", width: 27}, {name: "RST", width: 3, right: true, drop: 2}, {name: "AGE", width: 6, right: true, drop: 6}, {name: "SINCE", width: 7, right: true, drop: 4},
}

// columnsOf puts the node first where each node has its Pod.
func columnsOf(r view.Rollout) []column {
	if r.Object.Kind != "DaemonSet" {
		return podColumns
	}
	cols := slices.Clone(podColumns)
	cols[0], cols[1] = column{name: "NODE", width: 12}, column{name: "POD", width: 14, drop: 5}
	return cols
}

// pods draws the table in height lines, the column header included, with a line for each
// change of group.
func (r rolloutScreen) pods(f *frame, s scene, height int) {
	const indent = 3
	cols := fitColumns(columnsOf(s.rollout), s.size.Width-indent+2)
	cols = widen(cols, s.size.Width-indent)
	f.line(strings.Repeat(" ", indent) + header(cols))
	lines, at := r.podLines(cols, s)
	from, to := window(len(lines), at, height-1)
	for _, l := range lines[from:to] {
		f.line(l)
	}
}

// widen gives the room that is left to POD, up to what names need, and then to STATE.
func widen(cols []column, width int) []column {
	cols = append([]column{}, cols...)
	room := width
	for _, c := range cols {
		room -= c.width
	}
	room -= 2 * (len(cols) - 1)
	for i := range cols {
		switch cols[i].name {
		case "POD":
			extra := max(0, min(room, 14))
			cols[i].width, room = cols[i].width+extra, room-extra
		case "STATE":
			cols[i].width, room = max(cols[i].width+room, 8), 0
		}
	}
	return cols
}

// podLines renders all rows with their group lines, and returns the line of the cursor.
func (r rolloutScreen) podLines(cols []column, s scene) (lines []string, at int) {
	cursor, last := r.cursor(s.rollout.Pods), ""
	for i, p := range s.rollout.Pods {
		if g := groupLine(p, s.rollout); g != last {
			lines, last = append(lines, " "+s.theme.dim.Render(g)), g
		}
		mark := "   "
		if i == cursor {
			mark, at = " > ", len(lines)
		}
		text := mark + row(cols, podCells(p, s))
		if i == cursor {
			text = s.theme.selected.Render(text)
		}
		lines = append(lines, text)
	}
	if len(lines) == 0 {
		lines = []string{"   no Pods"}
		if len(s.rollout.Hidden) > 0 {
			lines = []string{"   details hidden: " + strings.Join(s.rollout.Hidden, ", ")}
		}
	}
	return lines, at
}

func groupLine(p view.Pod, r view.Rollout) string {
	switch p.Group {
	case view.GroupUpdated:
		if p.Batch > 0 {
			return fmt.Sprintf("updated, batch %d", p.Batch)
		}
		return "updated"
	case view.GroupKept:
		if r.Current != nil {
			return fmt.Sprintf("at revision %d", r.Current.Number)
		}
		return "not updated"
	}
	return string(p.Group)
}

func podCells(p view.Pod, s scene) map[string]string {
	state, word := look.OK, p.State
	switch {
	case p.Group == view.GroupFailing:
		state = look.Failed
	case p.Group == view.GroupUpdating:
		state = look.Progressing
	case p.Group == view.GroupMissing && p.Held == "":
		return missingCells(p, s, look.Progressing)
	case p.Group == view.GroupMissing:
		return missingCells(p, s, look.Waiting)
	case p.Group == view.GroupSurplus:
		state = look.Waiting
	case !p.Ready:
		state = look.Warning
	}
	text := s.theme.state[state].Render(s.theme.mark(state)) + " " + word
	switch {
	case p.WhyText != "" && state != look.OK:
		text += "   " + p.WhyText
	case p.Held != "":
		text += "   " + p.Held
	}
	number := "-"
	if p.Number > 0 {
		number = fmt.Sprint(p.Number)
	}
	return map[string]string{
		"POD": p.Name, "NODE": p.Node, "REV": number, "HOW": p.How, "STATE": text,
		"RST": fmt.Sprint(p.Restarts), "AGE": shortAge(p.Created, s.now), "SINCE": shortAge(p.Since, s.now),
	}
}

// missingCells is the row of a Pod that is not there.
func missingCells(p view.Pod, s scene, state look.State) map[string]string {
	text := s.theme.state[state].Render(s.theme.mark(state)) + " " + p.State
	if p.HeldText != "" {
		text += "   " + p.HeldText
	}
	name := p.Name
	if name == "" {
		name = "-"
	}
	return map[string]string{"POD": name, "NODE": p.Node, "REV": "-", "HOW": p.How, "STATE": text, "RST": "-", "AGE": "-", "SINCE": "-"}
}

// shortAge keeps columns narrow: whole days from two days on.
func shortAge(at, now time.Time) string {
	if d := now.Sub(at); !at.IsZero() && d >= 48*time.Hour {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return since(at, now)
}

func (rolloutScreen) events(f *frame, s scene, n int) {
	f.line(" EVENTS")
	for _, e := range s.rollout.Events[:n] {
		f.line(" " + e.Time.UTC().Format(time.TimeOnly) + "  " + fitName(e.Object, 16) + "  " + e.Reason + "  " + e.Message)
	}
}

func (r rolloutScreen) footer(f *frame, s scene) {
	var keys []string
	seen := map[string]bool{}
	for _, a := range s.keys.actionKeys() {
		for _, offered := range s.actions {
			if offered.Name == a.name && !seen[a.key.Help().Key] && (offered.Disabled == "" || a.name != "resume") {
				if !offers(s.actions, a.name) && a.name == "pause" {
					continue // resume takes the key
				}
				seen[a.key.Help().Key] = true
				keys = append(keys, a.key.Help().Key+" "+a.name)
			}
		}
	}
	if s.low() {
		if s.toast != "" {
			statusLine(f, s, "")
			return
		}
		f.line(" " + strings.Join(append(keys, keyLine(s.keys.help)), "   "))
		return
	}
	f.line(" " + strings.Join(keys, "   "))
	f.line(" " + keyLine(s.keys.why, s.keys.whySet, s.keys.back, s.keys.help, s.keys.quit))
	status := "no Pods"
	if n := len(s.rollout.Pods); n > 0 {
		status = fmt.Sprintf("row %d of %d", r.cursor(s.rollout.Pods)+1, n)
	}
	statusLine(f, s, status)
}

func keyLine(bindings ...key.Binding) string {
	var parts []string
	for _, b := range bindings {
		parts = append(parts, b.Help().Key+" "+b.Help().Desc)
	}
	return strings.Join(parts, "   ")
}

// statusLine is the last line: the toast when there is one, or where the cursor is and
// how old the data are.
func statusLine(f *frame, s scene, status string) {
	if s.toast != "" {
		f.line(" " + s.toast)
		return
	}
	f.line(between(" "+status, "updated "+age(s.now.Sub(s.rollout.At))+" ago ", s.size.Width))
}

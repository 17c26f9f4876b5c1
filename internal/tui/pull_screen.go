// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/kruisectl/kruisectl/internal/look"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// The groups of nodes, in the order shown; also what the filter keys choose.
const (
	groupAll     = ""
	groupFailed  = "failed"
	groupRunning = "pulling"
	groupDone    = "done"
	groupQueued  = "queued"
)

var pullGroups = []string{groupFailed, groupRunning, groupDone, groupQueued}

// pullScreen shows one image job node by node. It remembers the node under the cursor by
// name, and the group that is shown alone.
type pullScreen struct {
	filter   string
	selected string
	detail   bool
}

func groupOf(r pull.Row) string {
	switch {
	case r.Failed():
		return groupFailed
	case r.Succeeded():
		return groupDone
	case r.Phase == pull.PhaseQueued:
		return groupQueued
	}
	return groupRunning
}

// grouped are the rows by group; in a group the furthest first, then by name.
func grouped(rows []pull.Row) map[string][]pull.Row {
	m := map[string][]pull.Row{}
	for _, r := range rows {
		m[groupOf(r)] = append(m[groupOf(r)], r)
	}
	slices.SortStableFunc(m[groupRunning], func(a, b pull.Row) int { return cmp.Compare(b.Progress, a.Progress) })
	for _, g := range pullGroups {
		if g != groupRunning {
			slices.SortStableFunc(m[g], func(a, b pull.Row) int { return byNumber(a.Node, b.Node) })
		}
	}
	return m
}

// byNumber compares names, and numbers at their end as numbers.
func byNumber(a, b string) int {
	cut := func(s string) (string, int) {
		i := len(s)
		for i > 0 && s[i-1] >= '0' && s[i-1] <= '9' {
			i--
		}
		n, _ := strconv.Atoi(s[i:])
		return s[:i], n
	}
	pa, na := cut(a)
	pb, nb := cut(b)
	return cmp.Or(cmp.Compare(pa, pb), cmp.Compare(na, nb), cmp.Compare(a, b))
}

// update moves the cursor, filters and opens the node.
func (p pullScreen) update(k tea.KeyMsg, rows []pull.Row, s scene) pullScreen {
	for _, f := range s.keys.filterKeys() {
		if key.Matches(k, f.key) {
			if p.filter == f.group {
				p.filter = groupAll
			} else {
				p.filter = f.group
			}
			p.detail = false
			return p
		}
	}
	shown := p.reachable(rows)
	at := p.cursor(shown)
	move := func(to int) pullScreen {
		if len(shown) > 0 {
			p.selected = shown[max(0, min(to, len(shown)-1))].Node
		}
		return p
	}
	switch {
	case key.Matches(k, s.keys.down):
		return move(at + 1)
	case key.Matches(k, s.keys.up):
		return move(at - 1)
	case k.Type == tea.KeyHome:
		return move(0)
	case key.Matches(k, s.keys.bottom):
		return move(len(shown) - 1)
	case key.Matches(k, s.keys.activate) && len(shown) > 0:
		p.selected, p.detail = shown[at].Node, !p.detail
	}
	return p
}

// reachable are the rows that the cursor moves over, in order.
func (p pullScreen) reachable(rows []pull.Row) []pull.Row {
	by := grouped(rows)
	var list []pull.Row
	for _, g := range pullGroups {
		if p.filter == groupAll || p.filter == g {
			list = append(list, by[g]...)
		}
	}
	return list
}

// cursor is the index of the selected node; 0 when it is not there.
func (p pullScreen) cursor(rows []pull.Row) int {
	for i, r := range rows {
		if r.Node == p.selected {
			return i
		}
	}
	return 0
}

func (p pullScreen) view(v view.Pull, s scene) string {
	f := &frame{theme: s.theme, size: s.size}
	top(f, s, "image job "+v.Namespace+"/"+v.Name)
	p.summary(f, v, s)
	if !s.low() {
		f.rule()
	}
	below := s.footer()
	estimate := estimateLine(v)
	if estimate != "" && !s.low() {
		below += 2
	}
	if p.detail {
		p.node(f, v, s, below)
	} else {
		p.list(f, v, s, below)
	}
	f.fill(below)
	if estimate != "" && !s.low() {
		f.rule()
		f.line(" " + estimate)
	}
	f.rule()
	p.footer(f, v, s)
	return f.String()
}

func pullState(v view.Pull) (look.State, string) {
	switch {
	case v.Gone && v.Status.Verdict == pull.Active:
		return look.Failed, "DELETED"
	case v.Status.Verdict == pull.Succeeded:
		return look.OK, "PULLED"
	case v.Status.Verdict == pull.Failed:
		return look.Failed, "FAILED"
	}
	return look.Progressing, "PULLING"
}

func (p pullScreen) summary(f *frame, v view.Pull, s scene) {
	state, word := pullState(v)
	head := " " + s.theme.state[state].Render(s.theme.mark(state)+" "+word) + " " + v.Image
	job := v.Status.Job
	if job == nil {
		f.line(head)
		return
	}
	n := job.Status
	queued := fmt.Sprintf("%d queued", v.Status.Queued)
	if s.size.Width >= 80 {
		queued += fmt.Sprintf(" (parallelism %d)", pull.Parallelism(job))
	}
	numbers := fmt.Sprintf("nodes %d/%d done   %d failed   %d pulling   %s", n.Succeeded, n.Desired, n.Failed, n.Active, queued)
	short := fmt.Sprintf("%d/%d done  %d failed", n.Succeeded, n.Desired, n.Failed)
	switch {
	case s.low():
		f.line(head + "  " + short)
	case s.size.Width < 80:
		f.line(head)
		f.line(" " + strings.ReplaceAll(numbers, "   ", "  "))
	default:
		f.line(head + "   " + numbers)
	}
	var tail []string
	if !v.Status.Deadline.IsZero() && v.Status.Verdict == pull.Active {
		tail = append(tail, "deadline in "+age(v.Status.Deadline.Sub(s.now)))
	}
	if v.Owner != "" {
		tail = append(tail, "owner: "+v.Owner)
	}
	width := max(10, min(32, s.size.Width-20))
	f.line(fmt.Sprintf(" %s %3d%%        %s", s.theme.bar(v.Estimate.Percent, 100, width), v.Estimate.Percent, strings.Join(tail, "        ")))
}

// estimateLine is what nodes took and what is left; "" while nothing is known.
func estimateLine(v view.Pull) string {
	e := v.Estimate
	var parts []string
	if e.Median > 0 {
		parts = append(parts, "median "+age(e.Median), "p95 "+age(e.P95))
	}
	if e.Left > 0 {
		parts = append(parts, "about "+age(e.Left)+" left")
	}
	return strings.Join(parts, "   ")
}

var nodeColumns = []column{
	{name: "PHASE", width: 6}, {name: "NODE", width: 14}, {name: "PROGRESS", width: 29, drop: 2}, {name: "TIME", width: 6, right: true, drop: 3},
	{name: "TRY", width: 3, right: true, drop: 4}, {name: "MESSAGE", width: 12},
}

// columnsFor fits the columns; the message takes what is left.
func columnsFor(width int) []column {
	cols := fitColumns(nodeColumns, width+2)
	used := 0
	for _, c := range cols[:len(cols)-1] {
		used += c.width + 2
	}
	cols = slices.Clone(cols)
	cols[len(cols)-1].width = max(width-used, 8)
	return cols
}

func (p pullScreen) list(f *frame, v view.Pull, s scene, below int) {
	const indent = 3
	by := grouped(v.Status.Rows)
	cols := columnsFor(s.size.Width - indent)
	if !s.low() {
		sorted := "sort: phase "
		if s.size.Width < 90 {
			sorted = ""
		}
		f.line(between(" "+p.filters(by, s), sorted, s.size.Width))
		f.line(strings.Repeat(" ", indent) + header(cols))
	}
	height := f.left(below)
	lines, at := p.lines(by, cols, s, height)
	from, to := window(len(lines), at, height)
	for _, l := range lines[from:to] {
		f.line(l)
	}
}

// filters is the line of groups with their keys.
func (p pullScreen) filters(by map[string][]pull.Row, s scene) string {
	parts := []string{"show: all"}
	if p.filter != groupAll {
		parts[0] = "show: " + p.filter
	}
	for _, k := range s.keys.filterKeys() {
		parts = append(parts, fmt.Sprintf("[%s] %s %d", k.key.Help().Key, k.group, len(by[k.group])))
	}
	sep := " | "
	if s.size.Width < 60 {
		return strings.Join(parts[1:], " ")
	}
	return strings.Join(parts, sep)
}

// lines are the rows of all groups, collapsed so that they fit, or of the one group that is
// chosen; at is the line of the cursor.
func (p pullScreen) lines(by map[string][]pull.Row, cols []column, s scene, height int) (lines []string, at int) {
	var groups []string
	var all []pull.Row
	for _, g := range pullGroups {
		if p.filter == groupAll || p.filter == g {
			groups, all = append(groups, g), append(all, by[g]...)
		}
	}
	selected := ""
	if len(all) > 0 {
		selected = all[p.cursor(all)].Node
	}
	sizes := map[string]int{}
	for _, g := range groups {
		sizes[g] = len(by[g])
	}
	keep := sizes
	if p.filter == groupAll {
		keep = collapse(sizes, height-extraLines(by[groupFailed], cols, s, height))
	}
	for _, g := range groups {
		n := keep[g]
		// The row under the cursor is always there: its group opens as far.
		if i := slices.IndexFunc(by[g], func(r pull.Row) bool { return r.Node == selected }); i >= n {
			n = i + 1
		}
		for _, r := range by[g][:n] {
			if r.Node == selected {
				at = len(lines)
			}
			lines = append(lines, nodeLines(r, r.Node == selected, cols, s)...)
		}
		if more := len(by[g]) - n; more > 0 {
			lines = append(lines, s.theme.dim.Render(fmt.Sprintf("   ... %d more %s", more, g)))
		}
	}
	return lines, at
}

// extraLines is how many lines wrapped messages take beyond one for each row.
func extraLines(failed []pull.Row, cols []column, s scene, height int) int {
	n := 0
	for _, r := range failed[:min(len(failed), max(height, 0))] {
		n += len(nodeLines(r, false, cols, s)) - 1
	}
	return n
}

// collapse says how many rows of each group are shown so that all fit into height lines: who
// is done and who waits goes first, who failed last. A group that is cut takes a line to say so.
func collapse(sizes map[string]int, height int) map[string]int {
	keep := map[string]int{}
	for g, n := range sizes {
		keep[g] = n
	}
	total := func() int {
		n := 0
		for g, k := range keep {
			n += k
			if k < sizes[g] {
				n++
			}
		}
		return n
	}
	for _, stage := range []struct {
		group string
		least int
	}{{groupQueued, 2}, {groupDone, 5}, {groupRunning, 8}, {groupQueued, 0}, {groupDone, 0}, {groupFailed, 3}, {groupRunning, 1}, {groupFailed, 1}} {
		over := total() - height
		if over <= 0 {
			break
		}
		k := keep[stage.group]
		if k == sizes[stage.group] {
			over++ // the line that says so
		}
		keep[stage.group] = min(k, max(stage.least, k-over))
	}
	return keep
}

var rowState = map[string]look.State{groupFailed: look.Failed, groupRunning: look.Progressing, groupDone: look.OK}

// nodeLines is one node: a line, or two when the message of a failure is long.
func nodeLines(r pull.Row, selected bool, cols []column, s scene) []string {
	group := groupOf(r)
	mark := "[  ]"
	if !s.theme.ASCII {
		mark = "·"
	}
	if st, ok := rowState[group]; ok {
		mark = s.theme.state[st].Render(s.theme.mark(st))
	}
	message := r.Message
	switch {
	case group == groupDone && r.Digest != "":
		message = r.Digest
	case group == groupQueued:
		message = ""
	case group == groupRunning && message == "":
		message = "pulling"
	}
	if group == groupRunning && !slices.ContainsFunc(cols, func(c column) bool { return c.name == "PROGRESS" }) {
		message = fmt.Sprintf("%3d%% %s", r.Progress, message)
	}
	cells := map[string]string{"PHASE": mark, "NODE": fitName(r.Node, cols[1].width), "PROGRESS": nodeProgress(r, s), "TRY": "", "TIME": ""}
	if r.Tries > 0 {
		cells["TRY"] = strconv.FormatInt(r.Tries, 10)
	}
	if took := r.Took(s.now); !r.Started.IsZero() {
		cells["TIME"] = age(took.Truncate(time.Second))
	}
	width := cols[len(cols)-1].width
	text := []string{message}
	if group == groupFailed {
		text = wrap("", message, width)
		text = text[:min(len(text), 2)]
	}
	cells["MESSAGE"] = text[0]
	lead := "   "
	if selected {
		lead = " > "
	}
	lines := []string{lead + row(cols, cells)}
	if selected {
		lines[0] = s.theme.selected.Render(lines[0])
	}
	for _, more := range text[1:] {
		lines = append(lines, strings.Repeat(" ", max(s.size.Width-width, 0))+more)
	}
	return lines
}

func nodeProgress(r pull.Row, s scene) string {
	switch groupOf(r) {
	case groupFailed:
		return "failed"
	case groupDone:
		return "done"
	case groupQueued:
		return "queued"
	}
	return fmt.Sprintf("%s %3d%%", s.theme.bar(int(r.Progress), 100, 22), r.Progress)
}

// node shows all that is known of the node under the cursor.
func (p pullScreen) node(f *frame, v view.Pull, s scene, below int) {
	for _, r := range v.Status.Rows {
		if r.Node != p.selected {
			continue
		}
		var lines []string
		add := func(name, text string) {
			if text != "" {
				lines = append(lines, wrap(fmt.Sprintf(" %-10s ", name), text, s.size.Width)...)
			}
		}
		at := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.UTC().Format(time.RFC3339) + "   " + since(t, s.now) + " ago"
		}
		add("NODE", r.Node)
		add("PHASE", r.Phase)
		add("PROGRESS", fmt.Sprintf("%d%%", r.Progress))
		add("TRY", strconv.FormatInt(r.Tries, 10))
		add("STARTED", at(r.Started))
		add("ENDED", at(r.Ended))
		add("DIGEST", r.Digest)
		add("MESSAGE", r.Message)
		for _, l := range lines[:min(len(lines), f.left(below))] {
			f.line(l)
		}
		return
	}
	f.line(" the node is not part of the job any more")
}

func (p pullScreen) footer(f *frame, v view.Pull, s scene) {
	k := s.keys
	var actions []string
	for _, a := range s.actions {
		b := k.retryNodes
		if a.Name == "cancel" {
			b = k.cancelJob
		}
		text := keyLine(b)
		switch {
		case s.readOnly:
			text = s.theme.dim.Render(text + " (read-only: off)")
		case a.Disabled != "":
			text = s.theme.dim.Render(text + " (" + a.Disabled + ")")
		}
		actions = append(actions, text)
	}
	if s.low() {
		if s.toast != "" {
			statusLine(f, s, "")
			return
		}
		f.line(" " + strings.Join(append(actions, keyLine(k.help)), "   "))
		return
	}
	f.line(" " + keyLine(k.node, k.failedNames) + "   " + strings.Join(actions, "   "))
	f.line(" " + keyLine(k.down, k.up, k.back, k.help, k.quit))
	statusLine(f, s, fmt.Sprintf("%d nodes", len(v.Status.Rows)))
}

// pullHelp lists every key of the screen.
func pullHelp(s scene) string {
	f := &frame{theme: s.theme, size: s.size}
	top(f, s, "keys")
	k := s.keys
	bindings := []key.Binding{k.down, k.up, bind("first", "home"), k.bottom, k.node}
	for _, g := range k.filterKeys() {
		bindings = append(bindings, g.key)
	}
	for _, b := range append(bindings, k.failedNames, k.retryNodes, k.cancelJob, k.back, k.help, k.quit, k.kill) {
		f.linef("   %-8s %s", b.Help().Key, b.Help().Desc)
	}
	f.fill(2)
	f.rule()
	f.line(" " + keyLine(k.back, k.quit))
	return f.String()
}

// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// Options shape one run of the UI.
type Options struct {
	Theme Theme
	// ReadOnly disables every action.
	ReadOnly bool
	// ExitOnDone leaves when the verdict needs no more waiting.
	ExitOnDone bool
	// Version is shown beside the name; "" leaves it out.
	Version string
}

// Messages. All of them are values that nobody writes to afterwards.
type (
	// snapshotMsg is what Source.Next returned.
	snapshotMsg struct {
		rollout view.Rollout
		err     error
	}
	// clockMsg only makes times on the screen move.
	clockMsg struct{ now time.Time }
	// openWhyMsg asks for the diagnosis of a Pod, or of the workload when pod is "".
	openWhyMsg struct{ pod string }
	// whyMsg is its answer.
	whyMsg struct {
		pod    string
		report diagnose.Report
		err    error
	}
	// askMsg asks for an action by its name.
	askMsg struct{ action string }
	// doMsg runs an action that was confirmed, or needs no confirmation.
	doMsg struct{ action view.Action }
	// doneMsg is what became of it.
	doneMsg struct {
		text string
		err  error
	}
	// backMsg leaves the screen.
	backMsg struct{}
	// armedMsg makes the y key of a dialog work.
	armedMsg struct{}
)

// scene is everything that a View may look at.
type scene struct {
	theme    Theme
	size     Size
	rollout  view.Rollout
	now      time.Time
	lost     time.Time
	readOnly bool
	toast    string
	keys     keyMap
	actions  []view.Action
}

// screen answers one question. It is a value: Update returns the changed one.
type screen interface {
	Update(msg tea.Msg, s scene) (screen, tea.Cmd)
	View(s scene) string
	Title(r view.Rollout) string
}

// Model is the root: it routes messages, owns the stack of screens and is the only one
// that acts.
type Model struct {
	ctx    context.Context
	source view.Source
	opts   Options
	keys   keyMap

	size    Size
	now     time.Time
	loaded  bool
	rollout view.Rollout
	actions []view.Action
	stack   []screen
	dialog  *dialog
	toast   string
	toastAt time.Time
	err     error
}

// NewModel makes the root model. The UI never reads a clock: now comes in as a message,
// first of all with start.
func NewModel(ctx context.Context, source view.Source, start time.Time, o Options) Model {
	return Model{ctx: ctx, source: source, opts: o, keys: newKeyMap(), now: start, size: Size{80, 24}, stack: []screen{rolloutScreen{}}}
}

// Run shows the rollout of source until the user leaves, ctx ends or, with ExitOnDone, the
// rollout is done. It returns the last view. The terminal is restored also after a panic.
func Run(ctx context.Context, source view.Source, o Options, in io.Reader, out io.Writer) (view.Rollout, error) {
	program := tea.NewProgram(NewModel(ctx, source, time.Now(), o), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithReportFocus())
	final, err := program.Run()
	if m, ok := final.(Model); ok {
		return m.rollout, errors.Join(m.err, ignoreInterrupt(err))
	}
	return view.Rollout{}, err
}

func ignoreInterrupt(err error) error {
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return err
}

// Init starts listening to the source and to the clock.
func (m Model) Init() tea.Cmd { return tea.Batch(m.listen(), tick()) }

// listen waits for the next view, away from the update loop.
func (m Model) listen() tea.Cmd {
	return func() tea.Msg {
		r, err := m.source.Next(m.ctx)
		return snapshotMsg{rollout: r, err: err}
	}
}

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return clockMsg{now: now} })
}

// scene gathers what views may look at.
func (m Model) scene() scene {
	s := scene{
		theme: m.opts.Theme, size: m.size, rollout: m.rollout, now: m.now, readOnly: m.opts.ReadOnly,
		keys: m.keys, actions: m.actions, toast: m.toast,
	}
	if m.source != nil {
		s.lost = m.source.Lost()
	}
	return s
}

// Update routes: size, clock and data first, then the dialog, then global keys, then the
// screen on top.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.size = Size{msg.Width, msg.Height}
		return m, nil
	case clockMsg:
		return m.clock(msg), tick()
	case snapshotMsg:
		return m.receive(msg)
	case openWhyMsg:
		return m.open(newWhyScreen(msg.pod), m.why(msg.pod))
	case askMsg:
		return m.ask(msg.action)
	case doMsg:
		m.dialog = nil
		return m, m.do(msg.action)
	case doneMsg:
		m.toast, m.toastAt = msg.text, m.now
		if msg.err != nil {
			m.toast = "error: " + msg.err.Error()
		}
		return m, nil
	case backMsg:
		return m.back()
	}
	if m.dialog != nil {
		return m.toDialog(msg)
	}
	if k, ok := msg.(tea.KeyMsg); ok {
		if next, cmd, done := m.globalKey(k); done {
			return next, cmd
		}
	}
	return m.toScreen(msg)
}

func (m Model) clock(msg clockMsg) Model {
	m.now = msg.now
	if m.toast != "" && m.now.Sub(m.toastAt) > 5*time.Second {
		m.toast = ""
	}
	return m
}

// receive takes a new view, and leaves when there is nothing more to see.
func (m Model) receive(msg snapshotMsg) (tea.Model, tea.Cmd) {
	if msg.err != nil {
		if !errors.Is(msg.err, io.EOF) && !errors.Is(msg.err, context.Canceled) {
			m.err = msg.err
			return m, tea.Quit
		}
		return m, nil // the last view stays on the screen
	}
	m.rollout, m.loaded = msg.rollout, true
	m.now = latest(m.now, msg.rollout.At)
	m.actions = m.source.Actions(m.rollout)
	if m.opts.ExitOnDone && final(m.rollout.Result.Verdict) {
		return m, tea.Quit
	}
	cmds := []tea.Cmd{m.listen(), tea.SetWindowTitle("kruisectl: " + m.rollout.Object.Namespace + "/" + m.rollout.Object.Typed)}
	if w, ok := m.top().(whyScreen); ok {
		cmds = append(cmds, m.why(w.pod))
	}
	return m, tea.Batch(cmds...)
}

// latest keeps the clock from going backwards when data are older than the last tick.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// final verdicts end a wait: nothing moves by itself any more.
func final(v verdict.Verdict) bool {
	return v != verdict.Progressing && v != verdict.NotObserved
}

func (m Model) top() screen { return m.stack[len(m.stack)-1] }

func (m Model) open(s screen, cmd tea.Cmd) (tea.Model, tea.Cmd) {
	m.stack = append(append([]screen{}, m.stack...), s)
	return m, cmd
}

func (m Model) back() (tea.Model, tea.Cmd) {
	if m.dialog != nil {
		m.dialog = nil
		return m, nil
	}
	if len(m.stack) == 1 {
		return m, tea.Quit
	}
	m.stack = m.stack[:len(m.stack)-1]
	return m, nil
}

func (m Model) why(pod string) tea.Cmd {
	return func() tea.Msg {
		report, err := m.source.Why(m.ctx, pod)
		return whyMsg{pod: pod, report: report, err: err}
	}
}

// ask opens the dialog of an action, or says why it cannot be done.
func (m Model) ask(name string) (tea.Model, tea.Cmd) {
	for _, a := range m.actions {
		if a.Name != name {
			continue
		}
		switch {
		case m.opts.ReadOnly:
			m.toast, m.toastAt = "read-only: started with --read-only", m.now
		case a.Disabled != "":
			m.toast, m.toastAt = a.Name+": "+a.Disabled, m.now
		case len(a.Confirm) == 0:
			return m, m.do(a)
		default:
			m.dialog = &dialog{action: a}
			return m, tea.Tick(500*time.Millisecond, func(time.Time) tea.Msg { return armedMsg{} })
		}
		return m, nil
	}
	m.toast, m.toastAt = name+": this workload has no such action", m.now
	return m, nil
}

func (m Model) do(a view.Action) tea.Cmd {
	return func() tea.Msg {
		text, err := a.Do(m.ctx)
		return doneMsg{text: text, err: err}
	}
}

func (m Model) toDialog(msg tea.Msg) (tea.Model, tea.Cmd) {
	if k, ok := msg.(tea.KeyMsg); ok && key.Matches(k, m.keys.kill) {
		return m, tea.Quit
	}
	d, cmd := m.dialog.Update(msg, m.keys)
	m.dialog = &d
	return m, cmd
}

func (m Model) toScreen(msg tea.Msg) (tea.Model, tea.Cmd) {
	next, cmd := m.top().Update(msg, m.scene())
	m.stack = append(append([]screen{}, m.stack[:len(m.stack)-1]...), next)
	return m, cmd
}

// globalKey handles the keys that mean the same everywhere.
func (m Model) globalKey(k tea.KeyMsg) (tea.Model, tea.Cmd, bool) {
	switch {
	case key.Matches(k, m.keys.kill):
		return m, tea.Quit, true
	case key.Matches(k, m.keys.quit), key.Matches(k, m.keys.back):
		next, cmd := m.back()
		return next, cmd, true
	case key.Matches(k, m.keys.help):
		if _, open := m.top().(helpScreen); open {
			next, cmd := m.back()
			return next, cmd, true
		}
		next, cmd := m.open(helpScreen{}, nil)
		return next, cmd, true
	}
	return m, nil, false
}

// View renders the screen on top, with the dialog over it.
func (m Model) View() string {
	s := m.scene()
	switch {
	case s.size.tooSmall():
		return "terminal too small (needs 40x10)"
	case !m.loaded:
		f := &frame{theme: s.theme, size: s.size}
		f.line(" kruisectl   connecting ...")
		return f.String()
	}
	text := m.top().View(s)
	if m.dialog != nil {
		return m.dialog.over(text, s)
	}
	return text
}

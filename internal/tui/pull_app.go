// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// pullMsg is what PullSource.Next returned.
type pullMsg struct {
	pull view.Pull
	err  error
}

// PullModel is the root of the screen of one image job (cli.md 14.5).
type PullModel struct {
	ctx    context.Context
	source view.PullSource
	opts   Options
	keys   keyMap

	size    Size
	now     time.Time
	loaded  bool
	pull    view.Pull
	actions []view.Action
	screen  pullScreen
	help    bool
	dialog  *dialog
	toast   string
	toastAt time.Time
	err     error
}

// NewPullModel makes the root model; now comes in as a message, first of all with start.
func NewPullModel(ctx context.Context, source view.PullSource, start time.Time, o Options) PullModel {
	return PullModel{ctx: ctx, source: source, opts: o, keys: newKeyMap(), now: start, size: Size{80, 24}}
}

// RunPull shows the job of source until the user leaves, ctx ends or, with ExitOnDone, the
// job has ended. It returns the last view.
func RunPull(ctx context.Context, source view.PullSource, o Options, in io.Reader, out io.Writer) (view.Pull, error) {
	program := tea.NewProgram(NewPullModel(ctx, source, time.Now(), o), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithReportFocus())
	final, err := program.Run()
	if m, ok := final.(PullModel); ok {
		return m.pull, errors.Join(m.err, ignoreInterrupt(err))
	}
	return view.Pull{}, err
}

// Init starts listening to the source and to the clock.
func (m PullModel) Init() tea.Cmd { return tea.Batch(m.listen(), tick()) }

func (m PullModel) listen() tea.Cmd {
	return func() tea.Msg {
		p, err := m.source.Next(m.ctx)
		return pullMsg{pull: p, err: err}
	}
}

// scene gathers what the view may look at.
func (m PullModel) scene() scene {
	s := scene{
		theme: m.opts.Theme, size: m.size, rollout: view.Rollout{Context: m.pull.Context, At: m.pull.At}, now: m.now,
		readOnly: m.opts.ReadOnly, keys: m.keys, actions: m.actions, toast: m.toast,
	}
	if m.source != nil {
		s.lost = m.source.Lost()
	}
	return s
}

// Update routes: size, clock and data first, then the dialog, then keys.
func (m PullModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.size = Size{msg.Width, msg.Height}
		return m, nil
	case clockMsg:
		m.now = msg.now
		if m.toast != "" && m.now.Sub(m.toastAt) > 5*time.Second {
			m.toast = ""
		}
		return m, tick()
	case pullMsg:
		return m.receive(msg)
	case askMsg:
		return m.ask(msg.action)
	case doMsg:
		m.dialog = nil
		return m, m.do(msg.action)
	case doneMsg:
		m.say(msg.text)
		if msg.err != nil {
			m.say("error: " + msg.err.Error())
		}
		return m, nil
	case backMsg:
		return m.back()
	}
	if m.dialog != nil {
		if k, ok := msg.(tea.KeyMsg); ok && key.Matches(k, m.keys.kill) {
			return m, tea.Quit
		}
		d, cmd := m.dialog.Update(msg, m.keys)
		m.dialog = &d
		return m, cmd
	}
	if k, ok := msg.(tea.KeyMsg); ok {
		return m.key(k)
	}
	return m, nil
}

func (m *PullModel) say(text string) { m.toast, m.toastAt = text, m.now }

func (m PullModel) receive(msg pullMsg) (tea.Model, tea.Cmd) {
	if msg.err != nil {
		if !errors.Is(msg.err, io.EOF) && m.ctx.Err() == nil {
			m.err = msg.err
			return m, tea.Quit
		}
		return m, nil // the last view stays on the screen
	}
	m.pull, m.loaded = msg.pull, true
	m.now = latest(m.now, msg.pull.At)
	m.actions = m.source.Actions(m.pull)
	if m.opts.ExitOnDone && (m.pull.Gone || m.pull.Status.Verdict != pull.Active) {
		return m, tea.Quit
	}
	return m, tea.Batch(m.listen(), tea.SetWindowTitle("kruisectl: "+m.pull.Namespace+"/"+m.pull.Name))
}

func (m PullModel) key(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	switch {
	case key.Matches(k, m.keys.kill):
		return m, tea.Quit
	case key.Matches(k, m.keys.quit), key.Matches(k, m.keys.back):
		return m.back()
	case key.Matches(k, m.keys.help):
		m.help = !m.help
		return m, nil
	case m.help:
		return m, nil
	case key.Matches(k, m.keys.retryNodes):
		return m.ask("retry")
	case key.Matches(k, m.keys.cancelJob):
		return m.ask("cancel")
	case key.Matches(k, m.keys.failedNames):
		m.say("no node failed")
		if failed := m.pull.Status.FailedNodes(); len(failed) > 0 {
			m.say("failed: " + strings.Join(failed, " "))
		}
		return m, nil
	}
	m.screen = m.screen.update(k, m.pull.Status.Rows, m.scene())
	return m, nil
}

// back closes what is on top, and leaves when nothing is.
func (m PullModel) back() (tea.Model, tea.Cmd) {
	switch {
	case m.dialog != nil:
		m.dialog = nil
	case m.help:
		m.help = false
	case m.screen.detail:
		m.screen.detail = false
	default:
		return m, tea.Quit
	}
	return m, nil
}

// ask opens the dialog of an action, or says why it cannot be done.
func (m PullModel) ask(name string) (tea.Model, tea.Cmd) {
	for _, a := range m.actions {
		if a.Name != name {
			continue
		}
		switch {
		case m.opts.ReadOnly:
			m.say("read-only: started with --read-only")
		case a.Disabled != "":
			m.say(a.Name + ": " + a.Disabled)
		default:
			m.dialog = &dialog{action: a}
			return m, tea.Tick(500*time.Millisecond, func(time.Time) tea.Msg { return armedMsg{} })
		}
	}
	return m, nil
}

func (m PullModel) do(a view.Action) tea.Cmd {
	return func() tea.Msg {
		text, err := a.Do(m.ctx)
		return doneMsg{text: text, err: err}
	}
}

// View renders the screen, with the dialog over it.
func (m PullModel) View() string {
	s := m.scene()
	switch {
	case s.size.tooSmall():
		return "terminal too small (needs 40x10)"
	case !m.loaded:
		f := &frame{theme: s.theme, size: s.size}
		f.line(" kruisectl   connecting ...")
		return f.String()
	case m.help:
		return pullHelp(s)
	}
	text := m.screen.view(m.pull, s)
	if m.dialog != nil {
		return m.dialog.over(text, s)
	}
	return text
}

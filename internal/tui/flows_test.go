// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// The one-second tick of a program that has ended dies with its timer, inside bubbletea.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/charmbracelet/bubbletea.Tick.func1"),
		goleak.IgnoreAnyFunction("github.com/charmbracelet/bubbletea.(*Program).execBatchMsg"))
}

// fakeSource plays views one after the other and counts what was done.
type fakeSource struct {
	views []view.Rollout
	done  []string
}

func (f *fakeSource) Next(ctx context.Context) (view.Rollout, error) {
	if len(f.views) == 0 {
		<-ctx.Done()
		return view.Rollout{}, ctx.Err()
	}
	r := f.views[0]
	f.views = f.views[1:]
	return r, nil
}

func (f *fakeSource) Lost() time.Time { return time.Time{} }
func (f *fakeSource) Close()          {}

func (f *fakeSource) Actions(view.Rollout) []view.Action {
	do := func(name string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			f.done = append(f.done, name)
			return "cloneset/web " + name + " done", nil
		}
	}
	p := promote()
	p.Do = do("promote")
	return []view.Action{{Name: "pause", Title: "pause", Do: do("pause")}, p, {Name: "undo", Disabled: "only one revision is stored"}}
}

func (f *fakeSource) Why(_ context.Context, pod string) (diagnose.Report, error) {
	r := report()
	r.Object = "pod/" + pod
	return r, nil
}

func connected(t *testing.T, f *fakeSource, o Options) Model {
	t.Helper()
	o.Theme = NewTheme(true, false)
	m := NewModel(t.Context(), f, t0, o)
	m.size = Size{100, 30}
	return drive(t, m, snapshotMsg{rollout: canary()})
}

func TestPromoteNeedsTheDialogAndActsOnce(t *testing.T) {
	f := &fakeSource{}
	m := press(t, connected(t, f, Options{}), "P")
	require.Contains(t, m.View(), "set partition 70% -> 50%?")

	m = press(t, m, "y")
	require.Empty(t, f.done, "y typed ahead must confirm nothing")
	m = drive(t, m, armedMsg{})
	m = press(t, m, "y")
	require.Equal(t, []string{"promote"}, f.done)
	require.Contains(t, m.View(), "cloneset/web promote done")
	require.Nil(t, m.dialog)
}

func TestCancelIsTheDefault(t *testing.T) {
	f := &fakeSource{}
	m := press(t, connected(t, f, Options{}), "P")
	m = drive(t, m, armedMsg{})
	m = press(t, m, "enter")
	require.Nil(t, m.dialog)
	require.Empty(t, f.done)
}

func TestActionsThatCannotBeDoneSayWhy(t *testing.T) {
	f := &fakeSource{}
	require.Contains(t, press(t, connected(t, f, Options{}), "u").View(), "undo: only one revision is stored")
	require.Contains(t, press(t, connected(t, f, Options{ReadOnly: true}), "p").View(), "read-only: started with --read-only")
	require.Empty(t, f.done)
}

func TestWhyOpensForTheRowAndEscGoesBack(t *testing.T) {
	m := press(t, connected(t, &fakeSource{}, Options{}), "j", "w")
	require.Contains(t, m.View(), "why shop/pod/web-8qk2d")
	require.Contains(t, m.View(), "next batch waits")
	m = press(t, m, "esc")
	require.Contains(t, m.View(), "PARTITION REACHED")
}

func TestExitOnDoneReturnsTheLastView(t *testing.T) {
	working := canary()
	working.Result.Verdict = verdict.Progressing
	complete := canary()
	complete.Result.Verdict = verdict.Complete
	f := &fakeSource{views: []view.Rollout{working, complete}}
	var out bytes.Buffer
	in, closeIn := io.Pipe()
	defer closeIn.Close()
	last, err := Run(t.Context(), f, Options{Theme: NewTheme(true, false), ExitOnDone: true}, in, &out)
	require.NoError(t, err)
	require.Equal(t, verdict.Complete, last.Result.Verdict)
	require.Contains(t, out.String(), "\x1b[?1049l", "the alternate screen is left")
}

// Whatever is typed and however the terminal is resized, a frame has the terminal's size.
func TestAnyKeysAndSizesKeepTheFrameLaw(t *testing.T) {
	keys := []string{"j", "k", "g", "G", "w", "W", "?", "P", "p", "u", "a", "y", "n", "tab", "enter", "esc", "down", "up"}
	rapid.Check(t, func(rt *rapid.T) {
		m := connected(t, &fakeSource{}, Options{})
		if rapid.Bool().Draw(rt, "stuck") {
			m = drive(t, m, snapshotMsg{rollout: stuck()})
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0:
				m = drive(t, m, tea.WindowSizeMsg{Width: rapid.IntRange(1, 200).Draw(rt, "width"), Height: rapid.IntRange(1, 60).Draw(rt, "height")})
			case 1:
				m = drive(t, m, armedMsg{})
			default:
				m = press(t, m, rapid.SampledFrom(keys).Draw(rt, "key"))
			}
			if m.size.tooSmall() {
				continue
			}
			requireFrame(rt, m)
		}
	})
}

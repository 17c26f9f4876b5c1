// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/verdict"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

var update = flag.Bool("update", false, "write the golden frames")

var t0 = time.Date(2026, 3, 2, 12, 41, 9, 0, time.UTC)

func ago(d time.Duration) time.Time { return t0.Add(-d) }

// canary is a rollout that partition stopped at 3 of 10 Pods.
func canary() view.Rollout {
	day := 24 * time.Hour
	r := view.Rollout{
		Context: "prod-eu",
		Object:  view.Object{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Namespace: "shop", Name: "web", Typed: "cloneset/web"},
		Facts: verdict.Facts{
			Object: "cloneset/web", Desired: 10, Total: 10, Ready: 10, Available: 10, Updated: 3, UpdatedReady: 3, UpdatedAvailable: 3,
			Partition: verdict.Partition{Raw: "70%", Keep: 7, Target: 3}, MaxUnavailable: 2,
		},
		Result:  verdict.Result{Verdict: verdict.PartitionReached, Reason: "Partition", Message: "3 of 10 updated, 7 kept by partition 70%"},
		Update:  &view.Revision{Name: "web-7c9f84d", Hash: "7c9f84d", Number: 7, Images: []string{"web:2.8.1"}},
		Current: &view.Revision{Name: "web-5d1b77c", Hash: "5d1b77c", Number: 6, Images: []string{"web:2.8.0"}},
		Policy:  "InPlaceIfPossible", Started: ago(4*time.Minute + 12*time.Second), At: t0,
		Events: []view.Event{
			{Time: ago(67 * time.Second), Object: "web-8qk2d", Reason: "SuccessfulUpdatePodInPlace", Message: "successfully update pod web-8qk2d in-place(revision web-7c9f84d)"},
			{Time: ago(71 * time.Second), Object: "web-fz7pn", Reason: "SuccessfulUpdatePodInPlace", Message: "successfully update pod web-fz7pn in-place(revision web-7c9f84d)"},
			{Time: ago(109 * time.Second), Object: "web", Reason: "CreatedImagePullJob", Message: "created ImagePullJob web-7c9f84d-app for image: web:2.8.1"},
		},
	}
	updated := func(name, node string, batch int, since time.Duration) view.Pod {
		return view.Pod{Name: name, UID: "uid-" + name, Node: node, Hash: "7c9f84d", Number: 7, Updated: true, Group: view.GroupUpdated, How: view.HowInPlace,
			State: "Ready", Since: ago(since), Ready: true, Available: true, Restarts: 1, Created: ago(31 * day), Batch: batch, Images: []string{"web:2.8.1"}}
	}
	r.Pods = []view.Pod{updated("web-2xv9c", "worker-2", 1, 216*time.Second), updated("web-8qk2d", "worker-3", 2, 67*time.Second), updated("web-fz7pn", "worker-1", 2, 69*time.Second)}
	for i, name := range []string{"web-b6xk4", "web-c9vlm", "web-d2gss", "web-jw8fq", "web-m4t7h", "web-q5zrn", "web-x7k9w"} {
		r.Pods = append(r.Pods, view.Pod{Name: name, UID: "uid-" + name, Node: fmt.Sprintf("worker-%d", i%5+1), Hash: "5d1b77c", Number: 6, Group: view.GroupKept, How: view.HowNone,
			State: "Ready", Since: ago(12 * day), Ready: true, Available: true, Created: ago(12 * day), Held: "Partition", HeldText: "partition 70% keeps 7 Pods back", Images: []string{"web:2.8.0"}})
	}
	return r
}

// stuck is a rollout whose first Pod cannot get its image.
func stuck() view.Rollout {
	r := canary()
	r.Facts.Partition, r.Facts.Updated, r.Facts.UpdatedAvailable, r.Facts.Available, r.Facts.Ready = verdict.Partition{Target: 10}, 1, 0, 9, 9
	blocker := verdict.Finding{Code: "P05", Severity: verdict.Blocker, Object: "pod/web-2xv9c", Message: `container "app" cannot get its image web:2.8.1-typo: not found`}
	r.Result = verdict.Result{Verdict: verdict.Stalled, Reason: "ProgressDeadlineExceeded", Message: "0 of 10 updated and available", Blockers: []verdict.Finding{blocker}}
	r.Pods[0].Group, r.Pods[0].State, r.Pods[0].Ready, r.Pods[0].Available, r.Pods[0].WhyText = view.GroupFailing, "ImagePullBackOff", false, false, "image not found"
	r.Pods[1].Group, r.Pods[1].State, r.Pods[1].Ready = view.GroupUpdating, "Updating", false
	return r
}

func report() diagnose.Report {
	at := ago(41 * time.Second)
	return diagnose.Report{
		Object: "pod/web-2xv9c", Headline: "in-place update running: revision web-5d1b77c -> web-7c9f84d",
		Findings: []verdict.Finding{
			{Code: "P12", Severity: verdict.Blocker, Object: "pod/web-2xv9c", Message: `next batch waits: container "exporter" must become ready before "broker" is changed`,
				Evidence: map[string]string{"nextContainerImages": "broker = kafka:3.7.1", "preCheckBeforeNext": "exporter: ready=false, running 38s"}, Since: &at, Next: "kruisectl logs data/kafka-1 -c exporter"},
			{Code: "P17", Severity: verdict.Cause, Object: "pod/web-2xv9c", Message: `container "exporter" not ready: readiness probe failed 7 times`},
			{Code: "P15", Severity: verdict.Note, Object: "pod/web-2xv9c", Message: "readiness gate InPlaceUpdateReady False (StartInPlaceUpdate)"},
		},
	}
}

func promote() view.Action {
	return view.Action{Name: "promote", Title: "set partition 70% -> 50%", Command: "kruisectl rollout partition cloneset/web 50% -n shop",
		Confirm: []string{"context    prod-eu", `change     spec.updateStrategy.rollingUpdate.partition  "70%" -> "50%"`, "effect     2 more Pods updated in place, 2 at a time"}}
}

// model is a root that has received r at t0 and needs no source.
func model(r view.Rollout, theme Theme, size Size) Model {
	m := NewModel(context.Background(), nil, t0, Options{Theme: theme})
	m.size, m.rollout, m.loaded = size, r, true
	m.actions = []view.Action{{Name: "pause", Title: "pause"}, promote(), {Name: "undo", Title: "undo"}}
	return m
}

func TestGoldenFrames(t *testing.T) {
	whyFrame := func(theme Theme, size Size) Model {
		m := model(canary(), theme, size)
		w := newWhyScreen("web-2xv9c")
		w.loaded, w.report = true, report()
		m.stack = append(m.stack, w)
		return m
	}
	cases := map[string]func(Theme, Size) Model{
		"rollout": func(th Theme, s Size) Model { return model(canary(), th, s) },
		"stalled": func(th Theme, s Size) Model { return model(stuck(), th, s) },
		"why":     whyFrame,
		"pulled": func(th Theme, s Size) Model {
			r := canary()
			r.Pulls = []pull.Coverage{{Image: "web:2.8.1", Job: "web-7c9f84d-app", Present: 7, Nodes: 10, Failed: 1}}
			return model(r, th, s)
		},
		"help": func(th Theme, s Size) Model {
			m := model(canary(), th, s)
			m.stack = append(m.stack, helpScreen{})
			return m
		},
		"dialog": func(th Theme, s Size) Model {
			m := model(canary(), th, s)
			m.dialog = &dialog{action: promote()}
			return m
		},
	}
	sizes := []Size{{80, 24}, {120, 40}, {100, 30}, {60, 20}, {40, 10}}
	looks := map[string]Theme{"ascii": NewTheme(true, false), "unicode": NewTheme(false, false), "colour": NewTheme(false, true)}
	for name, build := range cases {
		for look, theme := range looks {
			for _, size := range sizes {
				file := fmt.Sprintf("%s-%dx%d-%s.golden", name, size.Width, size.Height, look)
				t.Run(file, func(t *testing.T) { compareGolden(t, file, build(theme, size).View(), size) })
			}
		}
	}
}

func compareGolden(t *testing.T, file, got string, size Size) {
	t.Helper()
	lines := strings.Split(got, "\n")
	require.Len(t, lines, size.Height, "height of the frame")
	for i, l := range lines {
		require.LessOrEqual(t, ansi.StringWidth(l), size.Width, "width of line %d: %q", i+1, l)
	}
	path := filepath.Join("testdata", "frames", file)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got+"\n"), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write golden frames")
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("frame differs from %s (-want +got):\n%s", path, diff)
	}
}

func TestTooSmallTerminalIsToldSo(t *testing.T) {
	require.Contains(t, model(canary(), NewTheme(true, false), Size{39, 24}).View(), "needs 40x10")
	require.Contains(t, model(canary(), NewTheme(true, false), Size{80, 9}).View(), "needs 40x10")
}

func TestCursorStaysOnItsPodWhenRowsMove(t *testing.T) {
	m := model(canary(), NewTheme(true, false), Size{80, 24})
	m = press(t, m, "j", "j")
	require.Contains(t, m.View(), "> web-fz7pn")
	r := canary()
	r.Pods = append([]view.Pod{{Name: "web-aaaaa", UID: "uid-a", Group: view.GroupFailing, State: "Pending"}}, r.Pods...)
	m.rollout = r
	require.Contains(t, m.View(), "> web-fz7pn")
}

// press sends keys and runs the commands that answer at once, as the runtime would.
func press(t *testing.T, m Model, keys ...string) Model {
	t.Helper()
	for _, k := range keys {
		m = drive(t, m, keyMsg(k))
	}
	return m
}

func keyMsg(k string) tea.KeyMsg {
	special := map[string]tea.KeyType{"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "ctrl+c": tea.KeyCtrlC, "down": tea.KeyDown, "up": tea.KeyUp}
	if kind, ok := special[k]; ok {
		return tea.KeyMsg{Type: kind}
	}
	return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
}

// drive feeds msg and whatever messages of our own it leads to. Timers are left out.
func drive(t *testing.T, m Model, msg tea.Msg) Model {
	t.Helper()
	next, cmd := m.Update(msg)
	m = next.(Model)
	if cmd == nil || m.dialog != nil && !m.dialog.armed {
		return m
	}
	switch out := cmd().(type) {
	case openWhyMsg, whyMsg, askMsg, doMsg, doneMsg, backMsg:
		return drive(t, m, out)
	}
	return m
}

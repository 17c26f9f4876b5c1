// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
)

// pulling is a job for 40 nodes: 24 done, 1 failed, 6 pulling, 9 queued.
func pulling() view.Pull {
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pull-web-3f9ab"}}
	job.Spec.Image = "web:2.8.1"
	job.Spec.Parallelism = new(intstr.FromInt32(6))
	job.Status = v1beta1.ImagePullJobStatus{Desired: 40, Active: 6, Succeeded: 24, Failed: 1}
	st := pull.Status{Job: job, Verdict: pull.Active, Queued: 9, Deadline: t0.Add(8*time.Minute + 20*time.Second)}
	add := func(n int, phase string, progress int32, started, took time.Duration, message string) {
		r := pull.Row{Node: fmt.Sprintf("worker-%d", n), Phase: phase, Progress: progress, Message: message}
		if started > 0 {
			r.Started, r.Tries = ago(started), 1
		}
		if took > 0 {
			r.Ended = r.Started.Add(took)
		}
		if phase == "Succeeded" {
			r.Digest = "sha256:77ab2c"
		}
		st.Rows = append(st.Rows, r)
	}
	for i := range 24 {
		add(i+1, "Succeeded", 100, 10*time.Minute, time.Duration(46+i)*time.Second, "")
	}
	add(25, "Pulling", 17, 31*time.Second, 0, "")
	add(26, "Pulling", 12, 30*time.Second, 0, "")
	add(27, "Failed", 0, 12*time.Minute, 10*time.Minute, "401 unauthorized (secret shop/regcred not valid)")
	st.Rows[len(st.Rows)-1].Tries = 3
	add(28, "Pulling", 51, 72*time.Second, 0, "")
	add(29, "Pulling", 44, 72*time.Second, 0, "")
	add(30, "Pulling", 2, 4*time.Second, 0, "")
	add(31, "Waiting", 0, 2*time.Second, 0, "waits for the node agent")
	for i := range 9 {
		add(32+i, pull.PhaseQueued, 0, 0, 0, "waits for a place (parallelism 6)")
	}
	return view.Pull{Context: "prod-eu", Typed: "pull-web-3f9ab", Namespace: "shop", Name: "pull-web-3f9ab", Image: "web:2.8.1",
		Owner: "cloneset/web", Status: st, Estimate: pull.EstimateOf(st, t0), At: t0}
}

// pulled is the same job when it has ended, on fewer nodes.
func pulled() view.Pull {
	v := pulling()
	v.Status.Rows = v.Status.Rows[:5]
	v.Status.Verdict, v.Status.Queued = pull.Succeeded, 0
	v.Status.Job = v.Status.Job.DeepCopy()
	v.Status.Job.Status = v1beta1.ImagePullJobStatus{Desired: 5, Succeeded: 5}
	v.Estimate = pull.EstimateOf(v.Status, t0)
	return v
}

func retryAction() view.Action {
	return view.Action{Name: "retry", Title: "pull again on 1 node", Command: "kruisectl image retry pull-web-3f9ab -n shop",
		Confirm: []string{"context    prod-eu", "image      web:2.8.1", "nodes      worker-27"}}
}

type fakePulls struct {
	views []view.Pull
	done  []string
}

func (f *fakePulls) Next(ctx context.Context) (view.Pull, error) {
	if len(f.views) == 0 {
		<-ctx.Done()
		return view.Pull{}, ctx.Err()
	}
	v := f.views[0]
	f.views = f.views[1:]
	return v, nil
}
func (f *fakePulls) Lost() time.Time { return time.Time{} }
func (f *fakePulls) Close()          {}

func (f *fakePulls) Actions(v view.Pull) []view.Action {
	r := retryAction()
	r.Do = func(context.Context) (string, error) {
		f.done = append(f.done, "retry")
		return "imagepulljob.apps.kruise.io/pull-web-3f9ab-retry-1 created", nil
	}
	c := view.Action{Name: "cancel", Title: "cancel the job", Confirm: []string{"effect"}, Do: func(context.Context) (string, error) {
		f.done = append(f.done, "cancel")
		return "cancelled", nil
	}}
	if len(v.Status.FailedNodes()) == 0 {
		r.Disabled = "no node failed"
	}
	return []view.Action{r, c}
}

func pullModel(t *testing.T, v view.Pull, theme Theme, size Size, o Options) (PullModel, *fakePulls) {
	t.Helper()
	o.Theme = theme
	f := &fakePulls{}
	m := NewPullModel(context.Background(), f, t0, o)
	m.size = size
	next, _ := m.Update(pullMsg{pull: v})
	return next.(PullModel), f
}

func pressPull(m PullModel, keys ...string) PullModel {
	for _, k := range keys {
		m = drivePull(m, keyMsg(k))
	}
	return m
}

// drivePull feeds msg and whatever messages of our own it leads to. Timers are left out.
func drivePull(m PullModel, msg tea.Msg) PullModel {
	next, cmd := m.Update(msg)
	m = next.(PullModel)
	if cmd == nil || m.dialog != nil && !m.dialog.armed {
		return m
	}
	switch out := cmd().(type) {
	case askMsg, doMsg, doneMsg, backMsg:
		return drivePull(m, out)
	}
	return m
}

func TestGoldenFramesOfAnImageJob(t *testing.T) {
	cases := map[string]func(Theme, Size) PullModel{
		"image": func(th Theme, s Size) PullModel {
			m, _ := pullModel(t, pulling(), th, s, Options{ReadOnly: true})
			return m
		},
		"image-done": func(th Theme, s Size) PullModel { m, _ := pullModel(t, pulled(), th, s, Options{}); return m },
		"image-failed": func(th Theme, s Size) PullModel {
			m, _ := pullModel(t, pulling(), th, s, Options{})
			return pressPull(m, "f")
		},
		"image-node": func(th Theme, s Size) PullModel {
			m, _ := pullModel(t, pulling(), th, s, Options{})
			return pressPull(m, "enter")
		},
		"image-retry": func(th Theme, s Size) PullModel {
			m, _ := pullModel(t, pulling(), th, s, Options{})
			return pressPull(m, "R")
		},
		"image-help": func(th Theme, s Size) PullModel {
			m, _ := pullModel(t, pulling(), th, s, Options{})
			return pressPull(m, "?")
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

func TestImageScreenFiltersAndKeepsTheCursor(t *testing.T) {
	m, _ := pullModel(t, pulling(), NewTheme(true, false), Size{100, 30}, Options{})
	require.Contains(t, m.View(), "> [x]     worker-27")
	m = pressPull(m, "g", "j")
	require.Contains(t, m.View(), "show: pulling")
	require.NotContains(t, m.View(), "worker-27")
	require.Contains(t, m.View(), "> [..]    worker-29", "the furthest comes first, then the next")
	v := pulling()
	v.Status.Rows[24].Progress = 90 // another node overtakes
	m = drivePull(m, pullMsg{pull: v})
	require.Contains(t, m.View(), "> [..]    worker-29", "the cursor stays on its node")
	m = pressPull(m, "g", "G")
	require.Contains(t, m.View(), "worker-40", "a collapsed group opens for the cursor")
}

func TestRetryOnTheScreenNeedsTheDialogAndActsOnce(t *testing.T) {
	m, f := pullModel(t, pulling(), NewTheme(true, false), Size{100, 30}, Options{})
	m = pressPull(m, "R", "y")
	require.Empty(t, f.done, "y typed ahead confirms nothing")
	m = pressPull(drivePull(m, armedMsg{}), "y")
	require.Equal(t, []string{"retry"}, f.done)
	require.Contains(t, m.View(), "retry-1 created")

	m, f = pullModel(t, pulling(), NewTheme(true, false), Size{100, 30}, Options{ReadOnly: true})
	require.Contains(t, pressPull(m, "R").View(), "read-only: started with --read-only")
	require.Empty(t, f.done)
	m, _ = pullModel(t, pulled(), NewTheme(true, false), Size{100, 30}, Options{})
	require.Contains(t, pressPull(m, "R").View(), "retry: no node failed")
	require.Contains(t, pressPull(m, "y").View(), "no node failed")
}

func TestImageScreenLeavesWhenTheJobHasEnded(t *testing.T) {
	f := &fakePulls{views: []view.Pull{pulling(), pulled()}}
	var out bytes.Buffer
	in, closeIn := io.Pipe()
	defer closeIn.Close()
	last, err := RunPull(t.Context(), f, Options{Theme: NewTheme(true, false), ExitOnDone: true}, in, &out)
	require.NoError(t, err)
	require.Equal(t, pull.Succeeded, last.Status.Verdict)
	require.Contains(t, out.String(), "\x1b[?1049l", "the alternate screen is left")
}

// Whatever is typed and however the terminal is resized, a frame has the terminal's size.
func TestImageScreenKeepsTheFrameLaw(t *testing.T) {
	keys := []string{"j", "k", "G", "f", "g", "d", "z", "?", "R", "D", "y", "n", "tab", "enter", "esc", "down", "up"}
	rapid.Check(t, func(rt *rapid.T) {
		v := pulling()
		v.Status.Rows = v.Status.Rows[:rapid.IntRange(0, 40).Draw(rt, "rows")]
		m, _ := pullModel(t, v, NewTheme(rapid.Bool().Draw(rt, "ascii"), false), Size{100, 30}, Options{})
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0:
				m = drivePull(m, tea.WindowSizeMsg{Width: rapid.IntRange(1, 200).Draw(rt, "width"), Height: rapid.IntRange(1, 60).Draw(rt, "height")})
			case 1:
				m = drivePull(m, armedMsg{})
			default:
				m = pressPull(m, rapid.SampledFrom(keys).Draw(rt, "key"))
			}
			if m.size.tooSmall() {
				continue
			}
			lines := strings.Split(m.View(), "\n")
			if len(lines) != m.size.Height {
				rt.Fatalf("%d lines in a terminal of %d", len(lines), m.size.Height)
			}
			for _, l := range lines {
				if ansi.StringWidth(l) > m.size.Width {
					rt.Fatalf("line of %d cells in a terminal of %d: %q", ansi.StringWidth(l), m.size.Width, l)
				}
			}
		}
	})
}

// Collapsed groups fit, unless there is no room for a line of each; nothing grows, and who
// failed is cut only after all others.
func TestCollapseFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := map[string]int{}
		for _, g := range pullGroups {
			sizes[g] = rapid.IntRange(0, 50).Draw(rt, g)
		}
		height := rapid.IntRange(8, 60).Draw(rt, "height")
		keep := collapse(sizes, height)
		lines := 0
		for g, k := range keep {
			if k < 0 || k > sizes[g] {
				rt.Fatalf("%s: %d of %d", g, k, sizes[g])
			}
			lines += k
			if k < sizes[g] {
				lines++
			}
		}
		if lines > height {
			rt.Fatalf("%d lines in %d: %v of %v", lines, height, keep, sizes)
		}
		if keep[groupFailed] < min(3, sizes[groupFailed]) && keep[groupDone] > 0 {
			rt.Fatalf("failed nodes hide behind those done: %v of %v", keep, sizes)
		}
	})
}

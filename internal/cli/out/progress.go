// SPDX-License-Identifier: Apache-2.0

package out

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Progress shows a long wait (cli.md 1.8). In line mode it writes a line whenever the
// text changes, and a heartbeat when nothing changed for a while; on a terminal it
// redraws one block in place. It is safe for concurrent use.
type Progress struct {
	w       io.Writer
	style   Style
	clock   clock.PassiveClock
	json    bool
	quiet   bool
	redraw  bool
	beat    time.Duration
	mu      sync.Mutex
	start   time.Time
	lastOut time.Time
	last    string
	drawn   int // lines of the block on the screen
}

// ProgressOptions configures NewProgress.
type ProgressOptions struct {
	Style Style
	// JSON writes one JSON object per line instead of text.
	JSON bool
	// Quiet writes nothing at all.
	Quiet bool
	// Lines forces line mode on a terminal.
	Lines bool
	// Heartbeat is the longest silence in line mode; 0 means 30 s.
	Heartbeat time.Duration
}

// NewProgress starts the elapsed time.
func NewProgress(w io.Writer, clk clock.PassiveClock, o ProgressOptions) *Progress {
	if o.Heartbeat == 0 {
		o.Heartbeat = 30 * time.Second
	}
	now := clk.Now()
	return &Progress{
		w: w, style: o.Style, clock: clk, json: o.JSON, quiet: o.Quiet,
		redraw: o.Style.TTY && !o.Lines && !o.JSON, beat: o.Heartbeat, start: now, lastOut: now,
	}
}

// Elapsed is the time since NewProgress.
func (p *Progress) Elapsed() time.Duration { return p.clock.Since(p.start) }

// Update shows text as the present state. It writes only when the text changed.
func (p *Progress) Update(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet || text == p.last {
		return
	}
	p.last = text
	p.write(text)
}

// Beat gives a sign of life when nothing was written for the heartbeat time, and keeps
// the clock of a redrawn block running. Call it about once a second.
func (p *Progress) Beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet || p.last == "" {
		return
	}
	if p.redraw {
		p.write(p.last)
		return
	}
	if p.clock.Since(p.lastOut) >= p.beat {
		p.write("still waiting: " + p.last)
	}
}

// Note writes a line that stays, above a redrawn block.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet {
		return
	}
	p.erase()
	p.line(text)
	if p.redraw && p.last != "" {
		p.write(p.last)
	}
}

// Finish removes a redrawn block so that the final lines follow the last kept line.
func (p *Progress) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

func (p *Progress) write(text string) {
	if !p.redraw {
		p.line(text)
		return
	}
	p.erase()
	lines := strings.Split(text, "\n")
	if len(lines) > 12 {
		lines = append(lines[:11], fmt.Sprintf("… %d more lines", len(lines)-11))
	}
	for i, l := range lines {
		if i == 0 {
			l = "[" + Elapsed(p.Elapsed()) + "] " + l
		}
		if p.style.Width > 1 && Cells(l) >= p.style.Width {
			l = string([]rune(l)[:p.style.Width-2]) + "~"
		}
		fmt.Fprintln(p.w, l)
	}
	p.drawn = len(lines)
	p.lastOut = p.clock.Now()
}

func (p *Progress) line(text string) {
	p.lastOut = p.clock.Now()
	if p.json {
		b, err := json.Marshal(map[string]any{
			"time": p.lastOut.UTC().Format(time.RFC3339), "elapsedSeconds": int(p.Elapsed() / time.Second), "message": text,
		})
		if err == nil {
			fmt.Fprintf(p.w, "%s\n", b)
		}
		return
	}
	fmt.Fprintf(p.w, "[%s] %s\n", Elapsed(p.Elapsed()), text)
}

func (p *Progress) erase() {
	if p.redraw && p.drawn > 0 {
		fmt.Fprintf(p.w, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// Terminal says what one stream can show (cli.md 1.7).
type Terminal struct {
	// TTY: the stream is a terminal; cursor movement and prompts are allowed.
	TTY bool
	// Color: escape sequences for colour are wanted.
	Color bool
	// ASCII: symbols outside ASCII are not wanted.
	ASCII bool
	// Width is the number of cells of a line.
	Width int
}

// OutTerminal describes stdout, ErrTerminal stderr. The two are judged separately.
func (f *Factory) OutTerminal() Terminal { return f.terminal(f.Out) }

// ErrTerminal describes stderr.
func (f *Factory) ErrTerminal() Terminal { return f.terminal(f.ErrOut) }

// Interactive reports that a question can be asked: stdin and stderr are terminals and
// --no-input is not set.
func (f *Factory) Interactive() bool {
	_, in := isTerminal(f.In)
	_, errOut := isTerminal(f.ErrOut)
	return in && errOut && !f.Global.NoInput
}

func (f *Factory) terminal(w any) Terminal {
	fd, tty := isTerminal(w)
	t := Terminal{TTY: tty, Width: 120, ASCII: f.Global.ASCII || !f.utf8Locale()}
	if n, err := strconv.Atoi(f.Getenv("COLUMNS")); err == nil && n > 0 {
		t.Width = n
	}
	if tty {
		if n, _, err := term.GetSize(fd); err == nil && n > 0 {
			t.Width = n
		}
	}
	force := f.Getenv("CLICOLOR_FORCE")
	switch {
	case f.Global.NoColor || f.Global.Color == "never":
	case f.Global.Color == "always":
		t.Color = true
	case f.Getenv("NO_COLOR") != "" || f.Getenv("TERM") == "dumb":
	default:
		t.Color = tty || (force != "" && force != "0")
	}
	return t
}

func (f *Factory) utf8Locale() bool {
	for _, k := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := f.Getenv(k); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// isTerminal returns the descriptor of a stream that is a terminal.
func isTerminal(stream any) (int, bool) {
	file, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(file.Fd())
	return fd, term.IsTerminal(fd)
}

// OutStyle is how results are drawn, ErrStyle how progress, notes and errors are.
func (f *Factory) OutStyle() out.Style { return style(f.OutTerminal()) }

// ErrStyle is the style of stderr.
func (f *Factory) ErrStyle() out.Style { return style(f.ErrTerminal()) }

func style(t Terminal) out.Style {
	return out.Style{Color: t.Color, ASCII: t.ASCII, TTY: t.TTY, Width: t.Width}
}

// Progress starts the progress of a long wait on stderr. lines forces line mode.
func (f *Factory) Progress(lines bool, heartbeat time.Duration) *out.Progress {
	return out.NewProgress(f.ErrOut, f.Clock, out.ProgressOptions{
		Style: f.ErrStyle(), JSON: f.Global.LogFormat == "json", Quiet: f.Global.Quiet,
		Lines: lines || f.CI(), Heartbeat: heartbeat,
	})
}

// CI reports that a CI system runs this program.
func (f *Factory) CI() bool { return f.Getenv("CI") != "" }

// Note writes a line of context for people on stderr; --quiet drops it.
func (f *Factory) Note(format string, args ...any) {
	if f.Global.Quiet {
		return
	}
	fmt.Fprintf(f.ErrOut, "note: "+format+"\n", args...)
}

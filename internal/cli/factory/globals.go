// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Globals are the flags of cli.md 1.2 that are not kubectl's connection flags.
type Globals struct {
	// Color is auto, always or never.
	Color   string
	NoColor bool
	// ASCII forbids symbols outside ASCII.
	ASCII bool
	// Quiet drops progress and notes; results and errors stay.
	Quiet bool
	// Yes answers confirmations, NoInput forbids asking.
	Yes, NoInput bool
	// LogFormat is text or json: the form of progress and notes on stderr.
	LogFormat string
	// Verbosity is -v; 1 adds notes on how an answer was found, 6 the requests.
	Verbosity int
	// WarningsAsErrors makes the exit code 1 after a server warning.
	WarningsAsErrors bool
	// QPS and Burst limit requests per second.
	QPS   float32
	Burst int

	matchServerVersion bool
	profile            string
	profileOutput      string
	warned             atomic.Int64
}

// NewGlobals returns the defaults.
func NewGlobals() *Globals {
	return &Globals{Color: "auto", LogFormat: "text", QPS: 50, Burst: 100}
}

// AddTo registers the flags.
func (g *Globals) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&g.Color, "color", g.Color, "colour output: auto, always or never")
	fs.BoolVar(&g.NoColor, "no-color", false, "same as --color=never")
	fs.BoolVar(&g.ASCII, "ascii", false, "no symbols outside ASCII")
	fs.BoolVarP(&g.Quiet, "quiet", "q", false, "no progress, no notes; results and errors only")
	fs.BoolVarP(&g.Yes, "yes", "y", false, "answer yes to confirmations")
	fs.BoolVar(&g.NoInput, "no-input", false, "never ask; a needed confirmation is exit code 9")
	fs.StringVar(&g.LogFormat, "log-format", g.LogFormat, "form of progress and notes on stderr: text or json")
	fs.IntVarP(&g.Verbosity, "v", "v", 0, "verbosity of notes and requests on stderr")
	fs.BoolVar(&g.WarningsAsErrors, "warnings-as-errors", false, "exit code 1 when the API server sent a warning")
	fs.Float32Var(&g.QPS, "qps", g.QPS, "requests per second this tool may send")
	fs.IntVar(&g.Burst, "burst", g.Burst, "requests it may send at once")
	fs.BoolVar(&g.matchServerVersion, "match-server-version", false, "kept for old scripts; has no effect")
	fs.StringVar(&g.profile, "profile", "none", "kept for old scripts; has no effect")
	fs.StringVar(&g.profileOutput, "profile-output", "profile.pprof", "kept for old scripts; has no effect")
	for _, n := range []string{"match-server-version", "profile", "profile-output"} {
		_ = fs.MarkHidden(n)
	}
}

// Validate reports a flag value that is wrong on any cluster.
func (g *Globals) Validate() error {
	if g.Color != "auto" && g.Color != "always" && g.Color != "never" {
		return fmt.Errorf("--color is %q: use auto, always or never", g.Color)
	}
	if g.LogFormat != "text" && g.LogFormat != "json" {
		return fmt.Errorf("--log-format is %q: use text or json", g.LogFormat)
	}
	if g.Verbosity < 0 {
		return fmt.Errorf("-v is %d: use 0 or more", g.Verbosity)
	}
	return nil
}

// Trace makes the client libraries print requests from -v 6 on. They mask tokens
// themselves; bodies, which may hold Secrets, come at 8 and so never.
func (g *Globals) Trace() error {
	if g.Verbosity == 0 {
		return nil
	}
	return new(klog.Level).Set(strconv.Itoa(min(g.Verbosity, 7)))
}

// Warned reports that the API server sent a warning.
func (g *Globals) Warned() bool { return g.warned.Load() > 0 }

func (g *Globals) warnings(w io.Writer) rest.WarningHandlerWithContext {
	return &warningWriter{g: g, w: w, seen: map[string]bool{}}
}

// warningWriter prints each warning of the API server once.
type warningWriter struct {
	g    *Globals
	mu   sync.Mutex
	w    io.Writer
	seen map[string]bool
}

func (h *warningWriter) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code != 299 || text == "" {
		return
	}
	h.g.warned.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[text] || h.g.Quiet {
		return
	}
	h.seen[text] = true
	fmt.Fprintln(h.w, "warning:", text)
}

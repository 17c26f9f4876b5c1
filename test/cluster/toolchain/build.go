// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// heartbeat is how often a running build says that it is alive.
const heartbeat = 15 * time.Second

// Progress receives one line of progress at a time, without the end of line. It must be safe for concurrent use.
type Progress func(format string, args ...any)

// Build makes sure that the named programs of the set are present and returns the directory that holds them.
// It needs the go command and the module proxy only when something is missing. An unknown name is an error.
func (s Set) Build(ctx context.Context, names []string, progress Progress) (string, error) {
	dir, err := s.Dir()
	if err != nil {
		return "", err
	}
	known := s.Programs()
	for _, n := range names {
		if !slices.Contains(known, n) {
			return "", fmt.Errorf("unknown program %q; known are %s", n, strings.Join(known, ", "))
		}
	}
	if len(Missing(dir, names)) == 0 {
		return dir, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("building %s needs the go command on PATH: %w", strings.Join(Missing(dir, names), ", "), err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache directory: %w", err)
	}
	for _, g := range s.Groups {
		var wanted []string
		for _, n := range names {
			if _, ok := g.Programs[n]; ok {
				wanted = append(wanted, n)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		if err := g.build(ctx, dir, wanted, progress); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// build makes sure that dir holds the wanted programs of the group. One process at a time builds a group.
func (g Group) build(ctx context.Context, dir string, wanted []string, progress Progress) error {
	if len(Missing(dir, wanted)) == 0 {
		return nil
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock-"+g.Name), func() {
		progress("%s: waiting for another build of the same programs to end", g.Name)
	})
	if err != nil {
		return fmt.Errorf("locking the build of %s: %w", g.Name, err)
	}
	defer unlock()

	missing := Missing(dir, wanted) // the other build may have made them
	if len(missing) == 0 {
		return nil
	}
	src := filepath.Join(dir, "src-"+g.Name)
	out, err := os.MkdirTemp(dir, ".building-"+g.Name+"-")
	if err != nil {
		return fmt.Errorf("creating a build directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(out) }() // a leftover costs disk only

	progress("%s %s: building %s", g.Name, g.Version, strings.Join(missing, ", "))
	start := time.Now()
	logPath := filepath.Join(dir, "build-"+g.Name+".log")
	if err := g.writeModule(ctx, src); err != nil {
		return err
	}
	if err := g.compile(ctx, src, out, missing, logPath, progress); err != nil {
		return err
	}
	for _, n := range missing {
		built := filepath.Join(out, filepath.Base(g.Programs[n]))
		if len(missing) == 1 {
			built = filepath.Join(out, n)
		}
		if err := os.Rename(built, filepath.Join(dir, n)); err != nil {
			return fmt.Errorf("installing %s: %w", n, err)
		}
		progress("%s: built (%s since the start of %s)", n, round(time.Since(start)), g.Name)
	}
	return nil
}

// compile runs one go build for all programs, so that they share the compilation of what they have in common.
func (g Group) compile(ctx context.Context, src, out string, programs []string, logPath string, progress Progress) error {
	target := out + string(filepath.Separator)
	if len(programs) == 1 {
		target = filepath.Join(out, programs[0])
	}
	args := []string{"build", "-v", "-ldflags", g.LDFlags, "-o", target}
	for _, p := range programs {
		args = append(args, g.Programs[p])
	}
	logFile, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("creating the build log: %w", err)
	}
	defer logFile.Close()

	cmd := goCommand(ctx, src, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("building %s: %w", g.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go build: %w", err)
	}
	meter := newMeter(g.Name, progress)
	meter.follow(io.TeeReader(stderr, logFile))
	err = cmd.Wait()
	meter.stop()
	if err != nil {
		return fmt.Errorf("building %s with go build in %s: %w (log: %s)\n%s", g.Name, src, err, logPath, Tail(logPath, 15))
	}
	return nil
}

// goCommand is the go command with the environment in which all programs are built. Flags and environment decide
// whether the Go build cache can serve a package, so nothing of them may depend on the caller.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -mod=mod", "GOWORK=off", "GO111MODULE=on")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// meter turns the output of go build -v into a line of progress every heartbeat.
type meter struct {
	name     string
	progress Progress
	start    time.Time
	done     chan struct{}

	mu       sync.Mutex
	packages int
	last     string
}

func newMeter(name string, progress Progress) *meter {
	m := &meter{name: name, progress: progress, start: time.Now(), done: make(chan struct{})}
	go func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-m.done:
				return
			case <-tick.C:
				m.mu.Lock()
				n, last := m.packages, m.last
				m.mu.Unlock()
				switch {
				case last == "":
					m.progress("%s: %s, reading packages", m.name, round(time.Since(m.start)))
				default:
					m.progress("%s: %s, %d packages compiled, last %s", m.name, round(time.Since(m.start)), n, last)
				}
			}
		}
	}()
	return m
}

func (m *meter) follow(r io.Reader) {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		m.mu.Lock()
		if strings.HasPrefix(line, "go: downloading ") {
			m.last = strings.TrimPrefix(line, "go: ")
		} else if !strings.ContainsAny(line, " \t") {
			m.packages++
			m.last = line
		}
		m.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a longer line than the scanner takes must not block the compiler
}

func (m *meter) stop() { close(m.done) }

// writeModule writes the module that pins the version of the group. An existing one of the same content stays,
// with the requirements that the go command added to it.
func (g Group) writeModule(ctx context.Context, src string) error {
	marker := filepath.Join(src, "generated-for")
	id := fmt.Sprintln(g.modules())
	if have, err := os.ReadFile(marker); err == nil && string(have) == id {
		return nil
	}
	replaced, err := g.Pins.versions(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(src, 0o755); err != nil {
		return fmt.Errorf("creating the generated module: %w", err)
	}
	_ = os.Remove(filepath.Join(src, "go.sum"))
	if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte(g.moduleFile(replaced)), 0o644); err != nil {
		return fmt.Errorf("writing the generated module: %w", err)
	}
	// go get adds the checksums and the full list of requirements, so that go build resolves them once.
	args := []string{"get"}
	for _, p := range slices.Sorted(maps.Values(g.Programs)) {
		for module, version := range g.modules() {
			if p == module || strings.HasPrefix(p, module+"/") {
				args = append(args, p+"@"+version)
			}
		}
	}
	if out, err := goCommand(ctx, src, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("resolving the dependencies of %s: %w\n%s", g.Name, err, lastLines(string(out), 15))
	}
	if err := os.WriteFile(marker, []byte(id), 0o644); err != nil {
		return fmt.Errorf("writing the generated module: %w", err)
	}
	return nil
}

// moduleFile is the go.mod of the generated module; replaced maps a module to the version that stands in for it.
func (g Group) moduleFile(replaced map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module kruisectl.test/%s\n\ngo 1.26.0\n", g.Name)
	for _, m := range slices.Sorted(maps.Keys(g.modules())) {
		fmt.Fprintf(&b, "\nrequire %s %s\n", m, g.modules()[m])
	}
	for _, m := range slices.Sorted(maps.Keys(replaced)) {
		fmt.Fprintf(&b, "\nreplace %s => %s %s\n", m, m, replaced[m])
	}
	return b.String()
}

// lock takes an exclusive lock on a file, calls waiting once if it must wait, and returns the function that frees it.
// The lock ends with the process in any case.
func lock(ctx context.Context, path string, waiting func()) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	said := false
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing frees the lock
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, err
		}
		if !said {
			waiting()
			said = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// Tail returns the last n lines of a file, each indented, for the end of an error message; "" if it has none.
func Tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return lastLines(string(data), n)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "    " + strings.Join(lines, "\n    ")
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }

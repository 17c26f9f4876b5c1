// SPDX-License-Identifier: Apache-2.0

// Package supervisor keeps the processes of a local cluster running after the command that started them has ended:
// it starts them, restarts what exits, and stops, kills or freezes them on request, which is how tests inject
// faults. It speaks HTTP on a Unix socket; Client is the other side.
package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// RestartDelay is how long a process that exited by itself stays down.
	RestartDelay = time.Second
	// grace is how long a process may take to end after SIGTERM.
	grace = 10 * time.Second
)

// Spec says how to run one process.
type Spec struct {
	Name    string   `json:"name"`           // unique, for people and requests
	Args    []string `json:"args"`           // program and its arguments
	Env     []string `json:"env,omitempty"`  // added to the environment of the supervisor
	Log     string   `json:"log"`            // file that output is appended to
	Restart bool     `json:"restart"`        // whether to start it again when it exits by itself
	Kill    bool     `json:"kill,omitempty"` // whether stopping means SIGKILL: nothing to lose, so no time to wait
}

// State is what a process is doing.
type State string

// The states of a process.
const (
	Running  State = "Running"
	Frozen   State = "Frozen"   // stopped by SIGSTOP: alive but silent
	Stopped  State = "Stopped"  // on request
	Exited   State = "Exited"   // by itself, not to be restarted
	Starting State = "Starting" // between an exit and the next start
)

// Status is one process as it is now.
type Status struct {
	Name      string    `json:"name"`
	State     State     `json:"state"`
	PID       int       `json:"pid,omitempty"` // 0 unless running or frozen
	Restarts  int       `json:"restarts"`      // starts after the first, whatever the reason
	StartedAt time.Time `json:"startedAt"`
	LastExit  string    `json:"lastExit,omitempty"` // how the previous process ended
	Log       string    `json:"log"`
}

// Action is a request about one process.
type Action string

// The actions of Supervisor.Do.
const (
	Start   Action = "start"
	Stop    Action = "stop"    // SIGTERM, then SIGKILL; stays down until Start
	Restart Action = "restart" // Stop, then Start
	Kill    Action = "kill"    // SIGKILL, as a crash: a process with Spec.Restart comes back by itself
	Freeze  Action = "freeze"
	Thaw    Action = "thaw"
)

// ErrUnknown says that no process has the given name.
var ErrUnknown = errors.New("no such process")

// Supervisor runs processes. The zero value is ready; it is safe for concurrent use.
type Supervisor struct {
	mu     sync.Mutex
	procs  []*process // in the order of their first start
	closed bool
}

// process is one supervised program. Its fields are guarded by the mutex of the supervisor.
type process struct {
	spec   Spec
	status Status
	want   bool          // whether it should run
	ended  chan struct{} // closed when the current process has been reaped; nil before the first start
}

// Put runs spec under its name. A process that runs under that name already is stopped first.
func (s *Supervisor) Put(spec Spec) error {
	if len(spec.Args) == 0 || spec.Name == "" {
		return errors.New("a process needs a name and a program")
	}
	if s.find(spec.Name) != nil {
		if err := s.Do(spec.Name, Stop); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("the supervisor is shutting down")
	}
	p := s.lookup(spec.Name)
	if p == nil {
		p = &process{status: Status{Name: spec.Name, Log: spec.Log, Restarts: -1}}
		s.procs = append(s.procs, p)
	}
	p.spec = spec
	return s.start(p)
}

// List returns all processes in the order of their first start.
func (s *Supervisor) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Status, 0, len(s.procs))
	for _, p := range s.procs {
		list = append(list, p.status)
	}
	return list
}

// Do performs an action on the named process and returns when it has taken effect.
func (s *Supervisor) Do(name string, action Action) error {
	p := s.find(name)
	if p == nil {
		return fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	switch action {
	case Start:
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.status.PID != 0 {
			return nil
		}
		return s.start(p)
	case Stop:
		s.stop(p)
		return nil
	case Restart:
		s.stop(p)
		return s.Do(name, Start)
	case Kill:
		return s.signal(p, syscall.SIGKILL, "")
	case Freeze:
		return s.signal(p, syscall.SIGSTOP, Frozen)
	case Thaw:
		return s.signal(p, syscall.SIGCONT, Running)
	}
	return fmt.Errorf("unknown action %q", action)
}

// Close stops all processes, the youngest first, and refuses new ones.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closed = true
	procs := slices.Clone(s.procs)
	s.mu.Unlock()
	slices.Reverse(procs)
	for _, p := range procs {
		s.stop(p)
	}
}

func (s *Supervisor) find(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookup(name)
}

func (s *Supervisor) lookup(name string) *process {
	i := slices.IndexFunc(s.procs, func(p *process) bool { return p.spec.Name == name })
	if i < 0 {
		return nil
	}
	return s.procs[i]
}

// start runs the program of p. The mutex is held.
func (s *Supervisor) start(p *process) error {
	if s.closed {
		return errors.New("the supervisor is shutting down")
	}
	logFile, err := os.OpenFile(p.spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.spec.Name, err)
	}
	defer logFile.Close() // the child has its own descriptor
	cmd := exec.Command(p.spec.Args[0], p.spec.Args[1:]...)
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// Its own session: a signal to the supervisor's group must not reach it, and its whole group can be signalled.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.want = true
	p.status.Restarts++
	p.status.StartedAt = time.Now()
	if err := cmd.Start(); err != nil {
		p.want = false
		p.status.State, p.status.LastExit = Exited, err.Error()
		return fmt.Errorf("starting %s: %w", p.spec.Name, err)
	}
	p.status.State, p.status.PID = Running, cmd.Process.Pid
	p.ended = make(chan struct{})
	go s.reap(p, cmd, p.ended)
	return nil
}

// reap waits for the end of the process and starts it again if it should run.
func (s *Supervisor) reap(p *process, cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	close(ended)
	p.status.PID = 0
	p.status.LastExit = cmp.Or(describe(err), "exit status 0")
	switch {
	case !p.want:
		p.status.State = Stopped
	case !p.spec.Restart || s.closed:
		p.want = false
		p.status.State = Exited
	default:
		p.status.State = Starting
		time.AfterFunc(RestartDelay, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p.want && p.status.PID == 0 && !s.closed {
				_ = s.start(p) // recorded in LastExit
			}
		})
	}
}

func describe(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// stop ends p and keeps it down.
func (s *Supervisor) stop(p *process) {
	s.mu.Lock()
	p.want = false
	pid, ended := p.status.PID, p.ended
	if pid == 0 {
		p.status.State = Stopped
		s.mu.Unlock()
		return
	}
	first := syscall.SIGTERM
	if p.spec.Kill {
		first = syscall.SIGKILL
	}
	signalGroup(pid, first)
	signalGroup(pid, syscall.SIGCONT) // a frozen process cannot end
	s.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(grace):
		signalGroup(pid, syscall.SIGKILL)
		<-ended
	}
}

// signal sends sig to the group of p and records next as its state, unless next is empty.
func (s *Supervisor) signal(p *process, sig syscall.Signal, next State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.status.PID == 0 {
		return fmt.Errorf("%s is not running", p.spec.Name)
	}
	signalGroup(p.status.PID, sig)
	if next != "" {
		p.status.State = next
	}
	return nil
}

// signalGroup signals a whole process group; the group may be gone already.
func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

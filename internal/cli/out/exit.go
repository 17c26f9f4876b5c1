// SPDX-License-Identifier: Apache-2.0

// Package out is everything a command says: results on stdout, progress, notes and
// errors on stderr, and the exit code (cli.md 1.6 to 1.12). It prints; it decides
// nothing and knows no cluster.
package out

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes of cli.md 1.12.
const (
	CodeOK          = 0   // done, or the asked state is reached
	CodeError       = 1   // API, not found, forbidden, precondition, internal
	CodeUsage       = 2   // flag, argument, unparsable file, ambiguous type
	CodeFailed      = 3   // rollout or job failed, stalled, degraded
	CodeTimeout     = 4   // --timeout passed first
	CodeStanding    = 5   // stands still until somebody acts
	CodeGone        = 6   // superseded, deleted or replaced while watching
	CodeInProgress  = 7   // --check: not there yet
	CodePartial     = 8   // several objects with different ends
	CodeConfirm     = 9   // confirmation needed or refused; nothing changed
	CodeWarnings    = 10  // --fail-on=warning: warnings, no errors
	CodeInterrupted = 130 // SIGINT
	CodeTerminated  = 143 // SIGTERM
)

// Failure is an error in the three parts that users read: what failed, why, and what
// to do (cli.md 1.9). Doing must be set.
type Failure struct {
	// Doing completes "error: cannot …", e.g. "undo cloneset shop/web".
	Doing string
	// Why follows Doing after a colon; empty when the cause says it all.
	Why string
	// Cause is the API's answer or the precondition; may be nil.
	Cause error
	// Next is a command that can be pasted, or several lines of them.
	Next string
	// Code is the exit code; 0 means that of Cause, else CodeError.
	Code int
	// Object is the object in question as TYPE/NAME, for -o json.
	Object string
}

// Error implements error with headline and cause on one line.
func (f *Failure) Error() string {
	s := f.headline()
	if f.Cause != nil {
		s += ": " + f.Cause.Error()
	}
	return s
}

// Unwrap returns Cause.
func (f *Failure) Unwrap() error { return f.Cause }

func (f *Failure) headline() string {
	if f.Why == "" {
		return "cannot " + f.Doing
	}
	return "cannot " + f.Doing + ": " + f.Why
}

// usageError marks input that is wrong on any cluster.
type usageError struct {
	err  error
	next string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Usage marks err as the user's input being wrong on any cluster: exit code 2.
// Usage(nil) is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err: err}
}

// Usagef is Usage of a formatted error.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// UsageNext is Usage with the line that says what to type instead.
func UsageNext(next string, err error) error { return &usageError{err: err, next: next} }

// IsUsage reports that err came from Usage.
func IsUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

// silent ends a command with a code after it has said everything itself.
type silent struct{ code int }

func (s silent) Error() string { return fmt.Sprintf("exit code %d", s.code) }

// Silent returns an error that Print does not print, for results whose verdict is the
// exit code. Silent(0) is nil.
func Silent(code int) error {
	if code == CodeOK {
		return nil
	}
	return silent{code}
}

// Signal is the cancellation cause of a run that the user interrupted.
type Signal struct {
	// Code is CodeInterrupted or CodeTerminated.
	Code int
}

func (s *Signal) Error() string {
	if s.Code == CodeTerminated {
		return "terminated"
	}
	return "interrupted"
}

// ExitCode maps err to the code of cli.md 1.12. It is the only place that does.
func ExitCode(err error) int {
	if err == nil {
		return CodeOK
	}
	var s silent
	if errors.As(err, &s) {
		return s.code
	}
	var f *Failure
	if errors.As(err, &f) && f.Code != 0 {
		return f.Code
	}
	if IsUsage(err) {
		return CodeUsage
	}
	var sig *Signal
	if errors.As(err, &sig) {
		return sig.Code
	}
	if errors.Is(err, context.Canceled) {
		return CodeInterrupted
	}
	return CodeError
}

// Worst folds the codes of several objects: all equal gives that code; a mix with at
// least one success or different failures gives CodePartial, but when every object
// failed the worst single code wins, where 3 is worse than 4, 1, 6, 5 and 7.
func Worst(codes []int) int {
	if len(codes) == 0 {
		return CodeOK
	}
	rank := map[int]int{CodeOK: 0, CodeInProgress: 1, CodeStanding: 2, CodeGone: 3, CodeError: 4, CodeTimeout: 5, CodeFailed: 6}
	worst, someOK := codes[0], false
	for _, c := range codes {
		if rank[c] > rank[worst] {
			worst = c
		}
		someOK = someOK || c == CodeOK
	}
	if worst != CodeOK && someOK {
		return CodePartial
	}
	return worst
}

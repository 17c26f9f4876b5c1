// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// CheckState is the outcome of a check.
type CheckState string

// The outcomes. A skipped check could not be made; its message says why.
const (
	CheckOK      CheckState = "Ok"
	CheckWarning CheckState = "Warning"
	CheckError   CheckState = "Error"
	CheckSkipped CheckState = "Skipped"
)

// Check is one thing that was looked at.
type Check struct {
	// ID is stable; --skip takes it.
	ID      string     `json:"id"`
	Section string     `json:"section"`
	State   CheckState `json:"state"`
	// Message is one sentence; Hint says what to do, empty when all is well.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// checker looks at one thing. It returns the message and the hint with the state.
type checker struct {
	id, section string
	do          func(ctx context.Context) finding
}

type finding struct {
	state   CheckState
	message string
	hint    string
}

func okay(format string, args ...any) finding {
	return finding{state: CheckOK, message: fmt.Sprintf(format, args...)}
}

func warn(hint, format string, args ...any) finding {
	return finding{state: CheckWarning, message: fmt.Sprintf(format, args...), hint: hint}
}

func bad(hint, format string, args ...any) finding {
	return finding{state: CheckError, message: fmt.Sprintf(format, args...), hint: hint}
}

func skipped(format string, args ...any) finding {
	return finding{state: CheckSkipped, message: fmt.Sprintf(format, args...)}
}

// unreadable is the finding of a check whose objects could not be read.
func unreadable(err error) finding { return skipped("not checked: %v", err) }

// CheckOptions choose checks.
type CheckOptions struct {
	// Sections limits the checks to these; empty is all.
	Sections []string
	// Skip leaves out checks by id.
	Skip []string
	// Program is what hints start with.
	Program string
}

func (o CheckOptions) program() string {
	if o.Program == "" {
		return "kruisectl"
	}
	return o.Program
}

// CheckTimeout is the longest time that all checks together take.
const CheckTimeout = 60 * time.Second

// runChecks runs checks side by side and returns their outcomes in the given order.
func runChecks(ctx context.Context, o CheckOptions, list []checker) []Check {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	list = slices.DeleteFunc(list, func(c checker) bool {
		return len(o.Sections) > 0 && !slices.Contains(o.Sections, c.section)
	})
	checks := make([]Check, len(list))
	limit := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, c := range list {
		checks[i] = Check{ID: c.id, Section: c.section}
		if slices.Contains(o.Skip, c.id) {
			checks[i].State, checks[i].Message = CheckSkipped, "asked to skip it"
			continue
		}
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			f := c.do(ctx)
			checks[i].State, checks[i].Message, checks[i].Hint = f.state, f.message, f.hint
		})
	}
	wg.Wait()
	return checks
}

// Tally counts outcomes.
func Tally(checks []Check) (ok, warnings, errors, skipped int) {
	for _, c := range checks {
		switch c.State {
		case CheckOK:
			ok++
		case CheckWarning:
			warnings++
		case CheckError:
			errors++
		case CheckSkipped:
			skipped++
		}
	}
	return ok, warnings, errors, skipped
}

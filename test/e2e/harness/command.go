//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"
)

// Result is one finished run of a program.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Text is everything that was printed, for messages.
func (r Result) Text() string { return r.Stdout + r.Stderr }

// Binary is the kruisectl under test.
func Binary() string { return os.Getenv("KRUISECTL") }

// Run runs a program with the test's environment and no terminal.
func Run(ctx context.Context, stdin string, name string, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*Long)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errOut.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.Code = exit.ExitCode()
		return r, nil
	}
	return r, err
}

// Try runs kruisectl in the test's namespace and returns what it said.
func (e *Env) Try(args ...string) Result {
	e.T.Helper()
	r, err := Run(e.Ctx(), "", Binary(), append([]string{"-n", e.Namespace}, args...)...)
	require.NoError(e.T, err)
	e.T.Logf("$ kruisectl %s\n%s(exit %d)", strings.Join(args, " "), r.Text(), r.Code)
	return r
}

// Kruisectl runs kruisectl in the test's namespace and fails unless it exits with 0.
func (e *Env) Kruisectl(args ...string) Result {
	e.T.Helper()
	r := e.Try(args...)
	require.Zero(e.T, r.Code, "exit code of kruisectl %s:\n%s", strings.Join(args, " "), r.Text())
	return r
}

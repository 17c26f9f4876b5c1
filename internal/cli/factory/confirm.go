// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"context"
	"fmt"
	"io"

	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// Confirm asks a question that defaults to no (cli.md 1.10); the plan was printed before.
// doing completes "cannot …". It returns an error with exit code 9 when the answer is no or
// cannot be had.
func (f *Factory) Confirm(ctx context.Context, doing, question string) error {
	return f.ask(ctx, doing, question+" [y/N] ", "y", "yes")
}

// ConfirmWord asks for a word to be typed.
func (f *Factory) ConfirmWord(ctx context.Context, doing, question, word string) error {
	return f.ask(ctx, doing, fmt.Sprintf("%s\nType %q to go on: ", question, word), word)
}

func (f *Factory) ask(ctx context.Context, doing, prompt string, accepted ...string) error {
	if f.Global.Yes {
		return nil
	}
	if !f.Interactive() {
		return &out.Failure{Doing: doing, Why: "this needs a confirmation, and nobody can be asked",
			Next: "add --yes", Code: out.CodeConfirm}
	}
	fmt.Fprint(f.ErrOut, prompt)
	answer, err := readLine(ctx, f.In)
	if err != nil {
		return err
	}
	for _, a := range accepted {
		if answer == a {
			return nil
		}
	}
	return &out.Failure{Doing: doing, Why: "not confirmed, nothing was changed", Code: out.CodeConfirm}
}

// readLine reads one line from the terminal, or ends with ctx.
func readLine(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	ch := make(chan result, 1)
	go func() {
		var line string
		_, err := fmt.Fscanln(in, &line)
		if err != nil && line == "" {
			err = nil // an empty line or the end of input is a no
		}
		ch <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-ch:
		return r.line, r.err
	}
}

// ContextWords is " in context X" for questions, "" when no context is known.
func (f *Factory) ContextWords() string {
	if c := f.ContextName(); c != "" {
		return " in context " + c
	}
	return ""
}

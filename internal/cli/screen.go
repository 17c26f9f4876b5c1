// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/rollout/view"
	"github.com/kruisectl/kruisectl/internal/tui"
)

// screen shows a rollout full-screen. It is called on a terminal only.
func screen(ctx context.Context, f *factory.Factory, source view.Source, exitOnDone bool) (view.Rollout, error) {
	t := f.OutTerminal()
	return tui.Run(ctx, source, tui.Options{Theme: tui.NewTheme(t.ASCII, t.Color), ExitOnDone: exitOnDone}, f.In, f.Out)
}

// imageScreen shows an image job full-screen. It is called on a terminal only.
func imageScreen(ctx context.Context, f *factory.Factory, source view.PullSource, exitOnDone, readOnly bool) (view.Pull, error) {
	t := f.OutTerminal()
	return tui.RunPull(ctx, source, tui.Options{Theme: tui.NewTheme(t.ASCII, t.Color), ExitOnDone: exitOnDone, ReadOnly: readOnly}, f.In, f.Out)
}

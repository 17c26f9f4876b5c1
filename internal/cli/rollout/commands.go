// SPDX-License-Identifier: Apache-2.0

// Package rollout follows, changes and explains rollouts: the commands
// `kruisectl rollout …`. What is computed comes from internal/rollout; here are flags,
// sentences and exit codes.
package rollout

import (
	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root. screen is what `rollout
// watch` shows on a terminal; nil makes it print lines.
func Commands(f *factory.Factory, screen Screen) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Follow and drive the rollout of a workload",
		Example: "  kruisectl rollout status cloneset/web\n" +
			"  kruisectl rollout undo cloneset/web",
		Annotations: map[string]string{out.SeeAlso: "kruisectl why, kruisectl set image"},
	}
	cmd.AddCommand(
		newStatus(f), newWatch(f, screen), newHistory(f), newUndo(f), newPause(f), newResume(f),
		newRestart(f), newPartition(f), newCanary(f), newPromote(f), newAbort(f), newRetry(f), NewPreview(f), newWait(f),
	)
	return []*cobra.Command{cmd}
}

// verb describes a rollout command for target parsing.
func verb(command string, mutates bool, kinds []*target.Kind) target.Verb {
	return target.Verb{Command: command, Kinds: kinds, Mutates: mutates, Elsewhere: elsewhere(command)}
}

// elsewhere names the command that serves a kind which has no rollout here.
func elsewhere(command string) func(*target.Kind) string {
	return func(k *target.Kind) string {
		if k.Group != "apps" {
			return ""
		}
		switch command {
		case "rollout status", "rollout history", "rollout undo", "rollout restart":
			return "kubectl " + command
		case "rollout watch":
			return "kubectl rollout status"
		case "rollout pause", "rollout resume":
			if k.Kind == "Deployment" {
				return "kubectl " + command
			}
		}
		return ""
	}
}

// doing is the "cannot …" part of an error about one object.
func doing(verb string, o target.Object) string { return object.Phrase(verb) + " " + o.Title() }

// failure and each are shorthands.
var (
	failure = object.Failure
	each    = object.Each
)

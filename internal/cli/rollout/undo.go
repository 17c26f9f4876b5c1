// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
)

// undoOptions is one run of `rollout undo`.
type undoOptions struct {
	f             *factory.Factory
	toRevision    string
	to            string
	keepPartition bool
	resume        bool
	files         object.Files
	sel           object.Select
	write         object.Write
	wait          waitFlags
	output        out.Output
}

func newUndo(f *factory.Factory) *cobra.Command {
	o := &undoOptions{f: f}
	cmd := &cobra.Command{
		Use:     "undo (TYPE NAME | TYPE/NAME...)",
		Aliases: []string{"rollback"},
		Short:   "Go back to an earlier template",
		Long: "Go back to an earlier template. Without --to-revision that is the newest stored\n" +
			"one that differs from the live template. Taking a canary back also sets the\n" +
			"partition to 0, as it would protect the very pods that must leave.",
		Example: "  kruisectl rollout undo cloneset/web\n" +
			"  kruisectl rollout undo cloneset/web --to-revision=3 --wait\n" +
			"  kruisectl rollout undo cloneset/web --dry-run=server -o yaml",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations:       map[string]string{out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout history, kruisectl rollout preview"},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.toRevision, "to-revision", "", "number of the revision to go back to")
	fs.StringVar(&o.to, "to", "", "name or hash of the revision to go back to")
	fs.BoolVar(&o.keepPartition, "keep-partition", false, "leave the partition when a canary is taken back")
	fs.BoolVar(&o.resume, "resume", false, "also clear the pause")
	out.Group(fs, "Change", "to-revision", "to", "keep-partition", "resume")
	o.files.AddTo(fs, "undo")
	o.sel.AddTo(fs, false)
	o.write.AddTo(fs)
	o.write.AddReason(fs)
	o.wait.AddTo(fs)
	o.output.AddTo(fs, "name")
	cmd.MarkFlagsMutuallyExclusive("to-revision", "to")
	_ = cmd.RegisterFlagCompletionFunc("to-revision", completeRevisions(f))
	return cmd
}

// word is the revision asked for; "" means the one before.
func (o *undoOptions) word() (string, error) {
	if o.to != "" {
		return o.to, nil
	}
	if o.toRevision == "" || o.toRevision == "0" {
		return "", nil
	}
	n, err := strconv.ParseInt(o.toRevision, 10, 64)
	switch {
	case err != nil:
		return "", out.UsageNext(o.f.Name()+" rollout undo TYPE/NAME --to "+o.toRevision,
			fmt.Errorf("--to-revision %q is not a number; names and hashes go with --to", o.toRevision))
	case n < 0:
		return "", out.Usagef("--to-revision %d is negative", n)
	}
	return o.toRevision, nil
}

func (o *undoOptions) run(ctx context.Context, args []string) error {
	v := verb("rollout undo", true, adapter.Kinds())
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	word, err := o.word()
	if err != nil {
		return err
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	names, err := object.Targets(ctx, o.f, v, args, &o.files, &o.sel)
	if err != nil {
		return err
	}
	if err := o.sel.Confirm(ctx, o.f, v, names, opts.DryRun != apply.DryRunNone); err != nil {
		return err
	}
	return each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		return o.one(ctx, w, word, opts, format)
	})
}

func (o *undoOptions) one(ctx context.Context, w adapter.Workload, word string, opts apply.Options, format out.Format) error {
	if err := o.write.Guard(o.f, "undo", w.Object, true); err != nil {
		return err
	}
	c, err := o.f.WatchClient()
	if err != nil {
		return err
	}
	s, err := fetch.Snapshot(ctx, c, w, fetch.Want{Pods: true, Revisions: true, Gates: true})
	if err != nil {
		return failure(o.f, "undo", w.Object, err, "")
	}
	if len(s.Stored) == 0 && len(s.Hidden) > 0 {
		return failure(o.f, "undo", w.Object, fmt.Errorf("its revisions cannot be read: %s", s.Hidden[0]), "")
	}
	list := w.Revisions(s.Stored, s.Pods)
	to, err := o.choose(w, list, word)
	if err != nil {
		return err
	}
	was, _ := adapter.Live(list)
	change := apply.Undo(to, apply.UndoOptions{KeepPartition: o.keepPartition, Resume: o.resume, Reason: o.write.Reason})
	res, err := apply.Patch(ctx, c, w, opts, change, apply.StoresTemplate(to.Template))
	if err != nil {
		return failure(o.f, "undo", w.Object, err, "")
	}
	if !res.Changed {
		return object.Done(o.f.Out, format, opts, res.After.Object, fmt.Sprintf("already at revision %d", to.Number))
	}
	sentence := fmt.Sprintf("rolled back to revision %d", to.Number)
	if was.Number > 0 {
		sentence += fmt.Sprintf(" (was %d)", was.Number)
	}
	if err := object.Done(o.f.Out, format, opts, res.After.Object, sentence); err != nil {
		return err
	}
	o.notes(s, res, to)
	return o.wait.follow(ctx, o.f, res.After, opts)
}

func (o *undoOptions) choose(w adapter.Workload, list []adapter.Revision, word string) (adapter.Revision, error) {
	if word != "" {
		if to, ok := adapter.FindRevision(list, word); ok {
			return to, nil
		}
		return adapter.Revision{}, noRevision(o.f, "undo", w, list, word)
	}
	if to, ok := adapter.Before(list); ok {
		return to, nil
	}
	var names []string
	for _, r := range list {
		names = append(names, r.Name)
	}
	cause := fmt.Errorf("%s stored (%s)", isAre(len(list), "revision"), enumerate.Some(names, 3))
	if len(list) == 0 {
		cause = fmt.Errorf("no revision is stored")
	}
	return adapter.Revision{}, &out.Failure{
		Doing: doing("undo", w.Object), Why: "no revision differs from the live template", Cause: cause,
		Next: o.f.Name() + " rollout history " + w.Short(), Object: w.Short(),
	}
}

func isAre(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return out.Plural(n, noun) + " are"
}

// notes says what comes of the change and what was done besides.
func (o *undoOptions) notes(s diagnose.Snapshot, res apply.Outcome, to adapter.Revision) {
	before, _ := res.Before.Facts()
	switch {
	case before.Partition.Keep == 0 && before.Partition.Raw == "":
	case apply.ClearsPartition(res.Before, to) && !o.keepPartition:
		o.f.Note("partition %s set to 0: revision %d is the current one, and the partition would keep the other pods", before.Partition.Raw, to.Number)
	case apply.ClearsPartition(res.Before, to):
		o.f.Note("partition %s is kept: up to %s may stay at the revision you leave", before.Partition.Raw, out.Plural(before.Partition.Keep, "pod"))
	case before.Partition.Keep > 0:
		o.f.Note("partition %s is kept: only %s will get revision %d", before.Partition.Raw, out.Plural(before.Partition.Target, "pod"), to.Number)
	}
	if res.After.Paused() {
		o.f.Note("it is paused: nothing moves until %s rollout resume %s", o.f.Name(), res.After.Short())
	}
	if text := effect(s, to); text != "" {
		o.f.Note("%s", text)
	}
}

// effect says how the Pods get to the revision.
func effect(s diagnose.Snapshot, to adapter.Revision) string {
	if s.Pods == nil {
		return ""
	}
	inPlace, recreate := 0, 0
	containers := map[string]bool{}
	for _, r := range s.Workload.Revisions(s.Stored, s.Pods) {
		if r.Name == to.Name || r.Pods <= 0 {
			continue
		}
		c := inplace.Compare(r.Source, to.Source, diagnose.EngineOptions(s))
		if c.InPlace == nil || s.Workload.RecreatesOnly() {
			recreate += r.Pods
			continue
		}
		inPlace += r.Pods
		for _, n := range restarted(c.InPlace) {
			containers[n] = true
		}
	}
	if inPlace+recreate == 0 {
		return ""
	}
	var parts []string
	if inPlace > 0 {
		names := slices.Sorted(maps.Keys(containers))
		verb := "restart"
		if len(names) == 1 {
			verb = "restarts"
		}
		part := fmt.Sprintf("in place: %s %s in %s", out.Plural(len(names), "container"), verb, out.Plural(inPlace, "pod"))
		if len(names) > 0 {
			part += " (" + enumerate.Some(names, 5) + ")"
		}
		parts = append(parts, part)
	}
	if recreate > 0 {
		parts = append(parts, "recreate: "+out.Plural(recreate, "pod"))
	}
	return strings.Join(parts, "; ")
}

// restarted lists the containers that an in-place update restarts, sorted.
func restarted(u *inplace.UpdateSpec) []string {
	names := map[string]bool{}
	for n := range u.ContainerImages {
		names[n] = true
	}
	for n := range u.ContainerRefMetadata {
		names[n] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// SPDX-License-Identifier: Apache-2.0

// Package object is what commands on objects have in common: reading their arguments
// and -f, -k, -R, resolving them, the ownership guard, the flags of every command that
// writes, and the result lines.
package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Files are -f, -k and -R.
type Files struct {
	Filenames []string
	Kustomize string
	Recursive bool
}

// AddTo registers the flags; what completes "identify the objects to …".
func (o *Files) AddTo(fs *pflag.FlagSet, what string) {
	fs.StringSliceVarP(&o.Filenames, "filename", "f", nil, "file, directory, URL or - with the objects to "+what)
	fs.StringVarP(&o.Kustomize, "kustomize", "k", "", "kustomization directory with the objects to "+what)
	fs.BoolVarP(&o.Recursive, "recursive", "R", false, "read the directory of -f with its subdirectories")
	out.Group(fs, "Target", "filename", "kustomize", "recursive")
}

// Given reports that the flags name something.
func (o *Files) Given() bool { return len(o.Filenames) > 0 || o.Kustomize != "" }

// Infos reads the manifests. It asks no API server; an unreadable or unparsable file is
// a usage error.
func (o *Files) Infos(f *factory.Factory) ([]*resource.Info, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &resource.FilenameOptions{Filenames: o.Filenames, Kustomize: o.Kustomize, Recursive: o.Recursive}).
		Flatten().Do().Infos()
	if err != nil {
		return nil, out.Usage(err)
	}
	if len(infos) == 0 {
		return nil, out.Usagef("the given files hold no object")
	}
	return infos, nil
}

// Names reads the arguments and files of one command line. Nothing is asked from the
// server; every error is a usage error.
func Names(f *factory.Factory, verb target.Verb, args []string, files *Files) ([]target.Name, error) {
	if files == nil || !files.Given() {
		names, err := target.Parse(verb, args)
		return names, asUsage(f, err)
	}
	if len(args) > 0 {
		return nil, out.Usagef("give objects either as arguments or with -f and -k, not both")
	}
	infos, err := files.Infos(f)
	if err != nil {
		return nil, err
	}
	var names []target.Name
	for _, info := range infos {
		gk := info.Object.GetObjectKind().GroupVersionKind().GroupKind()
		for _, k := range verb.Kinds {
			if k.GroupKind != gk {
				continue
			}
			ns, err := NamespaceOf(f, info.Name, info.Namespace)
			if err != nil {
				return nil, err
			}
			names = append(names, target.Name{Kinds: []*target.Kind{k}, Name: info.Name, Typed: target.Short(k, info.Name), Namespace: ns})
		}
	}
	if len(names) == 0 {
		return nil, out.Usagef("the given files hold no %s", target.List(verb.Kinds))
	}
	return names, nil
}

// NamespaceOf is where an object of a manifest goes: the namespace written in it. Another
// one on the command line is a usage error, as in kubectl.
func NamespaceOf(f *factory.Factory, name, written string) (string, error) {
	if written == "" || !f.NamespaceGiven() {
		return written, nil
	}
	ns, err := f.Namespace()
	if err != nil || ns == written {
		return written, err
	}
	return "", out.Usagef("the manifest puts %s into namespace %q, and -n says %q", name, written, ns)
}

// Resolve reads every named object from the server, in the order given. It stops at the
// first that cannot be read.
func Resolve(ctx context.Context, f *factory.Factory, verb target.Verb, names []target.Name) ([]target.Object, error) {
	c, err := f.Client()
	if err != nil {
		return nil, &out.Failure{Doing: Phrase(verb.Command) + " it", Cause: err}
	}
	ns, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	var objects []target.Object
	for _, n := range names {
		in := ns
		if n.Namespace != "" {
			in = n.Namespace
		}
		o, err := fetch.Object(ctx, c, verb, n, in)
		if err != nil {
			return nil, ResolveError(f, verb, n, in, err)
		}
		if o.Note != "" {
			f.Note("%s", o.Note)
		}
		if o.Kind.ClusterScoped && f.NamespaceGiven() {
			f.Note("%s has no namespace; -n is ignored", o.Kind.Word())
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// ResolveError gives an error of fetch.Object its three parts.
func ResolveError(f *factory.Factory, verb target.Verb, n target.Name, ns string, err error) error {
	var input *target.InputError
	if errors.As(err, &input) {
		return asUsage(f, err)
	}
	kind := n.Kinds[0]
	where := fmt.Sprintf("%s %s/%s", kind.Word(), ns, n.Name)
	if kind.ClusterScoped {
		where = kind.Word() + " " + n.Name
	}
	fail := &out.Failure{Doing: Phrase(verb.Command) + " " + where, Cause: err, Object: target.Short(kind, n.Name)}
	switch {
	case apierrors.IsNotFound(err) && len(n.Kinds) == 1:
		fail.Why, fail.Next = "not found", "kubectl get "+kind.Spelling()+" -n "+ns
		fail.Cause = fmt.Errorf("namespace %q has no %s named %q", ns, kind.Word(), n.Name)
		if kind.ClusterScoped {
			fail.Cause, fail.Next = fmt.Errorf("there is no %s named %q", kind.Word(), n.Name), "kubectl get "+kind.Spelling()
		}
		fail.Cause = &notFound{fail.Cause, err}
	case errors.As(err, new(*target.NotServedError)):
		fail.Next = f.Name() + " version"
	}
	return fail
}

// notFound has a text of ours and stays a NotFound for apierrors.
type notFound struct{ text, err error }

func (e *notFound) Error() string { return e.text.Error() }
func (e *notFound) Unwrap() error { return e.err }

// asUsage maps an error of package target to a usage error.
func asUsage(f *factory.Factory, err error) error {
	var input *target.InputError
	if !errors.As(err, &input) {
		return err
	}
	return out.UsageNext(Next(f, input.Next), input.Err)
}

// Workloads resolves and finds the row of each object.
func Workloads(ctx context.Context, f *factory.Factory, verb target.Verb, names []target.Name) ([]adapter.Workload, error) {
	objects, err := Resolve(ctx, f, verb, names)
	if err != nil {
		return nil, err
	}
	var list []adapter.Workload
	for _, o := range objects {
		w, err := adapter.Wrap(o)
		if err != nil {
			return nil, &out.Failure{Doing: Phrase(verb.Command) + " " + o.Title(), Cause: err, Object: o.Short()}
		}
		list = append(list, w)
	}
	return list, nil
}

// Write are the flags of every command that changes objects.
type Write struct {
	raw          string
	FieldManager string
	Force        bool
	Reason       string
}

// AddTo registers --dry-run, --field-manager, --force and --reason.
func (o *Write) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&o.raw, "dry-run", "none", "none, client (print, send nothing) or server (send with dryRun=All)")
	fs.Lookup("dry-run").NoOptDefVal = "unchanged"
	fs.StringVar(&o.FieldManager, "field-manager", factory.FieldManager, "name that owns the changed fields")
	fs.BoolVar(&o.Force, "force", false, "change it although its controller or a release in progress may revert it")
	out.Group(fs, "Safety", "dry-run", "field-manager", "force")
}

// AddReason registers --reason, for commands that make a revision.
func (o *Write) AddReason(fs *pflag.FlagSet) {
	fs.StringVar(&o.Reason, "reason", "", "why, stored as "+adapter.ChangeCauseAnnotation)
	out.Group(fs, "Change", "reason")
}

// Options checks the flags; under any dry run the transport refuses writes from here on.
func (o *Write) Options(f *factory.Factory) (apply.Options, error) {
	opts := apply.Options{DryRun: apply.DryRunNone, FieldManager: o.FieldManager}
	switch o.raw {
	case "none", "":
	case "unchanged":
		fmt.Fprintln(f.ErrOut, "warning: --dry-run without a value is deprecated; it means --dry-run=client")
		opts.DryRun = apply.DryRunClient
	case "client", "server":
		opts.DryRun = apply.DryRun(o.raw)
	default:
		return opts, out.Usagef("--dry-run is %q: use none, client or server", o.raw)
	}
	if opts.DryRun != apply.DryRunNone {
		f.DryRunOnly()
		return opts, nil
	}
	return opts, confirmContext(f)
}

// confirmContext asks for the name of a protected context (cli.md 1.3). Neither --yes nor
// --force stands for it.
func confirmContext(f *factory.Factory) error {
	if f.ProtectedContext == nil || !f.ProtectedContext(f.ContextName()) {
		return nil
	}
	refused := &out.Failure{
		Doing: "change anything in context " + f.ContextName(), Why: "it is protected by the configuration",
		Next: "repeat on a terminal and type the name of the context", Code: out.CodeConfirm,
	}
	if !f.Interactive() {
		return refused
	}
	fmt.Fprintf(f.ErrOut, "context %s is protected. Type its name to go on: ", f.ContextName())
	var typed string
	if _, err := fmt.Fscanln(f.In, &typed); err != nil || typed != f.ContextName() {
		return refused
	}
	return nil
}

// Guard prints who else writes to w, and refuses without --force where that is certain
// to revert the change.
func (o *Write) Guard(f *factory.Factory, verb string, w target.Object, template bool) error {
	owners := adapter.Owners(w.Live, template)
	for _, n := range owners.Notes {
		f.Note("%s", n)
	}
	if owners.Refusal == "" || o.Force {
		return nil
	}
	next := "repeat with --force to change it all the same"
	if owners.Instead != "" {
		next = "change " + owners.Instead + " instead, or " + next
	}
	return &out.Failure{Doing: Phrase(verb) + " " + w.Title(), Cause: errors.New(owners.Refusal), Next: next, Object: w.Short()}
}

// Done writes the result of one object: the line "<resource>/<name> <sentence>", the name,
// or the object.
func Done(w io.Writer, f out.Format, o apply.Options, obj target.Object, sentence string) error {
	switch {
	case f.People():
		_, err := fmt.Fprintf(w, "%s %s%s\n", obj, sentence, o.DryRun.Suffix())
		return err
	case f.Name == "name":
		_, err := fmt.Fprintf(w, "%s%s\n", obj, "")
		return err
	}
	u := obj.Live.DeepCopy()
	u.SetManagedFields(nil)
	return f.Write(w, u.Object)
}

// List prints several objects as one document; one object is printed as itself.
func List(w io.Writer, f out.Format, objs []target.Object) error {
	if len(objs) == 1 {
		return Done(w, f, apply.Options{}, objs[0], "")
	}
	items := make([]any, len(objs))
	for i, o := range objs {
		u := o.Live.DeepCopy()
		u.SetManagedFields(nil)
		items[i] = u.Object
	}
	return f.Write(w, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// Client opens the client for verb, with an error in three parts.
func Client(f *factory.Factory, doing string) (client.WithWatch, error) {
	c, err := f.WatchClient()
	if err != nil {
		return nil, &out.Failure{Doing: doing, Cause: err}
	}
	return c, nil
}

// commands are the first words of this tool's commands that findings point to.
var commands = []string{"rollout ", "why ", "status", "image ", "set ", "inplace ", "scale ", "scaledown ", "container ", "probe ", "feature-gates "}

// Next puts the program's name in front of each line that is one of its commands;
// anything else is a sentence or another program's command and stays.
func Next(f *factory.Factory, next string) string {
	lines := strings.Split(next, "\n")
	for i, l := range lines {
		for _, c := range commands {
			if l == strings.TrimSpace(c) || strings.HasPrefix(l, c) && strings.HasSuffix(c, " ") {
				lines[i] = f.Name() + " " + l
			}
		}
	}
	return strings.Join(lines, "\n")
}

// phrases complete "cannot …" for commands whose words do not.
var phrases = map[string]string{
	"rollout status": "follow the rollout of", "rollout watch": "follow the rollout of", "rollout history": "list the revisions of",
	"rollout undo": "undo", "rollout pause": "pause", "rollout resume": "resume", "rollout restart": "restart",
	"rollout partition": "set the partition of", "partition": "set the partition of", "rollout preview": "preview",
	"set image": "set the image of", "set env": "set the variables of", "set resources": "set the resources of",
	"rollout canary": "make a canary of", "rollout promote": "promote", "rollout abort": "abort", "rollout retry": "retry", "rollout wait": "wait for",
	"scale": "scale", "scaledown": "scale down",
	"why": "explain", "inplace status": "explain", "image status": "show", "image wait": "wait for",
	"container restart": "restart containers of", "container list": "list requests of", "container wait": "wait for", "container cancel": "cancel",
	"image retry": "pull again for", "image cancel": "cancel", "image predownload": "pull the next images of",
}

// Phrase completes "cannot …" for a command.
func Phrase(command string) string {
	if p, ok := phrases[command]; ok {
		return p
	}
	return command
}

// Failure gives an error about one object its three parts; errors that have them stay.
func Failure(f *factory.Factory, verb string, o target.Object, err error, next string) error {
	var has *out.Failure
	if err == nil || errors.As(err, &has) || out.IsUsage(err) {
		return err
	}
	if errors.Is(err, apply.ErrNotStored) && next == "" {
		next = "why " + o.Short()
	}
	return &out.Failure{Doing: Phrase(verb) + " " + o.Title(), Cause: err, Next: Next(f, next), Object: o.Short()}
}

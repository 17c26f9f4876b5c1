// SPDX-License-Identifier: Apache-2.0

package set

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
)

// envOptions is one run of `set env`.
type envOptions struct {
	options
	containers string
	env        []string
	from       string
	prefix     string
	keys       []string
	list       bool
	resolve    bool
	overwrite  bool
}

func newEnv(f *factory.Factory) *cobra.Command {
	o := &envOptions{options: options{f: f, command: "set env"}}
	cmd := &cobra.Command{
		Use:   "env TYPE/NAME... (NAME=VALUE | NAME- | - | --from SOURCE | --list)",
		Short: "Change or list environment variables of containers",
		Long: "Change or list environment variables of containers. NAME- removes a variable,\n" +
			"- reads NAME=VALUE lines from standard input.",
		Example: "  kruisectl set env cloneset/web MODE=fast OLD-\n" +
			"  kruisectl set env asts/db --from configmap/db --prefix DB_\n" +
			"  kruisectl set env ads/agent --list",
		ValidArgsFunction: object.Complete(f, adapter.Kinds()),
		Annotations: map[string]string{
			out.ExitCodes: waitCodes, out.SeeAlso: "kruisectl rollout preview, kruisectl set image",
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.set(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.containers, "containers", "c", "*", "containers to change; * stands for any text")
	fs.StringArrayVarP(&o.env, "env", "e", nil, "variable as NAME=VALUE (repeat)")
	fs.StringVar(&o.from, "from", "", "take the keys of configmap/NAME or secret/NAME as variables")
	fs.StringVar(&o.prefix, "prefix", "", "text before each name that comes from --from")
	fs.StringSliceVar(&o.keys, "keys", nil, "take only these keys of --from")
	fs.BoolVar(&o.list, "list", false, "print the variables and change nothing")
	fs.BoolVar(&o.resolve, "resolve", false, "with --list: print what references to configmaps and secrets hold")
	fs.BoolVar(&o.overwrite, "overwrite", true, "replace variables that have another value")
	out.Group(fs, "Change", "containers", "env", "from", "prefix", "keys", "overwrite")
	out.Group(fs, "Output", "list", "resolve")
	o.addTo(cmd)
	return cmd
}

// isWord reports NAME=VALUE, NAME- and -, which are no objects.
func isWord(arg string) bool {
	return strings.Contains(arg, "=") || strings.HasSuffix(arg, "-") && !strings.Contains(arg, "/")
}

func (o *envOptions) set(ctx context.Context, args []string) error {
	var objects, words []string
	for _, a := range args {
		switch {
		case a == "-":
			lines, err := o.lines()
			if err != nil {
				return err
			}
			words = append(words, lines...)
		case isWord(a):
			words = append(words, a)
		default:
			objects = append(objects, a)
		}
	}
	words = append(words, o.env...)
	if o.list {
		if len(words) > 0 || o.from != "" {
			return out.Usagef("--list changes nothing: leave out the variables and --from")
		}
		return o.print(ctx, objects)
	}
	if o.resolve {
		return out.Usagef("--resolve belongs to --list")
	}
	if len(words) == 0 && o.from == "" {
		return out.UsageNext(o.f.Name()+" set env cloneset/NAME NAME=VALUE", errors.New("name at least one NAME=VALUE or NAME-, or give --from or --list"))
	}
	e := apply.Env{Containers: o.containers, KeepExisting: !o.overwrite, Reason: o.write.Reason}
	var err error
	if e.Set, e.Remove, err = apply.ParseEnv(words); err != nil {
		return out.Usage(err)
	}
	if o.from != "" {
		more, err := o.references(ctx)
		if err != nil {
			return err
		}
		e.Set = append(e.Set, more...)
	} else if o.prefix != "" || len(o.keys) > 0 {
		return out.Usagef("--prefix and --keys belong to --from")
	}
	if slices.ContainsFunc(e.Set, func(v corev1.EnvVar) bool { return v.Name == apply.PriorityVariable }) || slices.Contains(e.Remove, apply.PriorityVariable) {
		o.f.Note("%s changes the order in which containers start", apply.PriorityVariable)
	}
	return o.run(ctx, objects, edit{change: e.Change, done: "env updated"})
}

func (o *envOptions) lines() ([]string, error) {
	var list []string
	s := bufio.NewScanner(o.f.In)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list, s.Err()
}

// source is a ConfigMap or Secret on the command line.
func (o *envOptions) source() (kind, name string, err error) {
	typ, name, _ := strings.Cut(o.from, "/")
	switch strings.ToLower(typ) {
	case "configmap", "configmaps", "cm":
		kind = "configmap"
	case "secret", "secrets":
		kind = "secret"
	}
	if kind == "" || name == "" {
		return "", "", out.Usagef("--from %q is neither configmap/NAME nor secret/NAME", o.from)
	}
	return kind, name, nil
}

// references are the variables that --from asks for, by key.
func (o *envOptions) references(ctx context.Context) ([]corev1.EnvVar, error) {
	kind, name, err := o.source()
	if err != nil {
		return nil, err
	}
	if o.local {
		return nil, out.Usagef("--from reads the keys of %s from the server; --local asks none", o.from)
	}
	c, err := o.f.Client()
	if err != nil {
		return nil, &out.Failure{Doing: "read " + o.from, Cause: err}
	}
	ns, err := o.f.Namespace()
	if err != nil {
		return nil, err
	}
	values, err := data(ctx, c, kind, client.ObjectKey{Namespace: ns, Name: name})
	if err != nil {
		return nil, &out.Failure{Doing: "read " + o.from, Cause: err, Next: "kubectl get " + kind + " -n " + ns}
	}
	for _, k := range o.keys {
		if _, ok := values[k]; !ok {
			return nil, &out.Failure{Doing: "read " + o.from, Why: fmt.Sprintf("it has no key %q", k),
				Cause: fmt.Errorf("its keys are %s", strings.Join(slices.Sorted(maps.Keys(values)), ", "))}
		}
	}
	var list []corev1.EnvVar
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if len(o.keys) > 0 && !slices.Contains(o.keys, k) {
			continue
		}
		v := corev1.EnvVar{Name: o.prefix + variable(k), ValueFrom: &corev1.EnvVarSource{}}
		ref := corev1.LocalObjectReference{Name: name}
		if kind == "secret" {
			v.ValueFrom.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: ref, Key: k}
		} else {
			v.ValueFrom.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: ref, Key: k}
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, &out.Failure{Doing: "read " + o.from, Why: "it has no key"}
	}
	return list, nil
}

// variable turns a key into the name of a variable, as kubectl does.
func variable(key string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

// data reads what a ConfigMap or Secret holds.
func data(ctx context.Context, c client.Client, kind string, at client.ObjectKey) (map[string]string, error) {
	if kind == "configmap" {
		cm := &corev1.ConfigMap{}
		err := c.Get(ctx, at, cm)
		return cm.Data, err
	}
	s := &corev1.Secret{}
	if err := c.Get(ctx, at, s); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for k, v := range s.Data {
		values[k] = string(v)
	}
	return values, nil
}

// print lists the variables of each container, in the form of kubectl.
func (o *envOptions) print(ctx context.Context, objects []string) error {
	v := o.verb(false)
	names, err := object.Targets(ctx, o.f, v, objects, &o.files, &o.sel)
	if err != nil {
		return err
	}
	return object.Each(ctx, o.f, v, names, func(ctx context.Context, w adapter.Workload) error {
		list, err := apply.ListEnv(w, o.containers)
		if err != nil {
			return object.Failure(o.f, o.command, w.Object, err, "")
		}
		r := &resolver{ns: w.Live.GetNamespace(), seen: map[string]map[string]string{}}
		if o.resolve {
			if r.c, err = o.f.Client(); err != nil {
				return err
			}
		}
		for _, c := range list {
			fmt.Fprintf(o.f.Out, "# %s, container %s\n", w.Object, c.Container)
			for _, e := range c.Env {
				fmt.Fprintln(o.f.Out, r.line(ctx, e))
			}
		}
		return nil
	})
}

// resolver prints variables; with a client it looks up what references hold.
type resolver struct {
	c    client.Client
	ns   string
	seen map[string]map[string]string
}

func (r *resolver) line(ctx context.Context, e corev1.EnvVar) string {
	if e.ValueFrom == nil {
		return e.Name + "=" + e.Value
	}
	kind, name, key := "", "", ""
	switch from := e.ValueFrom; {
	case from.ConfigMapKeyRef != nil:
		kind, name, key = "configmap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key
	case from.SecretKeyRef != nil:
		kind, name, key = "secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key
	case from.FieldRef != nil:
		return fmt.Sprintf("# %s from field path %s", e.Name, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("# %s from resource %s", e.Name, from.ResourceFieldRef.Resource)
	default:
		return "# " + e.Name + " from an unknown source"
	}
	text := fmt.Sprintf("# %s from %s %s, key %s", e.Name, kind, name, key)
	if r.c == nil {
		return text
	}
	at := kind + "/" + name
	if _, ok := r.seen[at]; !ok {
		values, err := data(ctx, r.c, kind, client.ObjectKey{Namespace: r.ns, Name: name})
		if err != nil {
			return text + ": " + err.Error()
		}
		r.seen[at] = values
	}
	value, ok := r.seen[at][key]
	if !ok {
		return text + ": there is no such key"
	}
	return e.Name + "=" + value
}

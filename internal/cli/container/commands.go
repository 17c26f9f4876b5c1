// SPDX-License-Identifier: Apache-2.0

// Package container restarts containers in running Pods: the commands `kruisectl container …`
// and `kruisectl create containerrecreaterequest` (cli.md 8). What is decided comes from
// internal/restart.
package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/rollout/adapter"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// Commands returns the commands of this package for the root.
func Commands(f *factory.Factory) []*cobra.Command {
	cmd := &cobra.Command{
		Use:     "container",
		Aliases: []string{"containers", "crr"},
		Short:   "Restart containers in place, without deleting the pod",
		Example: "  kruisectl container restart web-x7k9w\n" +
			"  kruisectl container restart cloneset/web -c app --max-parallel 2\n" +
			"  kruisectl container list",
	}
	cmd.AddCommand(newRestart(f), newList(f), newWait(f), newCancel(f))
	return []*cobra.Command{cmd}
}

// requestKinds is the kind of a request.
var requestKinds = []*target.Kind{target.ContainerRecreateRequest}

// podKinds are what has containers to restart.
func podKinds() []*target.Kind {
	kinds := append([]*target.Kind{target.Pod}, adapter.Kinds()...)
	for _, word := range []string{"deployments.apps", "statefulsets.apps", "daemonsets.apps", "replicasets.apps"} {
		kinds = append(kinds, target.Lookup(word)...)
	}
	return kinds
}

// asPod reads a bare word as the name of a Pod.
func asPod(args []string) []string {
	if len(args) > 1 && !strings.Contains(args[0], "/") && len(target.Lookup(args[0])) > 0 {
		return args // TYPE NAME
	}
	args = slices.Clone(args)
	for i, a := range args {
		if a != "" && !strings.Contains(a, "/") {
			args[i] = "pod/" + a
		}
	}
	return args
}

// resolveRequests reads the requests that the arguments name; a bare word is a request here.
func resolveRequests(ctx context.Context, f *factory.Factory, command string, args []string) ([]target.Object, error) {
	v := target.Verb{Command: command, Kinds: requestKinds}
	if len(args) == 0 {
		return nil, out.UsageNext(f.Name()+" "+command+" NAME", errors.New("name at least one request"))
	}
	var objects []target.Object
	for _, a := range args {
		names := []target.Name{{Kinds: requestKinds, Name: a, Typed: target.Short(target.ContainerRecreateRequest, a)}}
		if strings.Contains(a, "/") {
			var err error
			if names, err = object.Names(f, v, []string{a}, nil); err != nil {
				return nil, err
			}
		}
		found, err := object.Resolve(ctx, f, v, names)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// completePods offers Pods by name and workloads as TYPE/NAME.
func completePods(f *factory.Factory) cobra.CompletionFunc {
	typed := object.Complete(f, podKinds())
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		words, directive := typed(cmd, args, word)
		if !strings.Contains(word, "/") {
			words = append(object.ListNames(cmd.Context(), f, []*target.Kind{target.Pod}, ""), words...)
		}
		return words, directive
	}
}

// completeRequests offers the names of requests.
func completeRequests(f *factory.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return object.ListNames(cmd.Context(), f, requestKinds, ""), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainers offers the containers of the Pod or template that is named.
func completeContainers(f *factory.Factory, argument func(args []string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		quiet := cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := object.CompletionContext(cmd)
		defer cancel()
		v := target.Verb{Command: "container restart", Kinds: podKinds()}
		names, err := object.Names(f, v, asPod(argument(args)), nil)
		if err != nil || len(names) == 0 {
			return nil, quiet
		}
		c, ns, err := open(f, "complete")
		if err != nil {
			return nil, quiet
		}
		o, err := fetch.Object(ctx, c, v, names[0], ns)
		if err != nil {
			return nil, quiet
		}
		pods, err := podsOf(ctx, c, o)
		if err != nil || len(pods) == 0 {
			return nil, quiet
		}
		var words []string
		for _, ct := range pods[0].Spec.Containers {
			words = append(words, fmt.Sprintf("%s\t%s", ct.Name, ct.Image))
		}
		return words, quiet
	}
}

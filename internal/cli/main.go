// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// Main runs the program for argv and returns its exit code. argv[0] chooses the name
// it answers to (cli.md 1.1).
func Main(ctx context.Context, argv []string, streams genericiooptions.IOStreams) int {
	// Without this, controller-runtime complains on stderr after half a minute.
	ctrllog.SetLogger(logr.Discard())
	name, args := program(argv)
	f := factory.New(name, streams)
	return Execute(ctx, f, args)
}

// program maps argv[0] to the name printed in hints, and adds __complete for kubectl's
// completion of plugins.
func program(argv []string) (name string, args []string) {
	name = "kruisectl"
	if len(argv) == 0 {
		return name, nil
	}
	base := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	args = argv[1:]
	switch {
	case base == "kubectl_complete-kruise":
		return "kubectl kruise", append([]string{"__complete"}, args...)
	case strings.HasPrefix(base, "kubectl-kruise"):
		return "kubectl kruise", args
	}
	return name, args
}

// Execute runs one command line with f and prints its error, if any.
func Execute(ctx context.Context, f *factory.Factory, args []string) (code int) {
	defer func() {
		if p := recover(); p != nil {
			code = internalError(f, args, p)
		}
	}()
	cfg, err := loadConfig(f.Getenv)
	if err != nil {
		cfg = &config{}
	}
	root := newRoot(f, cfg) //nolint:contextcheck // commands take their context when they run
	cmd := root
	if err == nil {
		args, err = cfg.expand(root, args)
	}
	if err == nil {
		root.SetArgs(args)
		cmd, err = root.ExecuteContextC(ctx)
	} else {
		err = out.Usage(err)
	}
	if err == nil {
		if f.Global.WarningsAsErrors && f.Global.Warned() {
			return out.CodeError
		}
		return out.CodeOK
	}
	err = asUsage(cmd, err)
	err = withEndpoints(context.WithoutCancel(ctx), f, err)
	if errors.Is(err, factory.ErrNoCluster) {
		err = noCluster(f, err)
	}
	printError(f, cmd, err)
	return compatible(f, out.ExitCode(err))
}

// asUsage marks the errors that cobra makes by itself.
func asUsage(cmd *cobra.Command, err error) error {
	if out.IsUsage(err) {
		return err
	}
	text := err.Error()
	for _, p := range []string{"unknown command", "required flag(s)", "accepts ", "requires at least", "if any flags in the group", "at least one of the flags"} {
		if strings.HasPrefix(text, p) {
			return out.UsageNext(cmd.CommandPath()+" --help", err)
		}
	}
	return err
}

func printError(f *factory.Factory, cmd *cobra.Command, err error) {
	if raw := outputFlag(cmd); raw != "" {
		if format, perr := out.ParseFormat(raw, []string{"json", "yaml", "jsonl"}); perr == nil && format.Machine() && !isSilent(err) {
			_ = out.PrintDocument(f.Out, format, f.Name(), err)
		}
	}
	out.Print(f.ErrOut, f.ErrStyle(), f.Name(), err)
}

func isSilent(err error) bool { return err.Error() == fmt.Sprintf("exit code %d", out.ExitCode(err)) }

func outputFlag(cmd *cobra.Command) string {
	if cmd == nil {
		return ""
	}
	if fl := cmd.Flags().Lookup("output"); fl != nil {
		return fl.Value.String()
	}
	return ""
}

// noCluster gives the missing kubeconfig its three parts.
func noCluster(f *factory.Factory, err error) error {
	var fail *out.Failure
	doing := "reach a cluster"
	if errors.As(err, &fail) {
		doing = fail.Doing
	}
	cause := strings.TrimPrefix(innermost(err).Error(), factory.ErrNoCluster.Error()+": ")
	return &out.Failure{
		Doing: doing, Why: factory.ErrNoCluster.Error(), Cause: errors.New(cause),
		Next: f.Name() + " --kubeconfig FILE …   # or: export KUBECONFIG=FILE",
	}
}

// innermost returns the error that wraps factory.ErrNoCluster directly.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == factory.ErrNoCluster { //nolint:errorlint // the error itself is looked for, not one that wraps it
			return err
		}
		err = next
	}
}

// withEndpoints looks up how many endpoints stand behind a webhook that did not answer.
func withEndpoints(ctx context.Context, f *factory.Factory, err error) error {
	hook, ns, svc, ok := out.CalledWebhook(err)
	if !ok {
		return err
	}
	down := &out.WebhookDown{Webhook: hook, Namespace: ns, Service: svc, Endpoints: -1, Err: innermostText(err)}
	if c, cerr := f.Client(); cerr == nil {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var list discoveryv1.EndpointSliceList
		if c.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: svc}) == nil {
			down.Endpoints = readyEndpoints(list.Items)
		}
	}
	var fail *out.Failure
	if errors.As(err, &fail) {
		copied := *fail
		copied.Cause, copied.Next = down, ""
		return &copied
	}
	return down
}

func innermostText(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		if _, _, _, ok := out.CalledWebhook(next); !ok {
			return err
		}
		err = next
	}
}

func readyEndpoints(slices []discoveryv1.EndpointSlice) int {
	n := 0
	for _, s := range slices {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n
}

// internalError reports a panic without Go's own words, unless -v asks for a report.
func internalError(f *factory.Factory, args []string, p any) int {
	fmt.Fprintf(f.ErrOut, "error: internal error\n  cause: %v\n  next:  report this with the command line: %s %s\n", p, f.Name(), masked(args))
	if f.Global.Verbosity >= 1 {
		if file, err := os.CreateTemp("", "kruisectl-report-*.txt"); err == nil {
			fmt.Fprintf(file, "%s %s\n%v\n%s", f.Name(), masked(args), p, debug.Stack())
			_ = file.Close()
			fmt.Fprintf(f.ErrOut, "         report written to %s\n", file.Name())
		}
	}
	return out.CodeError
}

// masked hides the values of flags that carry secrets.
func masked(args []string) string {
	shown := make([]string, len(args))
	hide := false
	for i, a := range args {
		switch name, _, has := strings.Cut(a, "="); {
		case hide:
			shown[i], hide = "***", false
		case name == "--token" && has:
			shown[i] = "--token=***"
		case name == "--token":
			shown[i], hide = a, true
		default:
			shown[i] = a
		}
	}
	return strings.Join(shown, " ")
}

// compatible maps the codes of this tool to those that old scripts know (cli.md 17.2).
func compatible(f *factory.Factory, code int) int {
	if f.Getenv("KRUISECTL_COMPAT") == "1" && code >= out.CodeFailed && code <= out.CodePartial {
		return out.CodeError
	}
	return code
}

// fromEnvironment sets each flag that was not given from KRUISECTL_<FLAG> (cli.md 1.3).
func fromEnvironment(cmd *cobra.Command, getenv func(string) string) error {
	var first error
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if fl.Changed || first != nil || fl.Name == "help" {
			return
		}
		key := "KRUISECTL_" + strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_"))
		v := getenv(key)
		if v == "" {
			return
		}
		if err := cmd.Flags().Set(fl.Name, v); err != nil {
			first = fmt.Errorf("environment variable %s: %w", key, err)
		}
	})
	return first
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if !fl.Hidden {
			names = append(names, fl.Name)
		}
	})
	cmd.InheritedFlags().VisitAll(func(fl *pflag.Flag) {
		if !fl.Hidden {
			names = append(names, fl.Name)
		}
	})
	return names
}

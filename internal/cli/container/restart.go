// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/restart"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// restartOptions is one run of `container restart`.
type restartOptions struct {
	f           *factory.Factory
	name        string
	selector    string
	maxParallel int
	keepGoing   bool
	resumeID    string
	wait        bool
	waitGiven   bool
	timeout     time.Duration
	request     requestFlags
	write       object.Write
	output      out.Output
}

const restartCodes = "with --wait: 3 a container failed, a deadline passed or the node agent did not answer · 4 --timeout passed · " +
	"6 the request was deleted · 8 several pods, of which some failed (--keep-going) · 9 not confirmed"

const forceUsage = "ask also where it hardly helps: restartPolicy Never, no node agent"

func newRestart(f *factory.Factory) *cobra.Command {
	o := &restartOptions{f: f}
	cmd := &cobra.Command{
		Use:   "restart (POD | TYPE/NAME | -l SELECTOR)",
		Short: "Restart containers of pods in place",
		Long: "Restart containers of pods in place: the node agent stops them and the kubelet\n" +
			"starts them again. The pod keeps its IP, volumes and node. Of a workload, or with\n" +
			"-l, --max-parallel pods are restarted at a time; the next one begins when one is\n" +
			"available again. On a terminal, and for several pods, the command waits.",
		Example: "  kruisectl container restart web-x7k9w -c app --wait\n" +
			"  kruisectl container restart cloneset/web -c app --max-parallel 2\n" +
			"  kruisectl container restart -l app=web --yes --keep-going\n" +
			"  kruisectl container restart web-x7k9w --dry-run=client -o yaml",
		ValidArgsFunction: completePods(f),
		Annotations:       map[string]string{out.ExitCodes: restartCodes, out.SeeAlso: "kruisectl container wait, kruisectl rollout restart"},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.waitGiven = cmd.Flags().Changed("wait")
			return o.run(cmd.Context(), args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.name, "name", "", "name of the request, for one pod")
	fs.StringVarP(&o.selector, "selector", "l", "", "labels of the pods")
	out.Group(fs, "Target", "name", "selector")
	o.request.AddTo(cmd)
	fs.IntVar(&o.maxParallel, "max-parallel", 1, "pods that are restarted at a time")
	fs.BoolVar(&o.keepGoing, "keep-going", false, "go on with other pods when one failed")
	fs.StringVar(&o.resumeID, "resume-id", "", "go on with an interrupted run: pods that it restarted are left out")
	out.Group(fs, "Change", "max-parallel", "keep-going", "resume-id")
	o.write.AddTo(fs)
	fs.Lookup("force").Usage = forceUsage
	fs.BoolVar(&o.wait, "wait", false, "wait for the containers to be back; default on a terminal")
	fs.DurationVar(&o.timeout, "timeout", 0, "longest wait; 0 is without limit")
	out.Group(fs, "Wait", "wait", "timeout")
	o.output.AddTo(fs, "wide", "name")
	_ = cmd.RegisterFlagCompletionFunc("containers", completeContainers(f, func(args []string) []string { return args }))
	return cmd
}

func (o *restartOptions) validate(args []string) error {
	switch {
	case len(args) == 0 && o.selector == "":
		return out.UsageNext(o.f.Name()+" container restart POD\n"+o.f.Name()+" container restart cloneset/NAME", errors.New("name a pod or a workload, or choose pods with -l"))
	case len(args) > 0 && o.selector != "":
		return out.Usagef("name objects or choose pods with -l, not both")
	case o.maxParallel < 1:
		return out.Usagef("--max-parallel %d: use 1 or more", o.maxParallel)
	case o.timeout < 0:
		return out.Usagef("--timeout %s is negative", o.timeout)
	}
	return nil
}

func (o *restartOptions) run(ctx context.Context, args []string) error {
	format, err := o.output.Format()
	if err != nil {
		return err
	}
	if err := o.validate(args); err != nil {
		return err
	}
	request, err := o.request.options()
	if err != nil {
		return err
	}
	opts, err := o.write.Options(o.f)
	if err != nil {
		return err
	}
	pods, minReady, many, err := o.pods(ctx, args, opts.DryRun != apply.DryRunNone)
	if err != nil || len(pods) == 0 {
		return err
	}
	if o.name != "" && len(pods) > 1 {
		return out.Usagef("--name goes with one pod; these are %d", len(pods))
	}
	c, _, err := open(o.f, "restart containers")
	if err != nil {
		return err
	}
	r := &run{f: o.f, c: c, ns: pods[0].Namespace, command: "container restart " + strings.Join(append(args, o.selected()...), " "), name: o.name,
		opts: opts, request: request, atOnce: o.maxParallel, keepGoing: o.keepGoing, minReady: minReady, back: many, format: format}
	return r.of(ctx, pods, many, o, format)
}

func (o *restartOptions) selected() []string {
	if o.selector == "" {
		return nil
	}
	return []string{"-l", o.selector}
}

// of checks the Pods, makes the requests and waits for them as the flags say.
func (r *run) of(ctx context.Context, pods []corev1.Pod, many bool, o *restartOptions, format out.Format) error {
	if err := r.check(ctx, pods, o.request.containers, o.write.Force, many); err != nil {
		return err
	}
	if many {
		id := o.resumeID
		if id == "" {
			id = rand.String(8)
		}
		r.request.Labels = map[string]string{restart.RestartIDLabel: id}
		if err := r.skipDone(ctx, o.resumeID); err != nil {
			return err
		}
	}
	dry := r.opts.DryRun != apply.DryRunNone
	if dry {
		return r.dry(ctx, format)
	}
	wait := o.wait || !o.waitGiven && (many || o.f.OutTerminal().TTY)
	r.quiet = wait && !format.People() || many && format.Machine()
	if !wait {
		step, err := r.start(ctx)
		if err != nil {
			return err
		}
		if left := len(r.jobs) - len(step.Start); left > 0 && many {
			o.f.Note("only the first %s asked for (--wait=false), %d left: %s", out.Plural(len(step.Start), "pod"), left, r.resume())
		}
		if many && format.Machine() {
			return r.documents(format)
		}
		return nil
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	return r.finish(r.drive(ctx), format)
}

// dry prints the requests that would be made, all of them.
func (r *run) dry(ctx context.Context, format out.Format) error {
	r.quiet = len(r.jobs) > 1 && format.Machine()
	for _, j := range r.jobs {
		if j.stage == restart.Skipped {
			continue
		}
		if err := r.create(ctx, j); err != nil {
			return err
		}
	}
	if r.quiet {
		return r.documents(format)
	}
	return nil
}

// pods are those of the arguments or of -l. many: they are restarted in a run, however many
// there are.
func (o *restartOptions) pods(ctx context.Context, args []string, dry bool) (pods []corev1.Pod, minReady time.Duration, many bool, err error) {
	c, ns, err := open(o.f, "restart containers")
	if err != nil {
		return nil, 0, false, err
	}
	v := target.Verb{Command: "container restart", Kinds: podKinds(), Mutates: true}
	if o.selector != "" {
		sel, err := labels.Parse(o.selector)
		if err != nil {
			return nil, 0, false, out.Usage(fmt.Errorf("-l %q: %w", o.selector, err))
		}
		if pods, err = podsWith(ctx, c, ns, sel); err != nil {
			return nil, 0, false, &out.Failure{Doing: "restart containers", Cause: err}
		}
		if len(pods) == 0 {
			fmt.Fprintln(o.f.ErrOut, "No resources found")
			return nil, 0, false, nil
		}
		return pods, 0, true, confirm(ctx, o.f, pods, dry)
	}
	names, err := object.Names(o.f, v, asPod(args), nil)
	if err != nil {
		return nil, 0, false, err
	}
	objects, err := object.Resolve(ctx, o.f, v, names)
	if err != nil {
		return nil, 0, false, err
	}
	for _, obj := range objects {
		found, err := podsOf(ctx, c, obj)
		if err != nil {
			return nil, 0, false, object.Failure(o.f, "container restart", obj, err, "")
		}
		if len(found) == 0 {
			o.f.Note("%s has no pods", obj.Short())
		}
		pods = append(pods, found...)
		many = many || obj.Kind != target.Pod
		minReady = max(minReady, minReadyOf(obj))
	}
	return pods, minReady, many || len(objects) > 1, nil
}

func minReadyOf(o target.Object) time.Duration {
	spec, ok := o.Live.Object["spec"].(map[string]any)
	if !ok {
		return 0
	}
	n, _ := spec["minReadySeconds"].(int64)
	return time.Duration(n) * time.Second
}

// confirm shows the Pods that a selector chose and asks.
func confirm(ctx context.Context, f *factory.Factory, pods []corev1.Pod, dry bool) error {
	if dry {
		return nil
	}
	for i, p := range pods {
		if i == 20 {
			fmt.Fprintf(f.ErrOut, "  and %d more\n", len(pods)-20)
			break
		}
		fmt.Fprintf(f.ErrOut, "  %s/pod/%s\n", p.Namespace, p.Name)
	}
	return f.Confirm(ctx, "restart their containers", fmt.Sprintf("restart containers of %s%s?", out.Plural(len(pods), "pod"), f.ContextWords()))
}

// check turns Pods into jobs. One Pod that cannot be restarted is an error; of many it is
// left out and said.
func (r *run) check(ctx context.Context, pods []corev1.Pod, asked []string, force, many bool) error {
	agents := nodeAgents(ctx, r.c)
	others, _ := fetch.List[v1beta1.ContainerRecreateRequest](ctx, r.c, target.ContainerRecreateRequest, client.InNamespace(r.ns))
	for i := range pods {
		p := &pods[i]
		names, err := restart.Choose(p, asked)
		if errors.Is(err, restart.ErrDuplicate) {
			return out.Usage(err)
		}
		if cannot := restart.Restartable(p, force); cannot != nil {
			err = cannot
		}
		if err == nil && agents != nil && !agents[p.Spec.NodeName] && !force {
			err = fmt.Errorf("node %s has no node agent, so nobody would restart them (--force asks all the same)", p.Spec.NodeName)
		}
		if err != nil {
			if !many {
				return &out.Failure{Doing: "restart containers of pod " + p.Namespace + "/" + p.Name, Cause: err, Next: r.f.Name() + " why pod/" + p.Name, Object: "pod/" + p.Name}
			}
			r.f.Note("pod %s is left out: %s", p.Name, err)
			continue
		}
		if active := restart.Active(p, others); len(active) > 0 {
			r.f.Note("pod %s has a request under way, this one waits for it: %s", p.Name, enumerate.Some(active, 3))
		}
		r.jobs = append(r.jobs, &job{pod: *p, containers: names, stage: restart.Todo})
	}
	if len(r.jobs) == 0 {
		return &out.Failure{Doing: "restart containers", Cause: errors.New("no pod can be restarted")}
	}
	return nil
}

// nodeAgents are the nodes with a node agent; nil when that is not known.
func nodeAgents(ctx context.Context, c client.Client) map[string]bool {
	agents, err := fetch.NodeAgents(ctx, c)
	if err != nil || len(agents) == 0 {
		return nil
	}
	nodes := map[string]bool{}
	for _, p := range agents {
		nodes[p.Spec.NodeName] = true
	}
	return nodes
}

// skipDone marks the Pods that the run of id restarted already.
func (r *run) skipDone(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	requests, err := fetch.List[v1beta1.ContainerRecreateRequest](ctx, r.c, target.ContainerRecreateRequest, client.InNamespace(r.ns), client.MatchingLabels{restart.RestartIDLabel: id})
	if err != nil {
		return &out.Failure{Doing: "read the run " + id, Cause: err}
	}
	if len(requests) == 0 {
		return &out.Failure{Doing: "go on with the run " + id, Cause: errors.New("none of its requests is there any more: it may be too old"), Next: "repeat without --resume-id to begin anew"}
	}
	for _, j := range r.jobs {
		for i := range requests {
			c := &requests[i]
			if c.Spec.PodName != j.pod.Name || c.Labels[v1beta1.RecreatePodUIDLabel] != string(j.pod.UID) {
				continue
			}
			switch st := restart.Of(c, &j.pod); st.Verdict {
			case restart.Succeeded:
				j.stage, j.request, j.seen = restart.Skipped, "", nil
			case restart.Running:
				j.stage, j.request, j.uid = restart.Working, c.Name, string(c.UID)
			}
		}
	}
	return nil
}

// Rollout restarts the containers of all Pods of a workload, for `rollout restart
// --method=containers`.
func Rollout(ctx context.Context, f *factory.Factory, o target.Object, names []string, atOnce int, opts apply.Options, wait, waitGiven bool, timeout time.Duration, format out.Format) error {
	c, _, err := open(f, "restart containers")
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, c, o)
	if err != nil || len(pods) == 0 {
		if err == nil {
			f.Note("%s has no pods", o.Short())
		}
		return err
	}
	flags := defaultFlags()
	flags.containers = names
	request, err := flags.options()
	if err != nil {
		return err
	}
	ro := &restartOptions{f: f, request: flags, wait: wait, waitGiven: waitGiven, timeout: timeout}
	r := &run{f: f, c: c, ns: o.Live.GetNamespace(), command: "container restart " + o.Short(), opts: opts, request: request, atOnce: atOnce, minReady: minReadyOf(o), back: true, format: format}
	return r.of(ctx, pods, true, ro, format)
}

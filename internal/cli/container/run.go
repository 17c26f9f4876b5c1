// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/object"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/enumerate"
	"github.com/kruisectl/kruisectl/internal/restart"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
	"github.com/kruisectl/kruisectl/internal/rollout/diagnose"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/follow"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// errTimeout is the cancellation cause of --timeout.
var errTimeout = errors.New("--timeout passed")

// job is one Pod of a run with its request.
type job struct {
	pod        corev1.Pod
	containers []string
	// request is set once it exists; uid pins it.
	request string
	uid     string
	seen    *restart.Status
	stage   restart.Stage
	// gone: the request was deleted before it ended.
	gone bool
}

// run restarts containers of Pods in one namespace, so many at once.
type run struct {
	f         *factory.Factory
	c         client.WithWatch
	ns        string
	command   string
	name      string // of the only request; "" makes one up
	opts      apply.Options
	request   restart.Options
	atOnce    int
	keepGoing bool
	minReady  time.Duration
	jobs      []*job
	// quiet: a machine reads stdout.
	quiet bool
	// format prints each request that is made.
	format out.Format
	// back: a Pod counts only when it is available again.
	back bool
}

// create makes the request of one Pod.
func (r *run) create(ctx context.Context, j *job) error {
	name := r.name
	if name == "" {
		name = j.pod.Name[:min(len(j.pod.Name), 239)] + "-restart-" + rand.String(5)
	}
	doing := "restart containers of pod " + r.ns + "/" + j.pod.Name
	m, err := fetch.Version(r.c.RESTMapper(), target.ContainerRecreateRequest)
	if err != nil {
		return &out.Failure{Doing: doing, Cause: err, Next: r.f.Name() + " version"}
	}
	u, err := fetch.Encode(restart.Request(&j.pod, name, j.containers, r.request), m.GroupVersionKind)
	if err != nil {
		return err
	}
	co := []client.CreateOption{client.FieldOwner(r.opts.FieldManager)}
	switch r.opts.DryRun {
	case apply.DryRunServer:
		co = append(co, client.DryRunAll)
		fallthrough
	case apply.DryRunNone:
		if err := r.c.Create(ctx, u, co...); err != nil {
			return refused(r.f, doing, j.pod.Name, err)
		}
	}
	j.request, j.uid, j.stage = name, string(u.GetUID()), restart.Working
	if r.quiet {
		return nil
	}
	return object.Done(r.f.Out, r.format, r.opts, target.Object{Kind: target.ContainerRecreateRequest, GVK: m.GroupVersionKind, Resource: m.Resource, Live: u}, "created")
}

// refused translates the webhook's answers.
func refused(f *factory.Factory, doing, pod string, err error) error {
	fail := &out.Failure{Doing: doing, Cause: err, Object: "pod/" + pod}
	switch {
	case strings.Contains(err.Error(), "feature-gate KruiseDaemon"):
		fail.Why, fail.Next = "feature gate KruiseDaemon is off", f.Name()+" feature-gates enable KruiseDaemon"
	case apierrors.IsAlreadyExists(err):
		fail.Why, fail.Next = "a request of this name exists", "repeat with another --name"
	}
	return fail
}

// start makes requests until as many are under way as are allowed; the rest waits for drive.
func (r *run) start(ctx context.Context) (restart.Step, error) {
	step := restart.Next(r.items(), r.atOnce, r.keepGoing)
	for _, p := range step.Start {
		i := slices.IndexFunc(r.jobs, func(j *job) bool { return j.pod.Name == p })
		if err := r.create(ctx, r.jobs[i]); err != nil {
			if !r.keepGoing || len(r.jobs) == 1 {
				return step, err
			}
			r.jobs[i].stage = restart.Lost
			out.Print(r.f.ErrOut, r.f.ErrStyle(), r.f.Name(), err)
		}
	}
	return step, nil
}

func (r *run) items() []restart.Item {
	var list []restart.Item
	for _, j := range r.jobs {
		list = append(list, restart.Item{Pod: j.pod.Name, Stage: j.stage})
	}
	return list
}

// drive goes on until every Pod is done, one was lost, or ctx ends.
func (r *run) drive(ctx context.Context) error {
	waker := follow.NewWaker(r.c, r.f.Clock)
	defer waker.Close()
	if m, err := fetch.Version(r.c.RESTMapper(), target.ContainerRecreateRequest); err == nil {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(m.GroupVersionKind)
		waker.Watch(ctx, l, client.InNamespace(r.ns))
	}
	waker.Watch(ctx, &corev1.PodList{}, client.InNamespace(r.ns))
	p := r.f.Progress(r.quiet, factory.Heartbeat)
	defer p.Finish()
	told := map[string]bool{}
	for {
		if err := waker.Wait(ctx, p.Beat); err != nil {
			return err
		}
		err := waker.Read(func() error { return r.look(ctx) })
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && follow.Refused(err):
			return &out.Failure{Doing: "follow the restart", Cause: err}
		case err != nil:
			waker.After(ctx, time.Second)
			continue
		}
		r.tell(p, told)
		step, err := r.start(ctx)
		if err != nil {
			return err
		}
		if step.Over {
			return nil
		}
		if len(step.Start) > 0 {
			waker.Signal() // what was made may have ended already
		}
		if r.minReady > 0 {
			waker.After(ctx, r.minReady)
		}
	}
}

// look reads all requests and Pods and moves the jobs.
func (r *run) look(ctx context.Context) error {
	requests, err := fetch.List[v1beta1.ContainerRecreateRequest](ctx, r.c, target.ContainerRecreateRequest, client.InNamespace(r.ns))
	if err != nil {
		return err
	}
	pods, err := fetch.List[corev1.Pod](ctx, r.c, target.Pod, client.InNamespace(r.ns))
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	for _, j := range r.jobs {
		if j.request == "" {
			continue
		}
		var pod *corev1.Pod
		if i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == j.pod.Name }); i >= 0 {
			pod = &pods[i]
		}
		i := slices.IndexFunc(requests, func(c v1beta1.ContainerRecreateRequest) bool { return c.Name == j.request })
		if i < 0 || j.uid != "" && string(requests[i].UID) != j.uid {
			r.vanished(j)
			continue
		}
		st := restart.Of(&requests[i], pod)
		j.seen = &st
		available := !r.back || pod == nil || diagnose.Available(pod, r.minReady, r.f.Clock.Now())
		j.stage = restart.StageOf(&st, available)
	}
	return nil
}

// vanished: a request that had ended counts as it was seen last.
func (r *run) vanished(j *job) {
	j.gone = true
	switch {
	case j.seen != nil && j.seen.Verdict == restart.Succeeded:
		j.stage = restart.Back
	default:
		j.stage = restart.Lost
	}
}

// tell shows the progress: the containers of one Pod, or the Pods of many.
func (r *run) tell(p *out.Progress, told map[string]bool) {
	if len(r.jobs) == 1 {
		if j := r.jobs[0]; j.seen != nil {
			text := j.pod.Name + ": " + j.seen.Message
			if r.f.ErrTerminal().TTY {
				text += blockOf(*j.seen)
			}
			p.Update(text)
		}
		return
	}
	counts := map[restart.Stage]int{}
	var working []string
	for _, j := range r.jobs {
		counts[j.stage]++
		if j.stage == restart.Working {
			working = append(working, j.pod.Name)
		}
		if ended(j) && !told[j.pod.Name] {
			told[j.pod.Name] = true
			p.Note(j.pod.Name + ": " + endOf(j))
		}
	}
	text := fmt.Sprintf("%d of %d pods restarted", counts[restart.Back], len(r.jobs))
	if len(working) > 0 {
		text += ", working on " + enumerate.Some(working, 5)
	}
	p.Update(text)
}

// blockOf are the containers of a request, a line each, for a terminal.
func blockOf(st restart.Status) string {
	var b strings.Builder
	for _, r := range st.Rows {
		fmt.Fprintf(&b, "\n  %-20s %-10s", r.Container, r.Phase)
		if r.Killed {
			b.WriteString("  killed")
		}
		if r.New != "" {
			fmt.Fprintf(&b, "  %s -> %s", r.Old, r.New)
		}
		if r.Message != "" {
			b.WriteString("  " + r.Message)
		}
	}
	return b.String()
}

func ended(j *job) bool {
	return j.stage == restart.Back || j.stage == restart.Lost || j.stage == restart.Skipped
}

func endOf(j *job) string {
	switch {
	case j.gone:
		return "the request was deleted before it ended"
	case j.seen != nil:
		return j.seen.Message
	case j.stage == restart.Skipped:
		return "was restarted by the run before"
	case j.request == "":
		return "not begun"
	}
	return "not seen yet"
}

// code is the exit code of one job.
func (j *job) code() int {
	switch {
	case j.gone && j.stage != restart.Back:
		return out.CodeGone
	case j.stage == restart.Back, j.stage == restart.Skipped:
		return out.CodeOK
	case j.stage == restart.Working:
		return out.CodeTimeout
	}
	return out.CodeFailed
}

// finish prints how it ended and returns the exit code as an error. driven is what drive
// returned.
func (r *run) finish(driven error, format out.Format) error {
	var sig *out.Signal
	switch {
	case driven == nil, errors.Is(driven, errTimeout):
	case errors.As(driven, &sig):
		return &out.Failure{Doing: "go on waiting", Cause: driven, Code: sig.Code, Next: r.resume()}
	default:
		return driven
	}
	if err := r.print(format); err != nil {
		return err
	}
	var codes []int
	left := 0
	for _, j := range r.jobs {
		if j.stage == restart.Todo {
			left++
			continue
		}
		codes = append(codes, j.code())
	}
	code := out.Worst(codes)
	switch {
	case len(r.jobs) > 1 && code == out.CodePartial && !r.keepGoing:
		code = out.CodeFailed // it stopped
	case errors.Is(driven, errTimeout):
		code = out.CodeTimeout
	}
	if left > 0 {
		fmt.Fprintf(r.f.ErrOut, "  %s not restarted\n  next: %s\n", out.Plural(left, "pod"), r.resume())
	}
	return out.Silent(code)
}

// resume is the command that goes on.
func (r *run) resume() string {
	if id := r.request.Labels[restart.RestartIDLabel]; id != "" {
		return r.f.Name() + " " + r.command + " --resume-id " + id
	}
	if len(r.jobs) > 0 && r.jobs[0].request != "" {
		return r.f.Name() + " container wait " + r.jobs[0].request + "   # the restart itself goes on"
	}
	return ""
}

// print writes the results: rows of one request, a line for each of many, or one document.
func (r *run) print(format out.Format) error {
	switch {
	case format.Name == "name":
		if r.quiet {
			for _, j := range r.jobs {
				fmt.Fprintf(r.f.Out, "%s/%s\n", target.ContainerRecreateRequest.Resource(), j.request)
			}
		}
		return nil
	case !format.People():
		return r.documents(format)
	}
	style := r.f.OutStyle()
	for _, j := range r.jobs {
		if j.request == "" && j.stage != restart.Skipped {
			continue
		}
		fmt.Fprintf(r.f.Out, "pod/%s %s: %s\n", j.pod.Name, style.Paint(stateOf(j), word(j)), endOf(j))
	}
	if len(r.jobs) != 1 || r.jobs[0].seen == nil {
		return nil
	}
	return rows(*r.jobs[0].seen, style, format.Name == "wide").Print(r.f.Out, style, format.Name == "wide")
}

func word(j *job) string {
	switch {
	case j.gone && j.stage != restart.Back:
		return "deleted"
	case j.stage == restart.Back:
		return "restarted"
	case j.stage == restart.Skipped:
		return "skipped"
	case j.stage == restart.Working:
		return "not finished"
	case j.seen != nil:
		return string(j.seen.Verdict)
	}
	return "failed"
}

func stateOf(j *job) out.State {
	switch j.stage {
	case restart.Back:
		return out.OK
	case restart.Working:
		return out.Progressing
	case restart.Skipped:
		return out.Unknown
	}
	return out.Failed
}

func rows(st restart.Status, style out.Style, _ bool) out.Table {
	t := out.Table{Columns: []out.Column{{Name: "CONTAINER"}, {Name: "PHASE"}, {Name: "KILLED", Drop: 4}, {Name: "OLD", Drop: 3}, {Name: "NEW", Drop: 3},
		{Name: "RESTARTS", Right: true, Drop: 2}, {Name: "READY", Wide: true}, {Name: "MESSAGE", Drop: 1}}}
	yes := map[bool]string{true: "yes", false: "no"}
	for _, r := range st.Rows {
		state := out.Progressing
		switch r.Phase {
		case v1beta1.RecreateSucceeded:
			state = out.OK
		case v1beta1.RecreateFailed:
			state = out.Failed
		case v1beta1.RecreatePending:
			state = out.Unknown
		}
		t.Rows = append(t.Rows, []string{r.Container, style.Paint(state, string(r.Phase)), yes[r.Killed], r.Old, r.New, fmt.Sprint(r.Restarts), yes[r.Ready], r.Message})
	}
	return t
}

// documents writes one RestartStatus, or a List of them.
func (r *run) documents(format out.Format) error {
	docs := make([]any, 0, len(r.jobs))
	for _, j := range r.jobs {
		doc := out.Envelope("RestartStatus", r.f.ContextName())
		doc["namespace"], doc["pod"], doc["request"] = r.ns, j.pod.Name, j.request
		doc["stage"], doc["message"], doc["exitCode"] = j.stage, endOf(j), 0
		doc["verdict"] = restart.Running
		if j.stage != restart.Todo {
			doc["exitCode"] = j.code()
		}
		list := []restart.Row{}
		if j.seen != nil {
			doc["verdict"], list = j.seen.Verdict, j.seen.Rows
		}
		doc["containers"] = list
		if id := r.request.Labels[restart.RestartIDLabel]; id != "" {
			doc["restartID"] = id
		}
		docs = append(docs, doc)
	}
	if len(docs) == 1 {
		return format.Write(r.f.Out, docs[0])
	}
	list := out.Envelope("List", "")
	list["items"] = docs
	return format.Write(r.f.Out, list)
}

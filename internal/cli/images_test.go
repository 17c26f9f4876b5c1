// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// imageJob is a job of namespace shop that pulls repo/web:2.
func imageJob(name string, status v1beta1.ImagePullJobStatus, change ...func(*v1beta1.ImagePullJob)) *v1beta1.ImagePullJob {
	j := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(t0.Add(-3 * time.Minute)),
	}}
	j.Spec.Image = "repo/web:2"
	j.Spec.Parallelism = new(intstr.FromInt32(2))
	v1beta1.SetDefaultsImagePullJob(j)
	j.Status = status
	if status.Desired > 0 {
		j.Status.StartTime = &metav1.Time{Time: t0.Add(-3 * time.Minute)}
	}
	for _, c := range change {
		c(j)
	}
	return j
}

func completed(s v1beta1.ImagePullJobStatus) v1beta1.ImagePullJobStatus {
	s.CompletionTime = &metav1.Time{Time: t0.Add(-time.Minute)}
	return s
}

// nodeImage is a node whose agent has what tasks say.
func nodeImage(name string, tasks ...func(*v1beta1.NodeImage)) *v1beta1.NodeImage {
	ni := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(t0.Add(-48 * time.Hour)), Labels: map[string]string{"zone": "a"}}}
	for _, t := range tasks {
		t(ni)
	}
	return ni
}

// given is the task of job pull-web for repo/web:2 on a node, with what the node says of it.
func given(phase v1beta1.ImagePullPhase, progress int32, message string) func(*v1beta1.NodeImage) {
	return func(ni *v1beta1.NodeImage) {
		started := &metav1.Time{Time: t0.Add(-2 * time.Minute)}
		ni.Spec.Images = map[string]v1beta1.ImageSpec{"repo/web": {Tags: []v1beta1.ImageTagSpec{{
			Tag: "2", CreatedAt: started, OwnerReferences: []corev1.ObjectReference{{UID: "uid-pull-web"}},
		}}}}
		if phase == "" {
			return
		}
		s := v1beta1.ImageTagStatus{Tag: "2", Phase: phase, Progress: progress, StartTime: started, Message: message}
		if phase == v1beta1.ImagePhaseSucceeded || phase == v1beta1.ImagePhaseFailed {
			s.CompletionTime = &metav1.Time{Time: t0.Add(-70 * time.Second)}
		}
		if phase == v1beta1.ImagePhaseSucceeded {
			s.ImageID = "sha256:77ab2c"
		}
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"repo/web": {Tags: []v1beta1.ImageTagStatus{s}}}
		ni.Status.Desired, ni.Status.Succeeded = 1, 1
	}
}

// underWay is a job for five nodes in every phase there is.
func underWay() []client.Object {
	return []client.Object{
		imageJob("pull-web", v1beta1.ImagePullJobStatus{Desired: 5, Active: 2, Succeeded: 1, Failed: 1, FailedNodes: []string{"node-1"}}),
		nodeImage("node-0", given(v1beta1.ImagePhaseSucceeded, 100, "")),
		nodeImage("node-1", given(v1beta1.ImagePhaseFailed, 0, "401 unauthorized")),
		nodeImage("node-2", given(v1beta1.ImagePhasePulling, 50, "")),
		nodeImage("node-3", given("", 0, "")),
		nodeImage("node-4"),
	}
}

func done(status v1beta1.ImagePullJobStatus) []client.Object {
	objects := underWay()
	objects[0] = imageJob("pull-web", completed(status))
	return objects
}

var (
	allGood = v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 3, Message: "job has completed"}
	oneBad  = v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 2, Failed: 1, FailedNodes: []string{"node-1"}, Message: "job has completed"}
	tooLate = v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 1, Failed: 2, FailedNodes: []string{"node-1", "node-2"}, Message: "job exceeds activeDeadlineSeconds"}
)

// listJob is a list of two images, with the jobs of both.
func listJob() []client.Object {
	l := &v1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pull-both", UID: "uid-both", CreationTimestamp: metav1.NewTime(t0.Add(-time.Hour))}}
	l.Spec.Images = []string{"repo/web:2", "repo/log:5"}
	l.Status = v1beta1.ImageListPullJobStatus{Desired: 2, Completed: 2, Succeeded: 1, StartTime: &metav1.Time{Time: t0.Add(-time.Hour)}, CompletionTime: &metav1.Time{Time: t0},
		FailedImageStatuses: []v1beta1.FailedImageStatus{{ImagePullJob: "pull-both-a", Name: "repo/web:2", Message: "see ImagePullJob pull-both-a"}}}
	child := func(name, image string, st v1beta1.ImagePullJobStatus) *v1beta1.ImagePullJob {
		return imageJob(name, completed(st), func(j *v1beta1.ImagePullJob) {
			j.Spec.Image = image
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "ImageListPullJob", Name: "pull-both", UID: "uid-both", Controller: new(true)}}
		})
	}
	return []client.Object{l, child("pull-both-a", "repo/web:2", oneBad), child("pull-both-b", "repo/log:5", allGood)}
}

func nodes(n int) []client.Object {
	var list []client.Object
	for i := range n {
		list = append(list, fixture.Node(fmt.Sprintf("node-%d", i)).With(func(n *corev1.Node) {
			if i == 1 {
				n.Status.Images = []corev1.ContainerImage{{Names: []string{"docker.io/repo/web:2", "docker.io/repo/web@sha256:77ab"}, SizeBytes: 187_000_000}}
			}
		}).Obj())
	}
	return list
}

func join(lists ...[]client.Object) []client.Object {
	var all []client.Object
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// pulledFor is shop web in the middle of a rollout whose image is pulled beforehand: node-0
// has it from its agent, node-2 failed.
func pulledFor(updated int) []client.Object {
	job := imageJob("web-next", v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 1, Active: 1, Failed: 1}, func(j *v1beta1.ImagePullJob) {
		j.Spec.Image = "repo/web:3"
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "uid-web", Controller: new(true)}}
	})
	at := func(name string, phase v1beta1.ImagePullPhase) *v1beta1.NodeImage {
		return nodeImage(name, func(ni *v1beta1.NodeImage) {
			ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"repo/web": {Tags: []v1beta1.ImageTagStatus{{Tag: "3", Phase: phase}}}}
		})
	}
	return join(newShop(updated).objects(), []client.Object{job, at("node-0", v1beta1.ImagePhaseSucceeded), at("node-1", v1beta1.ImagePhasePulling), at("node-2", v1beta1.ImagePhaseFailed)})
}

// Every case is one command line; its whole output is a golden file.
func TestImageCommands(t *testing.T) {
	shopNodes := join(newShop(10).objects(), []client.Object{nodeImage("node-0"), nodeImage("node-1"), nodeImage("node-2")}, nodes(4))
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"pull-dry-run-yaml":         {nil, "image pull repo/web:2 --node n1 --parallelism 3 --dry-run=client -o yaml"},
		"pull-every-flag":           {underWay(), "image pull repo/web:2 --node-selector zone=a,!old --parallelism 50% --pull-timeout 5m --backoff 1 --deadline 1h --ttl 1h --policy Always --pull-secret s1 --sandbox-label a=b --sandbox-annotation c=d --name j --dry-run=client -o json"},
		"pull-always-run":           {nil, "image pull repo/web:2 --always-run --dry-run=client -o jsonpath={.spec.completionPolicy}"},
		"pull-short-deadline":       {nil, "image pull repo/web:2 --deadline 5m --dry-run=client -o jsonpath={.spec}"},
		"pull":                      {nil, "image pull repo/web:2"},
		"pull-two":                  {nil, "image pull a:1 b:1"},
		"pull-two-separate":         {nil, "image pull a:1 b:1 --separate"},
		"pull-two-separate-json":    {nil, "image pull a:1 b:1 --separate -o json"},
		"pull-none":                 {nil, "image pull"},
		"pull-bad-image":            {nil, "image pull Web:2"},
		"pull-twice-the-same":       {nil, "image pull a:1 a:1"},
		"pull-exclusive":            {nil, "image pull repo/web:2 --node n --pod-selector a=b"},
		"pull-bad-selector":         {nil, "image pull repo/web:2 --node-selector a=b=c"},
		"pull-bad-parallelism":      {nil, "image pull repo/web:2 --parallelism half"},
		"pull-bad-policy":           {nil, "image pull repo/web:2 --policy Never"},
		"pull-other-spec":           {[]client.Object{imageJob("j", v1beta1.ImagePullJobStatus{Desired: 1, Active: 1})}, "image pull repo/web:3 --name j"},
		"pull-force":                {[]client.Object{imageJob("j", completed(allGood))}, "image pull repo/web:3 --name j --force"},
		"image-status":              {underWay(), "image status pull-web"},
		"image-status-wide":         {underWay(), "image status pull-web -o wide"},
		"image-status-json":         {underWay(), "image status pull-web -o json"},
		"image-status-name":         {underWay(), "image status ipj/pull-web -o name"},
		"image-status-failed-only":  {underWay(), "image status pull-web --failed-only --no-headers"},
		"image-status-deadline":     {done(tooLate), "image status pull-web"},
		"image-status-list":         {listJob(), "image status pull-both"},
		"image-status-list-json":    {listJob(), "image status ilpj/pull-both -o json"},
		"image-status-two":          {join(listJob(), done(allGood)), "image status pull-web pull-both -o yaml"},
		"image-status-unknown":      {nil, "image status none"},
		"image-status-none":         {nil, "image status"},
		"image-status-wrong-type":   {nil, "image status cloneset/web"},
		"image-status-watch-done":   {done(allGood), "image status pull-web -w"},
		"image-status-no-nodes":     {[]client.Object{imageJob("pull-web", completed(v1beta1.ImagePullJobStatus{}))}, "image status pull-web"},
		"image-status-not-begun":    {[]client.Object{imageJob("pull-web", v1beta1.ImagePullJobStatus{})}, "image status pull-web"},
		"image-wait":                {done(allGood), "image wait pull-web"},
		"image-wait-failed":         {done(oneBad), "image wait pull-web"},
		"image-wait-failed-json":    {done(oneBad), "image wait pull-web -o json"},
		"image-wait-enough":         {done(oneBad), "image wait pull-web --min-succeeded=60%"},
		"image-wait-enough-active":  {underWay(), "image wait pull-web --min-succeeded=1"},
		"image-wait-mixed":          {join(done(allGood), listJob()), "image wait pull-web pull-both"},
		"image-wait-bad-min":        {underWay(), "image wait pull-web --min-succeeded=most"},
		"image-list":                {join(underWay(), listJob()), "image list"},
		"image-list-active":         {join(underWay(), listJob()), "image list --active -o name"},
		"image-list-all":            {join(underWay(), listJob()), "image list -A -o wide"},
		"image-list-json":           {underWay()[:1], "image list -o json"},
		"image-list-empty":          {nil, "image list"},
		"image-list-argument":       {nil, "image list pull-web"},
		"image-nodes":               {join(underWay(), nodes(6)), "image nodes docker.io/repo/web:2"},
		"image-nodes-missing":       {join(underWay(), nodes(6)), "image nodes repo/web:2 --missing -o name"},
		"image-nodes-json":          {join(underWay()[:2], nodes(2)), "image nodes repo/web:2 -o json"},
		"image-nodes-all":           {join(underWay(), nodes(6)), "image nodes"},
		"image-nodes-bad":           {nil, "image nodes Web:2"},
		"image-nodes-missing-what":  {nil, "image nodes --missing"},
		"image-retry":               {done(oneBad), "image retry pull-web"},
		"image-retry-again":         {join(done(oneBad), []client.Object{imageJob("pull-web-retry-1", completed(oneBad))}), "image retry pull-web-retry-1"},
		"image-retry-none":          {done(allGood)[:1], "image retry pull-web"},
		"image-retry-list":          {listJob(), "image retry ilpj/pull-both"},
		"image-retry-yaml":          {done(oneBad), "image retry pull-web --dry-run=client -o yaml"},
		"image-cancel":              {done(allGood), "image cancel pull-web"},
		"image-cancel-active":       {underWay(), "image cancel pull-web"},
		"image-cancel-active-yes":   {underWay(), "image cancel pull-web --yes"},
		"image-cancel-dry-run":      {underWay(), "image cancel pull-web --dry-run=client"},
		"predownload":               {shopNodes, "image predownload clone/web --image app=repo/web:4"},
		"predownload-yaml":          {shopNodes, "image predownload clone/web --image app=repo/web:4 --dry-run=client -o yaml"},
		"predownload-eligible":      {shopNodes, "image predownload clone/web --image app=repo/web:4 --nodes=eligible --dry-run=client -o jsonpath={.spec.selector}"},
		"predownload-same":          {shopNodes, "image predownload clone/web --image app=repo/web:3"},
		"predownload-there":         {join(newShop(10).objects(), []client.Object{here("node-0"), here("node-1"), here("node-2")}), "image predownload clone/web --image app=repo/web:4 -o json"},
		"predownload-nothing":       {shopNodes, "image predownload clone/web"},
		"predownload-unknown":       {shopNodes, "image predownload clone/web --image nginx=repo/web:4"},
		"predownload-where":         {shopNodes, "image predownload clone/web --image app=repo/web:4 --nodes=some"},
		"predownload-no-pods":       {[]client.Object{newShop(10).set}, "image predownload clone/web --image app=repo/web:4"},
		"status-pulled":             {pulledFor(0), "rollout status clone/web --check"},
		"status-pulled-json":        {pulledFor(0), "rollout status clone/web --check -o json"},
		"status-pulled-wide":        {pulledFor(10), "rollout status clone/web -o wide"},
		"why-pull-job":              {join(underWay(), nodes(5), []client.Object{agent("node-2")}), "why ipj/pull-web"},
		"why-pull-job-json":         {done(tooLate), "why imagepulljob/pull-web -o json"},
		"why-pull-job-well":         {done(allGood)[:1], "why imagepulljob/pull-web --fail"},
		"why-request":               {[]client.Object{runningPod(), crr("r", v1beta1.RecreateRecreating, "", killed("a", v1beta1.RecreateRecreating)), crr("s", v1beta1.RecreatePending, "")}, "why crr/s"},
		"why-request-mute":          {[]client.Object{crr("r", v1beta1.RecreateCompleted, "daemon has not responded for a long time")}, "why crr/r --fail"},
		"set-image-predownload-dry": {shopNodes, "set image clone/web app=repo/web:4 --predownload --dry-run=server"},
		"set-image-min-alone":       {shopNodes, "set image clone/web app=repo/web:4 --min-succeeded 3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			r := w.run(strings.Fields(tc.args)...)
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+r.String())
			if (r.code == 1 || r.code == 2 || r.code == 9 || strings.Contains(tc.args, "--dry-run")) && len(r.writes) > 0 {
				t.Errorf("%s wrote %v", tc.args, r.writes)
			}
		})
	}
}

// here is a node that has repo/web:4.
func here(name string) *v1beta1.NodeImage {
	return nodeImage(name, func(ni *v1beta1.NodeImage) {
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"repo/web": {Tags: []v1beta1.ImageTagStatus{{Tag: "4", Phase: v1beta1.ImagePhaseSucceeded}}}}
	})
}

// Without the right to look at nodes the job itself still answers.
func TestImageStatusWithFewPermissions(t *testing.T) {
	w := newWorld(t, done(oneBad)...)
	w.deny["NodeImage"] = true
	r := w.run("image", "status", "pull-web")
	golden(t, "commands/image-status-hidden", r.String())
	w.deny["Node"] = true
	wants(1, "forbidden")(t, w.run("image", "nodes", "repo/web:2"))
}

// pullStep changes the job pull-web after some time.
func jobBecomes(name string, status v1beta1.ImagePullJobStatus) func(*testing.T, client.WithWatch) {
	return func(t *testing.T, c client.WithWatch) {
		j := &v1beta1.ImagePullJob{}
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: name}, j); err != nil {
			t.Error(err)
			return
		}
		j.Status = status
		if err := c.Status().Update(context.Background(), j); err != nil {
			t.Error(err)
		}
	}
}

func worldStory(t *testing.T, objects []client.Object, line string, check func(t *testing.T, w *world, r result), steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, objects...)
		w.clock = clock.RealClock{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for _, st := range steps {
				select {
				case <-ctx.Done():
					return
				case <-time.After(st.after):
				}
				st.do(t, w.client)
			}
		}()
		r := w.runCtx(ctx, strings.Fields(line)...)
		cancel()
		<-over
		check(t, w, r)
	})
}

func TestImageWaits(t *testing.T) {
	expect := func(code int, words ...string) func(*testing.T, *world, result) {
		return func(t *testing.T, _ *world, r result) { t.Helper(); wants(code, words...)(t, r) }
	}
	half := v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 1, Active: 1}
	t.Run("until the job has ended", func(t *testing.T) {
		worldStory(t, underWay(), "image wait pull-web --timeout 10m", expect(0, "pulled: 3 of 3 nodes succeeded", "1 of 3 nodes succeeded", "node-1: Failed in 50s: 401 unauthorized"),
			step{20 * time.Second, jobBecomes("pull-web", half)}, step{40 * time.Second, jobBecomes("pull-web", completed(allGood))})
	})
	t.Run("until enough nodes have it", func(t *testing.T) {
		worldStory(t, underWay(), "image wait pull-web --min-succeeded 60%", expect(0, "pulled on enough nodes"),
			step{20 * time.Second, jobBecomes("pull-web", half)}, step{time.Second, jobBecomes("pull-web", v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 2, Active: 1})})
	})
	t.Run("no longer than --timeout", func(t *testing.T) {
		worldStory(t, underWay(), "image wait pull-web --timeout 2m", expect(4, "not finished", "still waiting", "next: kruisectl why imagepulljob/pull-web"))
	})
	t.Run("a job that is removed after it has ended counts as it was", func(t *testing.T) {
		remove := func(t *testing.T, c client.WithWatch) {
			if err := c.Delete(context.Background(), imageJob("pull-web", half)); err != nil {
				t.Error(err)
			}
		}
		worldStory(t, underWay(), "image wait pull-web", expect(6, "deleted"), step{20 * time.Second, remove})
	})
	t.Run("a job of --always-run is done when its nodes are", func(t *testing.T) {
		forever := imageJob("pull-web", v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 2, Failed: 1}, func(j *v1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = v1beta1.Never })
		wants(3, "2 of 3 nodes succeeded, 1 failed")(t, newWorld(t, forever).run("image", "wait", "pull-web"))
	})
	t.Run("pull --wait", func(t *testing.T) {
		worldStory(t, underWay()[1:], "image pull repo/web:2 --name j --wait", expect(0, "imagepulljob.apps.kruise.io/j created", "imagepulljob.apps.kruise.io/j pulled: 3 of 3"),
			step{20 * time.Second, jobBecomes("j", completed(allGood))})
	})
	t.Run("pull --wait prints one document", func(t *testing.T) {
		worldStory(t, underWay()[1:], "image pull repo/web:2 --name j --wait -o json", func(t *testing.T, _ *world, r result) {
			wants(3, `"kind": "ImagePullStatus"`, `"verdict": "Failed"`)(t, r)
			if strings.Count(r.out, `"apiVersion": "cli.kruise.io/v1"`) != 1 || strings.Contains(r.out, `"kind": "ImagePullJob"`+"\n}") {
				t.Errorf("not one document:\n%s", r.out)
			}
		}, step{20 * time.Second, jobBecomes("j", completed(oneBad))})
	})
}

// The template changes after the pull, or not at all.
func TestPredownloadComesBeforeTheChange(t *testing.T) {
	objects := join(newShop(10).objects(), []client.Object{nodeImage("node-0"), nodeImage("node-1"), nodeImage("node-2")})
	onlyJob := func(status v1beta1.ImagePullJobStatus) func(*testing.T, client.WithWatch) {
		return func(t *testing.T, c client.WithWatch) {
			var jobs v1beta1.ImagePullJobList
			set := &v1beta1.CloneSet{}
			if err := c.List(context.Background(), &jobs); err != nil || len(jobs.Items) != 1 {
				t.Errorf("%d jobs, %v", len(jobs.Items), err)
				return
			}
			if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, set); err != nil || set.Spec.Template.Spec.Containers[0].Image != "repo/web:3" {
				t.Errorf("the template changed before the pull: %v %v", set.Spec.Template.Spec.Containers[0].Image, err)
			}
			jobBecomes(jobs.Items[0].Name, status)(t, c)
		}
	}
	for _, line := range []string{"set image clone/web app=repo/web:4 --predownload", "rollout canary clone/web 10% --image app=repo/web:4 --predownload"} {
		t.Run(line, func(t *testing.T) {
			worldStory(t, objects, line, func(t *testing.T, w *world, r result) {
				wants(0, "pulled: 3 of 3 nodes succeeded")(t, r)
				if len(r.writes) != 2 || !strings.HasPrefix(r.writes[0], "create pull-web-") || r.writes[1] != "patch web" {
					t.Errorf("wrote %v", r.writes)
				}
			}, step{20 * time.Second, onlyJob(completed(allGood))})
		})
		t.Run(line+" and nodes fail", func(t *testing.T) {
			worldStory(t, objects, line, func(t *testing.T, w *world, r result) {
				wants(3, "the workload was not changed", "image status pull-web-", "--min-succeeded")(t, r)
				if len(r.writes) != 1 {
					t.Errorf("wrote %v", r.writes)
				}
			}, step{20 * time.Second, onlyJob(completed(oneBad))})
		})
		t.Run(line+" --min-succeeded 2", func(t *testing.T) {
			worldStory(t, objects, line+" --min-succeeded 2", func(t *testing.T, w *world, r result) {
				wants(0, "pulled on enough nodes")(t, r)
			}, step{20 * time.Second, onlyJob(v1beta1.ImagePullJobStatus{Desired: 3, Succeeded: 2, Active: 1})})
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/recreate"
)

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-a", UID: "uid-a"}}
	p.Spec.NodeName = "node-1"
	p.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "log"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "mesh", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", ContainerID: "containerd://aaaaaaaa11111", Ready: true}, {Name: "log", ContainerID: "containerd://bbbbbbbb22222", Ready: true},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestRestartable(t *testing.T) {
	cases := map[string]struct {
		pod   *corev1.Pod
		force bool
		want  string
	}{
		"a running Pod is":                 {pod(), false, ""},
		"one being deleted is not":         {pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), true, "being deleted"},
		"one that has ended is not":        {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true, "has ended (Failed)"},
		"one without node is not":          {pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), true, "no node has it"},
		"one that is Pending is not":       {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), true, "have not started"},
		"one that never restarts is not":   {pod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), false, "would stay dead"},
		"one that never restarts by force": {pod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }), true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Restartable(tc.pod, tc.force)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Restartable() = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	hot := pod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{hotUpgradeAnnotation: `{"proxy":"proxy-2"}`}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy-1"}, corev1.Container{Name: "proxy-2"})
	})
	cases := map[string]struct {
		pod   *corev1.Pod
		asked []string
		want  string
	}{
		"without names all app containers":           {pod(), nil, "app log"},
		"the empty twin of a hot upgrade stays":      {hot, nil, "app log proxy-2"},
		"names keep their order":                     {pod(), []string{"log", "app"}, "log app"},
		"a sidecar among the init containers passes": {pod(), []string{"mesh"}, "mesh"},
		"an init container does not":                 {pod(), []string{"setup"}, "error: is an init container"},
		"nor an ephemeral one":                       {pod(), []string{"debug"}, "error: never restarts those"},
		"nor one that does not exist":                {pod(), []string{"zz"}, `error: no container is named "zz"; there are app, log`},
		"nor one twice":                              {pod(), []string{"app", "app"}, "error: named twice"},
		"nor one that has not started":               {pod(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), []string{"app"}, "error: has not started"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tc.pod, tc.asked)
			if want, bad := strings.CutPrefix(tc.want, "error: "); bad {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Choose() = %v, %v, want error %q", got, err, want)
				}
				return
			}
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Errorf("Choose() = %v, %v, want %s", got, err, tc.want)
			}
		})
	}
	if _, err := Choose(pod(), []string{"app", "app"}); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a duplicate cannot be told: %v", err)
	}
}

// Everything that is the webhook's is left out, and the rest is as asked.
func TestRequest(t *testing.T) {
	o := Options{FailurePolicy: v1beta1.RecreateFailurePolicyFail, UnreadyGrace: new(int64(3)), MinStarted: 3, Deadline: new(int64(300)), TTL: new(int32(1800))}
	got := Request(pod(), "r", []string{"log", "app"}, o)
	want := &v1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Spec: v1beta1.ContainerRecreateRequestSpec{
		PodName: "web-a", Containers: []v1beta1.RecreateContainer{{Name: "log"}, {Name: "app"}},
		Strategy:              &v1beta1.RecreateStrategy{FailurePolicy: "Fail", UnreadyGracePeriodSeconds: new(int64(3)), MinStartedSeconds: 3},
		ActiveDeadlineSeconds: new(int64(300)), TTLSecondsAfterFinished: new(int32(1800)),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Request() differs (-want +got):\n%s", diff)
	}
}

func request(phase v1beta1.RecreatePhase, message string, states ...v1beta1.RecreateState) *v1beta1.ContainerRecreateRequest {
	crr := Request(pod(), "r", []string{"app", "log"}, Options{})
	crr.Labels = map[string]string{v1beta1.RecreatePodUIDLabel: "uid-a"}
	for i, id := range []string{"containerd://aaaaaaaa11111", "containerd://bbbbbbbb22222"} {
		crr.Spec.Containers[i].StatusContext = &v1beta1.RecreateContainerContext{ContainerID: id}
	}
	crr.Status = v1beta1.ContainerRecreateRequestStatus{Phase: phase, Message: message, ContainerRecreateStates: states}
	return crr
}

func state(name string, phase v1beta1.RecreatePhase) v1beta1.RecreateState {
	return v1beta1.RecreateState{Name: name, Phase: phase, IsKilled: phase != v1beta1.RecreatePending}
}

func TestOf(t *testing.T) {
	good, bad, slow := state("app", v1beta1.RecreateSucceeded), state("app", v1beta1.RecreateFailed), state("app", v1beta1.RecreateRecreating)
	log := state("log", v1beta1.RecreateSucceeded)
	cases := map[string]struct {
		crr     *v1beta1.ContainerRecreateRequest
		want    Verdict
		message string
	}{
		"nobody has looked at it":                    {request("", ""), Running, "0 of 2 containers restarted, waits for the node agent"},
		"it stands in line":                          {request(v1beta1.RecreatePending, ""), Running, "waits for an earlier request"},
		"it is being done":                           {request(v1beta1.RecreateRecreating, "", good), Running, "1 of 2 containers restarted"},
		"all came back":                              {request(v1beta1.RecreateCompleted, "", good, log), Succeeded, "2 of 2 containers restarted"},
		"a container failed":                         {request(v1beta1.RecreateCompleted, "", bad), Failed, "container app failed"},
		"one failed and was ignored":                 {request(v1beta1.RecreateCompleted, "", bad, log), Failed, "1 of 2 containers restarted, container app failed"},
		"the deadline leaves the phases as they are": {request(v1beta1.RecreateCompleted, "recreating has exceeded the activeDeadlineSeconds", slow), DeadlineExceeded, "exceeded the activeDeadlineSeconds"},
		"the agent never answered":                   {request(v1beta1.RecreateCompleted, recreate.MessageNoAnswer), NoAnswer, "did not answer"},
		"the Pod went":                               {request(v1beta1.RecreateCompleted, recreate.MessagePodGone), PodGone, "deleted or replaced"},
		"the runtime is not there":                   {request(v1beta1.RecreateCompleted, "failed to find runtime service: x"), Failed, "failed to find runtime service"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			st := Of(tc.crr, nil)
			if st.Verdict != tc.want || !strings.Contains(st.Message, tc.message) || len(st.Rows) != 2 {
				t.Errorf("Of() = %s %q, want %s %q", st.Verdict, st.Message, tc.want, tc.message)
			}
		})
	}
}

func TestRowsTellOldFromNewContainers(t *testing.T) {
	crr := request(v1beta1.RecreateRecreating, "", state("app", v1beta1.RecreateRecreating))
	p := pod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].ContainerID, p.Status.ContainerStatuses[0].RestartCount = "containerd://cccccccc33333", 4
	})
	want := []Row{
		{Container: "app", Phase: v1beta1.RecreateRecreating, Killed: true, Old: "aaaaaaaa", New: "cccccccc", Restarts: 4, Ready: true},
		{Container: "log", Phase: v1beta1.RecreatePending, Old: "bbbbbbbb", Ready: true},
	}
	if diff := cmp.Diff(want, Of(crr, p).Rows); diff != "" {
		t.Errorf("rows differ (-want +got):\n%s", diff)
	}
	p.UID = "another"
	if got := Of(crr, p).Rows[0].New; got != "" {
		t.Errorf("a later Pod of the same name is taken for this one: %s", got)
	}
}

func TestActive(t *testing.T) {
	mine, ended, other := request(v1beta1.RecreateRecreating, ""), request(v1beta1.RecreateCompleted, ""), request("", "")
	mine.Name, ended.Name, other.Name = "mine", "ended", "other"
	other.Labels = map[string]string{v1beta1.RecreatePodUIDLabel: "uid-before"}
	if got := Active(pod(), []v1beta1.ContainerRecreateRequest{*ended, *other, *mine}); len(got) != 1 || got[0] != "mine" {
		t.Errorf("Active() = %v", got)
	}
}

func TestNext(t *testing.T) {
	cases := map[string]struct {
		stages    string // one letter for each Pod: t, w, b, l, s
		atOnce    int
		keepGoing bool
		want      Step
	}{
		"one at a time":                         {"ttt", 1, false, Step{Start: []string{"p0"}}},
		"as many as allowed":                    {"bwttt", 3, false, Step{Start: []string{"p2", "p3"}}},
		"no more than allowed":                  {"wwt", 2, false, Step{}},
		"a Pod that is lost stops it":           {"lwt", 3, false, Step{Stopped: true}},
		"and what was begun is waited for":      {"lbt", 3, false, Step{Over: true, Stopped: true}},
		"unless it keeps going":                 {"lbt", 3, true, Step{Start: []string{"p2"}}},
		"over when nothing is left":             {"bbsl", 3, true, Step{Over: true}},
		"a last Pod that is lost stops nothing": {"bl", 3, false, Step{Over: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Next(items(tc.stages), tc.atOnce, tc.keepGoing)
			if len(got.Start) == 0 {
				got.Start = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Next() differs (-want +got):\n%s", diff)
			}
		})
	}
}

var letters = map[rune]Stage{'t': Todo, 'w': Working, 'b': Back, 'l': Lost, 's': Skipped}

func items(stages string) []Item {
	var list []Item
	for i, c := range stages {
		list = append(list, Item{Pod: fmt.Sprintf("p%d", i), Stage: letters[c]})
	}
	return list
}

// However Pods come back or are lost, there are never more at once than allowed, each is
// asked for once, and the run comes to an end.
func TestARunEndsAndKeepsItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "pods")
		atOnce := rapid.IntRange(-1, 8).Draw(t, "at once")
		keepGoing := rapid.Bool().Draw(t, "keep going")
		list := items(strings.Repeat("t", n))
		asked := map[string]bool{}
		for turn := 0; ; turn++ {
			if turn > 40*(n+1) {
				t.Fatalf("no end: %v", list)
			}
			step := Next(list, atOnce, keepGoing)
			for _, p := range step.Start {
				if asked[p] {
					t.Fatalf("%s is asked for twice", p)
				}
				asked[p] = true
			}
			working := 0
			for i := range list {
				if asked[list[i].Pod] && list[i].Stage == Todo {
					list[i].Stage = Working
				}
				if list[i].Stage == Working {
					working++
				}
			}
			if working > max(1, atOnce) {
				t.Fatalf("%d at once, %d allowed", working, atOnce)
			}
			if step.Over {
				if keepGoing && len(asked) != n {
					t.Fatalf("%d of %d asked for, though it keeps going", len(asked), n)
				}
				return
			}
			for i := range list {
				if list[i].Stage == Working && (turn > 20*n || rapid.Bool().Draw(t, "ends")) {
					list[i].Stage = rapid.SampledFrom([]Stage{Back, Back, Lost, Skipped}).Draw(t, "as")
				}
			}
		}
	})
}

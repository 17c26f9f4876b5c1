// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func job(status v1beta1.ImagePullJobStatus) *v1beta1.ImagePullJob {
	return &v1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "uid-j"},
		Spec:       v1beta1.ImagePullJobSpec{Image: "docker.io/library/web:2"},
		Status:     status,
	}
}

// node has the task of job uid at version, and a status of statusVersion.
func node(name string, uid string, version, statusVersion int64, phase v1beta1.ImagePullPhase) v1beta1.NodeImage {
	ni := v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if uid != "" {
		ni.Spec.Images = map[string]v1beta1.ImageSpec{"web": {Tags: []v1beta1.ImageTagSpec{{
			Tag: "2", Version: version, OwnerReferences: []corev1.ObjectReference{{UID: "uid-j"}},
		}}}}
	}
	if phase != "" {
		ni.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"web": {Tags: []v1beta1.ImageTagStatus{{Tag: "2", Version: statusVersion, Phase: phase, Progress: 37, Message: "m"}}}}
	}
	return ni
}

func TestOf(t *testing.T) {
	done := &metav1.Time{Time: time.Unix(1, 0)}
	half := intstr.FromString("50%")
	cases := map[string]struct {
		job   *v1beta1.ImagePullJob
		nodes []v1beta1.NodeImage
		min   *intstr.IntOrString
		want  Verdict
		rows  string
	}{
		"each node has its phase, those without a task are queued": {
			job(v1beta1.ImagePullJobStatus{Desired: 3, Active: 2}),
			[]v1beta1.NodeImage{node("c", "", 0, 0, ""), node("a", "j", 1, 1, v1beta1.ImagePhasePulling), node("b", "j", 1, 0, "")},
			nil, Active, "a Pulling 37, b Waiting 0, c Queued 0"},
		"a status of an older task does not count": {
			job(v1beta1.ImagePullJobStatus{Desired: 1, Active: 1}), []v1beta1.NodeImage{node("a", "j", 2, 1, v1beta1.ImagePhaseSucceeded)}, nil, Active, "a Waiting 0"},
		"finished with a failure, known from the job alone": {
			job(v1beta1.ImagePullJobStatus{Desired: 2, Succeeded: 1, Failed: 1, FailedNodes: []string{"b"}, CompletionTime: done}), nil, nil, Failed, "b Failed 0"},
		"finished": {job(v1beta1.ImagePullJobStatus{Desired: 2, Succeeded: 2, CompletionTime: done}), nil, nil, Succeeded, ""},
		"enough is enough": {
			job(v1beta1.ImagePullJobStatus{Desired: 4, Succeeded: 2, Active: 2}), nil, &half, Enough, ""},
		"not enough yet":        {job(v1beta1.ImagePullJobStatus{Desired: 4, Succeeded: 1, Active: 3}), nil, &half, Active, ""},
		"no node is not enough": {job(v1beta1.ImagePullJobStatus{}), nil, &half, Active, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			st := Of(Input{Job: tc.job, NodeImages: tc.nodes, MinSucceeded: tc.min})
			var rows []string
			for _, r := range st.Rows {
				rows = append(rows, fmt.Sprintf("%s %s %d", r.Node, r.Phase, r.Progress))
			}
			if st.Verdict != tc.want || strings.Join(rows, ", ") != tc.rows || st.Message == "" {
				t.Errorf("Of() = %s %q %q, want %s %q", st.Verdict, rows, st.Message, tc.want, tc.rows)
			}
		})
	}
	never := job(v1beta1.ImagePullJobStatus{Desired: 2, Succeeded: 2})
	never.Spec.CompletionPolicy.Type = v1beta1.Never
	if st := Of(Input{Job: never}); st.Verdict != Succeeded {
		t.Errorf("a job that never completes is done when all nodes are: %s", st.Verdict)
	}
}

func TestNameIsStableAndValid(t *testing.T) {
	a, err := Name([]string{"repo.example.com:5000/Team/web:2"}, "")
	if err == nil {
		t.Errorf("a bad reference has the name %q", a)
	}
	a, _ = Name([]string{"repo.example.com:5000/team/my_web:2"}, "zone=a")
	b, _ := Name([]string{"repo.example.com:5000/team/my_web:2"}, "zone=a")
	c, _ := Name([]string{"repo.example.com:5000/team/my_web:2"}, "zone=b")
	if a != b || a == c || !strings.HasPrefix(a, "pull-my-web-") {
		t.Errorf("names are %q %q %q", a, b, c)
	}
	one, _ := Name([]string{"web:2"}, "")
	same, _ := Name([]string{"docker.io/library/web:2"}, "")
	if one != same {
		t.Errorf("the same image has the names %q and %q", one, same)
	}
}

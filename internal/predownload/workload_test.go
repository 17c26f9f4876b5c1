// SPDX-License-Identifier: Apache-2.0

package predownload_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/predownload"
	"github.com/kruisectl/kruisectl/internal/revision"
)

func template(image string, env ...corev1.EnvVar) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image, Env: env}}},
	}
}

func statefulSet(image string) *v1beta1.StatefulSet {
	return &v1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "shop", UID: "uid-db", Annotations: map[string]string{}},
		Spec: v1beta1.StatefulSetSpec{
			Replicas: new(int32(5)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: template(image),
			UpdateStrategy: v1beta1.StatefulSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateStatefulSetStrategy{
				PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
			}},
		},
	}
}

func made(t *testing.T, o revision.Owner) *appsv1.ControllerRevision {
	t.Helper()
	r, err := revision.New(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDecideForAStatefulSet(t *testing.T) {
	old := made(t, revision.OfStatefulSet(statefulSet("app:1")))
	annotate := func(key, value string) func(*v1beta1.StatefulSet) {
		return func(s *v1beta1.StatefulSet) { s.Annotations[key] = value }
	}
	minReady := func(text string, ready int32) func(*v1beta1.StatefulSet) {
		return func(s *v1beta1.StatefulSet) {
			s.Annotations["apps.kruise.io/image-predownload-min-updated-ready-pods"] = text
			s.Status.UpdatedReadyReplicas = ready
			s.Status.UpdateRevision = "db-" + made(t, revision.OfStatefulSet(statefulSet("app:2"))).Labels["controller.kubernetes.io/hash"]
		}
	}
	cases := map[string]struct {
		change func(*v1beta1.StatefulSet)
		want   predownload.Verdict
	}{
		"the image changes":  {func(*v1beta1.StatefulSet) {}, predownload.Create},
		"nothing changes":    {func(s *v1beta1.StatefulSet) { s.Spec.Template = template("app:1") }, predownload.CleanUp},
		"OnDelete":           {func(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.Type = "OnDelete" }, predownload.Ignore},
		"no rolling update":  {func(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate = nil }, predownload.Ignore},
		"ReCreate":           {func(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = "ReCreate" }, predownload.Ignore},
		"three replicas":     {func(s *v1beta1.StatefulSet) { s.Spec.Replicas = new(int32(3)) }, predownload.Ignore},
		"one replica absent": {func(s *v1beta1.StatefulSet) { s.Spec.Replicas = nil }, predownload.Ignore},
		"all at once": {func(s *v1beta1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("100%"))
		}, predownload.Ignore},
		"all at once but for a partition": {func(s *v1beta1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("100%"))
			s.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1))
		}, predownload.Create},
		"a change that recreates":            {func(s *v1beta1.StatefulSet) { s.Spec.Template = template("app:2", corev1.EnvVar{Name: "A"}) }, predownload.Ignore},
		"a percentage of ready Pods, missed": {minReady("21%", 1), predownload.Nothing}, // rounded up: 2
		"a percentage of ready Pods, met":    {minReady("21%", 2), predownload.Create},
		"a number of ready Pods, missed":     {minReady("3", 2), predownload.Nothing},
		"an annotation that is no number":    {annotate("apps.kruise.io/image-predownload-min-updated-ready-pods", "some"), predownload.Create},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := statefulSet("app:2")
			tc.change(set)
			update := made(t, revision.OfStatefulSet(set))
			got := predownload.Decide(predownload.OfStatefulSet(set, old, update), []*appsv1.ControllerRevision{old}, update, inplace.Options{})
			assert.Equal(t, tc.want, got.Verdict, got.Why)
		})
	}
}

func TestKnobsAreAnnotationsThenFields(t *testing.T) {
	job := func(change func(*v1beta1.StatefulSet)) v1beta1.ImagePullJobSpec {
		set := statefulSet("app:2")
		change(set)
		old, update := made(t, revision.OfStatefulSet(statefulSet("app:1"))), made(t, revision.OfStatefulSet(set))
		return predownload.Decide(predownload.OfStatefulSet(set, old, update), []*appsv1.ControllerRevision{old}, update, inplace.Options{}).Jobs[0].Spec
	}
	annotate := func(parallelism, timeout string) func(*v1beta1.StatefulSet) {
		return func(s *v1beta1.StatefulSet) {
			s.Annotations["apps.kruise.io/image-predownload-parallelism"] = parallelism
			s.Annotations["apps.kruise.io/image-predownload-timeout-seconds"] = timeout
			s.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{
				ImagePreDownloadParallelism: new(intstr.FromInt32(7)), ImagePreDownloadTimeoutSeconds: new(int32(70)),
			}
		}
	}
	cases := map[string]struct {
		change               func(*v1beta1.StatefulSet)
		parallelism, timeout int32
	}{
		"neither":                       {func(*v1beta1.StatefulSet) {}, 1, 300},
		"annotations":                   {annotate("4", "40"), 4, 40},
		"fields":                        {annotate("", ""), 7, 70},
		"a percentage is not supported": {annotate("10%", "1m"), 7, 70},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := job(tc.change)
			assert.Equal(t, intstr.FromInt32(tc.parallelism), *spec.Parallelism)
			assert.Equal(t, tc.timeout, *spec.PullPolicy.TimeoutSeconds)
		})
	}
}

func TestDecideForADaemonSet(t *testing.T) {
	set := func() *v1beta1.DaemonSet {
		return &v1beta1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "shop", UID: "uid-agent", Annotations: map[string]string{}},
			Spec: v1beta1.DaemonSetSpec{
				Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				Template:       template("app:2", corev1.EnvVar{Name: "A"}),
				UpdateStrategy: v1beta1.DaemonSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateDaemonSet{}},
			},
			Status: v1beta1.DaemonSetStatus{UpdateRevision: "old"},
		}
	}
	owner := func(s *v1beta1.DaemonSet) revision.Owner {
		return revision.Owner{Kind: v1beta1.GroupVersion.WithKind("DaemonSet"), Object: s, Template: &s.Spec.Template}
	}
	first := set()
	first.Spec.Template = template("app:1")
	old := []*appsv1.ControllerRevision{made(t, owner(first))}
	nodes := predownload.Nodes{Desired: 2, Hash: "new"}
	cases := map[string]struct {
		change func(*v1beta1.DaemonSet)
		nodes  predownload.Nodes
		old    []*appsv1.ControllerRevision
		want   predownload.Verdict
	}{
		"two nodes and a change that recreates": {func(*v1beta1.DaemonSet) {}, nodes, old, predownload.Create},
		"the first revision":                    {func(*v1beta1.DaemonSet) {}, nodes, nil, predownload.Nothing},
		"all nodes are updated":                 {func(s *v1beta1.DaemonSet) { s.Status.UpdateRevision = "new" }, predownload.Nodes{Desired: 2, Updated: 2, Hash: "new"}, old, predownload.CleanUp},
		"OnDelete":                              {func(s *v1beta1.DaemonSet) { s.Spec.UpdateStrategy.Type = "OnDelete" }, nodes, old, predownload.Ignore},
		"no rolling update":                     {func(s *v1beta1.DaemonSet) { s.Spec.UpdateStrategy.RollingUpdate = nil }, nodes, old, predownload.Ignore},
		"all at once, rounded up": {func(s *v1beta1.DaemonSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("51%"))
		}, nodes, old, predownload.Ignore},
		"all at once but for a partition": {func(s *v1beta1.DaemonSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("51%"))
			s.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromString("50%"))
		}, nodes, old, predownload.Create},
		"too few Pods are updated and ready": {func(s *v1beta1.DaemonSet) {
			s.Annotations["apps.kruise.io/image-predownload-min-updated-ready-pods"] = "50%"
		}, nodes, old, predownload.Nothing},
		"enough Pods are updated and ready": {func(s *v1beta1.DaemonSet) {
			s.Annotations["apps.kruise.io/image-predownload-min-updated-ready-pods"] = "50%"
		}, predownload.Nodes{Desired: 2, Updated: 1, UpdatedReady: 1, Hash: "new"}, old, predownload.Create},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := set()
			tc.change(s)
			update := made(t, owner(s))
			got := predownload.Decide(predownload.OfDaemonSet(s, tc.nodes), tc.old, update, inplace.Options{})
			assert.Equal(t, tc.want, got.Verdict, got.Why)
			if tc.want == predownload.Create {
				assert.Equal(t, []string{update.Name, "new"}, got.Jobs[0].Spec.PodSelector.MatchExpressions[0].Values)
				assert.Equal(t, "DaemonSet", got.Jobs[0].OwnerReferences[0].Kind)
			}
		})
	}
}

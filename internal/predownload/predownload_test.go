// SPDX-License-Identifier: Apache-2.0

package predownload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/predownload"
)

func base() fixture.CloneSetBuilder {
	return fixture.CloneSet("web").Replicas(5).Partition("1").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
}

func strategy(s v1beta1.InPlaceUpdateStrategy) func(*v1beta1.CloneSet) {
	return func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &s }
}

func decide(set, old fixture.CloneSetBuilder, update *appsv1.ControllerRevision) predownload.Decision {
	current := fixture.Revision(old, 1)
	return predownload.Decide(predownload.OfCloneSet(set.Obj(), current, update), []*appsv1.ControllerRevision{current}, update, inplace.Options{})
}

func TestDecide(t *testing.T) {
	label := func(key string) map[string]string { return map[string]string{key: "true"} }
	minReady := strategy(v1beta1.InPlaceUpdateStrategy{ImagePreDownloadMinUpdatedReadyPods: new(int32(2))})
	updated := func(n int32, rev string) func(*v1beta1.CloneSet) {
		return func(c *v1beta1.CloneSet) {
			minReady(c)
			c.Status.UpdatedReadyReplicas, c.Status.UpdateRevision = n, rev
		}
	}
	target := fixture.Revision(base().Image("app:2"), 2).Name
	cases := map[string]struct {
		old, set fixture.CloneSetBuilder
		labels   map[string]string
		want     predownload.Verdict
	}{
		"the image changes":                          {base(), base().Image("app:2"), nil, predownload.Create},
		"nothing changes":                            {base(), base(), nil, predownload.CleanUp},
		"the jobs are there":                         {base(), base().Image("app:2"), label("apps.kruise.io/pre-predownload-created"), predownload.Nothing},
		"it was decided against":                     {base(), base().Image("app:2"), label("apps.kruise.io/image-predownload-ignored"), predownload.Nothing},
		"three replicas are too few":                 {base(), base().Image("app:2").Replicas(3), nil, predownload.Ignore},
		"ReCreate":                                   {base(), base().Image("app:2").Policy(v1beta1.RecreatePodUpdatePolicyType), nil, predownload.Ignore},
		"OnDelete":                                   {base(), base().Image("app:2").OnDelete(), nil, predownload.Ignore},
		"all Pods at once":                           {base(), base().Image("app:2").Partition("0").MaxUnavailable("100%"), nil, predownload.Ignore},
		"nearly all Pods at once":                    {base(), base().Image("app:2").Partition("0").MaxUnavailable("99%"), nil, predownload.Create},
		"all Pods at once but for a partition":       {base(), base().Image("app:2").MaxUnavailable("100%"), nil, predownload.Create},
		"a change that recreates":                    {base(), base().Image("app:2").Env("A", "1"), nil, predownload.Ignore},
		"too few Pods updated":                       {base(), base().Image("app:2").With(updated(1, target)), nil, predownload.Nothing},
		"enough Pods updated":                        {base(), base().Image("app:2").With(updated(2, target)), nil, predownload.Create},
		"Pods updated to another revision count not": {base(), base().Image("app:2").With(updated(2, "web-other")), nil, predownload.Nothing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			update := fixture.Revision(tc.set, 2)
			for k, v := range tc.labels {
				update.Labels[k] = v
			}
			got := decide(tc.set, tc.old, update)
			assert.Equal(t, tc.want, got.Verdict, got.Why)
			assert.Equal(t, tc.want == predownload.Create, len(got.Jobs) > 0)
		})
	}
}

func TestJob(t *testing.T) {
	set := base().With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers = append(c.Spec.Template.Spec.Containers, corev1.Container{Name: "log", Image: "log:1"})
		c.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		c.Spec.Template.Annotations = map[string]string{"a": "b"}
	})
	changed := set.Image("app:2").With(strategy(v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromInt32(2))}))
	update := fixture.Revision(changed, 2)
	got := decide(changed, set, update)
	require.Len(t, got.Jobs, 1)
	job := got.Jobs[0]
	assert.Equal(t, update.Name+"-app", job.Name)
	assert.Equal(t, "web", job.OwnerReferences[0].Name)
	hash := update.Labels["controller.kubernetes.io/hash"]
	assert.Equal(t, map[string]string{"app": "web", "controller.kubernetes.io/hash": hash}, job.Labels)
	text, err := yaml.Marshal(job.Spec)
	require.NoError(t, err)
	want := strings.NewReplacer("NAME", update.Name, "HASH", hash).Replace(`completionPolicy:
  ttlSecondsAfterFinished: 600
  type: Always
image: app:2
parallelism: 2
podSelector:
  matchExpressions:
  - key: controller-revision-hash
    operator: NotIn
    values:
    - NAME
    - "HASH"
  matchLabels:
    app: web
pullPolicy:
  backoffLimit: 1
  timeoutSeconds: 300
pullSecrets:
- registry
sandboxConfig:
  annotations:
    a: b
  labels:
    app: web
    controller.kubernetes.io/hash: "HASH"
`)
	assert.Equal(t, strings.ReplaceAll(want, `"`, ""), strings.ReplaceAll(string(text), `"`, ""))
}

func TestLongNamesAreCutAndStayDifferent(t *testing.T) {
	set := base().With(func(c *v1beta1.CloneSet) {
		c.Name = strings.Repeat("x", 230)
		c.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: strings.Repeat("c", 60) + "a", Image: "app:1"}, {Name: strings.Repeat("c", 60) + "b", Image: "app:1"},
		}
	})
	changed := set.With(func(c *v1beta1.CloneSet) {
		c.Spec.Template.Spec.Containers[0].Image, c.Spec.Template.Spec.Containers[1].Image = "app:2", "app:2"
	})
	got := decide(changed, set, fixture.Revision(changed, 2))
	require.Len(t, got.Jobs, 2)
	assert.LessOrEqual(t, len(got.Jobs[0].Name), 253)
	assert.NotEqual(t, got.Jobs[0].Name, got.Jobs[1].Name)
}

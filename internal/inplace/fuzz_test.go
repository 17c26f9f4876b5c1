// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Revisions and annotations can be written by anybody: whatever they hold, there is an
// answer, and it is one of the two kinds.
func FuzzCompare(f *testing.F) {
	const web = `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1.14","name":"c","resources":{"limits":{"cpu":1}}}]}}}}`
	for _, other := range []string{
		web, `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}},"spec":{"containers":[{"image":"nginx:1.15","name":"c","resources":{"limits":{"cpu":"2"}}}]}}}}`,
		`{`, `null`, `{"spec":null}`, `{"spec":{"template":null}}`, `{"spec":{"template":{"spec":{"containers":null}}}}`, `{"spec":{"template":{"spec":{"containers":[null]}}}}`,
		`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":1}]}}}}`, `{"spec":{"template":{"metadata":[]}}}`, `[]`, `{"":{"":[{"1":{}}]}}`,
	} {
		f.Add([]byte(web), []byte(other))
		f.Add([]byte(other), []byte(web))
	}
	f.Fuzz(func(t *testing.T, old, new []byte) {
		rev := func(data []byte) *appsv1.ControllerRevision {
			return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Data: runtime.RawExtension{Raw: data}}
		}
		c := Compare(rev(old), rev(new), everything)
		if (c.InPlace == nil) == (len(c.Recreate) == 0) {
			t.Fatalf("Compare() = %+v", c)
		}
		for _, r := range c.Recreate {
			if r.Code == "" || r.Message == "" {
				t.Errorf("a reason without code or message: %+v", r)
			}
		}
		if c.InPlace != nil {
			if _, err := Begin(podOf(template(nil, "c"), "web-1"), c.InPlace, everything, t0); err != nil {
				t.Errorf("Begin() = %v", err)
			}
		}
	})
}

func FuzzNext(f *testing.F) {
	f.Add(`{"revision":"web-1","nextContainerImages":{"app":"x"}}`, ``, ``)
	f.Add(`null`, `null`, `null`)
	f.Add(`{"containerBatchesRecord":[{}],"preCheckBeforeNext":{}}`, `{"revision":"web-1","metaDataPatch":"e30="}`, `{"containers":[{"name":"app"}]}`)
	f.Add(`{"updateEnvFromMetadata":true,"updateResources":true,"updateImages":true,"lastContainerStatuses":{"app":{},"gone":{}}}`, ``, `{"containers":null}`)
	f.Add(`{}`, `{"revision":"web-1","metaDataPatch":"W10="}`, `{}`)
	f.Fuzz(func(t *testing.T, state, grace, meta string) {
		pod := podOf(template(nil, "app"), "web-1")
		for key, value := range map[string]string{stateKey: state, "apps.kruise.io/inplace-update-grace": grace, "apps.kruise.io/runtime-containers-meta": meta} {
			if value != "" {
				setKey(&pod.Annotations, key, value)
			}
		}
		step := Next(pod, everything, t0)
		writes := step.Action == SendBatch || step.Action == DropGrace || step.Action == Ready
		if writes != (step.Write.Pod != nil) || (step.Action == Invalid) != (step.Err != nil) || (step.Action == Wait) != (len(step.Waiting) > 0) {
			t.Errorf("Next() = %+v", step)
		}
		if done := step.Action == Done || step.Action == Ready; done != Complete(pod, everything) {
			t.Errorf("Next() = %v, Complete() = %t", step, !done)
		}
	})
}

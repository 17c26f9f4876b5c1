// SPDX-License-Identifier: Apache-2.0

package cloneset

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// cpuTime is what this process has used so far: on a busy machine the time of the clock
// says nothing.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchmark reports the processor time of one run besides the usual.
func benchmark(b *testing.B, run func()) {
	b.ReportAllocs()
	var began time.Duration
	for b.Loop() {
		if began == 0 {
			began = cpuTime()
		}
		run()
	}
	b.ReportMetric(float64((cpuTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// settledPods are Pods as a cluster has them after some rollouts: with the engine's state and
// the node daemon's report on them.
func settledPods(set fixture.CloneSetBuilder, n int) (pods []fixture.PodBuilder) {
	pod := fixture.PodOf(set, "web").
		Annotation(v1beta1.InPlaceUpdateStateAnnotation, `{"revision":"web-7c9fd8b6d4","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"app":{"imageID":"id-of-app:0"}},"updateImages":true,"containerBatchesRecord":[{"timestamp":"2026-01-02T03:04:05Z","containers":["app"]}]}`).
		Annotation(v1beta1.RuntimeContainersMetaAnnotation, `{"containers":[{"name":"app","containerID":"containerd://9f8d","restartCount":1,"hashes":{"plainHash":1236152716,"extractedEnvFromMetadataHash":2346}}]}`).
		With(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				corev1.PodCondition{Type: v1beta1.KruisePodReady, Status: corev1.ConditionTrue})
		})
	for i := range n {
		name := fmt.Sprintf("web-%04d", i)
		pods = append(pods, pod.With(func(p *corev1.Pod) { p.Name = name }))
	}
	return pods
}

func BenchmarkDecide5000Pods(b *testing.B) {
	web := fixture.CloneSet("web").Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).Replicas(5000).MaxUnavailable("2%")
	for name, s := range map[string]Snapshot{
		"settled": situationOf(web, web, settledPods(web, 5000)...),
		"rollout": situationOf(web, web.Image("app:2"), settledPods(web, 5000)...),
	} {
		b.Run(name, func(b *testing.B) { benchmark(b, func() { Decide(s, now) }) })
		b.Run(name+" status", func(b *testing.B) { benchmark(b, func() { Status(s, now) }) })
	}
}

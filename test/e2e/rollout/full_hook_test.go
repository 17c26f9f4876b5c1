//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/revision"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// counts are the Pods of web by revision, and those that wait for a hook to be updated.
type counts struct{ old, updated, preparing int }

func preparing(p corev1.Pod) bool {
	return p.Labels[v1beta1.LifecycleStateLabel] == string(v1beta1.LifecyclePreparingUpdate)
}

// U8: with the gate on, a Pod that waits for its hook counts as updated, so that nobody
// else is chosen, and what replaces other Pods is of the old revision.
func TestAPodThatWaitsForItsHookCountsAsUpdated(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		const hook = "preparing-update-hook"
		api.create(e, 2, func(f fields) {
			settled(f)
			*f.Deadline = new(int32(20))
			*f.MaxUnavailable, *f.Partition = new(intstr.FromString("50%")), new(intstr.FromString("99%"))
			f.Template.Labels[hook] = "true"
			*f.Lifecycle = &v1beta1.Lifecycle{InPlaceUpdate: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{hook: "true"}}}
		})
		waitCondition(e, "CloneSetAvailable")
		oldRevision := e.CloneSet("web").Status.UpdateRevision
		count := func() counts {
			var c counts
			update := e.CloneSet("web").Status.UpdateRevision
			for _, p := range e.Pods("web") {
				switch label := p.Labels["controller-revision-hash"]; {
				case revision.SameRevision(label, oldRevision):
					c.old++
				case revision.SameRevision(label, update):
					c.updated++
				}
				if preparing(p) {
					c.preparing++
				}
			}
			return c
		}
		waitPods := func(n int) {
			e.Eventually(fmt.Sprintf("%d Pods", n), harness.Long, func() string {
				if got := len(e.Pods("web")); got != n {
					return fmt.Sprintf("%d Pods", got)
				}
				return ""
			})
		}
		waitCounts := func(want counts) {
			e.Eventually(fmt.Sprintf("Pods are %+v", want), harness.Long, func() string {
				if got := count(); got != want {
					return fmt.Sprintf("they are %+v", got)
				}
				return ""
			})
		}
		unhook := func() {
			for _, p := range slices.DeleteFunc(e.Pods("web"), func(p corev1.Pod) bool { return !preparing(p) }) {
				patchPod(e, p.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, hook))
			}
		}

		api.change(e, func(f fields) { f.Template.Spec.Containers[0].Image = harness.Nginx2 })
		waitStatus(e, "the change is seen", func(v1beta1.CloneSetStatus) bool { return true })
		require.Equal(e.T, counts{old: 2, preparing: 1}, count(), "as soon as the change is seen")

		other := slices.DeleteFunc(e.Pods("web"), preparing)
		require.Len(e.T, other, 1)
		require.NoError(e.T, e.Client.Delete(e.Ctx(), &other[0]))
		e.Eventually("the deleted Pod is replaced", harness.Long, func() string {
			pods := e.Pods("web")
			if len(pods) != 2 || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == other[0].UID }) {
				return fmt.Sprintf("%d Pods", len(pods))
			}
			return ""
		})
		require.Equal(e.T, counts{old: 2, preparing: 1}, count(), "after the other Pod was deleted")
		waitCondition(e, "ProgressDeadlineExceeded")

		api.change(e, func(f fields) { *f.Replicas = new(int32(3)) })
		waitPods(3)
		require.Equal(e.T, counts{old: 3, preparing: 1}, count(), "after scaling out")

		unhook()
		waitCounts(counts{old: 2, updated: 1})
		api.change(e, func(f fields) {
			*f.Partition, *f.MaxUnavailable = nil, new(intstr.FromString("100%"))
		})
		waitCounts(counts{old: 2, updated: 1, preparing: 2})
		unhook()
		waitCounts(counts{updated: 3})
		// None is available, for nobody put the hook back: the condition must not have moved.
		waitCondition(e, "ProgressDeadlineExceeded")
	})
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func partition(v string) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.Parse(v))
	}
}

func TestPartitionByNumberAndPercent(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 4, partition("100%")))
	e.WaitAvailable("web", 4)
	before := harness.Identities(e.Pods("web"))

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.Throughout("partition 100% keeps every Pod", 5*time.Second, func() string {
		if n := harness.CountImage(e.Pods("web"), "app", harness.Nginx2); n != 0 {
			return "a Pod was updated"
		}
		return ""
	})
	e.Kruisectl("rollout", "partition", "cloneset/web", "3")
	e.WaitUpdated("web", 4, 1)
	r := e.Kruisectl("rollout", "status", "cloneset/web", "--timeout", "5m")
	require.Contains(t, r.Stdout, "partition")
	require.Equal(t, 5, e.Try("rollout", "status", "cloneset/web", "--full", "--timeout", "5m").Code, "exit code with --full")

	e.Kruisectl("rollout", "partition", "cloneset/web", "50%")
	e.WaitUpdated("web", 4, 2)

	// Up again: with gate CloneSetPartitionRollback the updated Pods go back.
	e.Kruisectl("rollout", "partition", "cloneset/web", "3")
	e.WaitUpdated("web", 4, 1)
	e.Kruisectl("rollout", "partition", "cloneset/web", "0")
	e.WaitAvailable("web", 4)
	e.RequireSamePods("web", before)
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 3))
	e.WaitAvailable("web", 3)
	before := harness.Identities(e.Pods("web"))

	e.Kruisectl("rollout", "pause", "cloneset/web")
	again := e.Kruisectl("rollout", "pause", "cloneset/web")
	require.Contains(t, again.Text(), "already paused")
	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	require.Equal(t, 5, e.Try("rollout", "status", "cloneset/web", "--timeout", "5m").Code, "exit code while paused")
	e.Throughout("a paused rollout touches no Pod", 5*time.Second, func() string {
		if n := harness.CountImage(e.Pods("web"), "app", harness.Nginx2); n != 0 {
			return "a Pod was updated"
		}
		return ""
	})
	e.Kruisectl("rollout", "resume", "cloneset/web")
	e.WaitAvailable("web", 3)
	e.RequireSamePods("web", before)
}

func TestUndoToANamedRevision(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 2))
	e.WaitAvailable("web", 2)
	first := e.CloneSet("web").Status.UpdateRevision
	before := harness.Identities(e.Pods("web"))
	for _, image := range []string{harness.Nginx2, harness.Nginx3} {
		e.Kruisectl("set", "image", "cloneset/web", "app="+image)
		e.WaitAvailable("web", 2)
	}

	history := e.Kruisectl("rollout", "history", "cloneset/web")
	require.Contains(t, history.Stdout, first[len("web-"):], "the first revision is listed")
	e.Kruisectl("rollout", "undo", "cloneset/web", "--to", first)
	e.WaitAvailable("web", 2)
	require.Equal(t, first, e.CloneSet("web").Status.UpdateRevision)
	require.Equal(t, 2, harness.CountImage(e.Pods("web"), "app", harness.Nginx1))
	e.RequireSamePods("web", before)
}

func TestRollbackInTheMiddle(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 4, partition("2")))
	e.WaitAvailable("web", 4)
	first := e.CloneSet("web").Status.UpdateRevision
	before := harness.Identities(e.Pods("web"))
	watch := e.Observe("web", harness.Limits{MinReady: 3, MaxPods: 4, KeepPods: true})

	e.Kruisectl("set", "image", "cloneset/web", "app="+harness.Nginx2)
	e.WaitUpdated("web", 4, 2)
	e.Kruisectl("rollout", "undo", "cloneset/web")
	e.WaitAvailable("web", 4)
	watch.Check(e)
	require.Equal(t, first, e.CloneSet("web").Status.UpdateRevision)
	require.Equal(t, 4, harness.CountImage(e.Pods("web"), "app", harness.Nginx1))
	e.RequireSamePods("web", before)
}

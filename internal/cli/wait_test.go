// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/out"
)

// A story is a wait during which the cluster changes at given times. It runs in a bubble
// whose time jumps, so it takes no time.
type step struct {
	after time.Duration
	do    func(t *testing.T, c client.WithWatch)
}

func story(t *testing.T, s *shop, line string, check func(t *testing.T, r result), steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := s.world(t)
		w.clock = clock.RealClock{}
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		go func() {
			for _, st := range steps {
				select {
				case <-ctx.Done():
					return
				case <-time.After(st.after):
				}
				if st.do == nil {
					cancel(&out.Signal{Code: out.CodeInterrupted})
					continue
				}
				st.do(t, w.client)
			}
		}()
		r := w.runCtx(ctx, strings.Fields(line)...)
		check(t, r)
	})
}

// becomes changes the CloneSet and its status.
func becomes(change func(*v1beta1.CloneSet)) func(*testing.T, client.WithWatch) {
	return func(t *testing.T, c client.WithWatch) {
		cs := &v1beta1.CloneSet{}
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
			t.Error(err)
			return
		}
		change(cs)
		status := cs.Status
		if err := c.Update(context.Background(), cs); err != nil {
			t.Error(err)
		}
		cs.Status = status
		if err := c.Status().Update(context.Background(), cs); err != nil {
			t.Error(err)
		}
	}
}

func counts(updated, available int32) func(*v1beta1.CloneSet) {
	return func(c *v1beta1.CloneSet) {
		c.Status.UpdatedReplicas, c.Status.UpdatedReadyReplicas, c.Status.UpdatedAvailableReplicas = updated, available, available
	}
}

func wants(code int, words ...string) func(*testing.T, result) {
	return func(t *testing.T, r result) {
		t.Helper()
		if r.code != code {
			t.Errorf("exit code %d, want %d", r.code, code)
		}
		for _, w := range words {
			if !strings.Contains(r.out+r.err, w) {
				t.Errorf("%q is missing in\n%s", w, r)
			}
		}
		if t.Failed() {
			t.Log(r)
		}
	}
}

func TestWaitEndsWhenTheRolloutIsComplete(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web", func(t *testing.T, r result) {
		wants(0, "4 of 10 updated and available", "8 of 10 updated, 6 available", "successfully rolled out in ")(t, r)
		if !strings.HasPrefix(r.out, "cloneset.apps.kruise.io/web: successfully rolled out") {
			t.Errorf("stdout is %q", r.out)
		}
	}, step{5 * time.Second, becomes(counts(8, 6))}, step{5 * time.Second, becomes(counts(10, 10))})
}

// Status and spec often change within the same second: a verdict has to hold.
func TestWaitIgnoresAFlappingVerdict(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web", wants(0, "successfully rolled out"),
		step{5 * time.Second, becomes(counts(10, 10))},
		step{600 * time.Millisecond, becomes(counts(10, 9))},
		step{10 * time.Second, becomes(counts(10, 10))})
}

func TestWaitTimesOut(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web --timeout 3s", wants(4, "not finished after --timeout 3s", "4 of 10 updated", "why cloneset/web"))
}

func TestWaitNamesAManagerThatDoesNotLook(t *testing.T) {
	unseen := func(c *v1beta1.CloneSet) { c.Generation = 10 }
	story(t, newShop(4, unseen), "rollout status clone/web --timeout 30s",
		wants(4, "waiting for the controller: it has seen generation 9 of 10", "is the manager running?", "kruisectl status"))
}

func TestWaitThroughAPause(t *testing.T) {
	story(t, newShop(2, paused), "rollout status clone/web --wait-paused --timeout 2s", wants(4, "paused with 2 of 10"))
}

func TestWaitEndsWhenTheObjectIsDeleted(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web", wants(6, "gone: deleted"), step{2 * time.Second, func(t *testing.T, c client.WithWatch) {
		if err := c.Delete(context.Background(), newShop(4).set); err != nil {
			t.Error(err)
		}
	}})
}

func TestWaitFollowsANewTemplate(t *testing.T) {
	newer := func(c *v1beta1.CloneSet) {
		counts(10, 10)(c)
		c.Status.UpdateRevision = "web-newer"
	}
	story(t, newShop(4), "rollout status clone/web", wants(0, "now following revision web-newer", "successfully rolled out"), step{2 * time.Second, becomes(newer)})
	story(t, newShop(4), "rollout status clone/web --strict-revision", wants(6, "superseded", "web-newer"), step{2 * time.Second, becomes(newer)})
}

func TestWaitIsInterrupted(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web", wants(130, "cannot go on waiting", "next:  kruisectl rollout status cloneset/web -n shop"), step{2 * time.Second, nil})
}

func TestWaitGivesASignOfLife(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web --timeout 70s", func(t *testing.T, r result) {
		if n := strings.Count(r.err, "still waiting"); n != 2 {
			t.Errorf("%d heartbeats in 70 s\n%s", n, r)
		}
	})
}

func TestWaitFailsOnACrashingPod(t *testing.T) {
	s := newShop(4)
	s.pods[0].Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: "app", RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"}},
	}
	story(t, s, "rollout status clone/web --fail-on=crash --timeout 1m", wants(3, "web-a", "CrashLoopBackOff"))
	story(t, s, "rollout status clone/web --timeout 3s", wants(4, "web-a"))
}

func TestJSONLinesEndWithTheStatus(t *testing.T) {
	story(t, newShop(4), "rollout status clone/web -o jsonl", func(t *testing.T, r result) {
		var kinds []string
		for line := range strings.Lines(r.out) {
			var doc struct{ Kind, Verdict string }
			if err := json.Unmarshal([]byte(line), &doc); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			kinds = append(kinds, doc.Kind+":"+doc.Verdict)
		}
		if len(kinds) < 3 || kinds[0] != "RolloutEvent:Progressing" || kinds[len(kinds)-1] != "RolloutStatus:Complete" {
			t.Errorf("documents are %v", kinds)
		}
	}, step{2 * time.Second, becomes(counts(10, 10))})
}

func TestSeveralObjectsShareOneTimeout(t *testing.T) {
	s := newShop(10)
	other := newShop(4).set
	other.Name, other.UID = "slow", "uid-slow"
	w := append(s.objects(), other)
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t, w...)
		world.clock = clock.RealClock{}
		r := world.run("rollout", "status", "clone/web", "clone/slow", "--timeout", "5s")
		wants(8, "OBJECT", "successfully rolled out", "not finished after --timeout 5s")(t, r)
	})
}

func TestSetImageWaits(t *testing.T) {
	story(t, newShop(10), "set image clone/web app=repo/web:4 --wait", wants(0, "image updated", "successfully rolled out"),
		step{2 * time.Second, becomes(func(c *v1beta1.CloneSet) { counts(10, 10)(c) })})
}

func TestRestartGoesWaveByWave(t *testing.T) {
	s := newShop(10)
	synctest.Test(t, func(t *testing.T) {
		w := s.world(t)
		w.clock = clock.RealClock{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var most atomic.Int64
		go replaceMarked(ctx, t, w.client, &most)
		r := w.run("rollout", "restart", "clone/web")
		wants(0, "restarted", "wave 5")(t, r)
		if n := most.Load(); n > 2 {
			t.Errorf("%d pods were marked at once, maxUnavailable is 2", n)
		}
	})
}

// replaceMarked plays the controller: it replaces marked Pods, and counts how many were
// marked at once.
func replaceMarked(ctx context.Context, t *testing.T, c client.WithWatch, most *atomic.Int64) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(700 * time.Millisecond):
		}
		var pods corev1.PodList
		if err := c.List(context.Background(), &pods, client.InNamespace("shop")); err != nil {
			t.Error(err)
			return
		}
		var marked int64
		for i := range pods.Items {
			p := &pods.Items[i]
			if _, ok := p.Labels[v1beta1.SpecifiedDeleteLabel]; !ok {
				continue
			}
			marked++
			if err := c.Delete(context.Background(), p); err != nil {
				t.Error(err)
			}
			fresh := p.DeepCopy()
			delete(fresh.Labels, v1beta1.SpecifiedDeleteLabel)
			fresh.ObjectMeta = metav1.ObjectMeta{
				Name: "new-" + p.Name, Namespace: "shop", Labels: fresh.Labels, OwnerReferences: p.OwnerReferences, UID: "new-" + p.UID,
			}
			if err := c.Create(context.Background(), fresh); err != nil {
				t.Error(err)
			}
		}
		most.Store(max(most.Load(), marked))
	}
}

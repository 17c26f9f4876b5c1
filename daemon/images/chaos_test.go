// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
	"github.com/kruisectl/kruisectl/internal/property"
)

// Whatever is asked for, and whoever goes away meanwhile: in the end every task that is asked
// for has ended and is told, in its version; no more images are pulled at once than allowed;
// and then it is quiet.
func TestPullsThroughChaos(t *testing.T) {
	property.Many(t, 300, func(d *rapid.T) {
		limit, steps := rapid.IntRange(0, 2).Draw(d, "limit"), rapid.SliceOfN(rapid.Custom(drawStep), 1, 20).Draw(d, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = throughChaos(t, limit, steps) })
		if err != nil {
			d.Fatal(err)
		}
	})
}

// step is something that happens.
type step struct {
	what string
	// lasts is how long it is quiet after it.
	lasts time.Duration
	ask   []wish
}

// wish is one task asked for; anew is in a new version.
type wish struct {
	tag            string
	anew, deadline bool
	policy         v1beta1.ImagePullPolicy
}

func drawStep(d *rapid.T) step {
	s := step{
		what: rapid.SampledFrom([]string{
			"ask", "ask", "runtime goes", "runtime is back", "server goes", "server is back",
			"agent restarts", "status is lost", "manager fails all", "node joins again", "time passes",
		}).Draw(d, "what"),
		lasts: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 30 * time.Second, 2 * time.Minute}).Draw(d, "lasts"),
	}
	if s.what != "ask" {
		return s
	}
	for _, tag := range []string{"1", "2", "3", "4", "5"} {
		if rapid.Bool().Draw(d, "asked for") {
			s.ask = append(s.ask, wish{
				tag: tag, anew: rapid.IntRange(0, 3).Draw(d, "anew") == 0, deadline: rapid.Bool().Draw(d, "deadline"),
				policy: rapid.SampledFrom([]v1beta1.ImagePullPolicy{v1beta1.PullAlways, v1beta1.PullIfNotPresent}).Draw(d, "policy"),
			})
		}
	}
	return s
}

func throughChaos(t *testing.T, limit int, steps []step) error {
	r := start(t, limit)
	defer func() { r.stop() }()
	for tag, script := range map[string]fakecri.PullScript{"1": {}, "2": {Failures: 2}, "3": {Latency: 20 * time.Second}, "4": {Failures: -1}, "5": {Hang: true}} {
		r.runtime.Script("nginx:"+tag, script)
	}
	r.ask(tagSpec("1", nil))
	versions := map[string]int64{}
	for _, s := range steps {
		r.do(t, limit, s, versions)
		after(s.lasts)
	}
	r.runtime.SetDown(false)
	r.store.fail(nil)
	after(time.Hour)

	ni, _, writes := r.store.now()
	if err := settled(ni); err != nil {
		return err
	}
	if n := r.runtime.MaxConcurrentPulls(); limit > 0 && n > limit {
		return fmt.Errorf("%d pulls at once, %d are allowed", n, limit)
	}
	calls := len(r.runtime.Calls())
	after(24 * time.Hour)
	if len(r.runtime.Calls()) != calls || r.store.writeCount() != writes {
		return fmt.Errorf("not quiet: %v, %d writes", r.runtime.Calls()[calls:], r.store.writeCount()-writes)
	}
	return nil
}

// do makes one step happen.
func (r *rig) do(t *testing.T, limit int, s step, versions map[string]int64) {
	switch s.what {
	case "ask":
		var tags []v1beta1.ImageTagSpec
		for _, w := range s.ask {
			if w.anew {
				versions[w.tag]++
			}
			tags = append(tags, tagSpec(w.tag, func(spec *v1beta1.ImageTagSpec) {
				spec.Version, spec.ImagePullPolicy = versions[w.tag], w.policy
				if w.deadline {
					spec.PullPolicy.ActiveDeadlineSeconds = new(int64(90))
				}
			}))
		}
		r.ask(tags...)
	case "runtime goes", "runtime is back":
		r.runtime.SetDown(s.what == "runtime goes")
	case "server goes":
		r.store.fail(errors.New("away"))
	case "server is back":
		r.store.fail(nil)
	case "agent restarts":
		r.restart(t, limit)
	case "status is lost":
		r.store.edit(func(ni *v1beta1.NodeImage) { ni.Status = v1beta1.NodeImageStatus{} })
	case "manager fails all":
		r.store.edit(failAll)
	case "node joins again":
		r.store.edit(func(ni *v1beta1.NodeImage) { ni.UID, ni.Status = ni.UID+"x", v1beta1.NodeImageStatus{} })
	}
}

// failAll is what the manager does to tasks that it has not heard of for long.
func failAll(ni *v1beta1.NodeImage) {
	status := v1beta1.NodeImageStatus{Desired: int32(len(ni.Spec.Images["nginx"].Tags))}
	var tags []v1beta1.ImageTagStatus
	for _, tag := range ni.Spec.Images["nginx"].Tags {
		tags = append(tags, v1beta1.ImageTagStatus{
			Tag: tag.Tag, Version: tag.Version, Phase: v1beta1.ImagePhaseFailed, CompletionTime: &metav1.Time{Time: time.Now().Truncate(time.Second)},
		})
		status.Failed++
	}
	if len(tags) > 0 {
		status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: tags}}
	}
	ni.Status = status
}

// settled wants each task ended in its version, and counted.
func settled(ni *v1beta1.NodeImage) error {
	told := map[string]v1beta1.ImageTagStatus{}
	for _, tag := range ni.Status.ImageStatuses["nginx"].Tags {
		told[tag.Tag] = tag
	}
	asked := ni.Spec.Images["nginx"].Tags
	for _, tag := range asked {
		s, ok := told[tag.Tag]
		if !ok || s.Version != tag.Version || s.CompletionTime == nil {
			return fmt.Errorf("task %s version %d: %+v", tag.Tag, tag.Version, s)
		}
	}
	s := ni.Status
	if len(told) != len(asked) || int(s.Desired) != len(asked) || int(s.Succeeded+s.Failed) != len(asked) || s.Waiting+s.Pulling > 0 {
		return fmt.Errorf("%d asked for, status %+v", len(asked), s)
	}
	return nil
}

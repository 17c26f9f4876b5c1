// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/rollout/apply"
)

// aborted is a shop that was taken back to revision 2 from revision 3.
func aborted() *shop {
	s := newShop(10)
	s.set.Spec.Template.Spec.Containers[0].Image = "repo/web:2"
	s.set.Annotations = map[string]string{apply.AbortedAnnotation: s.revisions[2].Name}
	return s
}

func TestSteps(t *testing.T) {
	failing := newShop(3, partition("70%"))
	failing.pods[0].Status.Conditions = nil
	failing.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	unavailable := newShop(3, partition("70%"))
	unavailable.set.Status.UpdatedAvailableReplicas = 2
	gone := aborted()
	gone.revisions = gone.revisions[:2]
	small := newShop(10, func(c *v1beta1.CloneSet) { c.Spec.Replicas = new(int32(4)) })
	cases := map[string]struct {
		objects []client.Object
		args    string
	}{
		"canary":               {small.objects(), "rollout canary clone/web 10% --image app=repo/web:4"},
		"canary-none":          {newShop(10).objects(), "rollout canary clone/web 0 --image app=repo/web:4"},
		"canary-asts":          {newDB(6), "rollout canary asts/db 10% --image app=repo/db:3"},
		"canary-ads":           {newAgent(5), "rollout canary ads/agent 1 --env A=1"},
		"canary-deployment":    {newShop(10).objects(), "rollout canary deploy/x 10%"},
		"canary-word":          {newShop(10).objects(), "rollout canary clone/web some"},
		"canary-no-share":      {newShop(10).objects(), "rollout canary clone/web"},
		"promote":              {newShop(3, partition("70%")).objects(), "rollout promote clone/web --to 50%"},
		"promote-asts-full":    {newDB(4, dbPartition, dbPaused), "rollout promote asts/db --full"},
		"promote-ads":          {newAgent(3, agentPartition("50%")), "rollout promote ads/agent --to 4"},
		"promote-ads-selector": {newAgent(3, onZone("a"), agentPartition("50%")), "rollout promote ads/agent --full"},
		"promote-nothing":      {newShop(10).objects(), "rollout promote clone/web --full"},
		"promote-back":         {newShop(3, partition("70%")).objects(), "rollout promote clone/web --to 10%"},
		"promote-unavailable":  {unavailable.objects(), "rollout promote clone/web --to 50%"},
		"promote-failing":      {failing.objects(), "rollout promote clone/web --full"},
		"promote-skip":         {failing.objects(), "rollout promote clone/web --full --skip-checks"},
		"promote-unsaid":       {newShop(3, partition("70%")).objects(), "rollout promote clone/web"},
		"abort":                {newShop(3, partition("70%")).objects(), "rollout abort clone/web --yes"},
		"abort-unasked":        {newShop(3, partition("70%")).objects(), "rollout abort clone/web"},
		"abort-nothing":        {newShop(10).objects(), "rollout abort clone/web --yes"},
		"abort-pause":          {newShop(3, partition("70%")).objects(), "rollout abort clone/web --pause-only"},
		"abort-asts":           {newDB(4, dbPartition, dbPaused), "rollout abort asts/db --yes"},
		"abort-ads":            {newAgent(3, agentPartition("50%")), "rollout abort ads/agent --yes"},
		"retry":                {aborted().objects(), "rollout retry clone/web --to 10%"},
		"retry-nothing":        {newShop(10).objects(), "rollout retry clone/web --to 10%"},
		"retry-gone":           {gone.objects(), "rollout retry clone/web --to 10%"},
		"wait":                 {newShop(3, partition("70%")).objects(), "rollout wait clone/web --for Complete,partitionreached"},
		"wait-word":            {newShop(10).objects(), "rollout wait clone/web --for Done"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			r := w.run(strings.Fields(tc.args)...)
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+r.String())
			if r.code != 0 && len(r.writes) > 0 || r.code == 0 && len(r.writes) > 1 {
				t.Errorf("%s wrote %v", tc.args, r.writes)
			}
		})
	}
}

// What abort takes back, retry puts on again.
func TestRetryUndoesAbort(t *testing.T) {
	w := newWorld(t, newShop(3, partition("70%")).objects()...)
	if r := w.run("rollout", "abort", "clone/web", "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	set := &v1beta1.CloneSet{}
	read := func() {
		t.Helper()
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, set); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if image := set.Spec.Template.Spec.Containers[0].Image; image != "repo/web:2" || set.Spec.UpdateStrategy.RollingUpdate.Partition.IntValue() != 0 {
		t.Errorf("after abort: image %s, partition %s", image, set.Spec.UpdateStrategy.RollingUpdate.Partition)
	}
	if r := w.run("rollout", "retry", "clone/web", "--to", "20%"); r.code != 0 {
		t.Fatal(r)
	}
	read()
	if image := set.Spec.Template.Spec.Containers[0].Image; image != "repo/web:3" || set.Spec.UpdateStrategy.RollingUpdate.Partition.String() != "80%" || set.Annotations[apply.AbortedAnnotation] != "" {
		t.Errorf("after retry: image %s, partition %s, annotations %v", image, set.Spec.UpdateStrategy.RollingUpdate.Partition, set.Annotations)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func forbidden(kind string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, "", nil)
}

func partition(v string) func(*v1beta1.CloneSet) {
	return func(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.Parse(v)) }
}

func paused(c *v1beta1.CloneSet) { c.Spec.UpdateStrategy.RollingUpdate.Paused = true }

// Every case is one command line; its whole output is a golden file.
func TestCommands(t *testing.T) {
	cases := map[string]struct {
		shop *shop
		args string
	}{
		"status-complete":           {newShop(10), "rollout status clone/web"},
		"status-partition":          {newShop(3, partition("70%")), "rollout status clone/web"},
		"status-partition-full":     {newShop(3, partition("70%")), "rollout status clone/web --full"},
		"status-partition-json":     {newShop(3, partition("70%")), "rollout status clone/web -o json"},
		"status-paused":             {newShop(2, paused), "rollout status clone/web"},
		"status-check-progressing":  {newShop(4), "rollout status clone/web --check"},
		"status-look-progressing":   {newShop(4), "rollout status clone/web -w=false"},
		"status-two-objects":        {newShop(10), "rollout status clone/web clone/web --check"},
		"status-jsonl":              {newShop(10), "rollout status clone/web -o jsonl"},
		"status-unknown":            {newShop(10), "rollout status clone/none"},
		"status-unknown-json":       {newShop(10), "rollout status clone/none -o json"},
		"watch-plain":               {newShop(3, partition("70%")), "rollout watch clone/web"},
		"history":                   {newShop(3), "rollout history clone/web"},
		"history-wide":              {newShop(3), "rollout history clone/web -o wide"},
		"history-json":              {newShop(3), "rollout history clone/web -o json"},
		"history-revision":          {newShop(3), "rollout history clone/web --revision=2"},
		"history-revision-yaml":     {newShop(3), "rollout history clone/web --revision=2 -o yaml"},
		"history-revision-unknown":  {newShop(3), "rollout history clone/web --revision=9"},
		"history-diff":              {newShop(3), "rollout history clone/web --diff 2:3"},
		"undo":                      {newShop(10), "rollout undo clone/web"},
		"undo-canary":               {newShop(3, partition("70%")), "rollout undo clone/web"},
		"undo-canary-keep":          {newShop(3, partition("70%")), "rollout undo clone/web --keep-partition"},
		"undo-paused":               {newShop(3, paused), "rollout undo clone/web"},
		"undo-paused-resume":        {newShop(3, paused), "rollout undo clone/web --resume"},
		"undo-same":                 {newShop(10), "rollout undo clone/web --to-revision=3"},
		"undo-unknown":              {newShop(10), "rollout undo clone/web --to-revision=9"},
		"undo-negative":             {newShop(10), "rollout undo clone/web --to-revision=-1"},
		"undo-dry-run-yaml":         {newShop(10), "rollout undo clone/web --dry-run=client -o jsonpath={.spec.template.spec.containers[0].image}"},
		"pause":                     {newShop(3), "rollout pause clone/web"},
		"pause-again":               {newShop(3, paused), "rollout pause clone/web"},
		"pause-daemonset":           {newShop(3), "rollout pause daemonsets.apps/x"},
		"resume":                    {newShop(2, paused, partition("40%")), "rollout resume clone/web"},
		"resume-again":              {newShop(2), "rollout resume clone/web"},
		"partition":                 {newShop(3), "rollout partition clone/web 70%"},
		"partition-same":            {newShop(3, partition("70%")), "rollout partition clone/web 70%"},
		"partition-updated":         {newShop(3), "rollout partition clone/web --updated 30%"},
		"partition-over":            {newShop(3), "rollout partition clone/web 130%"},
		"partition-word":            {newShop(3), "rollout partition clone/web half"},
		"partition-raised":          {newShop(3), "rollout partition clone/web 9"},
		"restart-template-canary":   {newShop(3, partition("50%")), "rollout restart clone/web --method=template"},
		"restart-template":          {newShop(10), "rollout restart clone/web --method=template"},
		"restart-first-wave":        {newShop(10), "rollout restart clone/web --wait=false"},
		"preview-image":             {newShop(10), "rollout preview clone/web --image app=repo/web:4"},
		"preview-image-json":        {newShop(10), "rollout preview clone/web --image app=repo/web:4 -o json"},
		"preview-env":               {newShop(10), "rollout preview clone/web --env A=1"},
		"preview-label":             {newShop(10), "rollout preview clone/web --label tier=front"},
		"preview-present":           {newShop(3, partition("70%")), "rollout preview clone/web"},
		"preview-nothing":           {newShop(10), "rollout preview clone/web"},
		"preview-refused":           {newShop(10, inPlaceOnly), "rollout preview clone/web --env A=1"},
		"preview-unknown-container": {newShop(10), "rollout preview clone/web --image nginx=repo/web:4"},
		"set-image":                 {newShop(10), "set image clone/web app=repo/web:4"},
		"set-image-same":            {newShop(10), "set image clone/web app=repo/web:3"},
		"set-image-unknown":         {newShop(10), "set image clone/web nginx=repo/web:4"},
		"set-image-bad":             {newShop(10), "set image clone/web app=Web:4"},
		"why":                       {newShop(3, partition("70%")), "why clone/web"},
		"why-complete":              {newShop(10), "why clone/web"},
		"why-json":                  {newShop(3, paused), "why clone/web -o json"},
		"why-pod":                   {newShop(3, partition("70%")), "why pod/web-j"},
		"why-pod-healthy":           {newShop(10), "why pod/web-a"},
		"why-pod-unknown":           {newShop(10), "why pod/nobody"},
		"inplace-status":            {newShop(3, paused), "inplace status web-j"},
		"bare-word":                 {newShop(10), "rollout status web"},
		"no-argument":               {newShop(10), "rollout status"},
		"unknown-type":              {newShop(10), "rollout status thing/web"},
		"unknown-command":           {newShop(10), "rolout status x/y"},
		"unknown-subcommand":        {newShop(10), "rollout statsu x/y"},
		"unknown-flag":              {newShop(10), "rollout status clone/web --timout 3s"},
		"unknown-format":            {newShop(10), "rollout status clone/web -o xml"},
		"unreadable-file":           {newShop(10), "rollout preview -f testdata/none.yaml"},
		"completion-no-shell":       {newShop(10), "completion"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			golden(t, "commands/"+name, "$ kruisectl "+tc.args+"\n"+tc.shop.world(t).run(strings.Fields(tc.args)...).String())
		})
	}
}

func inPlaceOnly(c *v1beta1.CloneSet) {
	c.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
}

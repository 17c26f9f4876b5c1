// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/enumerate"
)

// How long something may go on before it counts as stuck (cli.md 4.8).
const (
	stuckReadiness = 10 * time.Minute
	stuckLifecycle = 30 * time.Minute
	stuckImageJob  = 30 * time.Minute
)

func (d *doctor) daemonPods(ctx context.Context) finding {
	s := d.daemonStatus(ctx, d.e)
	hint := "kubectl -n " + d.e.Namespace + " describe pod -l control-plane=daemon"
	switch s.State {
	case HealthOK:
		return okay("%s daemon Pods are ready", s.Ready)
	case HealthNone:
		return skipped("%s", s.Message)
	case HealthDegraded:
		return warn(hint, "%s daemon Pods are ready: %s", s.Ready, orAbsent(s.Message))
	}
	return bad(hint, "%s daemon Pods are ready: %s", s.Ready, orAbsent(s.Message))
}

// nodeImages compares Nodes with NodeImages, which have the names of their Nodes.
func (d *doctor) nodeImages(ctx context.Context) finding {
	if d.e.Daemon == nil {
		return skipped("there is no daemon")
	}
	nodes, err := d.list(ctx, gvkNode)
	if err != nil {
		return unreadable(err)
	}
	images, err := d.list(ctx, schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "NodeImage"})
	if err != nil {
		return unreadable(err)
	}
	names := func(list []unstructured.Unstructured) []string {
		var out []string
		for _, o := range list {
			out = append(out, o.GetName())
		}
		return out
	}
	var missing, stale []string
	have, want := names(images), names(nodes)
	for _, n := range nodes {
		ready := conditionTrue(&n, "Ready")
		if ready && n.GetLabels()["type"] != "virtual-kubelet" && !slices.Contains(have, n.GetName()) {
			missing = append(missing, n.GetName())
		}
	}
	for _, n := range have {
		if !slices.Contains(want, n) {
			stale = append(stale, n)
		}
	}
	switch {
	case len(missing) > 0:
		return warn("kubectl -n "+d.e.Namespace+" logs -l control-plane=controller-manager", "no NodeImage for nodes %s", strings.Join(missing, ", "))
	case len(stale) > 0:
		return warn("kubectl delete nodeimage "+strings.Join(stale, " "), "NodeImages of nodes that are gone: %s", strings.Join(stale, ", "))
	}
	return okay("every node has its NodeImage")
}

// stuckLifecycles finds Pods that wait for a hook of their lifecycle.
func (d *doctor) stuckLifecycles(ctx context.Context) finding {
	pods, err := d.list(ctx, gvkPod, client.HasLabels{"lifecycle.apps.kruise.io/state"})
	if err != nil {
		return unreadable(err)
	}
	var stuck []string
	for _, pod := range pods {
		state := pod.GetLabels()["lifecycle.apps.kruise.io/state"]
		if state != "PreparingDelete" && state != "PreparingUpdate" {
			continue
		}
		since, err := time.Parse(time.RFC3339, pod.GetAnnotations()["lifecycle.apps.kruise.io/timestamp"])
		if err == nil && d.Clock.Since(since) > stuckLifecycle {
			stuck = append(stuck, fmt.Sprintf("%s/%s (%s)", pod.GetNamespace(), pod.GetName(), state))
		}
	}
	if len(stuck) > 0 {
		return warn(d.program+" why pod/NAME", "Pods have waited for a lifecycle hook for more than %s: %s", stuckLifecycle, enumerate.Some(stuck, 10))
	}
	return okay("no Pod waits long for a lifecycle hook")
}

func (d *doctor) stuckReadiness(ctx context.Context) finding {
	pods, err := d.list(ctx, gvkPod)
	if err != nil {
		return unreadable(err)
	}
	var stuck []string
	for _, pod := range pods {
		conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
		for _, x := range conditions {
			m, _ := x.(map[string]any)
			kind := fmt.Sprint(m["type"])
			if (kind != "InPlaceUpdateReady" && kind != "KruisePodReady") || m["status"] != "False" {
				continue
			}
			since, err := time.Parse(time.RFC3339, fmt.Sprint(m["lastTransitionTime"]))
			if err == nil && d.Clock.Since(since) > stuckReadiness {
				stuck = append(stuck, fmt.Sprintf("%s/%s (%s)", pod.GetNamespace(), pod.GetName(), kind))
			}
		}
	}
	if len(stuck) > 0 {
		return warn(d.program+" why pod/NAME", "Pods have been held not ready for more than %s: %s", stuckReadiness, enumerate.Some(stuck, 10))
	}
	return okay("no Pod is held not ready for long")
}

func (d *doctor) stuckImageJobs(ctx context.Context) finding {
	jobs, err := d.list(ctx, schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "ImagePullJob"})
	if err != nil {
		return unreadable(err)
	}
	var stuck []string
	for _, j := range jobs {
		done, _, _ := unstructured.NestedString(j.Object, "status", "completionTime")
		policy, _, _ := unstructured.NestedString(j.Object, "spec", "completionPolicy", "type")
		if done == "" && policy != "Never" && d.Clock.Since(j.GetCreationTimestamp().Time) > stuckImageJob {
			stuck = append(stuck, j.GetNamespace()+"/"+j.GetName())
		}
	}
	if len(stuck) > 0 {
		return warn(d.program+" image status NAME", "ImagePullJobs are not complete after %s: %s", stuckImageJob, enumerate.Some(stuck, 10))
	}
	return okay("no ImagePullJob takes long")
}

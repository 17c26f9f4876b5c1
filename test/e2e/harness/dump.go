//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// dump logs what a reader of a failed run needs: workloads, Pods, events, manager's log.
func (e *Env) dump(ctx context.Context) {
	in := client.InNamespace(e.Namespace)
	sets, pods, events := &v1beta1.CloneSetList{}, &corev1.PodList{}, &corev1.EventList{}
	_ = e.Client.List(ctx, sets, in)
	_ = e.Client.List(ctx, pods, in)
	_ = e.Client.List(ctx, events, in)
	for i := range sets.Items {
		sets.Items[i].ManagedFields = nil
		text, _ := yaml.Marshal(sets.Items[i])
		e.T.Logf("CloneSet %s:\n%s", sets.Items[i].Name, text)
	}
	e.dumpPulls(ctx)
	for _, p := range pods.Items {
		text, _ := yaml.Marshal(map[string]any{"labels": p.Labels, "annotations": p.Annotations, "status": p.Status})
		e.T.Logf("Pod %s on %s:\n%s", p.Name, p.Spec.NodeName, text)
	}
	for _, ev := range events.Items {
		e.T.Logf("event %s %s/%s %s: %s (%d)", ev.LastTimestamp.Format(time.TimeOnly), ev.InvolvedObject.Kind, ev.InvolvedObject.Name, ev.Reason, ev.Message, ev.Count)
	}
	e.managerLogs(ctx)
}

// dumpPulls logs the jobs of the namespace, and what nodes say of images if there are jobs.
func (e *Env) dumpPulls(ctx context.Context) {
	jobs, lists, nodes := &v1beta1.ImagePullJobList{}, &v1beta1.ImageListPullJobList{}, &v1beta1.NodeImageList{}
	_ = e.Client.List(ctx, jobs, client.InNamespace(e.Namespace))
	_ = e.Client.List(ctx, lists, client.InNamespace(e.Namespace))
	for _, j := range jobs.Items {
		text, _ := yaml.Marshal(map[string]any{"spec": j.Spec, "status": j.Status, "finalizers": j.Finalizers})
		e.T.Logf("ImagePullJob %s:\n%s", j.Name, text)
	}
	for _, l := range lists.Items {
		text, _ := yaml.Marshal(map[string]any{"spec": l.Spec, "status": l.Status})
		e.T.Logf("ImageListPullJob %s:\n%s", l.Name, text)
	}
	if len(jobs.Items) == 0 {
		return
	}
	_ = e.Client.List(ctx, nodes)
	for _, n := range nodes.Items {
		text, _ := yaml.Marshal(map[string]any{"spec": n.Spec, "status": n.Status})
		e.T.Logf("NodeImage %s:\n%s", n.Name, text)
	}
}

func (e *Env) managerLogs(ctx context.Context) {
	k, err := kubernetes.NewForConfig(e.Config)
	if err != nil {
		return
	}
	list := &corev1.PodList{}
	_ = e.Client.List(ctx, list, client.InNamespace(SystemNamespace))
	for _, p := range list.Items {
		raw, err := k.CoreV1().Pods(SystemNamespace).GetLogs(p.Name, &corev1.PodLogOptions{TailLines: new(int64(80))}).DoRaw(ctx)
		if err != nil {
			continue
		}
		var lines []string
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, e.Namespace) || strings.HasPrefix(line, "E") {
				lines = append(lines, line)
			}
		}
		e.T.Logf("log of %s (lines about this namespace and errors):\n%s", p.Name, strings.Join(lines, ""))
	}
}

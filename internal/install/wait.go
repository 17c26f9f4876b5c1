// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Condition is one thing that an installation needs to work.
type Condition struct {
	// ID is stable, for tools.
	ID string
	// Check returns whether the condition holds and a phrase on how things stand. An error
	// means that it could not be found out, and counts as "not yet".
	Check func(ctx context.Context) (ok bool, detail string, err error)
}

// A TimeoutError lists what was still missing.
type TimeoutError struct {
	Timeout time.Duration
	Missing []string
}

// Error implements error in one sentence.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("after %s still missing: %s", e.Timeout, strings.Join(e.Missing, "; "))
}

// waitFor polls until every condition holds, at most for timeout.
func (c *Cluster) waitFor(ctx context.Context, conditions []Condition, timeout time.Duration, p Progress) error {
	deadline := c.Clock.Now().Add(timeout)
	for {
		var missing []string
		for _, cond := range conditions {
			ok, detail, err := cond.Check(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				detail = err.Error()
			}
			if !ok {
				missing = append(missing, detail)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		p.waiting(strings.Join(missing, "\n"))
		if !c.Clock.Now().Before(deadline) {
			return &TimeoutError{Timeout: timeout, Missing: missing}
		}
		timer := c.Clock.NewTimer(c.poll())
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C():
		}
	}
}

// wait waits for the manager, lets webhooks fail closed, then waits for the rest.
func (r *run) wait(ctx context.Context) error {
	ns := r.m.Values.Installation.Namespace
	if r.m.Values.CRDs.Only {
		r.result.Waited = true
		return nil
	}
	start := r.Clock.Now()
	left := func() time.Duration { return max(0, r.o.Timeout-r.Clock.Since(start)) }
	first := []Condition{r.managerReady(ns), r.leaderHeld(ns), r.bundlesMatch(ns)}
	if err := r.waitFor(ctx, first, left(), r.p); err != nil {
		return withTimeout(err, r.o.Timeout)
	}
	if r.webhooksLast() {
		if err := r.failClosed(ctx); err != nil {
			return err
		}
	}
	second := []Condition{r.bundlesMatch(ns), r.probe(r.o.ProbeNamespace), r.conversionWorks()}
	if r.rendersDaemon() && r.o.DaemonWait != "none" {
		second = append(second, r.daemonReady(ns, r.o.DaemonWait))
	}
	if err := r.waitFor(ctx, second, left(), r.p); err != nil {
		return withTimeout(err, r.o.Timeout)
	}
	r.result.Waited = true
	return nil
}

func withTimeout(err error, total time.Duration) error {
	if t, ok := err.(*TimeoutError); ok { //nolint:errorlint // made by waitFor just now
		t.Timeout = total
	}
	return err
}

func (r *run) rendersDaemon() bool {
	for _, o := range r.m.Objects {
		if o.GetKind() == "DaemonSet" {
			return true
		}
	}
	return false
}

func (c *Cluster) namespaceActive(name string) Condition {
	return Condition{ID: "namespace-" + name, Check: func(ctx context.Context) (bool, string, error) {
		live, err := c.get(ctx, gvkNamespace, "", name)
		if err != nil || live == nil {
			return false, "namespace " + name + " is missing", err
		}
		if live.GetDeletionTimestamp() != nil {
			return false, "namespace " + name + " is being deleted: " + strings.Join(remaining(live), "; "), nil
		}
		return true, "", nil
	}}
}

func (c *Cluster) crdsEstablished(names []string) Condition {
	return Condition{ID: "crds-established", Check: func(ctx context.Context) (bool, string, error) {
		var waiting []string
		for _, name := range names {
			live, err := c.get(ctx, gvkCRD, "", name)
			if err != nil {
				return false, "", err
			}
			if live == nil || !conditionTrue(live, "Established") {
				waiting = append(waiting, name)
			}
		}
		return len(waiting) == 0, "CRDs not established: " + strings.Join(waiting, ", "), nil
	}}
}

func conditionTrue(o *unstructured.Unstructured, kind string) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, x := range list {
		if m, _ := x.(map[string]any); m["type"] == kind {
			return m["status"] == "True"
		}
	}
	return false
}

func (c *Cluster) managerReady(ns string) Condition {
	return Condition{ID: "manager-ready", Check: func(ctx context.Context) (bool, string, error) {
		live, err := c.get(ctx, gvkDeployment, ns, managerName)
		if err != nil || live == nil {
			return false, "manager: no Deployment", err
		}
		ready, want, done := deploymentState(live)
		if done {
			return true, "", nil
		}
		detail := fmt.Sprintf("manager %d/%d", ready, want)
		if ready == want {
			detail += ", not all available or of the new version yet"
		} else if why := c.podTrouble(ctx, ns, "control-plane=controller-manager"); why != "" {
			detail += " (" + why + ")"
		}
		return false, detail, nil
	}}
}

// deploymentState reports ready and wanted replicas, and whether the newest template runs
// everywhere.
func deploymentState(d *unstructured.Unstructured) (ready, want int64, done bool) {
	want, ok, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	if !ok {
		want = 1
	}
	n := func(field string) int64 { v, _, _ := unstructured.NestedInt64(d.Object, "status", field); return v }
	ready = n("readyReplicas")
	done = n("observedGeneration") >= d.GetGeneration() && n("updatedReplicas") == want &&
		n("availableReplicas") == want && n("replicas") == want
	return ready, want, done
}

// podTrouble says in a few words why Pods of ns are not running, with the worst of them.
func (c *Cluster) podTrouble(ctx context.Context, ns, selector string) string {
	key, value, _ := strings.Cut(selector, "=")
	pods, err := c.list(ctx, gvkPod, client.InNamespace(ns), client.MatchingLabels{key: value})
	if err != nil {
		return ""
	}
	if len(pods) == 0 {
		return "no Pod exists"
	}
	for _, pod := range pods {
		if why := trouble(&pod); why != "" {
			return pod.GetName() + ": " + why
		}
	}
	return ""
}

// trouble returns the reason a container waits or the scheduler's message.
func trouble(pod *unstructured.Unstructured) string {
	statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, s := range statuses {
		m, _ := s.(map[string]any)
		reason, _, _ := unstructured.NestedString(m, "state", "waiting", "reason")
		message, _, _ := unstructured.NestedString(m, "state", "waiting", "message")
		if reason != "" && reason != "ContainerCreating" && reason != "PodInitializing" {
			if message != "" {
				reason += ", " + message
			}
			return reason
		}
	}
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, x := range conditions {
		m, _ := x.(map[string]any)
		if m["type"] == "PodScheduled" && m["status"] == "False" {
			return fmt.Sprint(m["message"])
		}
	}
	return ""
}

func (c *Cluster) leaderHeld(ns string) Condition {
	return Condition{ID: "manager-leader", Check: func(ctx context.Context) (bool, string, error) {
		leader, err := c.Leader(ctx, ns)
		if err != nil {
			return false, "", err
		}
		return leader.Pod != "" && leader.Alive, "no live manager holds Lease " + leaseName, nil
	}}
}

// probe creates a CloneSet in a dry run, which passes defaulting and validation.
func (c *Cluster) probe(namespace string) Condition {
	return Condition{ID: "webhook-probe", Check: func(ctx context.Context) (bool, string, error) {
		if namespace == "" {
			namespace = "default"
		}
		labels := map[string]any{"app": "kruisectl-probe"}
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"replicas": int64(0),
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "probe"}}},
			},
		}}}
		u.SetGroupVersionKind(gvkCloneSet)
		u.SetNamespace(namespace)
		u.SetGenerateName("kruisectl-probe-")
		if err := c.Client.Create(ctx, u, client.DryRunAll); err != nil {
			return false, "", fmt.Errorf("a CloneSet cannot be created in namespace %s: %w", namespace, err)
		}
		return true, "", nil
	}}
}

// conversionWorks reads one object of each kind at each served version.
func (c *Cluster) conversionWorks() Condition {
	return Condition{ID: "crd-conversion", Check: func(ctx context.Context) (bool, string, error) {
		crds, err := c.kruiseCRDs(ctx)
		if err != nil {
			return false, "", err
		}
		for _, crd := range crds {
			for _, gvk := range servedVersions(&crd) {
				l := &unstructured.UnstructuredList{}
				l.SetGroupVersionKind(gvk)
				if err := c.Client.List(ctx, l, client.Limit(1)); err != nil {
					return false, "", fmt.Errorf("reading %s in version %s: %w", crd.GetName(), gvk.Version, err)
				}
			}
		}
		return true, "", nil
	}}
}

func (c *Cluster) daemonReady(ns, share string) Condition {
	return Condition{ID: "daemon-ready", Check: func(ctx context.Context) (bool, string, error) {
		live, err := c.get(ctx, gvkDaemonSet, ns, daemonName)
		if err != nil || live == nil {
			return false, "daemon: no DaemonSet", err
		}
		n := func(field string) int64 { v, _, _ := unstructured.NestedInt64(live.Object, "status", field); return v }
		desired := n("desiredNumberScheduled")
		need := needed(desired, share)
		seen := n("observedGeneration") >= live.GetGeneration()
		if seen && n("updatedNumberScheduled") >= need && n("numberAvailable") >= need {
			return true, "", nil
		}
		detail := fmt.Sprintf("daemon %d/%d", n("numberAvailable"), desired)
		if why := c.podTrouble(ctx, ns, "control-plane=daemon"); why != "" {
			detail += " (" + why + ")"
		}
		return false, detail, nil
	}}
}

// needed is how many of n daemon Pods a share asks for, rounded up: "all", "none", "90%".
func needed(n int64, share string) int64 {
	switch share {
	case "", "all":
		return n
	case "none":
		return 0
	}
	percent, err := ParseShare(share)
	if err != nil {
		return n
	}
	return (n*percent + 99) / 100
}

// ParseShare reads a percentage such as "90%"; "all" is 100 and "none" is 0.
func ParseShare(share string) (int64, error) {
	switch share {
	case "all":
		return 100, nil
	case "none":
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(share, "%"), 10, 64)
	if err != nil || !strings.HasSuffix(share, "%") || n < 0 || n > 100 {
		return 0, fmt.Errorf("%q is not all, none or a percentage such as 90%%", share)
	}
	return n, nil
}

// WaitRollouts waits until manager and daemon run with what was last written to them.
func (c *Cluster) WaitRollouts(ctx context.Context, e Existing, timeout time.Duration, p Progress) error {
	conditions := []Condition{c.managerReady(e.Namespace)}
	if e.Daemon != nil {
		conditions = append(conditions, c.daemonReady(e.Namespace, "90%"))
	}
	return c.waitFor(ctx, conditions, timeout, p)
}

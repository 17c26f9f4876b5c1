// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// imageJob is the workload that is no rollout: one ImagePullJob on all simulated nodes, for
// each parallelism once.
const imageJob = "imagepulljob"

// pullFigures are the results of one job.
type pullFigures struct {
	Nodes       int `json:"nodes"`
	Parallelism int `json:"parallelism"`

	Seconds float64 `json:"seconds"`
	// FloorSeconds is what the simulated nodes alone would take.
	FloorSeconds float64 `json:"floorSeconds"`
	Succeeded    int     `json:"succeeded"`

	// Writes are the manager's, from the creation of the job until after its end. The floor is
	// one for each node: somebody has to tell it.
	Writes        writes             `json:"writes"`
	WritesPerNode map[string]float64 `json:"writesPerNode"`
	TotalPerNode  float64            `json:"totalWritesPerNode"`
	// Agents are the writes of the simulated node agents: Pulling and the result, 2 a node.
	Agents writes `json:"agentWrites"`

	ManagerCPUSeconds float64 `json:"managerCPUSeconds"`
	ManagerPeakBytes  int64   `json:"managerPeakBytes"`

	// Removal is what it takes until no NodeImage has the task, once the job is deleted.
	RemovalSeconds float64 `json:"removalSeconds"`
	RemovalWrites  writes  `json:"removalWrites"`
}

func parseParallelism(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-parallelism %q: write numbers such as 50,1000", list)
		}
		all = append(all, n)
	}
	return all, nil
}

// pulls measures one job for each parallelism, one after the other.
func (b *bench) pulls(ctx context.Context) ([]*pullFigures, error) {
	parallelism, err := parseParallelism(b.parallelism)
	if err != nil {
		return nil, err
	}
	if err := b.countNodes(ctx); err != nil {
		return nil, err
	}
	err = b.nodeImages(ctx, "a NodeImage of each simulated node", func(list []v1beta1.NodeImage) bool { return len(list) == b.nodes })
	if err != nil {
		return nil, err
	}
	var all []*pullFigures
	for i, p := range parallelism {
		f, err := b.pull(ctx, fmt.Sprintf("pull-%d", i), p)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func (b *bench) pull(ctx context.Context, name string, parallelism int) (*pullFigures, error) {
	waves := (b.nodes + parallelism - 1) / parallelism
	f := &pullFigures{Nodes: b.nodes, Parallelism: parallelism, FloorSeconds: float64(waves) * b.pullDelay.Seconds()}
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name}, Spec: v1beta1.ImagePullJobSpec{
		Image: "nginx:" + name,
		ImagePullJobTemplate: v1beta1.ImagePullJobTemplate{
			Selector:    &v1beta1.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{simulated: "true"}}},
			Parallelism: new(intstr.FromInt(parallelism)),
		},
	}}
	l, err := b.findLeader(ctx)
	if err != nil {
		return nil, err
	}
	cpu, _, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	mark, err := size(b.auditLog)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go l.watchPeak(watching)

	start := time.Now()
	if err := b.client.Create(ctx, job); err != nil {
		return nil, fmt.Errorf("creating the job: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second/5, patience, true, func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil && job.Status.CompletionTime != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the end of the job (status: %+v): %w", job.Status, err)
	}
	f.Seconds, f.Succeeded = time.Since(start).Seconds(), int(job.Status.Succeeded)
	if err := settle(ctx); err != nil {
		return nil, err
	}
	after, _, err := l.read(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	f.ManagerCPUSeconds, f.ManagerPeakBytes = after-cpu, l.peak
	l.mu.Unlock()
	if f.Writes, err = b.writesSince(mark, byManager); err != nil {
		return nil, err
	}
	if f.Agents, err = b.writesSince(mark, byAgents); err != nil {
		return nil, err
	}
	f.perNode()
	return f, b.remove(ctx, job, f)
}

// settle waits for what the manager still writes after the end: it is part of the price.
func settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return nil
	}
}

// remove deletes the job and measures how its tasks go.
func (b *bench) remove(ctx context.Context, job *v1beta1.ImagePullJob, f *pullFigures) error {
	mark, err := size(b.auditLog)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := b.client.Delete(ctx, job); err != nil {
		return fmt.Errorf("deleting the job: %w", err)
	}
	err = b.nodeImages(ctx, "NodeImages without tasks", func(list []v1beta1.NodeImage) bool {
		return !slices.ContainsFunc(list, func(ni v1beta1.NodeImage) bool { return len(ni.Spec.Images) > 0 })
	})
	if err != nil {
		return err
	}
	f.RemovalSeconds = time.Since(start).Seconds()
	if err := settle(ctx); err != nil {
		return err
	}
	f.RemovalWrites, err = b.writesSince(mark, byManager)
	return err
}

// nodeImages waits until the NodeImages of the simulated nodes are as ok wants them.
func (b *bench) nodeImages(ctx context.Context, what string, ok func([]v1beta1.NodeImage) bool) error {
	list := &v1beta1.NodeImageList{}
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		err := b.client.List(ctx, list, client.MatchingLabels{simulated: "true"})
		return err == nil && ok(list.Items), err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s (there are %d NodeImages): %w", what, len(list.Items), err)
	}
	return nil
}

func (b *bench) writesSince(mark int64, of func(auditEvent) bool) (writes, error) {
	log, err := os.Open(b.auditLog)
	if err != nil {
		return writes{}, fmt.Errorf("opening the audit log: %w", err)
	}
	defer log.Close()
	if _, err := log.Seek(mark, io.SeekStart); err != nil {
		return writes{}, err
	}
	return countWrites(log, of)
}

func (f *pullFigures) perNode() {
	f.WritesPerNode = map[string]float64{}
	for k, n := range f.Writes.Succeeded {
		f.WritesPerNode[k] = float64(n) / float64(f.Nodes)
	}
	f.TotalPerNode = float64(f.Writes.Total) / float64(f.Nodes)
}

func (f *pullFigures) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %d simulated nodes, parallelism %d\n", imageJob, f.Nodes, f.Parallelism)
	fmt.Fprintf(out, "  %-40s %10d\n", "nodes that have the image", f.Succeeded)
	fmt.Fprintf(out, "  %-40s %10.1f s\n", "job", f.Seconds)
	fmt.Fprintf(out, "  %-40s %10.2f of the %.1f s that the nodes take\n", "", f.Seconds/f.FloorSeconds, f.FloorSeconds)
	fmt.Fprintf(out, "  %-40s %10.3f, the floor is 1\n", "API writes of the manager per node", f.TotalPerNode)
	for _, k := range slices.Sorted(maps.Keys(f.WritesPerNode)) {
		fmt.Fprintf(out, "    %-38s %10.3f\n", k, f.WritesPerNode[k])
	}
	fmt.Fprintf(out, "    %-38s %10d\n", "conflicts, in all", f.Writes.Conflicts)
	fmt.Fprintf(out, "    %-38s %10d\n", "refused or failed, in all", f.Writes.Failed)
	fmt.Fprintf(out, "  %-40s %10.3f, the floor is 2\n", "API writes of the node agent per node", float64(f.Agents.Total)/float64(f.Nodes))
	fmt.Fprintf(out, "    %-38s %10d\n", "conflicts, in all", f.Agents.Conflicts)
	fmt.Fprintf(out, "  %-40s %10.1f s\n", "CPU of the leading manager", f.ManagerCPUSeconds)
	fmt.Fprintf(out, "  %-40s %10.1f MiB\n", "peak memory of the leading manager", float64(f.ManagerPeakBytes)/(1<<20))
	fmt.Fprintf(out, "  %-40s %10.1f s\n", "removal of all tasks with the job", f.RemovalSeconds)
	fmt.Fprintf(out, "  %-40s %10.3f, the floor is 1\n", "API writes of the manager per node", float64(f.RemovalWrites.Total)/float64(f.Nodes))
	fmt.Fprintf(out, "    %-38s %10d\n", "conflicts, in all", f.RemovalWrites.Conflicts)
}

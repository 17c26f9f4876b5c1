// SPDX-License-Identifier: Apache-2.0

// Command bench measures one rollout, or jobs that pull an image on every node, on a cluster
// whose nodes are simulated: seconds, API writes per Pod or node by verb and resource as the API server's audit log has them, and the
// manager's CPU and memory. It prints a table and writes the same numbers as JSON. It
// judges nothing: figures of different machines are for people to compare.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.workload, "workload", "cloneset", "kind to measure: cloneset, statefulset, daemonset or imagepulljob")
	flag.IntVar(&o.pods, "pods", 1000, "replicas; a DaemonSet has one Pod on each simulated node")
	flag.DurationVar(&o.restart, "restart", time.Second, "how long a simulated node takes to start a container again")
	flag.StringVar(&o.maxUnavailable, "max-unavailable", "20%", "limit of the rolling update")
	flag.StringVar(&o.parallelism, "parallelism", "50,1000", "of image jobs: one after the other with each of these")
	flag.DurationVar(&o.pullDelay, "pull", 2*time.Second, "how long a simulated node takes for an image")
	flag.StringVar(&o.metrics, "metrics", "", "URL of the metrics of a manager that runs as a process of this machine; default the leader's, through the API server")
	flag.StringVar(&o.auditLog, "audit-log", os.Getenv("CLUSTER_AUDIT_LOG"), "audit log of the API server, one JSON event a line")
	flag.StringVar(&o.out, "o", "out/bench.json", "where to write the figures as JSON")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if workloads[o.workload] == nil && o.workload != imageJob {
		fmt.Fprintf(os.Stderr, "error: -workload %q: write cloneset, statefulset, daemonset or imagepulljob\n", o.workload)
		os.Exit(2)
	}
	results, err := run(ctx, o)
	if err == nil {
		err = report(os.Stdout, o.out, results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// printer are figures that people read.
type printer interface{ print(out io.Writer) }

// report prints the figures and writes them as JSON: one object, or a list of several.
func report(out io.Writer, path string, results []printer) error {
	for _, f := range results {
		f.print(out)
	}
	var all any = results
	if len(results) == 1 {
		all = results[0]
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	fmt.Fprintln(out, "written to", path)
	return nil
}

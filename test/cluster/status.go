// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

// Phase says in one word how a cluster is.
type Phase string

// The phases of a cluster.
const (
	Absent     Phase = "Absent"     // nothing recorded
	Incomplete Phase = "Incomplete" // Up is running or did not get to its end
	Running    Phase = "Running"
	Degraded   Phase = "Degraded" // the API server answers, something else does not work
	Broken     Phase = "Broken"   // the API server or the supervisor does not answer
)

// NodeStatus is one real node as it is now.
type NodeStatus struct {
	NodeState
	Ready bool `json:"ready"`
}

// Status is a cluster as it is now, for people and as JSON.
type Status struct {
	Name            string              `json:"name"`
	Phase           Phase               `json:"phase"`
	Problem         string              `json:"problem,omitempty"` // what is wrong, unless the phase is Running
	Shape           Shape               `json:"shape,omitzero"`
	Kubeconfig      string              `json:"kubeconfig,omitempty"`
	APIServer       string              `json:"apiServer,omitempty"`
	AuditLog        string              `json:"auditLog,omitempty"`
	Registry        string              `json:"registry,omitempty"`
	PrivateRegistry string              `json:"privateRegistry,omitempty"`
	BinDir          string              `json:"binDir,omitempty"`
	LogsDir         string              `json:"logsDir,omitempty"`
	SimulatedReady  int                 `json:"simulatedReady"`
	Nodes           []NodeStatus        `json:"nodes,omitempty"`
	Processes       []supervisor.Status `json:"processes,omitempty"`
}

// Healthy says whether everything works.
func (s Status) Healthy() bool { return s.Phase == Running }

// StatusOf is the status of the named cluster, which need not exist.
func StatusOf(ctx context.Context, name string) (Status, error) {
	c, err := Load(name)
	switch {
	case err == nil:
		return c.Status(ctx), nil
	case isAbsent(err):
		return Status{Name: name, Phase: Absent, Problem: "there is no such cluster"}, nil
	}
	return Status{}, err
}

// Status asks the supervisor and the API server how the cluster is; it takes a few seconds at most.
func (c *Cluster) Status(ctx context.Context) Status {
	s := c.State
	st := Status{
		Name: s.Name, Phase: Running, Shape: s.Shape, Kubeconfig: s.Kubeconfig, APIServer: s.APIServer, AuditLog: s.AuditLog,
		Registry: s.Registry, PrivateRegistry: s.PrivateRegistry, BinDir: s.BinDir, LogsDir: s.logsDir(),
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, n := range s.Nodes {
		st.Nodes = append(st.Nodes, NodeStatus{NodeState: n})
	}
	var problems []string
	processes, err := c.supervisor.List(ctx)
	if err != nil {
		st.Phase, st.Problem = Broken, "the supervisor does not answer: "+err.Error()
		return st
	}
	st.Processes = processes
	for _, p := range processes {
		if p.State != supervisor.Running {
			problems = append(problems, fmt.Sprintf("%s is %s", p.Name, p.State))
		}
	}
	nodeProblems, err := c.observeNodes(ctx, &st)
	if err != nil {
		st.Phase, st.Problem = Broken, "the API server does not answer: "+err.Error()
		return st
	}
	problems = append(problems, nodeProblems...)
	if len(problems) > 0 {
		st.Phase, st.Problem = Degraded, strings.Join(problems, "; ")
	}
	if !s.Complete {
		st.Phase, st.Problem = Incomplete, strings.Join(append([]string{"its start did not come to the end"}, problems...), "; ")
	}
	return st
}

// observeNodes fills in which nodes are Ready and says what is wrong with the others.
func (c *Cluster) observeNodes(ctx context.Context, st *Status) ([]string, error) {
	kube, err := c.clientset()
	if err != nil {
		return nil, err
	}
	list, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	why := map[string]string{}
	for i := range list.Items {
		n := &list.Items[i]
		why[n.Name] = notReady(n)
		if n.Labels["type"] == "simulated" && why[n.Name] == "" {
			st.SimulatedReady++
		}
	}
	var problems []string
	for i := range st.Nodes {
		n := &st.Nodes[i]
		problem, known := why[n.Name]
		if !known {
			problem = "Node " + n.Name + " does not exist"
		}
		n.Ready = problem == ""
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	if st.SimulatedReady < st.Shape.Simulated {
		problems = append(problems, fmt.Sprintf("%d of %d simulated nodes are Ready", st.SimulatedReady, st.Shape.Simulated))
	}
	return problems, nil
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Cluster runs the tool that keeps the cluster under test, such as
// Cluster("process", "kill", "node1.containerd"), and returns its output. The tool is
// another Go module and so a program here, found in PATH.
func (e *Env) Cluster(args ...string) string {
	e.T.Helper()
	r, err := Run(e.Background(), "", "cluster", args...)
	require.NoError(e.T, err)
	require.Zero(e.T, r.Code, "exit code of cluster %v:\n%s", args, r.Text())
	return r.Stdout
}

// Disturb injects a fault into a process of the cluster: start, stop, restart, kill,
// freeze or thaw. After one that the API server feels, call WaitForAPIServer.
func (e *Env) Disturb(action, process string) {
	e.T.Helper()
	e.Cluster("process", action, process)
	e.T.Logf("fault: %s %s", action, process)
}

// WaitForAPIServer returns when the API server and its storage answer again, several times
// in a row.
func (e *Env) WaitForAPIServer() {
	e.T.Helper()
	good := 0
	e.EventuallyIn(e.Background(), "the API server answers", Short, func() string {
		if err := e.Client.Get(e.Background(), e.Key("default"), &corev1.ServiceAccount{}); err != nil {
			good = 0
			return err.Error()
		}
		if good++; good < steady {
			return fmt.Sprintf("%d answers in a row", good)
		}
		return ""
	})
}

// SlowRegistry makes every later download of an image layer wait for d first, until the
// test ends or SlowRegistry(0) is called.
func (e *Env) SlowRegistry(d time.Duration) {
	e.T.Helper()
	var status struct {
		Registry string `json:"registry"`
	}
	require.NoError(e.T, json.Unmarshal([]byte(e.Cluster("status", "-o", "json")), &status))
	set := func(d time.Duration) error {
		u := url.URL{Scheme: "http", Host: status.Registry, Path: "/test/delay", RawQuery: url.Values{"blob": {d.String()}}.Encode()}
		req, err := http.NewRequestWithContext(e.Background(), http.MethodPut, u.String(), nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			return fmt.Errorf("registry answered %s", resp.Status)
		}
		return nil
	}
	require.NoError(e.T, set(d))
	if d == 0 {
		return
	}
	e.T.Cleanup(func() {
		if err := set(0); err != nil {
			e.T.Errorf("making the registry fast again: %v", err)
		}
	})
}

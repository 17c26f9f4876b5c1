// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// The program itself, from its arguments to its exit code: this test binary becomes it.
func TestProcess(t *testing.T) {
	c := newCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, c.server.Kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	probe := freeAddr(t)
	_, port, found := strings.Cut(freeAddr(t), ":")
	if !found {
		t.Fatal("no port")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0],
		"--kubeconfig="+kubeconfig, "--health-probe-addr="+probe, "--metrics-addr=0", "--pprof-addr=127.0.0.1:0", "--logging-format=json",
		"--v=1", "--logtostderr=true", "--protection-log-path="+t.TempDir(), "--leader-election-release-on-exit",
		"--feature-gates=AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false")
	cmd.Env = append(slices.Clone(os.Environ()), asManager+"=1", "WEBHOOK_CERT_DIR="+t.TempDir(), "WEBHOOK_PORT="+port)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	c.eventually("the process gets ready", func(context.Context) error { return get("http://" + probe + "/readyz") })
	c.eventually("the process leads", func(context.Context) error {
		if !strings.Contains(out.String(), "This replica leads") {
			return fmt.Errorf("log:\n%s", out)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Told to stop, it is unready at once and still serves.
	c.eventually("the process says that it ends", func(context.Context) error {
		if err := get("http://" + probe + "/readyz"); err == nil {
			return fmt.Errorf("ready")
		}
		return nil
	})
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the process ended with %v:\n%s", err, out)
		}
	case <-time.After(limit):
		t.Fatal("the process does not end")
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}

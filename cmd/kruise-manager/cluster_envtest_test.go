// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/manifests"
)

// limit is how long a test waits for anything that has to happen.
const limit = 3 * time.Minute

// cluster is an API server with what the installer applies, and no manager yet.
type cluster struct {
	t      *testing.T
	server *apitest.Server
	client client.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, server: apitest.StartServer(t, apitest.WithoutCRDs())}
	c.client = apitest.NewClient(t, c.server.Config)
	crds, err := apitest.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(c.server.Config, envtest.CRDInstallOptions{CRDs: crds}); err != nil {
		t.Fatal(err)
	}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system", Labels: map[string]string{"control-plane": "openkruise"}}})
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-daemon-config"}})
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	c.manifest("base/webhook/mutating.yaml", m)
	c.manifest("base/webhook/validating.yaml", v)
	c.create(m)
	c.create(v)
	for _, file := range []string{"manager", "pull-secrets", "certificates", "leader-election"} {
		c.apply("base/rbac/" + file + ".yaml")
	}
	return c
}

// apply creates every object of a file of manifests.
func (c *cluster) apply(path string) {
	c.t.Helper()
	raw, err := manifests.Files.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			c.t.Fatalf("%s: %v", path, err)
		}
		if obj.Object != nil {
			c.create(obj)
		}
	}
}

func (c *cluster) manifest(path string, into client.Object) {
	c.t.Helper()
	raw, err := manifests.Files.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) create(obj client.Object) {
	c.t.Helper()
	if err := c.client.Create(c.t.Context(), obj); err != nil {
		c.t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

func (c *cluster) eventually(what string, ok func(ctx context.Context) error) {
	c.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.t.Context(), 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		last = ok(ctx)
		return last == nil, nil
	})
	if err != nil {
		c.t.Fatalf("%s: %v", what, last)
	}
}

// manager is one replica in this process.
type manager struct {
	dir    string
	probe  string // http://host:port
	metric string
	hook   string       // host:port
	stop   func() error // ends it
	wait   func() error // waits for its own end
}

// start runs a manager with the flags of the acceptance environment and more.
func (c *cluster) start(env map[string]string, args ...string) *manager {
	c.t.Helper()
	m := &manager{dir: c.t.TempDir(), probe: freeAddr(c.t), metric: freeAddr(c.t), hook: freeAddr(c.t)}
	_, port, err := net.SplitHostPort(m.hook)
	if err != nil {
		c.t.Fatal(err)
	}
	vars := map[string]string{
		"WEBHOOK_PORT": port, "WEBHOOK_HOST": "127.0.0.1", "WEBHOOK_CERT_WRITER": "secret",
		"WEBHOOK_CERT_DIR": filepath.Join(m.dir, "certs"), "KUBE_CACHE_MUTATION_DETECTOR": "true",
	}
	for k, v := range env {
		vars[k] = v
	}
	o := newOptions(func(name string) string { return vars[name] })
	if err := parse(o, append([]string{
		"--health-probe-addr=" + m.probe, "--metrics-addr=" + m.metric, "--pprof-addr=127.0.0.1:0",
		"--protection-log-path=" + filepath.Join(m.dir, "log"), "--nodeimage-creation-delay=0s",
		"--logtostderr=true", "--v=1", "--enable-leader-election",
		"--feature-gates=AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false",
	}, args...)); err != nil {
		c.t.Fatal(err)
	}
	o.config, o.skipNameCheck = rest.CopyConfig(c.server.Config), true
	o.config.Impersonate = rest.ImpersonationConfig{ // with no more rights than in a cluster
		UserName: "system:serviceaccount:kruise-system:kruise-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kruise-system", "system:authenticated"},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	ended := false
	m.wait = func() error {
		if ended {
			return nil
		}
		ended = true
		defer cancel()
		return <-done
	}
	m.stop = func() error {
		cancel()
		return m.wait()
	}
	c.t.Cleanup(func() {
		if err := m.stop(); err != nil {
			c.t.Errorf("the manager ended with %v", err)
		}
	})
	return m
}

func (c *cluster) startReady() *manager {
	c.t.Helper()
	m := c.start(nil)
	c.eventually("the manager gets ready", func(context.Context) error { return get("http://" + m.probe + "/readyz") })
	return m
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(url string) error {
	_, err := body(url)
	return err
}

func body(url string) (string, error) {
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, raw)
	}
	return string(raw), nil
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

const patience = 2 * time.Minute

func configurations() []client.Object {
	side := admissionv1.SideEffectClassNone
	rule := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
	}}
	cc := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "x", Name: "y", Path: &path}}
	}
	return []client.Object{
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: MutatingConfiguration, Annotations: map[string]string{"template": ""}},
			Webhooks: []admissionv1.MutatingWebhook{
				{Name: "a.kb.io", ClientConfig: cc("/a"), Rules: rule, SideEffects: &side, AdmissionReviewVersions: []string{"v1"}},
				{Name: "gone.kb.io", ClientConfig: cc("/gone"), Rules: rule, SideEffects: &side, AdmissionReviewVersions: []string{"v1"}},
			},
		},
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ValidatingConfiguration},
			Webhooks: []admissionv1.ValidatingWebhook{
				{Name: "b.kb.io", ClientConfig: cc("/b"), Rules: rule, SideEffects: &side, AdmissionReviewVersions: []string{"v1"}},
			},
		},
	}
}

// replica runs a controller until the returned function is called.
func replica(t *testing.T, s *apitest.Server, settings Settings) (*Controller, func()) {
	t.Helper()
	settings.CertDir = t.TempDir()
	c, err := New(s.Config, Options{Settings: settings, Serves: func(p string) bool { return p == "/a" || p == "/b" }, Scheme: apitest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func synced(t *testing.T, c *Controller) {
	t.Helper()
	select {
	case <-c.Synced():
	case <-time.After(patience):
		t.Fatalf("not synced: %s", c.LastError())
	}
}

func TestReplicasAgree(t *testing.T) {
	s := apitest.StartServer(t)
	api := apitest.NewClient(t, s.Config)
	if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}); err != nil {
		t.Fatal(err)
	}
	leaks := goleak.IgnoreCurrent()
	settings := inCluster().settings

	// Without the installer's objects nobody is ready, and says why.
	early, stopEarly := replica(t, s, settings)
	for deadline := time.Now().Add(patience); !strings.Contains(early.LastError(), "not found MutatingWebhookConfiguration"); {
		if time.Now().After(deadline) {
			t.Fatalf("last error = %q", early.LastError())
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, obj := range configurations() {
		if err := api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	synced(t, early)

	// Many replicas start on an empty Secret at the same time.
	secret := secretOf(nil)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	stopEarly()
	secret.Data = nil
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	var stops []func()
	var replicas []*Controller
	for range 4 {
		c, stop := replica(t, s, settings)
		replicas, stops = append(replicas, c), append(stops, stop)
	}
	for _, c := range replicas {
		synced(t, c)
	}
	// The winner's Secret reaches every replica, by event.
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	for i, c := range replicas {
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			cert, err := os.ReadFile(filepath.Join(c.settings.CertDir, "tls.crt"))
			if err == nil && bytes.Equal(cert, secret.Data["tls.crt"]) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("replica %d serves another certificate, %v", i, err)
			}
		}
		if _, err := os.Stat(filepath.Join(c.settings.CertDir, "ca-key.pem")); !os.IsNotExist(err) {
			t.Errorf("replica %d has the key of the CA on disk: %v", i, err)
		}
	}
	m := &admissionv1.MutatingWebhookConfiguration{}
	if err := api.Get(t.Context(), types.NamespacedName{Name: MutatingConfiguration}, m); err != nil {
		t.Fatal(err)
	}
	if len(m.Webhooks) != 1 || !bytes.Equal(m.Webhooks[0].ClientConfig.CABundle, secret.Data["ca-cert.pem"]) || m.Webhooks[0].ClientConfig.Service.Name != "kruise-webhook-service" {
		t.Errorf("webhooks = %+v", m.Webhooks)
	}
	// Another sync of everybody writes nothing.
	version := m.ResourceVersion
	for _, c := range replicas {
		if err := c.sync(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := api.Get(t.Context(), types.NamespacedName{Name: MutatingConfiguration}, m); err != nil || m.ResourceVersion != version {
		t.Errorf("the configuration was written again: %v", err)
	}
	for _, stop := range stops {
		stop()
	}
	goleak.VerifyNone(t, leaks, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"), goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"), goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"))
}

func TestExternalCertificates(t *testing.T) {
	s := apitest.StartServer(t)
	api := apitest.NewClient(t, s.Config)
	if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}); err != nil {
		t.Fatal(err)
	}
	a := issued(t)
	if err := api.Create(t.Context(), secretOf(map[string][]byte{"ca.crt": a.CACert, "tls.crt": a.Cert, "tls.key": a.Key})); err != nil {
		t.Fatal(err)
	}
	for _, obj := range configurations() {
		if err := api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	settings := inCluster().settings
	settings.External = true
	c, stop := replica(t, s, settings)
	defer stop()
	want := "caBundle of MutatingWebhookConfiguration kruise-mutating-webhook-configuration does not match the external caBundle (webhooks a.kb.io)"
	for deadline := time.Now().Add(patience); !strings.Contains(c.LastError(), want); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("last error = %q", c.LastError())
		}
	}
	m, v := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for name, obj := range map[string]client.Object{MutatingConfiguration: m, ValidatingConfiguration: v} {
		if err := api.Get(t.Context(), types.NamespacedName{Name: name}, obj); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.Webhooks) != 2 || len(m.Webhooks[0].ClientConfig.CABundle) > 0 {
		t.Errorf("the manager wrote %+v", m.Webhooks)
	}
	m.Webhooks[0].ClientConfig.CABundle = a.CACert
	v.Webhooks[0].ClientConfig.CABundle = a.CACert
	for _, obj := range []client.Object{m, v} {
		if err := api.Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	synced(t, c)
}

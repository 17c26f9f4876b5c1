// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestReady(t *testing.T) {
	defer goleak.VerifyNone(t)
	settings := inCluster().settings
	settings.CertDir = t.TempDir()
	a, err := Artifacts{}.renewed(service, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		Healthz().ServeHTTP(w, r)
	}))
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	defer srv.Close()
	settings.Port = srv.Listener.Addr().(*net.TCPAddr).Port
	c := &Controller{settings: settings, first: make(chan struct{})}
	expect := func(want string) {
		t.Helper()
		err := c.Ready(httptest.NewRequest(http.MethodGet, "/readyz", nil))
		switch {
		case want == "" && err != nil:
			t.Errorf("not ready: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("error = %v, want %s", err, want)
		}
	}

	expect("webhooks are not set up yet")
	c.lastErr.Store("not found MutatingWebhookConfiguration x")
	expect("not found MutatingWebhookConfiguration x")
	close(c.first)
	expect("reading the CA")
	if _, err := writeAtomically(settings.CertDir, "26", map[string][]byte{"ca-cert.pem": []byte("no PEM")}); err != nil {
		t.Fatal(err)
	}
	expect("holds no certificate")
	if _, err := writeAtomically(settings.CertDir, "26", a.byName(false)); err != nil {
		t.Fatal(err)
	}
	expect("")
	status = http.StatusTeapot
	expect("the webhook server answers 418")
	status = http.StatusOK
	other, err := Artifacts{}.renewed(service, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeAtomically(settings.CertDir, "26", other.byName(false)); err != nil {
		t.Fatal(err)
	}
	expect("certificate")
	srv.Close()
	expect("calling the webhook server")
}

// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// healthTimeout bounds one call of the server's own /healthz.
const healthTimeout = 5 * time.Second

// Healthz answers 200 for as long as the server serves.
func Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok") // the caller may be gone
	})
}

// Ready is a check for /readyz: it passes when webhooks have been set up once and the
// server answers over TLS with a certificate that the CA on disk vouches for.
func (c *Controller) Ready(req *http.Request) error {
	select {
	case <-c.first:
	default:
		if text := c.LastError(); text != "" {
			return fmt.Errorf("webhooks are not set up yet: %s", text)
		}
		return errors.New("webhooks are not set up yet")
	}
	return c.Reachable(req.Context())
}

// Reachable calls /healthz of the server the way the API server would call a webhook. The CA
// is read each time, as it may be replaced, and connections are not kept.
func (c *Controller) Reachable(ctx context.Context) error {
	ca, err := os.ReadFile(filepath.Join(c.settings.CertDir, caCertFile))
	if err != nil {
		return fmt.Errorf("reading the CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("reading the CA: %s holds no certificate", filepath.Join(c.settings.CertDir, caCertFile))
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: localhost, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	address := "https://" + net.JoinHostPort(localhost, strconv.Itoa(c.settings.Port)) + "/healthz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("calling the webhook server: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("calling the webhook server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the webhook server answers %s", resp.Status)
	}
	return nil
}

var (
	droppedDesc = prometheus.NewDesc("kruise_webhook_dropped",
		"Webhooks of the manifests that are left out of the configuration; gate is what turned them off, empty when this manager has no such handler.",
		[]string{"configuration", "webhook", "path", "gate"}, nil)
	expiryDesc = prometheus.NewDesc("kruise_webhook_certificate_expiry_timestamp_seconds",
		"When the webhook certificate of this replica ends, in seconds since 1970.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) { ch <- droppedDesc; ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (c *Controller) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.drops {
		ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.GaugeValue, 1, d.configuration, d.webhook, d.path, c.gatedOff(d.path))
	}
	if !c.certExpiry.IsZero() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(c.certExpiry.Unix()))
	}
}

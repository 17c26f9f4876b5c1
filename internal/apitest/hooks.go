// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hookServer serves webhooks of a test over TLS on the loopback address.
type hookServer struct {
	url string // without a trailing slash
	ca  []byte
	srv *http.Server
	end chan struct{}
}

func serve(handlers map[string]http.Handler) (*hookServer, error) {
	cert, ca, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for webhooks: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for webhooks: %w", err)
	}
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.Handle(path, h)
	}
	h := &hookServer{url: "https://" + listener.Addr().String(), ca: ca, end: make(chan struct{})}
	h.srv = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections at the end of a test
	}
	go func() {
		defer close(h.end)
		_ = h.srv.ServeTLS(listener, "", "") // ends with ErrServerClosed
	}()
	return h, nil
}

func (h *hookServer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := h.srv.Shutdown(ctx)
	if err != nil { // the API server keeps idle connections
		err = h.srv.Close()
	}
	<-h.end
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stopping the webhook server: %w", err)
	}
	return nil
}

// conversion is the stanza of every CRD.
func (h *hookServer) conversion(served bool) *apiextensionsv1.CustomResourceConversion {
	if !served {
		return &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new(h.url + "/convert"), CABundle: h.ca},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

// install creates the webhook configurations, pointed at h.
func (s *Server) install(h *hookServer, o options) error {
	if len(o.mutating)+len(o.validating) == 0 {
		return nil
	}
	if h == nil {
		return errors.New("webhook configurations need WithHandler")
	}
	point := func(cc *admissionv1.WebhookClientConfig) {
		path := ""
		if cc.Service != nil && cc.Service.Path != nil {
			path = *cc.Service.Path
		}
		*cc = admissionv1.WebhookClientConfig{URL: new(h.url + path), CABundle: h.ca}
	}
	var objs []client.Object
	for _, cfg := range o.mutating {
		for i := range cfg.Webhooks {
			point(&cfg.Webhooks[i].ClientConfig)
		}
		objs = append(objs, cfg)
	}
	for _, cfg := range o.validating {
		for i := range cfg.Webhooks {
			point(&cfg.Webhooks[i].ClientConfig)
		}
		objs = append(objs, cfg)
	}
	c, err := client.New(s.Config, client.Options{Scheme: Scheme()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, obj := range objs {
		if err := c.Create(context.Background(), obj); err != nil {
			return fmt.Errorf("creating webhook configuration %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

// selfSigned returns a certificate for 127.0.0.1 and the PEM that trusts it.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("generating a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "apitest"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("signing: %w", err)
	}
	var ca bytes.Buffer
	if err := pem.Encode(&ca, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("encoding: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca.Bytes(), nil
}

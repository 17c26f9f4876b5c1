// SPDX-License-Identifier: Apache-2.0

// Package server keeps the webhook server of a replica reachable: it makes or reads the
// certificate, writes it to disk, and keeps the webhook configurations and the conversion
// stanzas of CRDs pointing at this server with the right CA. It runs in every replica,
// outside of leader election.
//
// What the webhooks decide is not its business; it only knows their paths. The rules are
// platform.md 2.3, 3.1 to 3.3 and 3.7.
package server

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Names of the objects that an installation has exactly one of.
const (
	MutatingConfiguration   = "kruise-mutating-webhook-configuration"
	ValidatingConfiguration = "kruise-validating-webhook-configuration"

	defaultNamespace   = "kruise-system"
	defaultSecret      = "kruise-webhook-certs"
	defaultService     = "kruise-webhook-service"
	defaultPort        = 9876
	defaultCertDir     = "/tmp/kruise-webhook-certs"
	defaultRenewBefore = 180 * 24 * time.Hour
)

// Settings are what the environment of the process says about its webhook server.
type Settings struct {
	Namespace string // of the Secret and the Service
	Port      int
	CertDir   string
	// Host replaces the Service: configurations get a URL with it, the certificate is for it.
	Host string
	// CertWriter is "fs", "secret" or empty: fs when Host is set, else secret.
	CertWriter  string
	SecretName  string
	ServiceName string
	// RenewBefore is how long before its end a certificate is replaced.
	RenewBefore time.Duration
	// External certificates are somebody else's: read from the Secret, nothing is written.
	External bool
}

// FromEnv reads the variables of platform.md 2.3 through getenv, such as os.Getenv.
func FromEnv(getenv func(string) string) (Settings, error) {
	or := func(name, fallback string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return fallback
	}
	s := Settings{
		Namespace:   or("POD_NAMESPACE", defaultNamespace),
		CertDir:     or("WEBHOOK_CERT_DIR", defaultCertDir),
		Host:        getenv("WEBHOOK_HOST"),
		CertWriter:  getenv("WEBHOOK_CERT_WRITER"),
		SecretName:  or("SECRET_NAME", defaultSecret),
		ServiceName: or("SERVICE_NAME", defaultService),
		RenewBefore: renewBefore(getenv("CERTS_RENEW_BEFORE")),
		Port:        defaultPort,
	}
	if text := getenv("WEBHOOK_PORT"); text != "" {
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			return s, fmt.Errorf("WEBHOOK_PORT is %q: set a port number from 1 to 65535", text)
		}
		s.Port = port
	}
	switch s.CertWriter {
	case "", "fs", "secret":
	default:
		return s, fmt.Errorf("WEBHOOK_CERT_WRITER is %q: set fs, secret or nothing", s.CertWriter)
	}
	return s, nil
}

// renewBefore reads an integer with suffix d, m (30 days) or y (365 days). Anything else
// means the default, 180 days.
func renewBefore(text string) time.Duration {
	if text == "" {
		return defaultRenewBefore
	}
	days := map[byte]time.Duration{'d': 1, 'm': 30, 'y': 365}[text[len(text)-1]]
	n, err := strconv.Atoi(text[:len(text)-1])
	if err != nil || n <= 0 || days == 0 || n > 100*365 {
		return defaultRenewBefore
	}
	return time.Duration(n) * days * 24 * time.Hour
}

// files reports whether certificates live in files only (platform.md 3.2).
func (s Settings) files() bool {
	return s.CertWriter == "fs" || s.CertWriter == "" && s.Host != ""
}

// commonName is the name under which the API server calls.
func (s Settings) commonName() string {
	if s.Host != "" {
		return strings.Trim(s.Host, "[]")
	}
	return s.ServiceName + "." + s.Namespace + ".svc"
}

// url is the address of path when the server is not behind a Service.
func (s Settings) url(path string) string {
	return "https://" + net.JoinHostPort(strings.Trim(s.Host, "[]"), strconv.Itoa(s.Port)) + path
}

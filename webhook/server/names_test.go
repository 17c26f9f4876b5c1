// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFromEnv(t *testing.T) {
	defaults := Settings{
		Namespace: "kruise-system", Port: 9876, CertDir: "/tmp/kruise-webhook-certs", SecretName: "kruise-webhook-certs",
		ServiceName: "kruise-webhook-service", RenewBefore: 180 * 24 * time.Hour,
	}
	with := func(change func(*Settings)) Settings {
		s := defaults
		change(&s)
		return s
	}
	cases := map[string]struct {
		env  map[string]string
		want Settings
		err  bool
		name string // common name
		file bool
	}{
		"an empty environment": {want: defaults, name: "kruise-webhook-service.kruise-system.svc"},
		"everything set": {
			env: map[string]string{"POD_NAMESPACE": "ns", "WEBHOOK_PORT": "9443", "WEBHOOK_CERT_DIR": "/c", "WEBHOOK_HOST": "1.2.3.4",
				"WEBHOOK_CERT_WRITER": "secret", "SECRET_NAME": "s", "SERVICE_NAME": "svc", "CERTS_RENEW_BEFORE": "2m"},
			want: Settings{Namespace: "ns", Port: 9443, CertDir: "/c", Host: "1.2.3.4", CertWriter: "secret", SecretName: "s", ServiceName: "svc", RenewBefore: 60 * 24 * time.Hour},
			name: "1.2.3.4",
		},
		"a host alone means files": {
			env: map[string]string{"WEBHOOK_HOST": "[::1]"}, want: with(func(s *Settings) { s.Host = "[::1]" }), name: "::1", file: true,
		},
		"files can be forced": {
			env: map[string]string{"WEBHOOK_CERT_WRITER": "fs"}, want: with(func(s *Settings) { s.CertWriter = "fs" }),
			name: "kruise-webhook-service.kruise-system.svc", file: true,
		},
		"a port that is none":         {env: map[string]string{"WEBHOOK_PORT": "https"}, err: true},
		"a port out of range":         {env: map[string]string{"WEBHOOK_PORT": "0"}, err: true},
		"a writer that is none":       {env: map[string]string{"WEBHOOK_CERT_WRITER": "vault"}, err: true},
		"a year":                      {env: map[string]string{"CERTS_RENEW_BEFORE": "1y"}, want: with(func(s *Settings) { s.RenewBefore = 365 * 24 * time.Hour }), name: "kruise-webhook-service.kruise-system.svc"},
		"a time in an unknown unit":   {env: map[string]string{"CERTS_RENEW_BEFORE": "5h"}, want: defaults, name: "kruise-webhook-service.kruise-system.svc"},
		"a time that is not positive": {env: map[string]string{"CERTS_RENEW_BEFORE": "0d"}, want: defaults, name: "kruise-webhook-service.kruise-system.svc"},
		"a time that overflows":       {env: map[string]string{"CERTS_RENEW_BEFORE": "99999999y"}, want: defaults, name: "kruise-webhook-service.kruise-system.svc"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := FromEnv(func(k string) string { return tc.env[k] })
			if (err != nil) != tc.err {
				t.Fatalf("error = %v", err)
			}
			if tc.err {
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings differ (-want +got):\n%s", diff)
			}
			if got.commonName() != tc.name || got.files() != tc.file {
				t.Errorf("common name %q, files %t", got.commonName(), got.files())
			}
		})
	}
}

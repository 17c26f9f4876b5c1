// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// secrets returns a client with objs and counts of its writes.
func secrets(t *testing.T, funcs interceptor.Funcs, objs ...client.Object) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objs...).WithInterceptorFuncs(funcs).Build()
}

func secretOf(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-webhook-certs"}, Data: data}
}

func TestSecretProvider(t *testing.T) {
	winner := issued(t)
	writes := 0
	count := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			writes++
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, obj, opts...)
		},
	}
	lateWinner := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if err := c.Create(ctx, secretOf(winner.byName(true))); err != nil {
			return err
		}
		return c.Create(ctx, obj, opts...) // AlreadyExists
	}}
	conflict := interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
		other := secretOf(nil)
		if err := c.Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
			return err
		}
		other.Data = winner.byName(true)
		if err := c.Update(ctx, other); err != nil {
			return err
		}
		return c.Update(ctx, obj, opts...)
	}}
	cases := map[string]struct {
		client client.Client
		writes int
		wins   bool // the result is what another replica wrote
		err    func(error) bool
	}{
		"a missing Secret is created":                           {client: secrets(t, count), writes: 1},
		"an empty Secret of the installer is filled":            {client: secrets(t, count, secretOf(nil)), writes: 1},
		"a valid Secret is only read":                           {client: secrets(t, count, secretOf(winner.byName(true))), wins: true},
		"who loses the creation takes the winner's":             {client: secrets(t, lateWinner), wins: true},
		"who loses an update reports the conflict to try again": {client: secrets(t, conflict, secretOf(nil)), err: apierrors.IsConflict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			writes = 0
			settings := inCluster().settings
			p := secretProvider{client: tc.client, settings: settings, clock: testclock.NewFakePassiveClock(t0)}
			a, err := p.ensure(t.Context())
			if tc.err != nil {
				if !tc.err(err) {
					t.Fatalf("error = %v", err)
				}
				if a, err = p.ensure(t.Context()); err != nil || !a.equal(winner) {
					t.Fatalf("the next try does not take the winner's: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if writes != tc.writes {
				t.Errorf("%d writes, want %d", writes, tc.writes)
			}
			if a.equal(winner) != tc.wins {
				t.Errorf("taken from the other replica: %t", !tc.wins)
			}
			if err := a.check(service, t0); err != nil {
				t.Error(err)
			}
			stored := secretOf(nil)
			if err := tc.client.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"ca-key.pem", "ca-cert.pem", "key.pem", "cert.pem", "tls.key", "tls.crt"} {
				if len(stored.Data[name]) == 0 {
					t.Errorf("the Secret lacks %s", name)
				}
			}
		})
	}
}

func TestFileProvider(t *testing.T) {
	settings := inCluster().settings
	settings.CertDir, settings.CertWriter = t.TempDir(), "fs"
	p := fileProvider{settings: settings, clock: testclock.NewFakePassiveClock(t0)}
	first, err := p.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeAtomically(settings.CertDir, "26", first.byName(true)); err != nil {
		t.Fatal(err)
	}
	again, err := p.ensure(t.Context())
	if err != nil || !again.equal(first) {
		t.Errorf("files that are there are not taken: %v", err)
	}
	if err := os.Remove(filepath.Join(settings.CertDir, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	if again, err = p.ensure(t.Context()); err != nil || again.equal(first) {
		t.Errorf("a missing file does not make all anew: %v", err)
	}
}

func TestExternalProvider(t *testing.T) {
	settings := inCluster().settings
	a := issued(t)
	good := secretOf(map[string][]byte{"ca.crt": a.CACert, "tls.crt": a.Cert, "tls.key": a.Key})
	got, err := externalProvider{client: secrets(t, interceptor.Funcs{}, good), settings: settings}.ensure(t.Context())
	if err != nil || !bytes.Equal(got.CACert, a.CACert) || !bytes.Equal(got.Cert, a.Cert) || len(got.CAKey) != 0 {
		t.Errorf("artifacts = %v, %v", got, err)
	}
	delete(good.Data, "ca.crt")
	good.ResourceVersion = ""
	_, err = externalProvider{client: secrets(t, interceptor.Funcs{}, good), settings: settings}.ensure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "lacks ca.crt") {
		t.Errorf("error without a CA = %v", err)
	}
	_, err = externalProvider{client: secrets(t, interceptor.Funcs{}), settings: settings}.ensure(t.Context())
	if !apierrors.IsNotFound(err) {
		t.Errorf("error without a Secret = %v", err)
	}
}

func TestProviderIsChosenBySettings(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"server.externalProvider": func(s *Settings) { s.External, s.CertWriter = true, "fs" },
		"server.fileProvider":     func(s *Settings) { s.CertWriter = "fs" },
		"server.secretProvider":   func(s *Settings) { s.CertWriter, s.Host = "secret", "h" },
	} {
		c := &Controller{settings: inCluster().settings}
		change(&c.settings)
		if got := typeName(c.provider()); got != name {
			t.Errorf("provider = %s, want %s", got, name)
		}
	}
}

func typeName(p provider) string {
	switch p.(type) {
	case externalProvider:
		return "server.externalProvider"
	case fileProvider:
		return "server.fileProvider"
	default:
		return "server.secretProvider"
	}
}

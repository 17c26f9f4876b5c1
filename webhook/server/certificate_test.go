// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"
)

const (
	service = "kruise-webhook-service.kruise-system.svc"
	day     = 24 * time.Hour
	year    = 365 * day
)

var t0 = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// issued returns artifacts made at t0.
func issued(t *testing.T) Artifacts {
	t.Helper()
	a, err := Artifacts{}.renewed(service, 180*day, t0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func cas(t *testing.T, bundle []byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		certs = append(certs, c)
	}
	return certs
}

func TestIssuedArtifacts(t *testing.T) {
	a := issued(t)
	if err := a.check(service, t0); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := pair.Leaf
	if leaf.Subject.CommonName != service || leaf.NotAfter.Sub(t0) != 10*year || leaf.IsCA {
		t.Errorf("certificate for %q until %s, CA %t", leaf.Subject.CommonName, leaf.NotAfter, leaf.IsCA)
	}
	if len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("usage = %v", leaf.ExtKeyUsage)
	}
	roots := cas(t, a.CACert)
	if len(roots) != 1 || roots[0].Subject.CommonName != "webhook-cert-ca" || !roots[0].IsCA || roots[0].NotAfter.Sub(t0) != 10*year {
		t.Errorf("CAs = %v", roots)
	}
	for _, host := range []string{"localhost", service} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestCertificateForAnAddress(t *testing.T) {
	for _, host := range []string{"10.0.0.7", "hooks.example.com", "localhost", "::1"} {
		a, err := Artifacts{}.renewed(host, day, t0)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.check(host, t0); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestRenewed(t *testing.T) {
	a := issued(t)
	broken := a
	broken.Cert = issued(t).Cert // of another key
	lost := a
	lost.CAKey, lost.Cert = nil, nil
	cases := map[string]struct {
		from      Artifacts
		name      string
		at        time.Duration // after t0
		same      bool          // nothing changes
		sameCA    bool
		published int // CAs
	}{
		"a valid certificate stays":                               {from: a, at: 9 * year, same: true, sameCA: true, published: 1},
		"one that ends within half a year is renewed with its CA": {from: a, at: 10*year - 179*day, published: 2},
		"a key that does not fit is replaced, the CA stays":       {from: broken, at: day, sameCA: true, published: 1},
		"a new name is a new certificate of the same CA":          {from: a, name: "other.kruise-system.svc", at: day, sameCA: true, published: 1},
		"a lost CA key is a new CA, published with the old":       {from: lost, at: day, published: 2},
		"a CA that has ended is not published":                    {from: a, at: 11 * year, published: 1},
		"an empty Secret is filled":                               {from: Artifacts{}, published: 1},
		"rubbish is replaced":                                     {from: Artifacts{CAKey: []byte("x"), CACert: []byte("y"), Key: []byte("z"), Cert: []byte("!")}, published: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			host := service
			if tc.name != "" {
				host = tc.name
			}
			now := t0.Add(tc.at)
			got, err := tc.from.renewed(host, 180*day, now)
			if err != nil {
				t.Fatal(err)
			}
			if got.equal(tc.from) != tc.same {
				t.Errorf("same = %t, want %t", !tc.same, tc.same)
			}
			if bytes.Equal(got.CACert, tc.from.CACert) != tc.sameCA {
				t.Errorf("same CA = %t, want %t", !tc.sameCA, tc.sameCA)
			}
			if n := len(cas(t, got.CACert)); n != tc.published {
				t.Errorf("%d CAs are published, want %d", n, tc.published)
			}
			if err := got.check(host, now); err != nil {
				t.Errorf("the result is no good: %v", err)
			}
			again, err := got.renewed(host, 180*day, now)
			if err != nil || !again.equal(got) {
				t.Errorf("renewing twice differs, %v", err)
			}
		})
	}
}

func TestOldCAIsPublishedForADay(t *testing.T) {
	a := issued(t)
	lost := a
	lost.CAKey, lost.Cert = nil, nil
	b, err := lost.renewed(service, 180*day, t0)
	if err != nil {
		t.Fatal(err)
	}
	// What replicas serve that have not seen the change yet verifies as well.
	if err := (Artifacts{CACert: b.CACert, Cert: a.Cert, Key: a.Key}).check(service, t0); err != nil {
		t.Errorf("the certificate before: %v", err)
	}
	for after, want := range map[time.Duration]int{23 * time.Hour: 2, 25 * time.Hour: 1} {
		c, err := b.renewed(service, 180*day, t0.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(cas(t, c.CACert)); n != want {
			t.Errorf("%s later %d CAs are published, want %d", after, n, want)
		}
		if !bytes.Equal(c.Cert, b.Cert) {
			t.Error("the certificate changed")
		}
	}
}

func TestAnotherToolsCAIsUsed(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ours"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, key.Public(), key, t0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	from := Artifacts{CACert: encode("CERTIFICATE", der), CAKey: encode("EC PRIVATE KEY", raw)}
	got, err := from.renewed(service, 180*day, t0)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.CACert, from.CACert) || got.check(service, t0) != nil {
		t.Errorf("CA = %s", got.CACert)
	}
}

// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func parse(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	_, err := tls.X509KeyPair(p.Cert, p.Key)
	require.NoError(t, err, "certificate and key belong together")
	block, _ := pem.Decode(p.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

func TestIssue(t *testing.T) {
	ca, err := NewAuthority("test-ca", t0)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	cases := map[string]struct {
		id     Identity
		server bool
	}{
		"a user is a client only": {
			id: Identity{User: "admin", Groups: []string{"system:masters"}},
		},
		"a node is client and server": {
			id:     Identity{User: "system:node:node1", Groups: []string{"system:nodes"}, DNS: []string{"node1"}, IPs: []net.IP{net.IPv4(10, 90, 0, 11)}},
			server: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pair, err := ca.Issue(tc.id, t0)
			require.NoError(t, err)
			cert := parse(t, pair)
			require.Equal(t, tc.id.User, cert.Subject.CommonName)
			require.Equal(t, tc.id.Groups, cert.Subject.Organization)
			verify := func(usage x509.ExtKeyUsage) error {
				_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: t0, KeyUsages: []x509.ExtKeyUsage{usage}})
				return err
			}
			require.NoError(t, verify(x509.ExtKeyUsageClientAuth))
			require.Equal(t, tc.server, verify(x509.ExtKeyUsageServerAuth) == nil)
			if tc.server {
				require.NoError(t, cert.VerifyHostname("10.90.0.11"))
			}
		})
	}
}

func TestAnotherAuthorityIsNotTrusted(t *testing.T) {
	ca, err := NewAuthority("test-ca", t0)
	require.NoError(t, err)
	other, err := NewAuthority("test-ca", t0)
	require.NoError(t, err)
	pair, err := other.Issue(Identity{User: "admin"}, t0)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	_, err = parse(t, pair).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: t0, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	require.Error(t, err)
}

func TestKeysAreForTheOwnerOnly(t *testing.T) {
	ca, err := NewAuthority("test-ca", t0)
	require.NoError(t, err)
	pair, err := ca.Pair()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, pair.Write(dir, "ca"))
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestKubeconfigLoads(t *testing.T) {
	ca, err := NewAuthority("test-ca", t0)
	require.NoError(t, err)
	user, err := ca.Issue(Identity{User: "admin"}, t0)
	require.NoError(t, err)
	caPair, err := ca.Pair()
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(Kubeconfig("default", "https://127.0.0.1:6443", caPair.Cert, user))
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:6443", config.Host)
	require.Equal(t, caPair.Cert, config.CAData)
	require.Equal(t, user.Key, config.KeyData)
}

// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	caName       = "webhook-cert-ca"
	lifetime     = 10 * 365 * 24 * time.Hour
	keyBits      = 2048
	minCALeft    = 365 * 24 * time.Hour // a CA with less left is replaced
	clockSkew    = time.Hour            // certificates are valid that long before they are made
	caOverlap    = 24 * time.Hour       // how long the CA before is still published
	localhost    = "localhost"
	certBlock    = "CERTIFICATE"
	rsaKeyBlock  = "RSA PRIVATE KEY"
	serialLength = 126 // bits
)

// Artifacts are a serving certificate and the CA behind it, all in PEM.
type Artifacts struct {
	CAKey []byte // empty when the CA is somebody else's
	// CACert is what callers trust. During a change of the CA it holds the new one
	// followed by the one before, so that replicas that still serve the old certificate
	// stay reachable.
	CACert []byte
	Key    []byte
	Cert   []byte
}

func (a Artifacts) equal(b Artifacts) bool {
	return bytes.Equal(a.CAKey, b.CAKey) && bytes.Equal(a.CACert, b.CACert) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Cert, b.Cert)
}

// check returns why a cannot be served under name at time at, or nil.
func (a Artifacts) check(name string, at time.Time) error {
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return fmt.Errorf("key pair: %w", err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CACert) {
		return errors.New("there is no CA certificate")
	}
	for _, host := range []string{name, localhost} { // the readiness check calls localhost
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			return fmt.Errorf("certificate for %s: %w", host, err)
		}
	}
	return nil
}

// renewed returns a, or what must replace it. The result equals a when nothing is due.
// Certificates must be valid until renewBefore from now; the CA is kept as long as it has a
// year left, and a CA that was replaced stays published for a day.
func (a Artifacts) renewed(name string, renewBefore time.Duration, now time.Time) (Artifacts, error) {
	if a.check(name, now.Add(renewBefore)) == nil {
		a.CACert = trimmed(a.CACert, now)
		return a, nil
	}
	ca, caKey, err := a.ca()
	out := Artifacts{CAKey: a.CAKey, CACert: a.CACert}
	if err != nil || ca.NotAfter.Before(now.Add(minCALeft)) || ca.NotBefore.After(now) {
		key, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return out, fmt.Errorf("generating the key of the CA: %w", err)
		}
		der, err := sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: caName}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}, nil, key.Public(), key, now)
		if err != nil {
			return out, fmt.Errorf("signing the CA: %w", err)
		}
		if ca, err = x509.ParseCertificate(der); err != nil {
			return out, fmt.Errorf("parsing the new CA: %w", err)
		}
		caKey = key
		out.CAKey = encode(rsaKeyBlock, x509.MarshalPKCS1PrivateKey(key))
		out.CACert = append(encode(certBlock, der), usable(a.CACert, now)...)
	}
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return out, fmt.Errorf("generating the key of the server: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{localhost},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if name != localhost {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := sign(template, ca, key.Public(), caKey, now)
	if err != nil {
		return out, fmt.Errorf("signing the server certificate: %w", err)
	}
	out.Cert, out.Key = encode(certBlock, der), encode(rsaKeyBlock, x509.MarshalPKCS1PrivateKey(key))
	return out, nil
}

// ca is the CA that signs: the first certificate of CACert with its key.
func (a Artifacts) ca() (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(a.CACert, a.CAKey)
	if err != nil {
		return nil, nil, fmt.Errorf("CA: %w", err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("CA: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !cert.IsCA {
		return nil, nil, errors.New("CA: it cannot sign")
	}
	return cert, signer, nil
}

// sign fills in serial number and validity. Without a parent the certificate signs itself.
// It never outlives its parent.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialLength))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-clockSkew).UTC(), now.Add(lifetime).UTC()
	if parent == nil {
		parent = template
	} else if template.NotAfter.After(parent.NotAfter) {
		template.NotAfter = parent.NotAfter
	}
	return x509.CreateCertificate(rand.Reader, template, parent, public, by)
}

// trimmed drops the CAs before the first one when the first is old enough for every replica
// to serve a certificate of it.
func trimmed(bundle []byte, now time.Time) []byte {
	block, rest := pem.Decode(bundle)
	if block == nil || len(bytes.TrimSpace(rest)) == 0 {
		return bundle
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || now.Before(cert.NotBefore.Add(clockSkew+caOverlap)) {
		return bundle
	}
	return pem.EncodeToMemory(block)
}

// usable returns the certificates of bundle that have not ended, without what is not a
// certificate.
func usable(bundle []byte, now time.Time) []byte {
	var out []byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type == certBlock && err == nil && cert.NotAfter.After(now) {
			out = append(out, encode(certBlock, block.Bytes)...)
		}
	}
	return out
}

func encode(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}

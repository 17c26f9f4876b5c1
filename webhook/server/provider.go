// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the keys in the Secret and of the files on disk. Serving uses the tls names.
const (
	caKeyFile   = "ca-key.pem"
	caCertFile  = "ca-cert.pem"
	keyFile     = "key.pem"
	certFile    = "cert.pem"
	tlsKeyFile  = "tls.key"
	tlsCertFile = "tls.crt"

	externalCAKey  = "ca.key"
	externalCACert = "ca.crt"
)

// provider gets valid artifacts from where they live, making them when that is its job.
type provider interface {
	ensure(ctx context.Context) (Artifacts, error)
}

// provider returns the one that s asks for; it is looked up anew for every sync.
func (c *Controller) provider() provider {
	s := c.settings
	switch {
	case s.External:
		return externalProvider{client: c.client, settings: s}
	case s.files():
		return fileProvider{settings: s, clock: c.clock}
	default:
		return secretProvider{client: c.client, settings: s, clock: c.clock}
	}
}

func (s Settings) secretKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.SecretName}
}

// secretProvider keeps artifacts in the Secret that all replicas share. The Secret is the
// single source of truth: who loses a race takes what the winner wrote.
type secretProvider struct {
	client   client.Client
	settings Settings
	clock    clock.PassiveClock
}

func (p secretProvider) ensure(ctx context.Context) (Artifacts, error) {
	key := p.settings.secretKey()
	secret := &corev1.Secret{}
	err := p.client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if _, err := p.fill(secret); err != nil {
			return Artifacts{}, err
		}
		err := p.client.Create(ctx, secret)
		if err == nil {
			return fromSecret(secret), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Artifacts{}, fmt.Errorf("creating Secret %s: %w", key, err)
		}
		secret = &corev1.Secret{}
		if err := p.client.Get(ctx, key, secret); err != nil {
			return Artifacts{}, fmt.Errorf("reading Secret %s of another replica: %w", key, err)
		}
	} else if err != nil {
		return Artifacts{}, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	changed, err := p.fill(secret)
	if err != nil {
		return Artifacts{}, err
	}
	if changed {
		// With the resource version that was read: on a conflict another replica renewed,
		// and the retry takes its certificate.
		if err := p.client.Update(ctx, secret); err != nil {
			return Artifacts{}, fmt.Errorf("updating Secret %s: %w", key, err)
		}
	}
	return fromSecret(secret), nil
}

// fill renews the artifacts in secret and reports whether that changed it.
func (p secretProvider) fill(secret *corev1.Secret) (bool, error) {
	old := fromSecret(secret)
	a, err := old.renewed(p.settings.commonName(), p.settings.RenewBefore, p.clock.Now())
	if err != nil {
		return false, fmt.Errorf("renewing the webhook certificate: %w", err)
	}
	if a.equal(old) {
		return false, nil
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for name, data := range a.byName(true) {
		secret.Data[name] = data
	}
	return true, nil
}

func fromSecret(s *corev1.Secret) Artifacts {
	return Artifacts{CAKey: s.Data[caKeyFile], CACert: s.Data[caCertFile], Key: s.Data[keyFile], Cert: s.Data[certFile]}
}

// byName lists the artifacts under their names in Secret and directory. The CA's key is
// left out when withCAKey is false: a server does not need it.
func (a Artifacts) byName(withCAKey bool) map[string][]byte {
	m := map[string][]byte{
		caCertFile: a.CACert, keyFile: a.Key, certFile: a.Cert, tlsKeyFile: a.Key, tlsCertFile: a.Cert,
	}
	if withCAKey {
		m[caKeyFile] = a.CAKey
	}
	return m
}

// fileProvider keeps artifacts in the certificate directory.
type fileProvider struct {
	settings Settings
	clock    clock.PassiveClock
}

func (p fileProvider) ensure(context.Context) (Artifacts, error) {
	old, err := readFiles(p.settings.CertDir)
	if err != nil {
		return Artifacts{}, err
	}
	a, err := old.renewed(p.settings.commonName(), p.settings.RenewBefore, p.clock.Now())
	if err != nil {
		return Artifacts{}, fmt.Errorf("renewing the webhook certificate: %w", err)
	}
	return a, nil
}

// readFiles returns no artifacts when any of the six files is missing or the copies differ.
func readFiles(dir string) (Artifacts, error) {
	data := map[string][]byte{}
	for _, name := range []string{caKeyFile, caCertFile, keyFile, certFile, tlsKeyFile, tlsCertFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return Artifacts{}, nil
		}
		if err != nil {
			return Artifacts{}, fmt.Errorf("reading the webhook certificate: %w", err)
		}
		data[name] = content
	}
	if !bytes.Equal(data[keyFile], data[tlsKeyFile]) || !bytes.Equal(data[certFile], data[tlsCertFile]) {
		return Artifacts{}, nil
	}
	return Artifacts{CAKey: data[caKeyFile], CACert: data[caCertFile], Key: data[keyFile], Cert: data[certFile]}, nil
}

// externalProvider reads what somebody else, such as cert-manager, put into the Secret.
type externalProvider struct {
	client   client.Client
	settings Settings
}

func (p externalProvider) ensure(ctx context.Context) (Artifacts, error) {
	key := p.settings.secretKey()
	secret := &corev1.Secret{}
	if err := p.client.Get(ctx, key, secret); err != nil {
		return Artifacts{}, fmt.Errorf("reading Secret %s with the external certificate: %w", key, err)
	}
	a := Artifacts{CAKey: secret.Data[externalCAKey], CACert: secret.Data[externalCACert], Key: secret.Data[tlsKeyFile], Cert: secret.Data[tlsCertFile]}
	for name, data := range map[string][]byte{externalCACert: a.CACert, tlsKeyFile: a.Key, tlsCertFile: a.Cert} {
		if len(data) == 0 {
			return Artifacts{}, fmt.Errorf("Secret %s lacks %s, which an external certificate needs", key, name)
		}
	}
	return a, nil
}

// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

// secretAge is how long a secret, or its absence, is remembered, plus up to as much again.
const secretAge = 5 * time.Minute

// Keyrings finds logins in pull secrets, then in docker's configuration files of the agent's
// own file system, then with credential provider plugins (daemon.md 4.3).
type Keyrings struct {
	get       func(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error)
	namespace string
	files     keyring
	plugins   *Plugins

	mu      sync.Mutex
	secrets map[types.NamespacedName]*remembered
}

type remembered struct {
	ring    keyring
	problem string // why the secret has no logins, as last logged
	until   time.Time
}

var _ Credentials = (*Keyrings)(nil)

// NewKeyrings reads docker's configuration files once. get reads one Secret; it is only asked
// for those of namespace, the only one whose Secrets the agent may read. plugins may be nil.
func NewKeyrings(ctx context.Context, get func(context.Context, types.NamespacedName) (*corev1.Secret, error), namespace string, plugins *Plugins) *Keyrings {
	return &Keyrings{
		get: get, namespace: namespace, plugins: plugins,
		files:   readFiles(ctx, configDirs()),
		secrets: map[types.NamespacedName]*remembered{},
	}
}

func configDirs() []string {
	dirs := []string{"/root", "/"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append([]string{home}, dirs...)
	}
	return dirs
}

// readFiles reads .docker/config.json and .dockercfg below the first of dirs that has them.
func readFiles(ctx context.Context, dirs []string) keyring {
	forms := []struct {
		file  string
		parse func([]byte) (keyring, error)
	}{{".docker/config.json", parseConfigJSON}, {".dockercfg", parseConfig}}
	for _, form := range forms {
		for _, dir := range dirs {
			file := filepath.Join(dir, form.file)
			data, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var ring keyring
			if err == nil {
				ring, err = form.parse(data)
			}
			if err != nil {
				klog.FromContext(ctx).Info("Ignoring a docker configuration", "file", file, "reason", err.Error())
				continue
			}
			return ring
		}
	}
	return nil
}

// Lookup implements Credentials. A secret that cannot be read or parsed is as if it were
// not there: the right to read secrets may be missing on purpose.
func (k *Keyrings) Lookup(ctx context.Context, repository string, secrets []v1beta1.ReferenceObject) []cri.Auth {
	var found []cri.Auth
	for _, ref := range secrets {
		found = append(found, k.secret(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}).lookup(repository)...)
	}
	found = append(found, k.files.lookup(repository)...)
	return append(found, k.plugins.lookup(ctx, repository)...)
}

// Refresh implements Credentials.
func (k *Keyrings) Refresh(secrets []v1beta1.ReferenceObject) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ref := range secrets {
		if r := k.secrets[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]; r != nil {
			r.until = time.Time{}
		}
	}
}

func (k *Keyrings) secret(ctx context.Context, key types.NamespacedName) keyring {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetOld()
	r := k.secrets[key]
	if r != nil && time.Now().Before(r.until) {
		return r.ring
	}
	if r == nil {
		r = &remembered{}
		k.secrets[key] = r
	}
	ring, err := k.read(ctx, key)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != r.problem {
		klog.FromContext(ctx).Info("The state of a pull secret changed", "secret", key, "problem", problem)
	}
	*r = remembered{ring: ring, problem: problem, until: time.Now().Add(secretAge + rand.N(secretAge))}
	return ring
}

// forgetOld drops secrets that nothing has asked for in a long time. The caller holds mu.
func (k *Keyrings) forgetOld() {
	for key, r := range k.secrets {
		if !r.until.IsZero() && time.Since(r.until) > 4*secretAge {
			delete(k.secrets, key)
		}
	}
}

func (k *Keyrings) read(ctx context.Context, key types.NamespacedName) (keyring, error) {
	if key.Namespace != k.namespace {
		return nil, fmt.Errorf("secrets are read in namespace %s only", k.namespace)
	}
	secret, err := k.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return parseSecret(secret)
}

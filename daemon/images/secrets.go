// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

// secretAge is how long a secret, or its absence, is remembered, plus up to as much again.
const secretAge = 5 * time.Minute

// secretTimeout bounds one read: without the API server a pull goes on without logins.
const secretTimeout = 10 * time.Second

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

// remembered is one secret. Its fields belong to Keyrings.mu.
type remembered struct {
	ring    keyring
	problem string // why the secret has no logins, as last logged
	until   time.Time
	reading chan struct{} // closed when the read under way has ended; nil without one
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
// not there: the right to read secrets may be missing on purpose. Plugins are programs that
// take their time, so they are asked when all else has failed.
func (k *Keyrings) Lookup(ctx context.Context, repository string, secrets []v1beta1.ReferenceObject) iter.Seq[cri.Auth] {
	return func(yield func(cri.Auth) bool) {
		var tried []cri.Auth
		try := func(auths []cri.Auth) bool {
			for _, auth := range auths {
				if slices.Contains(tried, auth) {
					continue
				}
				if tried = append(tried, auth); !yield(auth) {
					return false
				}
			}
			return true
		}
		for _, ref := range secrets {
			if !try(k.secret(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}).lookup(repository)) {
				return
			}
		}
		if try(k.files.lookup(repository)) {
			try(k.plugins.lookup(ctx, repository))
		}
	}
}

// Problems implements Credentials.
func (k *Keyrings) Problems(secrets []v1beta1.ReferenceObject) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var problems []string
	for _, ref := range secrets {
		key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if r := k.secrets[key]; r != nil && r.problem != "" {
			problems = append(problems, fmt.Sprintf("Secret %s cannot be used: %s", key, r.problem))
		}
	}
	return strings.Join(problems, "; ")
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

// secret returns the logins of a secret, from memory or from the API server, which is asked
// once by all who want it at the same time.
func (k *Keyrings) secret(ctx context.Context, key types.NamespacedName) keyring {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetOld()
	r := k.secrets[key]
	if r == nil {
		r = &remembered{}
		k.secrets[key] = r
	}
	for r.reading != nil {
		reading := r.reading
		k.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if ctx.Err() != nil || r.reading == nil {
			return r.ring
		}
	}
	if time.Now().Before(r.until) {
		return r.ring
	}
	r.reading = make(chan struct{})
	k.mu.Unlock()
	ring, err := k.read(ctx, key)
	k.mu.Lock()
	close(r.reading)
	r.reading = nil
	k.remember(ctx, key, r, ring, err)
	return r.ring
}

// remember takes over what was read. An API server that is away takes no logins away, and
// is asked again next time. The caller holds mu.
func (k *Keyrings) remember(ctx context.Context, key types.NamespacedName, r *remembered, ring keyring, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != r.problem {
		klog.FromContext(ctx).Info("The state of a pull secret changed", "secret", key, "problem", problem)
	}
	r.problem = problem
	if transient(err) {
		return
	}
	r.ring, r.until = ring, time.Now().Add(secretAge+rand.N(secretAge))
}

// errSecret marks what is wrong with a secret itself.
var errSecret = errors.New("not usable")

func transient(err error) bool {
	return err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !errors.Is(err, errSecret)
}

// forgetOld drops secrets that nothing has asked for in a long time. The caller holds mu.
func (k *Keyrings) forgetOld() {
	for key, r := range k.secrets {
		if r.reading == nil && !r.until.IsZero() && time.Since(r.until) > 4*secretAge {
			delete(k.secrets, key)
		}
	}
}

func (k *Keyrings) read(ctx context.Context, key types.NamespacedName) (keyring, error) {
	if key.Namespace != k.namespace {
		return nil, fmt.Errorf("%w: secrets are read in namespace %s only", errSecret, k.namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	secret, err := k.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	ring, err := parseSecret(secret)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSecret, err)
	}
	return ring, nil
}

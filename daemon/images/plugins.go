// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/daemon/cri"
)

const pluginTimeout = time.Minute

// pluginConfig is the kubelet's CredentialProviderConfig, the parts that count here.
type pluginConfig struct {
	metav1.TypeMeta `json:",inline"`
	Providers       []provider `json:"providers"`
}

type provider struct {
	Name                 string           `json:"name"`
	APIVersion           string           `json:"apiVersion"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	Args                 []string         `json:"args"`
	Env                  []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// Plugins asks the kubelet's credential provider plugins for logins (daemon.md 4.3). A nil
// *Plugins knows none.
type Plugins struct {
	providers []provider
	binDir    string
	run       func(ctx context.Context, p provider, binDir string, request []byte) ([]byte, error)

	mu    sync.Mutex
	cache map[string]cachedLogins
}

type cachedLogins struct {
	ring  keyring
	until time.Time
}

// LoadPlugins reads a CredentialProviderConfig; the programs are files of binDir.
func LoadPlugins(configFile, binDir string) (*Plugins, error) {
	data, err := os.ReadFile(configFile)
	if err != nil {
		return nil, fmt.Errorf("reading the credential provider configuration: %w", err)
	}
	var config pluginConfig
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", configFile, err)
	}
	group, _, _ := strings.Cut(config.APIVersion, "/")
	if config.Kind != "CredentialProviderConfig" || group != "kubelet.config.k8s.io" {
		return nil, fmt.Errorf("%s is a %s of %s, want a CredentialProviderConfig of kubelet.config.k8s.io", configFile, config.Kind, config.APIVersion)
	}
	for _, p := range config.Providers {
		if p.Name == "" || strings.ContainsAny(p.Name, `/\`) || p.Name == ".." {
			return nil, fmt.Errorf("%s: provider name %q is not a file name", configFile, p.Name)
		}
	}
	return &Plugins{providers: config.Providers, binDir: binDir, run: runPlugin, cache: map[string]cachedLogins{}}, nil
}

// lookup asks the plugins whose matchImages has the repository. One that fails is logged
// and left out.
func (p *Plugins) lookup(ctx context.Context, repository string) []cri.Auth {
	if p == nil {
		return nil
	}
	var found []cri.Auth
	for _, provider := range p.providers {
		if !slices.ContainsFunc(provider.MatchImages, func(m string) bool { return matches(normalizeKey(m), repository) }) {
			continue
		}
		ring, err := p.ask(ctx, provider, repository)
		if err != nil {
			klog.FromContext(ctx).Info("A credential provider failed", "provider", provider.Name, "reason", err.Error())
			continue
		}
		found = append(found, ring.lookup(repository)...)
	}
	return found
}

func (p *Plugins) ask(ctx context.Context, provider provider, repository string) (keyring, error) {
	host, _, _ := strings.Cut(repository, "/")
	keys := []string{provider.Name + " " + repository, provider.Name + " " + host, provider.Name}
	if ring, ok := p.cached(keys); ok {
		return ring, nil
	}
	request, err := json.Marshal(credentialv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: provider.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    repository,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	output, err := p.run(ctx, provider, p.binDir, request)
	if err != nil {
		return nil, err
	}
	var response credentialv1.CredentialProviderResponse
	if err := json.Unmarshal(output, &response); err != nil {
		return nil, fmt.Errorf("parsing the response: %w", redacted(err))
	}
	var ring keyring
	for match, auth := range response.Auth {
		ring = append(ring, keyringEntry{match: normalizeKey(match), auth: cri.Auth{Username: auth.Username, Password: auth.Password}})
	}
	duration := response.CacheDuration
	if duration == nil {
		duration = provider.DefaultCacheDuration
	}
	if duration != nil && duration.Duration > 0 {
		key := keys[0]
		switch response.CacheKeyType {
		case credentialv1.RegistryPluginCacheKeyType:
			key = keys[1]
		case credentialv1.GlobalPluginCacheKeyType:
			key = keys[2]
		}
		p.mu.Lock()
		p.cache[key] = cachedLogins{ring: ring, until: time.Now().Add(duration.Duration)}
		p.mu.Unlock()
	}
	return ring, nil
}

func (p *Plugins) cached(keys []string) (keyring, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		c, ok := p.cache[key]
		switch {
		case !ok:
		case time.Now().Before(c.until):
			return c.ring, true
		default:
			delete(p.cache, key)
		}
	}
	return nil, false
}

func runPlugin(ctx context.Context, p provider, binDir string, request []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, p.Name), p.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s: %w: %.200s", cmd.Path, err, stderr.String())
	}
	return stdout.Bytes(), nil
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

// ErrAbsent says that there is no cluster of the name asked for.
var ErrAbsent = errors.New("no such cluster")

// NodeState is one real node.
type NodeState struct {
	Name    string `json:"name"`
	IP      string `json:"ip"`
	PodCIDR string `json:"podCIDR"`
	Zone    string `json:"zone"` // label topology.kubernetes.io/zone
}

// State is the record of a cluster, as JSON in its run directory. Down does without it when it must.
type State struct {
	Name            string            `json:"name"`
	Shape           Shape             `json:"shape"`
	Complete        bool              `json:"complete"` // whether Up got to its end
	CreatedAt       time.Time         `json:"createdAt"`
	DataDir         string            `json:"dataDir"`
	BinDir          string            `json:"binDir"`                  // programs, among them kubectl and crictl
	VolumesBinDir   string            `json:"volumesBinDir,omitempty"` // programs that make volumes
	Kubeconfig      string            `json:"kubeconfig"`
	APIServer       string            `json:"apiServer"`                 // URL
	AuditLog        string            `json:"auditLog,omitempty"`        // file
	Registry        string            `json:"registry,omitempty"`        // host:port; images have their full names below it
	PrivateRegistry string            `json:"privateRegistry,omitempty"` // host:port, wants credentials
	Ports           Ports             `json:"ports"`
	Nodes           []NodeState       `json:"nodes,omitempty"`
	Sysctls         map[string]string `json:"sysctls,omitempty"`     // to put back
	MountPoints     []string          `json:"mountPoints,omitempty"` // directories made for the nodes, to remove
}

// Ports are TCP ports of the control plane.
type Ports struct {
	API        int `json:"api"`
	Etcd       int `json:"etcd"`
	EtcdPeer   int `json:"etcdPeer"`
	Controller int `json:"controller"`
	Scheduler  int `json:"scheduler"`
}

// parseState reads the record of a cluster.
func parseState(data []byte) (*State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("reading the record of a cluster: %w", err)
	}
	if s.Name == "" || s.DataDir == "" {
		return nil, errors.New("reading the record of a cluster: it names no cluster")
	}
	return &s, nil
}

// loadState reads the record of the named cluster; ErrAbsent if there is none.
func loadState(name string) (*State, error) {
	for _, path := range statePaths(name) {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the record of cluster %s: %w", name, err)
		}
		return parseState(data)
	}
	return nil, fmt.Errorf("cluster %s: %w", name, ErrAbsent)
}

// save writes the record so that a reader sees the old or the new one.
func (s *State) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	for _, path := range statePaths(s.Name) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("recording the cluster: %w", err)
		}
		if err := os.WriteFile(path+".new", data, 0o644); err != nil {
			return fmt.Errorf("recording the cluster: %w", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return fmt.Errorf("recording the cluster: %w", err)
		}
	}
	return nil
}

// statePaths are the places of the record. The second one survives a boot, with what is to be put back then.
func statePaths(name string) []string {
	paths := []string{filepath.Join(runDir(name), "state.json")}
	if dir, err := dataDir(name); err == nil {
		paths = append(paths, filepath.Join(dir, "state.json"))
	}
	return paths
}

// runRoot holds one directory per cluster with what does not outlive a boot.
func runRoot() string {
	if os.Geteuid() == 0 {
		return "/run/kruisectl-cluster"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "kruisectl-cluster")
	}
	return filepath.Join(os.TempDir(), "kruisectl-cluster-"+strconv.Itoa(os.Geteuid()))
}

func lockPath() string              { return runRoot() + ".lock" }
func runDir(name string) string     { return filepath.Join(runRoot(), name) }
func socketPath(name string) string { return filepath.Join(runDir(name), "supervisor.sock") }

// dataDir holds everything else of a cluster. Nodes mount over /run, so it cannot be there.
func dataDir(name string) (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/kruisectl-cluster", name), nil
	}
	cache, err := toolchain.CacheRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "clusters", name), nil
}

// removeIfEmpty removes the parents of the directories of a cluster after its last one is gone.
func removeIfEmpty(dirs ...string) {
	for _, d := range dirs {
		_ = os.Remove(filepath.Dir(d)) // another cluster is there
	}
}

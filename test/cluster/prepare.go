// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/pki"
)

// cutPort splits host:port at its last colon.
func cutPort(address string) (host, port string, ok bool) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return address, "", false
	}
	return address[:i], address[i+1:], true
}

// plan fills the record of a new cluster. Nothing is created yet.
func plan(o Options, shape Shape, binDir string, ports Ports, now time.Time) (*State, error) {
	data, err := dataDir(o.Name)
	if err != nil {
		return nil, err
	}
	s := &State{
		Name: o.Name, Shape: shape, CreatedAt: now, DataDir: data, BinDir: binDir, Ports: ports,
		Kubeconfig: filepath.Join(data, "kubeconfig"), Nodes: planNodes(shape.Nodes),
	}
	if shape.Nodes > 0 {
		// Fixed: nothing else binds to the bridge.
		s.Ports.API = 16443
		s.Registry, s.PrivateRegistry = machine.HostIP+":5000", machine.HostIP+":5001"
	}
	if shape.Audit {
		s.AuditLog = filepath.Join(data, "logs", "audit.log")
	}
	s.APIServer = s.apiServerURL()
	return s, nil
}

// freePorts finds ports for the control plane that nobody uses right now.
func freePorts() (Ports, error) {
	n, err := freeNumbers(5)
	if err != nil {
		return Ports{}, err
	}
	return Ports{API: n[0], Etcd: n[1], EtcdPeer: n[2], Controller: n[3], Scheduler: n[4]}, nil
}

// freeNumbers finds TCP ports on 127.0.0.1 that nobody uses right now.
func freeNumbers(count int) ([]int, error) {
	var numbers []int
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // kept open until all are found, so that they differ
		numbers = append(numbers, l.Addr().(*net.TCPAddr).Port)
	}
	return numbers, nil
}

// writeFiles creates the data directory with everything in it that processes read.
func (s *State) writeFiles(program string) error {
	for _, d := range []string{"pki", "config", "logs", "etcd"} {
		if err := os.MkdirAll(filepath.Join(s.DataDir, d), 0o700); err != nil {
			return fmt.Errorf("creating the directories of the cluster: %w", err)
		}
	}
	if err := copyProgram(program, s.self()); err != nil {
		return err
	}
	if err := s.writePKI(time.Now()); err != nil {
		return err
	}
	files := map[string]string{s.config("audit-policy.yaml"): auditPolicy}
	for path, content := range s.registryHosts() {
		files[filepath.Join(s.config("certs.d"), path)] = content
	}
	for _, n := range s.Nodes {
		if err := machine.NodeFolders(s.nodeDir(n.Name)); err != nil {
			return err
		}
		for path, content := range s.nodeFiles(n) {
			files[filepath.Join(s.nodeDir(n.Name), path)] = content
		}
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
	}
	if len(s.Nodes) == 0 {
		return nil
	}
	return s.writePause()
}

// copyProgram keeps the cluster program as it is now: the one that was called may be rebuilt or, from go run, removed.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying the cluster program: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying the cluster program: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copying the cluster program: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("copying the cluster program: %w", err)
	}
	return nil
}

// pauseArchive is the sandbox image as an archive that nodes import.
func (s *State) pauseArchive() string { return s.config("pause.tar") }

func (s *State) writePause() error {
	base, err := images.SystemBase()
	if err != nil {
		return err
	}
	var entries []images.Entry
	for _, e := range images.Catalog() {
		if e.Ref == images.Pause {
			entries = append(entries, e)
		}
	}
	built, err := images.Build(base, entries)
	if err != nil {
		return err
	}
	return writeArchive(s.pauseArchive(), images.Pause, built[images.Pause])
}

func writeArchive(path, ref string, image v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return fmt.Errorf("writing the image %s: %w", ref, err)
	}
	return nil
}

// identities are all users and servers of the cluster, by the name of their files.
func (s *State) identities() map[string]pki.Identity {
	ids := map[string]pki.Identity{
		"apiserver": {
			User: "kube-apiserver",
			DNS:  []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
			IPs:  []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(machine.ServiceIP), net.ParseIP(machine.HostIP)},
		},
		"admin":              {User: "admin", Groups: []string{"system:masters"}},
		"controller-manager": {User: "system:kube-controller-manager"},
		"scheduler":          {User: "system:kube-scheduler"},
		"proxy":              {User: "system:kube-proxy"},
		"kubelet-client":     {User: "apiserver-kubelet-client", Groups: []string{"system:masters"}},
	}
	if s.Shape.Volumes {
		for _, name := range []string{Provisioner, Resizer} {
			ids[name] = pki.Identity{User: name, Groups: []string{"system:masters"}}
		}
	}
	for _, n := range s.Nodes {
		ids[n.Name] = pki.Identity{
			User: "system:node:" + n.Name, Groups: []string{"system:nodes"},
			// exec and logs reach the kubelet by its address, and its certificate is checked.
			DNS: []string{n.Name}, IPs: []net.IP{net.ParseIP(n.IP)},
		}
	}
	return ids
}

func (s *State) writePKI(now time.Time) error {
	dir := s.pki("")
	ca, err := pki.NewAuthority("kruisectl-test-ca", now)
	if err != nil {
		return err
	}
	caPair, err := ca.Pair()
	if err != nil {
		return err
	}
	if err := caPair.Write(dir, "ca"); err != nil {
		return err
	}
	clients := map[string]bool{"admin": true, "controller-manager": true, "scheduler": true, "proxy": true, Provisioner: true, Resizer: true}
	for _, n := range s.Nodes {
		clients[n.Name] = true
	}
	for name, id := range s.identities() {
		pair, err := ca.Issue(id, now)
		if err != nil {
			return err
		}
		if err := pair.Write(dir, name); err != nil {
			return err
		}
		if !clients[name] {
			continue
		}
		path := s.pki(name + ".kubeconfig")
		if name == "admin" {
			path = s.Kubeconfig
		}
		if err := pki.WriteKubeconfig(path, pki.Kubeconfig("kruisectl-"+s.Name, s.APIServer, caPair.Cert, pair)); err != nil {
			return err
		}
	}
	frontCA, err := pki.NewAuthority("kruisectl-test-front-proxy-ca", now)
	if err != nil {
		return err
	}
	frontPair, err := frontCA.Pair()
	if err != nil {
		return err
	}
	front, err := frontCA.Issue(pki.Identity{User: "front-proxy"}, now)
	if err != nil {
		return err
	}
	private, public, err := pki.SigningKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.pki("sa.key"), private, 0o600); err != nil {
		return fmt.Errorf("writing the service account key: %w", err)
	}
	if err := os.WriteFile(s.pki("sa.pub"), public, 0o644); err != nil {
		return fmt.Errorf("writing the service account key: %w", err)
	}
	if err := frontPair.Write(dir, "front-proxy-ca"); err != nil {
		return err
	}
	return front.Write(dir, "front-proxy")
}

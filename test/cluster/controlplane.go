// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

// Names of the processes of the control plane, for Cluster.Do.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	RegistryProcess   = "registry"
	Simulator         = "simulator"
	Manager           = "kruise-manager" // only after RunManager
)

// address is where the API server listens: nodes must reach it.
func (s *State) address() string {
	if s.Shape.Nodes > 0 {
		return machine.HostIP
	}
	return "127.0.0.1"
}

func (s *State) pki(file string) string     { return filepath.Join(s.DataDir, "pki", file) }
func (s *State) config(file string) string  { return filepath.Join(s.DataDir, "config", file) }
func (s *State) program(name string) string { return filepath.Join(s.BinDir, name) }
func (s *State) logFile(process string) string {
	return filepath.Join(s.DataDir, "logs", process+".log")
}

// self is the copy of the cluster program that belongs to this cluster.
func (s *State) self() string { return filepath.Join(s.DataDir, "cluster") }

func (s *State) process(name string, args ...string) supervisor.Spec {
	return supervisor.Spec{Name: name, Args: args, Log: s.logFile(name), Restart: true}
}

func (s *State) etcdURL(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

func (s *State) etcdSpec() supervisor.Spec {
	client, peer := s.etcdURL(s.Ports.Etcd), s.etcdURL(s.Ports.EtcdPeer)
	spec := s.process(Etcd, s.program("etcd"),
		"--data-dir="+filepath.Join(s.DataDir, "etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", // the data dies with the cluster anyway
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	)
	return spec
}

func (s *State) apiServerSpec() supervisor.Spec {
	args := []string{
		s.program("kube-apiserver"),
		"--etcd-servers=" + s.etcdURL(s.Ports.Etcd),
		"--bind-address=" + s.address(), "--advertise-address=" + s.address(),
		"--secure-port=" + strconv.Itoa(s.Ports.API),
		"--service-cluster-ip-range=" + machine.ServiceCIDR,
		"--cert-dir=" + filepath.Join(s.DataDir, "pki"),
		"--tls-cert-file=" + s.pki("apiserver.crt"), "--tls-private-key-file=" + s.pki("apiserver.key"),
		"--client-ca-file=" + s.pki("ca.crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.pki("sa.pub"), "--service-account-signing-key-file=" + s.pki("sa.key"),
		"--allow-privileged=true",
		// The machine has no kube-proxy: Services of webhooks are resolved to Pods by the API server itself.
		"--enable-aggregator-routing=true",
		"--kubelet-client-certificate=" + s.pki("kubelet-client.crt"), "--kubelet-client-key=" + s.pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + s.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + s.pki("front-proxy.crt"), "--proxy-client-key-file=" + s.pki("front-proxy.key"),
		// Must be another authority than that of clients, or the API server exits.
		"--requestheader-client-ca-file=" + s.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
	}
	if s.Shape.Rootless {
		// The endpoints of the Service kubernetes may not be a loopback address.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if s.AuditLog != "" {
		// One file for the whole life of the cluster: whoever counts requests must not lose some to rotation.
		args = append(args, "--audit-policy-file="+s.config("audit-policy.yaml"), "--audit-log-path="+s.AuditLog,
			"--audit-log-maxsize=100000", "--audit-log-format=json")
	}
	return s.process(APIServer, args...)
}

func (s *State) controllerManagerSpec() supervisor.Spec {
	args := []string{
		s.program("kube-controller-manager"),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.Ports.Controller),
		"--cert-dir=" + filepath.Join(s.DataDir, "pki"),
		"--kubeconfig=" + s.pki("controller-manager.kubeconfig"),
		"--authentication-kubeconfig=" + s.pki("controller-manager.kubeconfig"),
		"--authorization-kubeconfig=" + s.pki("controller-manager.kubeconfig"),
		"--service-account-private-key-file=" + s.pki("sa.key"), "--root-ca-file=" + s.pki("ca.crt"),
		"--cluster-signing-cert-file=" + s.pki("ca.crt"), "--cluster-signing-key-file=" + s.pki("ca.key"),
		"--use-service-account-credentials=true",
		// Nodes come with their Pod network; thousands of simulated ones need none.
		"--allocate-node-cidrs=false", "--cluster-cidr=" + machine.PodCIDR,
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
	if s.Shape.Nodes == 0 {
		// Simulated nodes renew their leases seldom; see simulatorSpec.
		args = append(args, "--node-monitor-grace-period=5m")
	}
	return s.process(ControllerManager, args...)
}

func (s *State) schedulerSpec() supervisor.Spec {
	return s.process(Scheduler, s.program("kube-scheduler"),
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(s.Ports.Scheduler),
		"--cert-dir="+filepath.Join(s.DataDir, "pki"),
		"--kubeconfig="+s.pki("scheduler.kubeconfig"),
		"--authentication-kubeconfig="+s.pki("scheduler.kubeconfig"),
		"--authorization-kubeconfig="+s.pki("scheduler.kubeconfig"),
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
}

func (s *State) registrySpec() supervisor.Spec {
	return s.process(RegistryProcess, s.self(), "serve-registry",
		"--dir="+filepath.Join(s.DataDir, "registry"), "--public="+s.Registry, "--private="+s.PrivateRegistry)
}

func (s *State) simulatorSpec() supervisor.Spec {
	// What is installed on a simulated node does not run: the simulator plays its node agent.
	args := []string{s.self(), "simulate", "--kubeconfig=" + s.Kubeconfig, "--nodes=" + strconv.Itoa(s.Shape.Simulated), "--node-agent"}
	if s.Shape.Nodes > 0 {
		args = append(args, "--taint")
	} else {
		// No node runs the product: RunManager runs its manager, and what is installed for it stays Pending instead of
		// claiming to run.
		args = append(args, "--lease-interval=1m", "--idle-namespace="+SystemNamespace)
	}
	return s.process(Simulator, args...)
}

// auditPolicy records every request once, when its response is complete.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// apiServerURL is where clients on this machine and nodes find the API server.
func (s *State) apiServerURL() string {
	return fmt.Sprintf("https://%s:%d", s.address(), s.Ports.API)
}

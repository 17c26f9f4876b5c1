// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

// Kinds of processes of a node; the process is named NODE.KIND.
const (
	kindHolder     = "holder" // keeps the namespaces
	kindContainerd = "containerd"
	kindKubelet    = "kubelet"
	kindProxy      = "kube-proxy"
	kindVolumes    = "volumes" // only with Shape.Volumes
)

func processName(node, kind string) string { return node + "." + kind }

// planNodes names n nodes and gives each its addresses and one of three zones.
func planNodes(n int) []NodeState {
	var nodes []NodeState
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("node%d", i)
		net := machine.NodeNet(name, i)
		nodes = append(nodes, NodeState{Name: name, IP: net.IP.String(), PodCIDR: net.PodCIDR.String(), Zone: zone(i - 1)})
	}
	return nodes
}

// zone spreads nodes over three zones by their number, from 0.
func zone(i int) string { return "zone-" + string(rune('a'+i%3)) }

// net is the node's place in the network. The addresses were printed by netip, so they parse.
func (n NodeState) net() machine.Net {
	return machine.Net{Node: n.Name, IP: netip.MustParseAddr(n.IP), PodCIDR: netip.MustParsePrefix(n.PodCIDR)}
}

func (s *State) nodeDir(node string) string { return filepath.Join(s.DataDir, "nodes", node) }

func (s *State) holderSpec(n NodeState) supervisor.Spec {
	spec := s.process(processName(n.Name, kindHolder), machine.HoldArgs(s.self(), s.nodeDir(n.Name))...)
	spec.Restart = false // a new one would be another machine
	return spec
}

// inNode is a process that runs in the namespaces held by holder.
func (s *State) inNode(n NodeState, kind string, holder int, args ...string) supervisor.Spec {
	spec := s.process(processName(n.Name, kind), append(machine.Enter(holder), args...)...)
	spec.Env = []string{"PATH=" + s.BinDir + ":" + os.Getenv("PATH"), "HOME=/root"}
	return spec
}

func (s *State) containerdSpec(n NodeState, holder int) supervisor.Spec {
	return s.inNode(n, kindContainerd, holder, s.program("containerd"), "--config", filepath.Join(s.nodeDir(n.Name), "containerd.toml"))
}

func (s *State) kubeletSpec(n NodeState, holder int) supervisor.Spec {
	return s.inNode(n, kindKubelet, holder, s.program("kubelet"),
		"--kubeconfig="+s.pki(n.Name+".kubeconfig"),
		"--config="+filepath.Join(s.nodeDir(n.Name), "kubelet.yaml"),
		"--hostname-override="+n.Name, "--node-ip="+n.IP)
}

// nodeAgentSpecs are what runs on a node beside its container runtime.
func (s *State) nodeAgentSpecs(n NodeState, holder int) []supervisor.Spec {
	specs := []supervisor.Spec{s.kubeletSpec(n, holder), s.proxySpec(n, holder)}
	if s.Shape.Volumes {
		specs = append(specs, s.nodeVolumesSpec(n, holder))
	}
	return specs
}

func (s *State) proxySpec(n NodeState, holder int) supervisor.Spec {
	return s.inNode(n, kindProxy, holder, s.program("kube-proxy"), "--config="+filepath.Join(s.nodeDir(n.Name), "kube-proxy.yaml"))
}

// nodeFiles are the configuration files of a node by their paths below its directory.
func (s *State) nodeFiles(n NodeState) map[string]string {
	return map[string]string{
		"containerd.toml":        s.containerdConfig(),
		"kubelet.yaml":           s.kubeletConfig(n),
		"kube-proxy.yaml":        s.proxyConfig(n),
		"cni/10-bridge.conflist": cniConfig(n),
		"hosts":                  hostsFile(n),
	}
}

func hostsFile(n NodeState) string {
	private, _, _ := cutPort(images.PrivateHost)
	return fmt.Sprintf("127.0.0.1 localhost\n%s %s\n%s %s\n", n.IP, n.Name, machine.HostIP, private)
}

func (s *State) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.nri.v1.nri"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%[1]q]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false

[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %[2]q
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = %[3]q
`, machine.CNIBinDir, images.Pause, s.config("certs.d"))
}

// registryHosts are the files that send every registry to ours, by their paths below containerd's config_path.
func (s *State) registryHosts() map[string]string {
	ours := fmt.Sprintf("server = \"http://%s\"\n", s.Registry)
	return map[string]string{
		"_default/hosts.toml":        ours,
		"docker.io/hosts.toml":       ours,
		"registry.k8s.io/hosts.toml": ours,
		// Under its own name, so that credentials for that name are sent to it.
		images.PrivateHost + "/hosts.toml": fmt.Sprintf("server = \"http://%s\"\n", images.PrivateHost),
	}
}

func (s *State) kubeletConfig(n NodeState) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%[1]s/%[2]s
cgroupsPerQOS: true
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[3]s}
authorization: {mode: Webhook}
tlsCertFile: %[4]s
tlsPrivateKeyFile: %[5]s
# The disk and the memory are shared with everything else on the machine.
evictionHard: {nodefs.available: "1Mi", imagefs.available: "1Mi", nodefs.inodesFree: "1", imagefs.inodesFree: "1", memory.available: "100Mi"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 200
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 100
kubeAPIBurst: 200
nodeStatusUpdateFrequency: 5s
# How long an expanded volume of a running Pod waits for its node; a minute otherwise.
syncFrequency: 5s
volumePluginDir: /var/lib/kubelet/volume-plugins
# Nobody serves it; without it the kubelet warns about every Pod.
clusterDNS: ["10.96.0.10"]
clusterDomain: cluster.local
resolvConf: ""
`, machine.CgroupRoot, n.Name, s.pki("ca.crt"), s.pki(n.Name+".crt"), s.pki(n.Name+".key"))
}

func (s *State) proxyConfig(n NodeState) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %[1]s}
hostnameOverride: %[2]s
clusterCIDR: %[3]s
# These settings of the kernel cannot be changed from inside a namespace.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
`, s.pki("proxy.kubeconfig"), n.Name, machine.PodCIDR)
}

func cniConfig(n NodeState) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "kr",
  "plugins": [{
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": true,
    "ipMasq": false,
    "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`, n.PodCIDR)
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func testState(t *testing.T, shape Shape) *State {
	t.Helper()
	s, err := plan(Options{Name: "test"}, shape, "/bin-dir", Ports{API: 1, Etcd: 2, EtcdPeer: 3, Controller: 4, Scheduler: 5}, t0)
	require.NoError(t, err)
	return s
}

func TestShape(t *testing.T) {
	cases := map[string]struct {
		options Options
		want    Shape
		err     string
	}{
		"simulated nodes alone need no bridge and have no volumes": {options: Options{Simulated: 5}, want: Shape{Simulated: 5, Rootless: true}},
		"a rootless cluster has no real nodes":                     {options: Options{Nodes: 1, Rootless: true}, err: "a rootless cluster has no real nodes"},
		"negative numbers of nodes are refused":                    {options: Options{Nodes: -1}, err: "nodes: -1 is not between 0 and 50"},
		"too many nodes are refused":                               {options: Options{Nodes: 51}, err: "nodes: 51 is not between 0 and 50"},
		"a name with a slash would be elsewhere":                   {options: Options{Name: "../x"}, err: "must be lower case letters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.options.shape()
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			got.Programs = ""
			got.VolumePrograms = ""
			require.Equal(t, tc.want, got)
			require.Equal(t, DefaultName, tc.options.Name)
		})
	}
}

func TestLockIsHeldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	require.NoError(t, err)
	second, err := tryLock(path)
	require.NoError(t, err)
	require.Nil(t, second)

	require.True(t, current(first, path))

	require.NoError(t, os.Remove(path), "as the last Down does")
	require.False(t, current(first, path))
	third, err := tryLock(path)
	require.NoError(t, err)
	require.NotNil(t, third, "a new file is a new lock")
	require.False(t, current(first, path), "who waited for the old file must not go on")
	require.NoError(t, first.Close())
	require.NoError(t, third.Close())
	again, err := tryLock(path)
	require.NoError(t, err)
	require.NotNil(t, again)
	require.NoError(t, again.Close())
}

func TestServes(t *testing.T) {
	plain, audited, larger := Shape{Nodes: 3}, Shape{Nodes: 3, Audit: true}, Shape{Nodes: 4}
	require.True(t, plain.serves(plain))
	require.True(t, audited.serves(plain), "an audit log more does no harm")
	require.False(t, plain.serves(audited))
	require.False(t, larger.serves(plain))
	volumes := Shape{Nodes: 3, Volumes: true, VolumePrograms: "1"}
	require.True(t, volumes.serves(plain), "volumes more do no harm either")
	require.False(t, plain.serves(volumes))
	require.False(t, volumes.serves(Shape{Nodes: 3, Volumes: true, VolumePrograms: "2"}))
}

func TestRealNodesHaveVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("real nodes need root")
	}
	with, err := (&Options{Nodes: 1}).shape()
	require.NoError(t, err)
	require.True(t, with.Volumes)
	require.NotEmpty(t, with.VolumePrograms)
	without, err := (&Options{Nodes: 1, NoVolumes: true}).shape()
	require.NoError(t, err)
	require.False(t, without.Volumes)
	require.Empty(t, without.VolumePrograms)
	require.True(t, with.serves(without))
	mixed, err := (&Options{Nodes: 1, Simulated: 200}).shape()
	require.NoError(t, err)
	require.False(t, mixed.Volumes)
}

func TestVolumeProcesses(t *testing.T) {
	s := testState(t, Shape{Nodes: 1, Volumes: true})
	specs := s.volumeSpecs()
	require.Len(t, specs, 3)
	socket := flags(specs[0])["--socket"]
	require.NotEmpty(t, socket)
	require.Less(t, len(socket), 108, "what the address of a Unix socket can hold")
	for _, spec := range specs[1:] {
		require.Equal(t, socket, flags(spec)["--csi-address"], spec.Name)
	}
	require.Len(t, s.nodeAgentSpecs(s.Nodes[0], 1), 3)
	require.Len(t, testState(t, Shape{Nodes: 1}).nodeAgentSpecs(s.Nodes[0], 1), 2)
}

func TestStateRoundTrip(t *testing.T) {
	s := testState(t, Shape{Nodes: 3, Audit: true})
	data, err := json.Marshal(s)
	require.NoError(t, err)
	got, err := parseState(data)
	require.NoError(t, err)
	require.Equal(t, s, got)
}

func TestParseStateRefusesWhatIsNoRecord(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"name":"x"}`} {
		_, err := parseState([]byte(text))
		require.Error(t, err, text)
	}
}

func TestPlanOfRealNodes(t *testing.T) {
	s := testState(t, Shape{Nodes: 4, Audit: true})
	require.Equal(t, "https://10.90.0.1:16443", s.APIServer)
	require.Equal(t, []string{"zone-a", "zone-b", "zone-c", "zone-a"}, []string{s.Nodes[0].Zone, s.Nodes[1].Zone, s.Nodes[2].Zone, s.Nodes[3].Zone})
	require.NotEmpty(t, s.AuditLog)
	require.NotContains(t, s.DataDir, "/run/", "nodes mount over /run")
}

func flags(spec supervisor.Spec) map[string]string {
	values := map[string]string{}
	for _, a := range spec.Args {
		if name, value, ok := strings.Cut(a, "="); ok {
			values[name] = value
		}
	}
	return values
}

func TestAPIServerFlags(t *testing.T) {
	real := flags(testState(t, Shape{Nodes: 3, Audit: true}).apiServerSpec())
	require.Equal(t, "10.90.0.1", real["--bind-address"], "nodes reach it, the rest of the world does not")
	require.NotEmpty(t, real["--audit-log-path"])
	require.NotContains(t, real, "--endpoint-reconciler-type")
	require.NotEqual(t, real["--client-ca-file"], real["--requestheader-client-ca-file"])

	rootless := flags(testState(t, Shape{Simulated: 3, Rootless: true}).apiServerSpec())
	require.Equal(t, "127.0.0.1", rootless["--bind-address"])
	require.Equal(t, "none", rootless["--endpoint-reconciler-type"])
	require.NotContains(t, rootless, "--audit-log-path")
}

func TestSimulatedNodesAreTaintedBesideRealOnes(t *testing.T) {
	require.Contains(t, testState(t, Shape{Nodes: 1, Simulated: 2}).simulatorSpec().Args, "--taint")
	require.NotContains(t, testState(t, Shape{Simulated: 2, Rootless: true}).simulatorSpec().Args, "--taint")
}

func TestNodeConfigurationParses(t *testing.T) {
	s := testState(t, Shape{Nodes: 2})
	files := s.nodeFiles(s.Nodes[1])
	kubelet := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(files["kubelet.yaml"]), &kubelet))
	require.Equal(t, "/kr/node2", kubelet["cgroupRoot"])
	require.Equal(t, false, kubelet["failCgroupV1"])
	proxy := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(files["kube-proxy.yaml"]), &proxy))
	require.Equal(t, "nftables", proxy["mode"])
	var cni struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(files["cni/10-bridge.conflist"]), &cni))
	require.Equal(t, s.Nodes[1].PodCIDR, cni.Plugins[0].IPAM.Ranges[0][0].Subnet)
	require.Contains(t, files["hosts"], "10.90.0.1 private.registry.test\n")
	require.NoError(t, yaml.UnmarshalStrict([]byte(auditPolicy), &map[string]any{}))
}

func TestEveryRegistryIsOurs(t *testing.T) {
	hosts := testState(t, Shape{Nodes: 1}).registryHosts()
	require.Equal(t, "server = \"http://10.90.0.1:5000\"\n", hosts["_default/hosts.toml"])
	require.Equal(t, hosts["_default/hosts.toml"], hosts["docker.io/hosts.toml"])
	require.Equal(t, "server = \"http://private.registry.test:5001\"\n", hosts["private.registry.test:5001/hosts.toml"])
}

func TestPKIServesEveryProcess(t *testing.T) {
	s := testState(t, Shape{Nodes: 2, Volumes: true})
	s.DataDir = t.TempDir()
	s.Kubeconfig = filepath.Join(s.DataDir, "kubeconfig")
	require.NoError(t, os.Mkdir(s.pki(""), 0o700))
	require.NoError(t, s.writePKI(t0))
	specs := []supervisor.Spec{
		s.apiServerSpec(), s.controllerManagerSpec(), s.schedulerSpec(), s.kubeletSpec(s.Nodes[0], 1), s.kubeletSpec(s.Nodes[1], 1),
	}
	specs = append(specs, s.volumeSpecs()...)
	for _, spec := range specs {
		for flag, value := range flags(spec) {
			if strings.HasPrefix(value, s.pki("")+"/") {
				require.FileExists(t, value, "%s %s", spec.Name, flag)
			}
		}
	}
	require.FileExists(t, s.pki("proxy.kubeconfig"))
	require.FileExists(t, s.Kubeconfig)
	_, err := tls.LoadX509KeyPair(s.pki("node2.crt"), s.pki("node2.key"))
	require.NoError(t, err)
}

func TestNotReady(t *testing.T) {
	node := func(status corev1.ConditionStatus, taints ...string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: "because"}}}}
		n.Name = "node1"
		for _, k := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k})
		}
		return n
	}
	require.Empty(t, notReady(node(corev1.ConditionTrue)))
	require.Empty(t, notReady(node(corev1.ConditionTrue, "kruisectl.test/simulated")))
	require.Equal(t, "Node node1 is not Ready: because", notReady(node(corev1.ConditionFalse)))
	require.Equal(t, "Node node1 has the taint node.kubernetes.io/not-ready", notReady(node(corev1.ConditionTrue, corev1.TaintNodeNotReady)))
	require.Equal(t, "Node  has no status yet", notReady(&corev1.Node{}))
}

func TestFullName(t *testing.T) {
	cases := map[string]string{
		"nginx":                        "docker.io/library/nginx:latest",
		"nginx:1.20":                   "docker.io/library/nginx:1.20",
		"kruisectl/sidecar:1":          "docker.io/kruisectl/sidecar:1",
		"docker.io/library/nginx:1.20": "docker.io/library/nginx:1.20",
		"registry.k8s.io/pause:3.10":   "registry.k8s.io/pause:3.10",
	}
	for short, want := range cases {
		got, err := fullName(short)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

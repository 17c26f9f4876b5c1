// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/registry"
	"github.com/kruisectl/kruisectl/test/cluster/volumes"
)

// The tests of this file need root, a machine without another real cluster, and several minutes:
// go test -tags cluster -count=1 -timeout 20m .

const limit = 2 * time.Minute

// program builds the cluster program.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster")
	out, err := exec.Command("go", "build", "-o", path, "./cmd/cluster").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func up(t *testing.T, o Options) (*Cluster, kubernetes.Interface) {
	t.Helper()
	o.Program = program(t)
	o.Progress = t.Logf
	t.Cleanup(func() { require.NoError(t, Down(context.Background(), o.Name, nil)) })
	c, err := Up(t.Context(), o)
	require.NoError(t, err)
	kube, err := c.clientset()
	require.NoError(t, err)
	return c, kube
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		require.True(t, time.Now().Before(deadline), "%s: %v", what, err)
		require.NoError(t, pause(t.Context(), 200*time.Millisecond))
	}
}

func podOn(node, name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: image}}},
	}
}

func run(t *testing.T, kube kubernetes.Interface, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	_, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return ready(t, kube, pod.Name)
}

func ready(t *testing.T, kube kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	var got *corev1.Pod
	eventually(t, "Pod "+name+" Ready", func() error {
		var err error
		if got, err = kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", got.Status.ContainerStatuses)
	})
	return got
}

// snapshot is what a cluster could leave on the machine.
func snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, command := range map[string]string{
		"links": "ip -o link | awk '{print $2}'", "addresses": "ip -o addr | awk '{print $2, $4}'", "routes": "ip route",
		"namespaces": "ip netns", "mounts": "cut -d' ' -f2 /proc/self/mounts", "tables": "nft list tables",
		"groups": "ls -d /sys/fs/cgroup/kr /sys/fs/cgroup/*/kr 2>/dev/null", "files": "ls -d /run/kruisectl-cluster/* /var/lib/kruisectl-cluster/* 2>/dev/null",
		"settings": "cat /proc/sys/net/ipv4/ip_forward /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic_on_oops",
		"folders":  "ls -d /var/lib/kubelet /var/lib/containerd /var/lib/cni /etc/cni /opt/containerd 2>/dev/null",
	} {
		out, _ := exec.Command("sh", "-c", command).Output() // nothing found is a failure of ls
		all[name] = string(out)
	}
	return all
}

func TestRealCluster(t *testing.T) {
	const name = "test-real"
	before := snapshot(t)
	t.Run("lifecycle", func(t *testing.T) {
		c, kube := up(t, Options{Name: name, Nodes: 3, Audit: true})
		t.Run("a Pod runs on each node and restarts in place", func(t *testing.T) { testInPlace(t, c, kube) })
		t.Run("a Service reaches Pods of other nodes", func(t *testing.T) { testService(t, c, kube) })
		t.Run("a private image needs credentials", func(t *testing.T) { testPrivate(t, kube) })
		t.Run("a pushed image can be pulled", func(t *testing.T) { testPush(t, c, kube) })
		t.Run("a claim gets a volume that stays on its node and grows", func(t *testing.T) { testVolumes(t, c, kube) })
		t.Run("faults are survived", func(t *testing.T) { testFaults(t, c, kube) })
		t.Run("a node can be cut off and joined again", func(t *testing.T) { testCut(t, c, kube) })
		t.Run("a node can be switched off and on", func(t *testing.T) { testNodeOff(t, c, kube) })
		t.Run("the audit log has our requests", func(t *testing.T) {
			data, err := os.ReadFile(c.AuditLog())
			require.NoError(t, err)
			require.Contains(t, string(data), `"requestURI":"/api/v1/namespaces/default/pods`)
		})
		t.Run("up again changes nothing", func(t *testing.T) {
			again, err := Up(t.Context(), Options{Name: name, Nodes: 3, Audit: true})
			require.NoError(t, err)
			require.Equal(t, c.State.CreatedAt.UTC(), again.State.CreatedAt.UTC())
			_, err = Up(t.Context(), Options{Name: name, Nodes: 2})
			require.ErrorContains(t, err, "another shape")
			_, err = Up(t.Context(), Options{Name: "test-second", Nodes: 1})
			require.ErrorContains(t, err, "uses the network of this machine")
		})
	})
	require.Equal(t, before, snapshot(t))
	require.Empty(t, machine.Members(name))
	require.NoError(t, Down(t.Context(), name, nil), "nothing to do is no error")
}

func testInPlace(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	for _, n := range c.State.Nodes {
		before := run(t, kube, podOn(n.Name, "in-place-"+n.Name, "nginx:1.16"))
		patch := []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"nginx:1.17"}]`)
		_, err := kube.CoreV1().Pods("default").Patch(t.Context(), before.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		eventually(t, "restart in place", func() error {
			got := ready(t, kube, before.Name)
			if cs := got.Status.ContainerStatuses[0]; cs.RestartCount != 1 || cs.ImageID == before.Status.ContainerStatuses[0].ImageID {
				return fmt.Errorf("%+v", cs)
			}
			require.Equal(t, before.UID, got.UID)
			require.Equal(t, before.Status.PodIP, got.Status.PodIP)
			return nil
		})
		require.True(t, strings.HasPrefix(before.Status.PodIP, strings.TrimSuffix(n.PodCIDR, "0/24")))
	}
}

func testService(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	server := podOn("node1", "server", "nginx:1.18")
	server.Labels = map[string]string{"app": "server"}
	run(t, kube, server)
	run(t, kube, podOn("node2", "client", "nginx:1.16"))
	service, err := kube.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec:       corev1.ServiceSpec{Selector: server.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Not wget -T: that option crashes the static busybox of Debian 12.
	eventually(t, "answer through the Service", func() error {
		out, err := exec.CommandContext(t.Context(), c.State.program("kubectl"), "--kubeconfig", c.Kubeconfig(),
			"exec", "client", "--", "timeout", "2", "wget", "-qO-", "http://"+service.Spec.ClusterIP+"/version").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("1.18")) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func testPrivate(t *testing.T, kube kubernetes.Interface) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, images.PrivateHost, registry.User, registry.Password)},
	}
	_, err := kube.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := podOn("node1", "private", images.PrivateHost+"/private/app:1")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	run(t, kube, pod)
	_, err = kube.CoreV1().Pods("default").Create(t.Context(), podOn("node2", "refused", images.PrivateHost+"/private/app:1"), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "refusal without credentials", func() error {
		got, err := kube.CoreV1().Pods("default").Get(t.Context(), "refused", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(got.Status.ContainerStatuses) == 0 || got.Status.ContainerStatuses[0].State.Waiting == nil ||
			!strings.Contains(got.Status.ContainerStatuses[0].State.Waiting.Reason, "Pull") {
			return fmt.Errorf("%+v", got.Status.ContainerStatuses)
		}
		return nil
	})
}

func testPush(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	base, err := images.SystemBase()
	require.NoError(t, err)
	built, err := images.Build(base, images.Catalog())
	require.NoError(t, err)
	require.NoError(t, c.Push(t.Context(), "example.test/pushed:1", built["docker.io/library/nginx:1.20"]))
	require.NoError(t, c.Do(t.Context(), RegistryProcess, "restart"), "what was pushed survives")
	require.NoError(t, c.waitRegistry(t.Context()))
	run(t, kube, podOn("node3", "pushed", "example.test/pushed:1"))
}

func testVolumes(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	claims := kube.CoreV1().PersistentVolumeClaims("default")
	classes := []string{volumes.ClassExpandable, volumes.ClassFixed, ""} // the last one takes the default class
	user := func(name string) *corev1.Pod { return withClaims(podOn("", name, "nginx:1.16"), len(classes)) }
	for i, class := range classes {
		_, err := claims.Create(t.Context(), claimOf(fmt.Sprintf("claim-%d", i), class), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	first := run(t, kube, user("first-user"))
	inPod(t, c, "first-user", "for d in /claim-*; do echo $d >$d/name; done")

	grow := []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	_, err := claims.Patch(t.Context(), "claim-1", types.MergePatchType, grow, metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = claims.Patch(t.Context(), "claim-0", types.MergePatchType, grow, metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "expansion while a Pod uses the volume", func() error {
		got, err := claims.Get(t.Context(), "claim-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if have := got.Status.Capacity[corev1.ResourceStorage]; have.Cmp(resource.MustParse("2Gi")) != 0 {
			return fmt.Errorf("capacity %s, conditions %+v", have.String(), got.Status.Conditions)
		}
		return nil
	})

	remove(t, kube, "first-user")
	second := run(t, kube, user("second-user"))
	require.Equal(t, first.Spec.NodeName, second.Spec.NodeName)
	require.Equal(t, "/claim-0 /claim-1 /claim-2", strings.Join(strings.Fields(inPod(t, c, "second-user", "cat /claim-*/name")), " "))

	require.NoError(t, c.Do(t.Context(), processName(second.Spec.NodeName, kindVolumes), "kill"))
	require.NoError(t, c.Do(t.Context(), Provisioner, "kill"))
	remove(t, kube, "second-user")
	require.NoError(t, claims.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually(t, "volumes go with their claims", func() error {
		list, err := kube.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d volumes: %w", len(list.Items), err)
		}
		return nil
	})
	left, err := filepath.Glob(filepath.Join(c.State.volumesDir(), "files", "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// claimOf asks for 1Gi of a class, of the default one if class is "".
func claimOf(name, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

// withClaims mounts claim-0 and so on, n of them, in the Pod.
func withClaims(pod *corev1.Pod, n int) *corev1.Pod {
	for i := range n {
		claim := fmt.Sprintf("claim-%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: claim, MountPath: "/" + claim})
	}
	return pod
}

// inPod runs a shell command in a Pod and returns its output.
func inPod(t *testing.T, c *Cluster, pod, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.State.program("kubectl"), "--kubeconfig", c.Kubeconfig(),
		"exec", pod, "--", "sh", "-c", command).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// remove deletes a Pod and waits until it is gone.
func remove(t *testing.T, kube kubernetes.Interface, pod string) {
	t.Helper()
	require.NoError(t, kube.CoreV1().Pods("default").Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	eventually(t, "Pod "+pod+" gone", func() error {
		_, err := kube.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %w", err)
	})
}

func testFaults(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	before := run(t, kube, podOn("node1", "survivor", "nginx:1.16"))
	require.NoError(t, c.KillContainerd(t.Context(), "node1"))
	require.NoError(t, c.RestartAPIServer(t.Context()))
	require.NoError(t, c.RestartEtcd(t.Context()))
	require.NoError(t, c.Do(t.Context(), ControllerManager, "kill"))
	run(t, kube, podOn("node1", "after-faults", "nginx:1.16"))
	got := ready(t, kube, "survivor")
	require.Equal(t, before.UID, got.UID)
	require.Zero(t, got.Status.ContainerStatuses[0].RestartCount, "containers survive their runtime")
	eventually(t, "health", func() error {
		if status := c.Status(t.Context()); !status.Healthy() {
			return fmt.Errorf("%s: %s", status.Phase, status.Problem)
		}
		return nil
	})
}

func testCut(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	run(t, kube, podOn("node2", "cut-off", "nginx:1.16"))
	logs := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := kube.CoreV1().Pods("default").GetLogs("cut-off", &corev1.PodLogOptions{}).DoRaw(ctx)
		return err
	}
	require.NoError(t, c.CutNode(t.Context(), "node2"))
	require.NoError(t, c.CutNode(t.Context(), "node2"), "again is no error")
	require.Error(t, logs(), "the kubelet is out of reach")
	eventually(t, "the node is missed", func() error {
		node, err := kube.CoreV1().Nodes().Get(t.Context(), "node2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if notReady(node) == "" {
			return fmt.Errorf("node2 is Ready")
		}
		return nil
	})
	require.NoError(t, c.JoinNode(t.Context(), "node2"))
	require.NoError(t, c.JoinNode(t.Context(), "node2"), "again is no error")
	require.NoError(t, c.waitNode(t.Context(), kube, "node2"))
	require.Zero(t, ready(t, kube, "cut-off").Status.ContainerStatuses[0].RestartCount)
	eventually(t, "the kubelet answers", logs)
}

func testNodeOff(t *testing.T, c *Cluster, kube kubernetes.Interface) {
	before := run(t, kube, podOn("node3", "on-node3", "nginx:1.16"))
	require.NoError(t, c.StopNode(t.Context(), "node3"))
	require.Empty(t, machine.CgroupMembers("node3"))
	require.NoError(t, c.StartNode(t.Context(), "node3"))
	eventually(t, "the Pod's containers start again", func() error {
		got := ready(t, kube, before.Name)
		if got.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("restart count 0")
		}
		return nil
	})
	require.ErrorContains(t, c.StartNode(t.Context(), "node3"), "not off")
}

func TestCrashedClusterIsReplaced(t *testing.T) {
	const name = "test-crash"
	before := snapshot(t)
	t.Run("crash", func(t *testing.T) {
		c, kube := up(t, Options{Name: name, Nodes: 1})
		_, err := kube.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), claimOf("claim-0", ""), metav1.CreateOptions{})
		require.NoError(t, err)
		run(t, kube, withClaims(podOn("", "app", "nginx:1.16"), 1))
		require.NoError(t, machine.KillAll(t.Context(), func() []int { return machine.Members(name) }))
		require.NotEmpty(t, machine.CgroupMembers(""), "containers survive")
		require.Equal(t, Broken, c.Status(t.Context()).Phase)
		require.NoError(t, os.RemoveAll(runDir(name)), "as a boot does")
		_, kube = up(t, Options{Name: name, Nodes: 1})
		_, err = kube.CoreV1().Pods("default").Get(t.Context(), "app", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "a new cluster: %v", err)
	})
	require.Equal(t, before, snapshot(t))
}

func TestRootlessCluster(t *testing.T) {
	before := snapshot(t)
	t.Run("lifecycle", func(t *testing.T) {
		c, kube := up(t, Options{Name: "test-rootless", Simulated: 20, Audit: true})
		pod := podOn("", "app", "nginx:1.16")
		got := run(t, kube, pod)
		require.True(t, strings.HasPrefix(got.Spec.NodeName, "sim-"))
		require.NoError(t, kube.CoreV1().Pods("default").Delete(t.Context(), "app", metav1.DeleteOptions{}))
		eventually(t, "deletion", func() error {
			_, err := kube.CoreV1().Pods("default").Get(t.Context(), "app", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %w", err)
		})
		require.Equal(t, 20, c.Status(t.Context()).SimulatedReady)
	})
	require.Equal(t, before, snapshot(t))
}

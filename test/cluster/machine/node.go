// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// nodeMounts are the paths that each node has for itself, and the folder below its own directory that stands in.
// All default paths work, so what mounts /var/run or /var/lib/kubelet from its host sees its own node only.
// Order matters: a later mount may lie below an earlier one.
var nodeMounts = []struct {
	path, folder string
	shared       bool // whether mounts that happen below reach the mount namespaces of containers and back
}{
	{"/run", "run", true},
	{"/var/lib/containerd", "lib-containerd", true},
	{"/var/lib/kubelet", "lib-kubelet", true},
	{"/var/log/pods", "log-pods", false},
	{"/var/log/containers", "log-containers", false},
	{"/etc/cni/net.d", "cni", false},
	{"/var/lib/cni", "lib-cni", false},
}

// NodeFolders creates the directories below dir that a node has for itself.
func NodeFolders(dir string) error {
	for _, m := range nodeMounts {
		if err := os.MkdirAll(filepath.Join(dir, m.folder), 0o755); err != nil {
			return fmt.Errorf("creating the directories of a node: %w", err)
		}
	}
	return nil
}

// CreateMountPoints makes the directories of this machine that nodes mount their own over, and returns those that were
// missing, parents first.
func CreateMountPoints() ([]string, error) {
	var created []string
	for _, m := range nodeMounts {
		for _, dir := range []string{filepath.Dir(m.path), m.path} {
			switch err := os.Mkdir(dir, 0o755); {
			case err == nil:
				created = append(created, dir)
			case !errors.Is(err, fs.ErrExist):
				return created, fmt.Errorf("creating %s: %w", dir, err)
			}
		}
	}
	return created, nil
}

// RemoveMountPoints removes what CreateMountPoints returned, unless somebody uses it by now.
func RemoveMountPoints(created []string) {
	for _, dir := range slices.Backward(created) {
		_ = os.Remove(dir) // not empty: it serves somebody else now
	}
}

// ClearRun empties the node's /run, as a reboot does.
func ClearRun(dir string) error {
	run := filepath.Join(dir, "run")
	if err := os.RemoveAll(run); err != nil {
		return fmt.Errorf("emptying the run directory of a node: %w", err)
	}
	return NodeFolders(dir)
}

// CNIDir is where the network configuration of the node goes.
func CNIDir(dir string) string { return filepath.Join(dir, "cni") }

// HoldArgs is the command that makes the namespaces of a node and holds them: program must call Hold.
func HoldArgs(program, dir string) []string {
	return []string{"unshare", "--net", "--mount", "--propagation", "private", "--", program, "hold-node", dir}
}

// Enter is the prefix of a command that is to run in the network and mount namespaces of pid. The machine's network
// namespace has another /sys; entering must not remount it, or the control groups would be hidden.
func Enter(pid int) []string {
	return []string{"nsenter", "--net", "--mount", "--target", strconv.Itoa(pid), "--"}
}

// readyFile says, by its existence, that the namespaces of a node are set up.
const readyFile = "holder.ready"

// Ready says whether Hold has set up the node whose directory is dir.
func Ready(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, readyFile))
	return err == nil
}

// ClearReady makes Ready false until the next Hold.
func ClearReady(dir string) { _ = os.Remove(filepath.Join(dir, readyFile)) }

// Hold sets up the mounts of the node whose directory is dir, in the mount namespace it runs in, says that it is
// ready, and keeps the namespaces until ctx ends. dir/hosts, if there, becomes /etc/hosts.
func Hold(ctx context.Context, dir string) error {
	for _, m := range nodeMounts {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return fmt.Errorf("creating %s: %w", m.path, err)
		}
		if err := unix.Mount(filepath.Join(dir, m.folder), m.path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.path, err)
		}
		if m.shared {
			if err := unix.Mount("", m.path, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("sharing %s: %w", m.path, err)
			}
		}
	}
	hosts := filepath.Join(dir, "hosts")
	if _, err := os.Stat(hosts); err == nil {
		if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting /etc/hosts: %w", err)
		}
	}
	for _, d := range []string{"/run/netns", "/run/containerd", "/run/lock"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("creating %s: %w", d, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("letting the node forward packets of its Pods: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, readyFile), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("saying that the node is ready: %w", err)
	}
	<-ctx.Done()
	return nil
}

// RunIn runs a command inside the node held by pid with the calling process's input and output.
func RunIn(ctx context.Context, pid int, env, args []string) error {
	argv := append(Enter(pid), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// Sysctls that a kubelet changes for the whole machine; they are put back when the cluster goes.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// SaveSysctls reads the settings that a kubelet changes. Settings that the machine lacks are left out.
func SaveSysctls() map[string]string {
	saved := map[string]string{}
	for _, s := range sysctls {
		if v, err := os.ReadFile("/proc/sys/" + s); err == nil {
			saved[s] = string(v)
		}
	}
	return saved
}

// RestoreSysctls puts back what SaveSysctls read.
func RestoreSysctls(saved map[string]string) {
	for s, v := range saved {
		_ = os.WriteFile("/proc/sys/"+s, []byte(v), 0o644) // another owner may have changed the machine; nothing to undo then
	}
}

// Detach makes a command outlive the calling process and its terminal.
func Detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

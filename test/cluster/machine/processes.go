// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// markVariable is set in the environment of every process of a cluster and inherited by what they start. It finds
// them again when no record of them is left.
const markVariable = "KRUISECTL_CLUSTER_MEMBER"

// Mark is the environment entry that makes a process and its children members of the named cluster.
func Mark(cluster string) string { return markVariable + "=" + cluster }

// Members returns the ids of all processes that carry the mark of the named cluster, without the calling process.
// Processes whose environment may not be read are not members.
func Members(cluster string) []int {
	want := []byte(Mark(cluster))
	return processes(func(pid int) bool {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return bytes.Equal(e, want) })
	})
}

// processes lists the processes for which keep is true, except the calling one and those that have ended but are not
// reaped yet.
func processes(keep func(pid int) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || zombie(pid) || !keep(pid) {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // gone
	}
	return zombieStat(string(stat))
}

// zombieStat reads the state out of /proc/PID/stat; the program's name before it may hold spaces and brackets.
func zombieStat(stat string) bool {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	return len(fields) > 0 && (fields[0] == "Z" || fields[0] == "X")
}

// InNetwork returns the processes that share the network namespace of pid, without pid itself.
func InNetwork(pid int) []int {
	const file = "/proc/%d/ns/net"
	want, err := os.Readlink(fmt.Sprintf(file, pid))
	if err != nil {
		return nil
	}
	return processes(func(other int) bool {
		got, err := os.Readlink(fmt.Sprintf(file, other))
		return err == nil && got == want && other != pid
	})
}

// KillAll kills what list returns, again and again until it returns nothing: a process may start another while it is
// being killed. It gives up, with an error, when that takes too long.
func KillAll(ctx context.Context, list func() []int) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		pids := list()
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("killing processes: %v are still there", pids)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// MountsBelow lists the mount points of the calling process below dir, the deepest first.
func MountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	return mountsBelow(string(data), dir)
}

func mountsBelow(mounts, dir string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		point := unescape.Replace(fields[1])
		if rel, err := filepath.Rel(dir, point); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			points = append(points, point)
		}
	}
	slices.Reverse(points) // what was mounted last lies on top
	return points
}

// UnmountBelow unmounts everything below dir.
func UnmountBelow(dir string) error {
	for _, point := range MountsBelow(dir) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CgroupRoot is the control group, below the root of every hierarchy, that holds one child per node.
const CgroupRoot = "kr"

// hierarchy is one mounted control group tree.
type hierarchy struct {
	path string
	v2   bool
}

// hierarchies finds the control group trees in the text of /proc/self/mounts.
func hierarchies(mounts string) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 3 || (f[2] != "cgroup" && f[2] != "cgroup2") || !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			continue
		}
		found = append(found, hierarchy{path: f[1], v2: f[2] == "cgroup2"})
	}
	return found
}

func mountedHierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	found := hierarchies(string(mounts))
	if len(found) == 0 {
		return nil, errors.New("no control groups are mounted below /sys/fs/cgroup")
	}
	return found, nil
}

// CgroupV1 says whether any controller still lives in a version 1 tree.
func CgroupV1() bool {
	found, err := mountedHierarchies()
	return err == nil && slices.ContainsFunc(found, func(h hierarchy) bool { return !h.v2 })
}

// CreateCgroup makes the control group of a node in every tree.
func CreateCgroup(node string) error {
	found, err := mountedHierarchies()
	if err != nil {
		return err
	}
	for _, h := range found {
		parent := h.path
		for _, child := range []string{CgroupRoot, node} {
			if h.v2 {
				enableControllers(parent)
			}
			dir := filepath.Join(parent, child)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("creating a control group: %w", err)
			}
			// A version 1 cpuset starts empty, and then nothing can run in it.
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				if value, err := os.ReadFile(filepath.Join(parent, f)); err == nil && !h.v2 {
					if err := os.WriteFile(filepath.Join(dir, f), value, 0o644); err != nil {
						return fmt.Errorf("setting up a control group: %w", err)
					}
				}
			}
			parent = dir
		}
	}
	return nil
}

// enableControllers gives the children of a version 2 group all controllers of the group. Some cannot be given
// (a real-time thread is enough), and the kubelet says what it misses, so failures do not matter here.
func enableControllers(dir string) {
	names, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, n := range strings.Fields(string(names)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+n), 0o644)
	}
}

// CgroupMembers returns the processes in the control groups of a node; of all nodes when node is empty.
func CgroupMembers(node string) []int {
	found, err := mountedHierarchies()
	if err != nil {
		return nil
	}
	var pids []int
	for _, h := range found {
		// Groups vanish while we look: every error just means that there is less to see.
		_ = filepath.WalkDir(filepath.Join(h.path, CgroupRoot, node), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil
			}
			data, _ := os.ReadFile(path)
			for _, f := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(f); err == nil && !zombie(pid) {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// RemoveCgroups removes the control groups of a node, or all of ours when node is empty. Their processes must be gone;
// the kernel takes a moment to notice.
func RemoveCgroups(ctx context.Context, node string) error {
	found, err := mountedHierarchies()
	if err != nil {
		return nil // nothing mounted, nothing to remove
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		var last error
		for _, h := range found {
			if err := removeTree(filepath.Join(h.path, CgroupRoot, node)); err != nil {
				last = err
			}
		}
		if last == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing control groups: %w", last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// removeTree removes a control group and its children. The files in a group cannot be removed and need not be.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

func isAbsent(err error) bool { return errors.Is(err, ErrAbsent) }

// Down removes every trace of the named cluster, however it ended: processes, mounts, namespaces, network, control
// groups, files. It is no error if there is nothing to remove.
func Down(ctx context.Context, name string, progress toolchain.Progress) error {
	if name == "" {
		name = DefaultName
	}
	if progress == nil {
		progress = func(string, ...any) {}
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a cluster", name)
	}
	unlock, err := lockRun(ctx, progress)
	if err != nil {
		return err
	}
	defer unlock()
	start := time.Now()
	if err := clean(ctx, name, progress); err != nil {
		return fmt.Errorf("taking down cluster %s: %w", name, err)
	}
	if _, err := os.Stat(runRoot()); errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(lockPath()) // nothing is left to protect; we hold it
	}
	progress("cluster %s is down (%s)", name, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// clean removes what there is of the named cluster. What the record does not tell is found by marks and names.
// The caller holds the lock.
func clean(ctx context.Context, name string, progress toolchain.Progress) error {
	state, err := loadState(name)
	if err != nil && !isAbsent(err) {
		progress("the record of cluster %s is unreadable, looking for its parts: %v", name, err)
	}
	members := machine.Members(name)
	if len(members) > 0 {
		progress("ending %d processes of cluster %s", len(members), name)
	}
	// The network and the control groups belong to whichever cluster has real nodes; without any they are remainders.
	ownsMachine := os.Geteuid() == 0 && realCluster(name) == ""
	// Nothing has to end in order: no data survives, and killed at once nobody starts anything new.
	list := func() []int {
		pids := machine.Members(name)
		if ownsMachine {
			pids = append(pids, machine.CgroupMembers("")...)
		}
		return pids
	}
	if err := machine.KillAll(ctx, list); err != nil {
		return err
	}
	data, err := dataDir(name)
	if err != nil {
		return err
	}
	if ownsMachine {
		if err := machine.RemoveNetwork(ctx); err != nil {
			return err
		}
		if err := machine.RemoveCgroups(ctx, ""); err != nil {
			return err
		}
	}
	dirs := []string{data, runDir(name)}
	if state != nil {
		dirs = append(dirs, state.DataDir)
		machine.RestoreSysctls(state.Sysctls)
		machine.RemoveMountPoints(state.MountPoints)
	}
	for _, dir := range dirs {
		// All mounts were in namespaces that are gone; this is for the case that one leaked.
		if err := machine.UnmountBelow(dir); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing %s: %w", dir, err)
		}
	}
	removeIfEmpty(data, runDir(name))
	return nil
}

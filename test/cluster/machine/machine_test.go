// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwnLinks(t *testing.T) {
	const out = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq state UP
9: kr0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP
11: kr-node1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master kr0 state UP
12: krypton: <BROADCAST> mtu 1500
`
	require.Equal(t, []string{"kr0", "kr-node1"}, ownLinks(out))
}

func TestHierarchies(t *testing.T) {
	cases := map[string]struct {
		mounts string
		want   []hierarchy
	}{
		"hybrid": {
			mounts: "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
			want:   []hierarchy{{"/sys/fs/cgroup/cpu", false}, {"/sys/fs/cgroup/unified", true}},
		},
		"version 2": {
			mounts: "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nproc /proc proc rw 0 0\n",
			want:   []hierarchy{{"/sys/fs/cgroup", true}},
		},
		"another place does not count": {mounts: "cgroup2 /mnt/cgroup cgroup2 rw 0 0\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, hierarchies(tc.mounts)) })
	}
}

func TestMountsBelow(t *testing.T) {
	const mounts = `/dev/vda / ext4 rw 0 0
tmpfs /data tmpfs rw 0 0
tmpfs /data/with\040space tmpfs rw 0 0
tmpfs /data/with\040space/deep tmpfs rw 0 0
tmpfs /database tmpfs rw 0 0
`
	require.Equal(t, []string{"/data/with space/deep", "/data/with space", "/data"}, mountsBelow(mounts, "/data"))
}

func TestZombieStat(t *testing.T) {
	require.True(t, zombieStat("12 (a (b) c) Z 1 12 12 0"))
	require.False(t, zombieStat("12 (Z) S 1 12 12 0"))
}

func TestNodesDoNotShareAddresses(t *testing.T) {
	a, b := NodeNet("node1", 1), NodeNet("node2", 2)
	require.Equal(t, "10.90.0.11", a.IP.String())
	require.Equal(t, "10.244.0.0/24", a.PodCIDR.String())
	require.NotEqual(t, a.IP, b.IP)
	require.False(t, a.PodCIDR.Overlaps(b.PodCIDR))
}

func TestMembersAreFoundByTheirMark(t *testing.T) {
	const name = "test-of-members"
	marked := exec.Command("sleep", "600")
	marked.Env = append(marked.Environ(), Mark(name))
	require.NoError(t, marked.Start())
	other := exec.Command("sleep", "600")
	other.Env = append(other.Environ(), Mark(name+"-2"))
	require.NoError(t, other.Start())
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })

	require.Equal(t, []int{marked.Process.Pid}, Members(name))
	require.NoError(t, KillAll(t.Context(), func() []int { return Members(name) }))
	require.Error(t, marked.Wait(), "it was killed")
	require.NoError(t, KillAll(t.Context(), func() []int { return nil }))
}

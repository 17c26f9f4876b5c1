// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// cutTable holds the packet filter of a node that is cut off. It lives in the node's network namespace and ends with it.
const cutTable = "kruisectl-cut"

// kubeletPort is where the API server reaches a kubelet.
const kubeletPort = 10250

// cutRules drop, silently as a broken network does, what the node and its Pods say to the API server and what that says
// to the kubelet. They see packets after Service addresses have been translated. Everything else passes: images can
// still be pulled.
func cutRules(apiPort int) string {
	return fmt.Sprintf(`add table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	chain output {
		type filter hook output priority filter + 10; policy accept;
		ip daddr %[2]s tcp dport %[3]d drop
	}
	chain forward {
		type filter hook forward priority filter + 10; policy accept;
		ip daddr %[2]s tcp dport %[3]d drop
	}
	chain input {
		type filter hook input priority filter - 10; policy accept;
		ip saddr %[2]s tcp sport %[3]d drop
		ip saddr %[2]s tcp dport %[4]d drop
	}
}
`, cutTable, HostIP, apiPort, kubeletPort)
}

// CutNode cuts the node whose namespaces pid holds off from the API server. It is no error if it is cut off already.
func CutNode(ctx context.Context, pid, apiPort int) error {
	if err := nft(ctx, pid, cutRules(apiPort)); err != nil {
		return fmt.Errorf("cutting a node off: %w", err)
	}
	return nil
}

// JoinNode undoes CutNode. It is no error if the node is not cut off.
func JoinNode(ctx context.Context, pid int) error {
	if err := nft(ctx, pid, fmt.Sprintf("add table inet %[1]s\ndelete table inet %[1]s\n", cutTable)); err != nil {
		return fmt.Errorf("joining a node again: %w", err)
	}
	return nil
}

// nft runs commands of the nft program in the network namespace of pid, all or none.
func nft(ctx context.Context, pid int, commands string) error {
	cmd := exec.CommandContext(ctx, "nsenter", "--net", "--target", strconv.Itoa(pid), "--", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// The network of the real nodes. There is one such network per machine, hence one cluster with real nodes.
const (
	Bridge      = "kr0"
	HostIP      = "10.90.0.1" // the machine, as nodes and Pods see it
	PodCIDR     = "10.244.0.0/16"
	ServiceCIDR = "10.96.0.0/16"
	ServiceIP   = "10.96.0.1" // of the Service kubernetes
	linkPrefix  = "kr-"
	// lastResort is a metric behind every other route.
	lastResort = "9999"
)

// Net is the place of one node in the network.
type Net struct {
	Node    string
	IP      netip.Addr
	PodCIDR netip.Prefix
}

// NodeNet is the place of the node with the given number, from 1 to 200.
func NodeNet(node string, number int) Net {
	return Net{
		Node:    node,
		IP:      netip.AddrFrom4([4]byte{10, 90, 0, byte(10 + number)}),
		PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number - 1), 0}), 24),
	}
}

// CreateBridge makes the bridge that joins the machine and its nodes. Pod and Service addresses are unreachable
// except through nodes: nothing may leak to the machine's default route.
func CreateBridge(ctx context.Context) error {
	if err := ip(ctx, "creating the bridge "+Bridge, nil,
		"link add "+Bridge+" type bridge",
		"addr add "+HostIP+"/24 dev "+Bridge,
		"link set "+Bridge+" up",
		"route replace blackhole "+PodCIDR+" metric "+lastResort,
		"route replace blackhole "+ServiceCIDR+" metric "+lastResort,
	); err != nil {
		return err
	}
	return allowForwarding(ctx)
}

// forwardRule lets packets of the bridge pass.
var forwardRule = []string{"FORWARD", "-i", Bridge, "-j", "ACCEPT"}

// allowForwarding makes an exception from a firewall that drops what is forwarded, as Docker sets one up: where it also
// filters bridges, nodes could not reach each other. Other firewalls stay as they are.
func allowForwarding(ctx context.Context) error {
	policy, err := exec.CommandContext(ctx, "iptables", "-S", "FORWARD").Output()
	if err != nil || !strings.Contains(string(policy), "-P FORWARD DROP") {
		return nil
	}
	if out, err := iptables(ctx, "-I"); err != nil {
		return fmt.Errorf("letting packets of the bridge %s pass the firewall: %w: %s", Bridge, err, out)
	}
	return nil
}

func iptables(ctx context.Context, command string) (string, error) {
	out, err := exec.CommandContext(ctx, "iptables", append([]string{command}, forwardRule...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// removeForwarding removes the exceptions that allowForwarding made.
func removeForwarding(ctx context.Context) {
	for {
		if _, err := iptables(ctx, "-C"); err != nil {
			return // there is none, or no firewall
		}
		if _, err := iptables(ctx, "-D"); err != nil {
			return
		}
	}
}

// BridgeExists says whether a cluster with real nodes, or a remainder of one, is on this machine.
func BridgeExists(ctx context.Context) bool {
	return exec.CommandContext(ctx, "ip", "link", "show", Bridge).Run() == nil
}

// ConnectNode joins the network namespace of pid to the bridge; peers are the other nodes.
func ConnectNode(ctx context.Context, n Net, pid int, peers []Net) error {
	link := linkPrefix + n.Node
	if err := ip(ctx, "connecting "+n.Node, nil,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", link, pid),
		fmt.Sprintf("link set %s master %s up", link, Bridge),
		fmt.Sprintf("route replace %s via %s", n.PodCIDR, n.IP),
	); err != nil {
		return err
	}
	inside := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev eth0", n.IP),
		"link set eth0 up",
		"route add default via " + HostIP,
		// Not the Service range: the lookup for a local process comes before the translation to an endpoint.
		"route add blackhole " + PodCIDR + " metric " + lastResort,
	}
	for _, p := range peers {
		inside = append(inside, fmt.Sprintf("route replace %s via %s", p.PodCIDR, p.IP))
	}
	return ip(ctx, "setting up the network of "+n.Node, []string{"nsenter", "--net", "--target", strconv.Itoa(pid), "--"}, inside...)
}

// DisconnectNode removes the machine's side of a node's link; the node's side goes with it.
func DisconnectNode(ctx context.Context, node string) {
	_ = exec.CommandContext(ctx, "ip", "link", "del", linkPrefix+node).Run() // not there: nothing to do
}

// RemoveNetwork removes the bridge, all links of nodes and all routes.
func RemoveNetwork(ctx context.Context) error {
	if !present("ip") {
		return nil
	}
	removeForwarding(ctx)
	out, err := exec.CommandContext(ctx, "ip", "-o", "link", "show").Output()
	if err != nil {
		return fmt.Errorf("listing network links: %w", err)
	}
	for _, link := range ownLinks(string(out)) {
		if err := ip(ctx, "removing the link "+link, nil, "link del "+link); err != nil && strings.Contains(err.Error(), "Cannot find device") {
			continue // it went with its namespace meanwhile
		} else if err != nil {
			return err
		}
	}
	for _, cidr := range []string{PodCIDR, ServiceCIDR} {
		_ = exec.CommandContext(ctx, "ip", "route", "del", "blackhole", cidr, "metric", lastResort).Run() // may be gone
	}
	return nil
}

// ownLinks finds the links of a cluster in the output of ip -o link show.
func ownLinks(out string) []string {
	var links []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), "@")
		if name == Bridge || strings.HasPrefix(name, linkPrefix) {
			links = append(links, name)
		}
	}
	return links
}

// ip runs commands of the ip program in one batch, with a program before it if wrapped.
func ip(ctx context.Context, doing string, wrap []string, commands ...string) error {
	args := append(append([]string{}, wrap...), "ip", "-batch", "-")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", doing, err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return nil
}

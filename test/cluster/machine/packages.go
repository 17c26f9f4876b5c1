// SPDX-License-Identifier: Apache-2.0

// Package machine does what a local cluster needs from the Linux machine it runs on: distribution packages,
// network, control groups, mount namespaces, and finding what a crashed cluster left. Everything it creates is
// found again by name or by a mark, so that nothing depends on a record that may be lost.
package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// requirement is a file that a real node needs and the Debian package that brings it.
type requirement struct{ file, pkg string }

// CNIBinDir is where Debian installs the network plugins.
const CNIBinDir = "/usr/lib/cni"

// requirements are looked up by the first path that exists; a bare name is looked up on PATH.
var requirements = []requirement{
	{"runc", "runc"},
	{CNIBinDir + "/bridge", "containernetworking-plugins"},
	{CNIBinDir + "/host-local", "containernetworking-plugins"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"ip", "iproute2"},
	{"conntrack", "conntrack"},
	{"ethtool", "ethtool"},
	{"/bin/busybox", "busybox-static"},
	{"nsenter", "util-linux"},
	{"unshare", "util-linux"},
	{"mount", "mount"},
	{"/etc/ssl/certs/ca-certificates.crt", "ca-certificates"},
}

// MissingPackages lists the Debian packages that real nodes need and that are not there, each once.
func MissingPackages() []string {
	var missing []string
	seen := map[string]bool{}
	for _, r := range requirements {
		if present(r.file) || seen[r.pkg] {
			continue
		}
		seen[r.pkg] = true
		missing = append(missing, r.pkg)
	}
	return missing
}

func present(file string) bool {
	if strings.HasPrefix(file, "/") {
		_, err := os.Stat(file)
		return err == nil
	}
	_, err := exec.LookPath(file)
	return err == nil
}

// InstallPackages installs what MissingPackages lists, with apt-get. Without root, or without apt-get, the error
// names the packages.
func InstallPackages(ctx context.Context, progress func(string, ...any)) error {
	missing := MissingPackages()
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("real nodes need packages that are not installed; run as root: apt-get install -y --no-install-recommends %s", list)
	}
	if !present("apt-get") {
		return fmt.Errorf("real nodes need programs that are not installed and there is no apt-get; Debian has them in: %s", list)
	}
	start := time.Now()
	progress("packages: installing %s", list)
	for _, args := range [][]string{
		{"update", "-qq"},
		append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("running apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	if still := MissingPackages(); len(still) > 0 {
		return fmt.Errorf("packages are installed but their programs are not found: %s", strings.Join(still, " "))
	}
	progress("packages: installed (%s)", time.Since(start).Round(time.Second))
	return nil
}

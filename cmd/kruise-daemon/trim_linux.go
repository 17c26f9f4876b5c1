// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dropProgramPages unmaps the pages of the program's own file from memory. What is needed
// comes back from the kernel's cache when it is touched; what only the start has needed, and
// the neighbours that the kernel maps along with each page, stays away: about 10 MiB. Only
// mappings that cannot be written to are dropped, so nothing is lost.
func dropProgramPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }() // only read
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		var start, end uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
			return fmt.Errorf("reading %q: %w", lines.Text(), err)
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("dropping %s: %w", fields[0], errno)
		}
	}
	return nil
}

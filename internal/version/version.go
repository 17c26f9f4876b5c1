// SPDX-License-Identifier: Apache-2.0

// Package version says what a program was built from.
package version

import "runtime/debug"

// Version is the version of the build, such as "v0.1.0". The linker sets it for releases.
var Version = "v0.0.0-dev"

// Info is what a build knows about itself.
type Info struct {
	Version string `json:"version"`
	// Commit is the Git commit, empty when it was not recorded.
	Commit string `json:"commit"`
	// Go is the version of the compiler.
	Go string `json:"go"`
}

// Get returns the Info of this build.
func Get() Info {
	i := Info{Version: Version}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.Go = b.GoVersion
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				i.Commit = s.Value
			}
		}
	}
	return i
}

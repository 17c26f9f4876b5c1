// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"encoding/json"
	"strings"
)

// verboseInfo is the part that containerd and CRI-O have in common of the JSON under "info"
// in a verbose container status. Everything else in it is ignored.
type verboseInfo struct {
	RuntimeSpec *struct {
		Process *struct {
			Env []string `json:"env"`
		} `json:"process"`
	} `json:"runtimeSpec"`
}

// envOf extracts the environment that the runtime gave the container's process, or nil. No
// text of a process inside is parsed: values with newlines, blanks or equals signs come
// out as they are, and it works for images without an env program.
func envOf(info map[string]string) map[string]string {
	var parsed verboseInfo
	if err := json.Unmarshal([]byte(info["info"]), &parsed); err != nil {
		return nil
	}
	if parsed.RuntimeSpec == nil || parsed.RuntimeSpec.Process == nil {
		return nil
	}
	env := make(map[string]string, len(parsed.RuntimeSpec.Process.Env))
	for _, entry := range parsed.RuntimeSpec.Process.Env {
		// The last one wins, as in a process: runtimes append the Pod's variables to the image's.
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

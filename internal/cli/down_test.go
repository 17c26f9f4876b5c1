// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// commandsOnAll are command lines that need a cluster, one of each command, with %s for the
// object.
var commandsOnAll = []string{
	"rollout status %s", "rollout watch %s", "rollout wait %s", "rollout history %s", "rollout undo %s", "rollout pause %s", "rollout resume %s",
	"rollout restart %s", "rollout partition %s 1", "rollout canary %s 1", "rollout promote %s --full", "rollout abort %s", "rollout retry %s --to 1",
	"rollout preview %s", "set image %s app=repo/a:1", "set env %s A=1", "set resources %s --limits cpu=1", "why %s", "rollout status %s --all",
}

// alone runs a command line in a process of its own, as far as clusters are concerned.
func alone(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	f := factory.New("kruisectl", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	f.Getenv = func(string) string { return "" }
	empty := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(empty, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Flags.KubeConfig = &empty
	code := Execute(t.Context(), f, args)
	return result{out: stdout.String(), err: stderr.String(), code: code}
}

// Without a cluster, and with one that does not answer, every command says so in its own
// words, on every kind; nothing panics and nothing hangs.
func TestCommandsWithoutACluster(t *testing.T) {
	for _, object := range []string{"cloneset/web", "asts/db", "ads/agent"} {
		for _, line := range commandsOnAll {
			typ, _, _ := strings.Cut(object, "/")
			line = strings.Replace(line, "%s", object, 1)
			if strings.HasSuffix(line, " --all") {
				line = strings.Replace(line, object, typ, 1)
			}
			t.Run(line, func(t *testing.T) {
				for want, more := range map[string][]string{
					"no cluster is configured": nil,
					"connection refused":       {"--server", "http://127.0.0.1:1"},
				} {
					r := alone(t, append(strings.Fields(line), more...)...)
					if r.code != 1 || !strings.HasPrefix(r.err, "error: cannot ") || !strings.Contains(r.err, want) || strings.Contains(r.err, "internal error") {
						t.Errorf("with %v: want code 1 and %q, got\n%s", more, want, r)
					}
				}
			})
		}
	}
}

// A type that is almost one of the three leads to it; a kind that cannot is told from one
// that does not exist.
func TestTyposAndWrongKinds(t *testing.T) {
	for word, want := range map[string][]string{
		"clonset/web":       {"is not a type", "next:  kruisectl rollout pause cloneset/web"},
		"atss/db":           {"is not a type", "asts/db"},
		"advancedstatefull": {`lacks a type`, "cloneset/advancedstatefull"},
		"adss/agent":        {"is not a type", "ads/agent"},
		"bcj/x":             {"does not work on broadcastjobs.apps.kruise.io", "cloneset, asts and ads"},
		"deploy/x":          {"does not work on deployments.apps", "kubectl rollout pause deployment/x"},
		"ds":                {"the name of the object is missing"},
		"asts/a/b":          {"is not TYPE/NAME"},
	} {
		r := alone(t, "rollout", "pause", word)
		if r.code != 2 {
			t.Errorf("%s: code %d", word, r.code)
		}
		for _, w := range want {
			if !strings.Contains(r.err, w) {
				t.Errorf("%s: %q is missing in\n%s", word, w, r)
			}
		}
	}
}

// Neither do the commands of images, containers and probes.
func TestNodeCommandsWithoutACluster(t *testing.T) {
	for _, line := range []string{
		"image pull a:1", "image pull a:1 b:1 --parallelism 20%", "image status j", "image status j -w", "image wait j --timeout 1s", "image list -A", "image nodes", "image nodes a:1 --missing",
		"image retry j", "image cancel j", "image predownload cloneset/web --image a=b:1", "set image cloneset/web a=b:1 --predownload",
		"container restart p", "container restart cloneset/web", "container restart -l a=b", "container list", "container list p", "container wait r", "container cancel r",
		"create containerrecreaterequest r --pod p", "rollout restart cloneset/web --method=containers", "probe", "probe p -w", "why crr/r", "why imagepulljob/j",
	} {
		t.Run(line, func(t *testing.T) {
			for want, more := range map[string][]string{
				"no cluster is configured": nil,
				"connection refused":       {"--server", "http://127.0.0.1:1"},
			} {
				r := alone(t, append(strings.Fields(line), more...)...)
				if r.code != 1 || !strings.HasPrefix(r.err, "error: cannot ") || !strings.Contains(r.err, want) || strings.Contains(r.err, "internal error") {
					t.Errorf("with %v: want code 1 and %q, got\n%s", more, want, r)
				}
			}
		})
	}
}

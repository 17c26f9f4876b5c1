//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

func TestBadInputGetsOneClearSentence(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	e.Create(harness.WebSet("web", 1))
	e.WaitAvailable("web", 1)
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(nowhere, []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"x","context":{"cluster":"x"}}],"current-context":"x"}`), 0o600))

	cases := map[string]struct {
		args []string
		code int
		says string
	}{
		"unknown workload":    {[]string{"rollout", "status", "cloneset/nope", "--timeout", "1m"}, 1, "nope"},
		"wrong kind":          {[]string{"rollout", "pause", "configmap/web"}, 2, "configmap"},
		"no type":             {[]string{"rollout", "pause", "web"}, 2, "TYPE/NAME"},
		"no cluster":          {[]string{"--kubeconfig", nowhere, "rollout", "status", "cloneset/web", "--timeout", "1m"}, 1, "127.0.0.1:1"},
		"no permission":       {[]string{"--as", "nobody", "rollout", "pause", "cloneset/web"}, 1, "forbidden"},
		"partition over 100%": {[]string{"rollout", "partition", "cloneset/web", "140%"}, 2, "140%"},
		"unknown revision":    {[]string{"rollout", "undo", "cloneset/web", "--to-revision", "77"}, 1, "77"},
		"unreadable file":     {[]string{"rollout", "preview", "-f", "/does/not/exist.yaml"}, 2, "/does/not/exist.yaml"},
		"unknown gate":        {[]string{"feature-gates", "enable", "NoSuchGate"}, 2, "NoSuchGate"},
		"unknown command":     {[]string{"rolout", "status", "cloneset/web"}, 2, "rollout"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := e.Try(tc.args...)
			require.Equal(t, tc.code, r.Code, "exit code of %v:\n%s", tc.args, r.Text())
			require.Empty(t, r.Stdout, "stdout of a failed command")
			first, _, _ := strings.Cut(r.Stderr, "\n")
			require.True(t, strings.HasPrefix(first, "error: "), "first line of stderr: %q", first)
			require.Contains(t, r.Stderr, tc.says)
			require.NotContains(t, r.Stderr, "goroutine ")
		})
	}
}

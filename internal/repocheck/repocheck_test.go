// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/internal/repocheck"
)

func TestTheModuleKeepsItsRules(t *testing.T) {
	files, err := repocheck.Read(os.DirFS("../.."))
	require.NoError(t, err)
	require.Greater(t, len(files), 50, "the source was not found")
	if broken := repocheck.Check(files); len(broken) > 0 {
		t.Errorf("%d rules broken:\n%s", len(broken), strings.Join(broken, "\n"))
	}
}

// A test of the test: every kind of violation is found, and nothing else is.
func TestViolationsAreFound(t *testing.T) {
	const head = "// SPDX-License-Identifier: Apache-2.0\n\n// Package x is documented.\npackage x\n\n"
	ours := func(paths ...string) string {
		out := head
		for _, p := range paths {
			out += "import " + `"` + repocheck.Module + "/" + p + `"` + "\n"
		}
		return out
	}
	for name, c := range map[string]struct {
		file, text string
		want       string // part of the one violation; empty: none
	}{
		"a controller imports internal":              {"controllers/cloneset/a.go", ours("internal/inplace", "apis/apps/v1beta1"), ""},
		"a controller imports its own folder":        {"controllers/cloneset/a.go", ours("controllers/cloneset/x"), ""},
		"a controller imports another":               {"controllers/cloneset/a.go", ours("controllers/daemonset"), "controllers never import each other"},
		"a controller imports the daemon":            {"controllers/cloneset/a.go", ours("daemon/cri"), "controllers never import"},
		"a controller imports the CLI":               {"controllers/cloneset/a.go", ours("internal/cli/out"), "controllers never import"},
		"a webhook imports admit":                    {"webhook/pod/a.go", ours("webhook/admit"), ""},
		"a webhook imports another":                  {"webhook/pod/a.go", ours("webhook/cloneset"), "webhooks import only webhook/admit"},
		"a capability imports cri":                   {"daemon/images/a.go", ours("daemon/cri"), ""},
		"a capability imports another":               {"daemon/images/a.go", ours("daemon/recreate"), "import only daemon/cri"},
		"internal imports a controller":              {"internal/install/a.go", ours("controllers/cloneset"), "internal packages import"},
		"internal imports the CLI":                   {"internal/install/a.go", ours("internal/cli"), "internal packages import"},
		"internal imports help for tests":            {"internal/install/a.go", ours("internal/fixture"), "internal packages import"},
		"a test imports help for tests":              {"internal/revision/a_test.go", ours("internal/fixture"), ""},
		"the TUI imports the CLI":                    {"internal/tui/a.go", ours("internal/cli/out"), "the TUI is below"},
		"the CLI imports the TUI":                    {"internal/cli/watch/a.go", ours("internal/tui"), ""},
		"the CLI imports a webhook":                  {"internal/cli/a.go", ours("webhook/admit"), "the command line"},
		"apis imports internal":                      {"apis/apps/v1/a.go", ours("internal/valid"), "apis is imported by users"},
		"apis imports a client":                      {"apis/apps/v1/a.go", head + `import "k8s.io/client-go/rest"`, "apis is imported by users"},
		"apis imports apimachinery":                  {"apis/apps/v1/a.go", head + `import "k8s.io/apimachinery/pkg/runtime"`, ""},
		"a pure package imports a client":            {"internal/valid/a.go", head + `import "sigs.k8s.io/controller-runtime/pkg/client"`, "a pure package"},
		"a pure package imports os":                  {"internal/rollout/plan/cloneset/a.go", head + `import "os"`, "a pure package"},
		"a pure package imports an impure one":       {"internal/valid/a.go", ours("internal/podupdate"), "a pure package"},
		"a pure package imports a pure one":          {"internal/valid/a.go", ours("internal/percent"), ""},
		"decide.go is pure":                          {"controllers/cloneset/decide.go", head + `import "os"`, "a pure package"},
		"its neighbour is not":                       {"controllers/cloneset/observe.go", head + `import "os"`, ""},
		"a pure package looks at the clock":          {"internal/inplace/a.go", head + "import \"time\"\nvar now = time.Now", "uses time.Now"},
		"a pure package counts in durations":         {"internal/inplace/a.go", head + "import \"time\"\nvar d = time.Second", ""},
		"a pure package throws dice":                 {"internal/revision/a.go", head + "import \"k8s.io/apimachinery/pkg/util/rand\"\nvar s = rand.String(5)", "uses k8s.io/apimachinery/pkg/util/rand.String"},
		"a pure package spells in the safe alphabet": {"internal/revision/a.go", head + "import \"k8s.io/apimachinery/pkg/util/rand\"\nvar s = rand.SafeEncodeString(\"5\")", ""},
		"under another name":                         {"internal/inplace/a.go", head + "import t \"time\"\nvar now = t.Now()", "uses time.Now"},
		"something prints":                           {"internal/revision/a.go", head + "import \"fmt\"\nfunc f() { fmt.Println() }", "uses fmt.Println"},
		"something writes":                           {"internal/revision/a.go", head + "import \"fmt\"\nfunc f() { fmt.Fprintln(nil) }", ""},
		"something ends the process":                 {"internal/cli/a.go", head + "import \"os\"\nfunc f() { os.Exit(1) }", "uses os.Exit"},
		"main ends the process":                      {"cmd/kruisectl/a.go", head + "import \"os\"\nfunc f() { os.Exit(1) }", ""},
		"cobra outside the CLI":                      {"internal/install/a.go", head + `import "github.com/spf13/cobra"`, "cobra belongs"},
		"bubbletea outside the TUI":                  {"internal/cli/a.go", head + `import "github.com/charmbracelet/bubbletea"`, "bubbletea belongs"},
		"CRI outside daemon/cri":                     {"daemon/images/a.go", head + `import "k8s.io/cri-api/pkg/apis/runtime/v1"`, "the only package that speaks CRI"},
		"Kubernetes itself":                          {"internal/install/a.go", head + `import "k8s.io/kubernetes/pkg/apis/core"`, "never imports k8s.io/kubernetes"},
		"a vague name":                               {"internal/rollout/util/a.go", head, `named "util"`},
		"no header":                                  {"internal/revision/a.go", "// Package x is documented.\npackage x\n", "SPDX"},
		"a header that is part of the doc":           {"internal/revision/a.go", "// SPDX-License-Identifier: Apache-2.0\n// Package x.\npackage x\n", "SPDX"},
		"a header after a build constraint":          {"internal/revision/a.go", "//go:build x\n\n" + head, ""},
		"no doc":                                     {"internal/revision/a.go", "// SPDX-License-Identifier: Apache-2.0\n\npackage x\n", "has no doc comment"},
		"func init":                                  {"internal/revision/a.go", head + "func init() {}", "func init"},
		"a method called init":                       {"internal/revision/a.go", head + "type T struct{}\nfunc (T) init() {}", ""},
		"an import for effect":                       {"internal/revision/a.go", head + `import _ "net/http/pprof"`, "for effect"},
		"an import for effect in main":               {"cmd/kruisectl/a.go", head + `import _ "time/tzdata"`, ""},
		"generated code outside apis":                {"internal/revision/zz_generated.x.go", head, "generated code"},
		"a package that no rule knows":               {"stray/a.go", head, "no rule speaks of"},
		"another module":                             {"test/cluster/a.go", "package x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := repocheck.Read(fstest.MapFS{
				c.file:                {Data: []byte(c.text)},
				"test/cluster/go.mod": {Data: []byte("module x")},
			})
			require.NoError(t, err)
			got := repocheck.Check(files)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.NotEmpty(t, got)
			require.Contains(t, strings.Join(got, "\n"), c.want)
		})
	}
	_, err := repocheck.Read(fstest.MapFS{"a.go": {Data: []byte("no Go")}})
	require.Error(t, err)
}

// SPDX-License-Identifier: Apache-2.0

package repocheck

// Rule says what the packages that it is for may import. The first rule that matches holds.
type Rule struct {
	// Packages are patterns of folders, or of files, from the root.
	Packages []string
	// Ours are patterns of packages of this module that may be imported; "./" is the package's
	// own folder. NotOurs takes some of them away.
	Ours, NotOurs []string
	// Never are import paths, with what is below them, that must not be imported.
	Never []string
	// But are import paths below those of Never that may be imported all the same.
	But []string
	// Only, when not empty, are the sole import paths outside the standard library.
	Only []string
	// Why is what the report says.
	Why string
}

// Pure lists the packages and files that decide: the same input gives the same answer.
var Pure = []string{
	"internal/inplace", "internal/valid", "internal/updatesort", "internal/ordinal", "internal/percent", "internal/poddefaults",
	"internal/lifecycle", "internal/podready", "internal/editdistance", "internal/runtimehash", "internal/imageref", "internal/nodestate", "internal/enumerate",
	"internal/restart", "internal/probeview", "internal/rollout/pull/**", "internal/recreate", "internal/recreatelabel", "internal/podprobe",
	"internal/revision", "internal/rollout/adapter/**", "internal/rollout/target/**",
	"internal/rollout/verdict/**", "internal/rollout/diagnose/**", "internal/rollout/plan/**",
	"controllers/*/decide.go",
}

// impure is what a pure package must not import.
var impure = []string{
	"k8s.io/client-go", "k8s.io/klog", "k8s.io/utils/clock", "k8s.io/apimachinery/pkg/util/wait",
	"sigs.k8s.io/controller-runtime", "github.com/go-logr/logr", "github.com/spf13/cobra",
	"os", "io/fs", "net", "log", "math/rand", "crypto/rand", "syscall", "embed",
}

// testOnly are packages that only tests import.
var testOnly = []string{"internal/fixture", "internal/apitest", "internal/contract", "internal/property", "internal/repocheck", "test/**"}

// Rules is the table of imports (docs/architecture.md).
var Rules = []Rule{
	{
		Packages: []string{"cmd/**", "hack/**", "test/**"}, Ours: []string{"**", "*", "*/**"},
		Why: "main packages and tests may import anything of ours",
	},
	{
		Packages: []string{"apis/**"}, Ours: []string{"apis/**"},
		Only: []string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime/pkg/conversion"},
		Why:  "apis is imported by users: of Kubernetes it needs k8s.io/api and apimachinery, of ours nothing",
	},
	{Packages: []string{"manifests"}, Only: []string{"nothing"}, Why: "manifests is an embed.FS and nothing else"},
	{
		Packages: Pure,
		Ours:     append([]string{"apis/**"}, Pure...),
		Never:    impure, But: []string{"net/url"}, // which parses and does nothing else
		Why: "a pure package has no client, clock, logger, file, network or randomness, nor imports one that has",
	},
	{
		Packages: []string{"internal/fixture", "internal/apitest", "internal/contract", "internal/property", "internal/repocheck"},
		Ours:     []string{"apis/**", "manifests", "internal/**"}, NotOurs: []string{"internal/cli/**", "internal/tui/**"},
		Why: "help for tests stands below what it helps to test",
	},
	{
		Packages: []string{"internal/cli/**"},
		Ours:     []string{"apis/**", "manifests", "internal/**"}, NotOurs: testOnly,
		Why: "the command line imports internal packages, and none of the three sides of the cluster",
	},
	{
		Packages: []string{"internal/tui/**"},
		Ours:     []string{"apis/**", "internal/**"}, NotOurs: append([]string{"internal/cli/**"}, testOnly...),
		Why: "the TUI is below the command line",
	},
	{
		Packages: []string{"internal/**"},
		Ours:     []string{"apis/**", "manifests", "internal/**"}, NotOurs: append([]string{"internal/cli/**", "internal/tui/**"}, testOnly...),
		Why: "internal packages import apis and each other, never cli, tui, controllers, webhook or daemon",
	},
	{
		Packages: []string{"controllers/*/**"},
		Ours:     []string{"apis/**", "internal/**", "./**"}, NotOurs: append([]string{"internal/cli/**", "internal/tui/**"}, testOnly...),
		Why: "controllers never import each other, webhook, daemon, cli or tui",
	},
	{
		Packages: []string{"webhook/*/**"},
		Ours:     []string{"apis/**", "internal/**", "webhook/admit", "./**"}, NotOurs: append([]string{"internal/cli/**", "internal/tui/**"}, testOnly...),
		Why: "of each other webhooks import only webhook/admit; never controllers, daemon, cli or tui",
	},
	{
		Packages: []string{"daemon/**"},
		Ours:     []string{"apis/**", "internal/**", "daemon/cri", "./**"}, NotOurs: append([]string{"internal/cli/**", "internal/tui/**"}, testOnly...),
		Why: "of each other capabilities import only daemon/cri; never controllers, webhook, cli or tui",
	},
}

// Reservation keeps a library in its place.
type Reservation struct {
	Import string
	For    []string // patterns of packages
	Why    string
}

// Reserved lists libraries that belong to one part.
var Reserved = []Reservation{
	{"k8s.io/kubernetes", nil, "the product never imports k8s.io/kubernetes: ask the API server"},
	{"github.com/spf13/cobra", []string{"cmd/**", "internal/cli/**", "hack/**", "test/**"}, "cobra belongs to internal/cli and cmd"},
	{"github.com/charmbracelet/bubbletea", []string{"internal/tui/**", "test/**"}, "bubbletea belongs to internal/tui"},
	{"k8s.io/cri-api", []string{"daemon/cri/**", "test/**"}, "daemon/cri is the only package that speaks CRI"},
	{"k8s.io/cri-client", []string{"daemon/cri/**", "test/**"}, "daemon/cri is the only package that speaks CRI"},
}

// CallRule forbids calls in some packages or files.
type CallRule struct {
	In, But []string // patterns
	Calls   []string // import path and name; a final * stands for any rest
	Why     string
}

var everywhere = []string{"apis/**", "controllers/**", "daemon/**", "internal/**", "webhook/**"}

// Calls is the table of forbidden calls. Tests are exempt.
var Calls = []CallRule{
	{In: Pure, Calls: []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After*", "time.Tick", "time.NewTimer", "time.NewTicker"}, Why: "time is an argument of a pure function"},
	{In: Pure, Calls: []string{"k8s.io/apimachinery/pkg/util/rand.String", "k8s.io/apimachinery/pkg/util/rand.Int*", "k8s.io/apimachinery/pkg/util/rand.Perm"}, Why: "randomness is an argument of a pure function"},
	{In: everywhere, Calls: []string{"fmt.Print*", "os.Exit", "log.Fatal*"}, Why: "output goes to a writer that was handed in, and only main ends the process"},
	{In: everywhere, Calls: []string{"context.TODO"}, Why: "the context is an argument"},
}

// VagueNames are names that say nothing about a package.
var VagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "shared", "lib"}

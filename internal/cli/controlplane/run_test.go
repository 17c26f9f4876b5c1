// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/cli"
)

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func yamlTo(text string, into any) error { return yaml.Unmarshal([]byte(text), into) }

type result struct {
	out, err string
	code     int
}

// run runs the whole program without a terminal and, unless args say otherwise, without a
// cluster.
func run(t *testing.T, args ...string) result {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errOut bytes.Buffer
	code := cli.Main(context.WithoutCancel(t.Context()), append([]string{"kruisectl"}, args...),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return result{out: out.String(), err: errOut.String(), code: code}
}

// Input that is wrong on any cluster is exit code 2 and says what to do, and no cluster is
// asked.
func TestWrongInput(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("manager: ["), 0o600))
	list := filepath.Join(t.TempDir(), "list.yaml")
	require.NoError(t, os.WriteFile(list, []byte("- a"), 0o600))
	cases := map[string]struct {
		args string
		want string
	}{
		"unknown gate":                   {"install --feature-gates Nope=true", `unknown feature gate "Nope"`},
		"misspelled gate":                {"install --feature-gates PodWebhok=true", "did you mean PodWebhook?"},
		"unknown key":                    {"install --set manager.replica=3", "did you mean manager.replicas?"},
		"not key=value":                  {"install --set manager.replicas", "is not key=value"},
		"unknown key in a render":        {"manifest render --set daemon.prot=1", "did you mean daemon.port?"},
		"missing values file":            {"install --values " + missing, "no such file or directory"},
		"broken values file":             {"install --values " + broken, "parsing values"},
		"values file that is a list":     {"install --values " + list, "not a map of keys"},
		"replicas that are no number":    {"install --replicas many", "many is not a whole number"},
		"no replicas":                    {"install --replicas 0", "0 managers cannot serve webhooks"},
		"unknown profile":                {"install --profile prod", `unknown profile "prod"`},
		"unknown platform":               {"manifest render --platform gkee", "did you mean gke?"},
		"unknown flag":                   {"install --replica 3", "did you mean --replicas?"},
		"argument":                       {"install kruise", "takes no argument"},
		"dry run":                        {"install --dry-run=maybe", "use none, client or server"},
		"timeout":                        {"install --timeout 0s", "use a positive duration"},
		"version to upgrade to":          {"upgrade --to v99.0.0", "upgrades to v0.1.0 only"},
		"share of daemons":               {"install --daemon-wait most", "is not all, none or a percentage"},
		"CRDs":                           {"install --crds some", "use managed, skip or only"},
		"argument for an unknown one":    {"install --extra-arg webhook=--v=5", "use manager or daemon"},
		"argument without program":       {"install --extra-arg --v=5", "write manager=--flag=value"},
		"output":                         {"install -o table", "is not a format of this command"},
		"split":                          {"manifest render --split file", "use object, component or none"},
		"order":                          {"manifest render --order random", "use apply or alphabetical"},
		"force without purge":            {"uninstall --force", "are about what --purge-crds deletes"},
		"CRDs not kept but not purged":   {"uninstall --keep-crds=false", "does not delete CRDs"},
		"both ways of deleting":          {"uninstall --purge-crds --force --orphan-workloads", "none of the others can be"},
		"component":                      {"status --component webhook", "use manager, webhooks, daemon"},
		"section":                        {"doctor --section webhook", "use cluster, manager, webhooks"},
		"fail on":                        {"doctor --fail-on never", "use error or warning"},
		"gate to enable":                 {"feature-gates enable Nope", `unknown feature gate "Nope"`},
		"no gate to enable":              {"feature-gates enable", "name at least one feature gate"},
		"gate to describe":               {"feature-gates describe PodWebhok", "did you mean PodWebhook?"},
		"stage":                          {"feature-gates list --stage GA", "use Alpha or Beta"},
		"image with a tag":               {"install --image a/b:c", "holds a tag or digest"},
		"same port twice":                {"install --metrics-port 9876", "is the port of manager.webhook.port too"},
		"external certificates, unknown": {"install --external-certs vault", "is not one of none, cert-manager, manual"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := run(t, strings.Fields(tc.args)...)
			require.Equal(t, 2, r.code, r.err)
			require.Contains(t, r.err, tc.want)
			require.Empty(t, r.out)
			require.True(t, strings.HasPrefix(r.err, "error: "), r.err)
		})
	}
}

func TestWithoutCluster(t *testing.T) {
	for _, args := range []string{"install", "upgrade", "uninstall", "status", "doctor", "preflight", "manifest diff",
		"manifest prune", "feature-gates enable CloneSetShortHash", "manifest values --live"} {
		t.Run(args, func(t *testing.T) {
			r := run(t, strings.Fields(args)...)
			require.NotZero(t, r.code)
			require.Contains(t, r.err, "no cluster is configured")
			require.Contains(t, r.err, "next:")
		})
	}
	t.Run("version", func(t *testing.T) {
		r := run(t, "version")
		require.Zero(t, r.code)
		require.Contains(t, r.err, "server: not reachable")
		require.Equal(t, 1, run(t, "version", "--check").code)
		require.Empty(t, run(t, "version", "--client").err)
	})
	t.Run("gates", func(t *testing.T) {
		r := run(t, "feature-gates", "list")
		require.Zero(t, r.code)
		require.Contains(t, r.err, "no cluster is configured")
	})
}

func TestRender(t *testing.T) {
	t.Run("the same bytes twice", func(t *testing.T) {
		require.Equal(t, run(t, "manifest", "render", "--profile", "ha").out, run(t, "manifest", "render", "--profile", "ha").out)
	})
	t.Run("no daemon", func(t *testing.T) {
		for _, args := range [][]string{{"--feature-gates=KruiseDaemon=false"}, {"--enable-daemon=false"}} {
			r := run(t, append([]string{"manifest", "render"}, args...)...)
			require.Zero(t, r.code, r.err)
			require.NotContains(t, r.out, "\nkind: DaemonSet\n")
			require.Contains(t, r.out, "--feature-gates=KruiseDaemon=false\n")
			require.Empty(t, r.err)
		}
	})
	t.Run("a documented but wrong name of a gate", func(t *testing.T) {
		r := run(t, "manifest", "render", "--feature-gates=EnhancedLivenessProbeGate=true")
		require.Zero(t, r.code)
		require.Contains(t, r.err, "warning: feature gate EnhancedLivenessProbeGate is spelled EnhancedLivenessProbe")
		require.Contains(t, r.out, "--feature-gates=EnhancedLivenessProbe=true\n")
	})
	t.Run("flags are stronger than --set, which is stronger than a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(file, []byte("profile: ha\nmanager: {replicas: 4, log: {level: 2}}\n"), 0o600))
		r := run(t, "manifest", "values", "--values", file, "--set", "manager.replicas=5")
		require.Contains(t, r.out, "replicas: 5")
		require.Contains(t, r.out, "profile: ha")
		require.Contains(t, r.out, `level: "2"`)
		require.Contains(t, run(t, "manifest", "values", "--values", file, "--set", "manager.replicas=5", "--replicas", "6").out, "replicas: 6")
	})
	t.Run("image and tag", func(t *testing.T) {
		r := run(t, "manifest", "images", "--image", "localhost:5000/kruise", "--tag", "e2e")
		require.Equal(t, "localhost:5000/kruise:e2e\n", r.out)
		require.Equal(t, "mirror.local/kruisectl/kruise-manager:v0.1.0\n", run(t, "manifest", "images", "--registry", "mirror.local").out)
	})
	t.Run("the profile e2e is the acceptance environment", func(t *testing.T) {
		r := run(t, "manifest", "render", "--profile", "e2e")
		require.Contains(t, r.out, "--feature-gates=AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false")
		require.Contains(t, r.out, "KUBE_CACHE_MUTATION_DETECTOR")
	})
	t.Run("a directory, its values, and again", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "out")
		require.Zero(t, run(t, "manifest", "render", "--dir", dir, "--profile", "ha").code)
		require.Equal(t, run(t, "manifest", "render", "--profile", "ha").out, run(t, "manifest", "render", "--from-values", filepath.Join(dir, "VALUES.yaml")).out)
		require.Zero(t, run(t, "manifest", "render", "--dir", dir, "--profile", "minimal").code, "its own files are replaced")
		require.NoFileExists(t, filepath.Join(dir, "20-daemonset-kruise-daemon.yaml"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.txt"), nil, 0o600))
		r := run(t, "manifest", "render", "--dir", dir)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.err, "mine.txt")
		require.Zero(t, run(t, "manifest", "render", "--dir", dir, "--force").code)
		require.FileExists(t, filepath.Join(dir, "mine.txt"))
	})
}

func TestDescribeGate(t *testing.T) {
	r := run(t, "feature-gates", "describe", "PreDownloadImageForInPlaceUpdate")
	require.Zero(t, r.code)
	require.Contains(t, r.out, "Turns on:    ImagePullJobGate")
	require.Contains(t, r.out, "Requires:    KruiseDaemon")
}

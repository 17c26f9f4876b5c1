// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/features"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, " + strings.TrimPrefix(text, "{")))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

func TestDrift(t *testing.T) {
	cases := map[string]struct {
		live, want string
		diffs      []string
	}{
		"what only the cluster has does not count": {
			live: "{kind: X, metadata: {uid: a}, spec: {a: 1, default: 2}, status: {}}", want: "{kind: X, spec: {a: 1}}"},
		"a changed and a missing field": {
			live: "{kind: X, spec: {a: 1}}", want: "{kind: X, spec: {a: 2, b: 3}}",
			diffs: []string{"spec.a: 1 → 2", "spec.b: (absent) → 3"}},
		"lists are whole": {
			live: "{kind: X, spec: {args: [a, b]}}", want: "{kind: X, spec: {args: [a]}}", diffs: []string{"spec.args[1]: b → (absent)"}},
		"members with names are matched by name": {
			live: "{kind: X, spec: {c: [{name: b}, {name: a, x: 1}]}}", want: "{kind: X, spec: {c: [{name: a, x: 2}, {name: b}]}}",
			diffs: []string{"spec.c[a].x: 1 → 2"}},
		"a member too many": {
			live: "{kind: X, webhooks: [{name: a}, {name: b}]}", want: "{kind: X, webhooks: [{name: a}]}", diffs: []string{"webhooks[b]: map[name:b] → (absent)"}},
		"the template of the manager never counts": {
			live: "{kind: MutatingWebhookConfiguration, metadata: {annotations: {template: x}}}", want: "{kind: MutatingWebhookConfiguration, metadata: {annotations: {template: ''}}}"},
		"nor do bundles": {
			live: "{kind: X, webhooks: [{name: a, clientConfig: {caBundle: x, service: {name: s}}}]}", want: "{kind: X, webhooks: [{name: a, clientConfig: {service: {name: s}}}]}"},
		"quantities may be written in other ways": {
			live: "{kind: X, spec: {c: [{name: a, resources: {limits: {cpu: '1'}}}]}}", want: "{kind: X, spec: {c: [{name: a, resources: {limits: {cpu: 1000m}}}]}}"},
		"the server drops what is empty": {
			live: "{kind: X, spec: {}}", want: "{kind: X, spec: {type: '', on: false}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range Drift(object(t, tc.live), object(t, tc.want)) {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tc.diffs, got); diff != "" {
				t.Errorf("Drift differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDriftOfARenderingAgainstItselfIsEmpty(t *testing.T) {
	for _, o := range render(t, defaults(t, ProfileE2E)).Objects {
		require.Empty(t, Drift(o, o), Name(o))
	}
}

// What LiveValues reads from rendered workloads are the values they were rendered from, in
// every key that shows in them.
func TestLiveValuesReadBackWhatWasRendered(t *testing.T) {
	for name, v := range map[string]Values{
		"default": defaults(t, ProfileDefault),
		"ha":      defaults(t, ProfileHA),
		"e2e":     defaults(t, ProfileE2E),
		"changed": defaults(t, ProfileDefault, "manager.replicas=4,manager.log.level=2,manager.webhook.port=9443,manager.metrics.port=81",
			"manager.nodeSelector={a: b},daemon.socketLocation=/run/k3s,daemon.socketFile=x.sock,daemon.enablePprof=false,daemon.extraEnvs=[{name: A, value: b}]",
			`featureGates=CloneSetShortHash=true\,ImagePullJobGate=true`),
	} {
		t.Run(name, func(t *testing.T) {
			m := render(t, v)
			daemon := named(gvkDaemonSet, daemonName)
			daemon.SetNamespace(DefaultNamespace)
			deployment := named(gvkDeployment, managerName)
			deployment.SetNamespace(DefaultNamespace)
			got, err := LiveValues(Existing{Namespace: DefaultNamespace, Manager: find(m, deployment), Daemon: find(m, daemon)})
			require.NoError(t, err)
			hidden := map[string]bool{"profile": true, "platform": true, "manager.podDisruptionBudget": true,
				"webhookConfiguration.timeoutSeconds": true, "manager.pprofAddr": true, "manager.resyncPeriod": true, "daemon.pprofAddr": true}
			for _, d := range CompareValues(v, got) {
				require.True(t, hidden[d.Key], d.String())
			}
			// And the tables of defaults say what the manifests say.
			again := v
			again.Manager.Resources, again.Daemon.Resources = got.Manager.Resources, got.Daemon.Resources
			require.Equal(t, stream(t, m.Objects), stream(t, render(t, again).Objects))
		})
	}
}

func TestChangeGates(t *testing.T) {
	on := func(names ...features.Gate) map[features.Gate]bool {
		m := map[features.Gate]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	cases := map[string]struct {
		value   string
		asked   map[features.Gate]bool
		want    string
		changes []GateChange
		err     string
	}{
		"a gate": {"ImagePullJobGate=true", on("CloneSetShortHash"), "CloneSetShortHash=true,ImagePullJobGate=true",
			[]GateChange{{Name: "CloneSetShortHash", After: true}}, ""},
		"back to the default leaves the entry out": {"CloneSetShortHash=true", map[features.Gate]bool{"CloneSetShortHash": false}, "",
			[]GateChange{{Name: "CloneSetShortHash", Before: true}}, ""},
		"what it implies": {"", on("PreDownloadImageForInPlaceUpdate"), "PreDownloadImageForInPlaceUpdate=true",
			[]GateChange{{Name: "PreDownloadImageForInPlaceUpdate", After: true},
				{Name: "ImagePullJobGate", After: true, Because: "forced by PreDownloadImageForInPlaceUpdate=true"}}, ""},
		"no change":           {"CloneSetShortHash=true", on("CloneSetShortHash"), "CloneSetShortHash=true", nil, ""},
		"a group stays":       {"AllAlpha=true", map[features.Gate]bool{"TemplateNoDefaults": false}, "AllAlpha=true,TemplateNoDefaults=false", []GateChange{{Name: "TemplateNoDefaults", Before: true}}, ""},
		"a contradiction":     {"KruiseDaemon=false", on("ImagePullJobGate"), "", nil, "ImagePullJobGate=true has no effect: it is forced by KruiseDaemon=false"},
		"an unknown old name": {"Gone=true", on("CloneSetShortHash"), "", nil, `unknown feature gate "Gone"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, changes, err := ChangeGates(tc.value, tc.asked)
			if tc.err != "" {
				require.EqualError(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			if diff := cmp.Diff(tc.changes, changes); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The shortest value has the effect of the long one.
func TestMinimalGatesHaveTheSameEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := features.All()
		long := features.New()
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			g := rapid.SampledFrom(all).Draw(t, "gate")
			if err := long.Set(fmt.Sprintf("%s=%t", g.Name, rapid.Bool().Draw(t, "on"))); err != nil {
				t.Fatal(err)
			}
		}
		short, err := features.Parse(minimal(long))
		if err != nil {
			t.Fatal(err)
		}
		for i, st := range long.Effective() {
			if short.Effective()[i].Enabled != st.Enabled {
				t.Fatalf("%s is %t with %q and not with %q", st.Name, st.Enabled, long, short)
			}
		}
	})
}

func TestGatesOfManagerAndDaemon(t *testing.T) {
	states, _, err := Gates(GateFlags{Manager: "AllAlpha=true,EnableExternalCerts=false,TemplateNoDefaults=false", Daemon: "AllAlpha=true", HasManager: true, HasDaemon: true})
	require.NoError(t, err)
	for _, s := range states {
		require.False(t, s.Disagree(), "%s matters to the manager only", s.Name)
	}
	states, _, err = Gates(GateFlags{Manager: "ImagePullJobGate=true", HasManager: true, HasDaemon: true})
	require.NoError(t, err)
	for _, s := range states {
		require.Equal(t, s.Name == features.ImagePullJobGate, s.Disagree(), s.Name)
	}
	_, _, err = Gates(GateFlags{Daemon: "Nope=true", HasDaemon: true})
	require.ErrorContains(t, err, "--feature-gates of the daemon")
}

func TestJudgeVersion(t *testing.T) {
	for git, want := range map[string]CheckState{
		"v1.30.0": CheckOK, "v1.37.2": CheckOK, "v1.32.1-gke.100": CheckOK, "v1.31.4-eks-a1b2": CheckOK, "1.33+": CheckOK,
		"v1.29.9": CheckError, "v1.24.0": CheckError, "v1.16.3": CheckError, "v1.38.0": CheckWarning, "": CheckWarning, "master": CheckWarning,
	} {
		t.Run(git, func(t *testing.T) { require.Equal(t, want, judgeVersion(git).state, judgeVersion(git).message) })
	}
}

type fakeVersion struct {
	version string
	err     error
}

func (f fakeVersion) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: f.version}, f.err
}

func TestServerTooOldOrSilent(t *testing.T) {
	p := &preflight{Cluster: &Cluster{Version: fakeVersion{version: "v1.22.3"}}}
	f := p.kubernetesVersion(t.Context())
	require.Equal(t, CheckError, f.state)
	require.Equal(t, "Kubernetes v1.22.3 is too old: 1.30 or newer is needed", f.message)
	p.Version = fakeVersion{err: errors.New("connection refused")}
	require.Equal(t, "the server does not answer: connection refused", p.kubernetesVersion(t.Context()).message)
}

func TestShares(t *testing.T) {
	for share, want := range map[string]int64{"all": 10, "": 10, "none": 0, "90%": 9, "91%": 10, "1%": 1, "0%": 0} {
		require.Equal(t, want, needed(10, share), share)
	}
	for _, wrong := range []string{"90", "most", "101%", "-1%", "%"} {
		_, err := ParseShare(wrong)
		require.Error(t, err, wrong)
	}
}

func TestCompareVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     VersionSkew
	}{
		"next minor":        {"v0.1.0", "v0.2.0", VersionSkew{}},
		"two minors":        {"v0.1.0", "v0.4.0", VersionSkew{SkippedMinors: 2}},
		"back":              {"v0.2.0", "v0.1.9", VersionSkew{Downgrade: true}},
		"a development one": {"e2e", "v0.1.0", VersionSkew{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, CompareVersions(tc.from, tc.to)) })
	}
}

func TestRebaseKeepsAChosenTag(t *testing.T) {
	followed := defaults(t, ProfileDefault, "manager.image.tag=v0.0.9")
	require.Equal(t, ManifestsVersion(), Rebase(followed, "v0.0.9").Manager.Image.Tag)
	chosen := defaults(t, ProfileDefault, "manager.image.tag=mine")
	require.Equal(t, "mine", Rebase(chosen, "v0.0.9").Manager.Image.Tag)
}

func TestServerVersionsSkew(t *testing.T) {
	require.Empty(t, ServerVersions{Kubernetes: "v1.37.2", Manager: "v1", Daemon: "v1", Installed: "v0.1.0"}.Skew("v0.1.0"))
	require.Equal(t, []string{
		"Kubernetes v1.20.0 is too old: 1.30 or newer is needed", "manager v1.9 and daemon v1.8 are of different versions",
		"version v0.3.0 is installed, newer than this tool (v0.1.0): fields that it does not know are not shown",
	}, ServerVersions{Kubernetes: "v1.20.0", Manager: "v1.9", Daemon: "v1.8", Installed: "v0.3.0"}.Skew("v0.1.0"))
}

func TestOwnerOf(t *testing.T) {
	with := func(labels, annotations string) *unstructured.Unstructured {
		return object(t, "{kind: X, metadata: {labels: "+labels+", annotations: "+annotations+"}}")
	}
	ours := with("{app.kubernetes.io/managed-by: kruisectl}", "{}")
	helm := with("{}", "{meta.helm.sh/release-name: k, meta.helm.sh/release-namespace: helm-ns}")
	argo := with("{}", "{argocd.argoproj.io/tracking-id: 'kruise:apps/Deployment:a/b'}")
	flux := with("{kustomize.toolkit.fluxcd.io/name: k, kustomize.toolkit.fluxcd.io/namespace: flux}", "{}")
	bare := with("{}", "{}")
	for name, tc := range map[string]struct {
		objs    []*unstructured.Unstructured
		owner   Owner
		release string
	}{
		"nothing":                {nil, OwnerNone, ""},
		"ours":                   {[]*unstructured.Unstructured{ours, ours}, OwnerRendered, ""},
		"ours and another's":     {[]*unstructured.Unstructured{ours, bare}, OwnerBare, ""},
		"Helm":                   {[]*unstructured.Unstructured{helm, ours}, OwnerHelm, "helm-ns/k"},
		"Argo CD wins over Helm": {[]*unstructured.Unstructured{helm, argo}, OwnerGitOps, "Argo CD application kruise"},
		"Flux":                   {[]*unstructured.Unstructured{flux}, OwnerGitOps, "Flux Kustomization flux/k"},
		"bare":                   {[]*unstructured.Unstructured{bare}, OwnerBare, ""},
	} {
		t.Run(name, func(t *testing.T) {
			owner, release := ownerOf(tc.objs)
			require.Equal(t, tc.owner, owner)
			require.Equal(t, tc.release, release)
		})
	}
}

func TestTagOf(t *testing.T) {
	for image, want := range map[string]string{
		"a/b:v1": "v1", "localhost:5000/a": "", "localhost:5000/a:v2": "v2", "a@sha256:x": "", "a:v1@sha256:x": "v1", "": "",
	} {
		require.Equal(t, want, tagOf(image), image)
	}
}

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]string{
		"a/b:v1": "v1", "a/b@sha256:0123456789abcdef0123": "sha256:0123456789ab", "a/b:v1@sha256:0123": "v1", "a/b@sha256:01": "sha256:01", "a/b": "",
	} {
		require.Equal(t, want, versionOf(image), image)
	}
}

func TestOwnFinalizer(t *testing.T) {
	for f, want := range map[string]bool{
		"apps.kruise.io/fake-finalizer": true, "kruise.io/x": true, "rollouts.kruise.io/x": true,
		"example.com/kruise.io": false, "notkruise.io/x": false, "foregroundDeletion": false,
	} {
		require.Equal(t, want, ownFinalizer(f), f)
	}
}

func TestPlatformOf(t *testing.T) {
	node := func(kubelet, label string) []unstructured.Unstructured {
		return []unstructured.Unstructured{*object(t, "{kind: Node, metadata: {labels: {"+label+"}}, status: {nodeInfo: {kubeletVersion: '"+kubelet+"'}}}")}
	}
	require.Equal(t, "k3s", platformOf(node("v1.32.1+k3s1", "")))
	require.Equal(t, "rke2", platformOf(node("v1.32.1+rke2r1", "")))
	require.Equal(t, "aks", platformOf(node("v1.32.1", "kubernetes.azure.com/cluster: x")))
	require.Equal(t, "gke", platformOf(node("v1.32.1-gke.1", "cloud.google.com/gke-nodepool: x")))
	require.Equal(t, "generic", platformOf(node("v1.32.1", "")))
	require.True(t, onEKS(node("v1.32.1-eks-1", "eks.amazonaws.com/nodegroup: x")))
}

func TestRuntimesOfNodes(t *testing.T) {
	node := func(runtime, arch string) []unstructured.Unstructured {
		return []unstructured.Unstructured{*object(t, "{kind: Node, metadata: {name: n}, status: {nodeInfo: {operatingSystem: linux, architecture: "+arch+", containerRuntimeVersion: '"+runtime+"'}}}")}
	}
	require.Equal(t, CheckOK, runtimes(node("containerd://2.4.2", "amd64")).state)
	require.Equal(t, CheckError, runtimes(node("containerd://1.5.9", "amd64")).state)
	require.Equal(t, CheckOK, runtimes(node("cri-o://1.30.0", "arm64")).state)
	require.Equal(t, CheckWarning, runtimes(node("containerd://2.0.0", "riscv64")).state)
}

func TestTrouble(t *testing.T) {
	require.Equal(t, "ImagePullBackOff, no such image", trouble(object(t,
		"{kind: Pod, status: {containerStatuses: [{state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}}")))
	require.Equal(t, "no node fits", trouble(object(t,
		"{kind: Pod, status: {conditions: [{type: PodScheduled, status: 'False', message: no node fits}]}}")))
	require.Empty(t, trouble(object(t, "{kind: Pod, status: {containerStatuses: [{state: {waiting: {reason: ContainerCreating}}}]}}")))
}

func TestWaitFor(t *testing.T) {
	newFake := func() (*Cluster, *testclock.FakeClock) {
		clk := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		return &Cluster{Clock: clk}, clk
	}
	// turn lets the clock go on whenever the wait sleeps.
	turn := func(t *testing.T, clk *testclock.FakeClock, done <-chan error) error {
		t.Helper()
		for {
			select {
			case err := <-done:
				return err
			default:
				if clk.HasWaiters() {
					clk.Step(time.Second)
				}
			}
		}
	}
	after := func(n int) Condition {
		looks := 0
		return Condition{ID: "x", Check: func(context.Context) (bool, string, error) {
			looks++
			return looks > n, fmt.Sprintf("look %d", looks), nil
		}}
	}
	t.Run("ends when all hold", func(t *testing.T) {
		c, clk := newFake()
		done := make(chan error, 1)
		go func() {
			done <- c.waitFor(t.Context(), []Condition{after(2), after(4)}, time.Minute, Progress{})
		}()
		require.NoError(t, turn(t, clk, done))
		require.Equal(t, 4*time.Second, clk.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	})
	t.Run("names what is missing when time is up", func(t *testing.T) {
		c, clk := newFake()
		done := make(chan error, 1)
		broken := Condition{ID: "y", Check: func(context.Context) (bool, string, error) { return false, "", errors.New("forbidden") }}
		go func() {
			done <- c.waitFor(t.Context(), []Condition{after(1), broken}, 5*time.Second, Progress{})
		}()
		require.EqualError(t, turn(t, clk, done), "after 5s still missing: forbidden")
	})
	t.Run("ends with the context", func(t *testing.T) {
		c, _ := newFake()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("interrupted")
		cancel(cause)
		require.ErrorIs(t, c.waitFor(ctx, []Condition{after(9)}, time.Minute, Progress{}), cause)
	})
}

func TestChecksRunInOrderAndCanBeSkipped(t *testing.T) {
	list := []checker{
		{"a", "one", func(context.Context) finding { return okay("fine") }},
		{"b", "two", func(context.Context) finding { return bad("do this", "wrong") }},
		{"c", "one", func(context.Context) finding { return warn("", "hm") }},
	}
	got := runChecks(t.Context(), CheckOptions{Skip: []string{"b"}}, list)
	require.Equal(t, []Check{
		{ID: "a", Section: "one", State: CheckOK, Message: "fine"},
		{ID: "b", Section: "two", State: CheckSkipped, Message: "asked to skip it"},
		{ID: "c", Section: "one", State: CheckWarning, Message: "hm"},
	}, got)
	ok, warnings, errs, skip := Tally(got)
	require.Equal(t, []int{1, 1, 0, 1}, []int{ok, warnings, errs, skip})
	require.Len(t, runChecks(t.Context(), CheckOptions{Sections: []string{"two"}}, list), 1)
}

func TestObsolete(t *testing.T) {
	m := render(t, defaults(t, ProfileMinimal))
	inv := &Inventory{Objects: []Entry{
		{Version: "v1", Kind: "Namespace", Name: "old"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Name: "olds.apps.kruise.io"},
		{Group: "apps", Version: "v1beta2", Kind: "Deployment", Namespace: DefaultNamespace, Name: managerName},
		{Version: "v1", Kind: "ConfigMap", Namespace: DefaultNamespace, Name: "old"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: DefaultNamespace, Name: daemonName},
	}}
	names := func(entries []Entry) []string {
		var s []string
		for _, e := range entries {
			s = append(s, e.String())
		}
		return s
	}
	require.Equal(t, []string{"DaemonSet/kruise-system/kruise-daemon", "ConfigMap/kruise-system/old"}, names(inv.Obsolete(m.Objects, false)))
	require.Contains(t, names(inv.Obsolete(m.Objects, true)), "CustomResourceDefinition/olds.apps.kruise.io")
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
)

// writing are command lines that change the cluster, of every command that can.
var writing = []string{
	"rollout undo clone/web",
	"rollout pause clone/web",
	"rollout resume clone/web",
	"rollout partition clone/web 70%",
	"rollout restart clone/web --method=template",
	"rollout restart clone/web --method=pods",
	"set image clone/web app=repo/web:4",
	"rollout canary clone/web 10% --image app=repo/web:4",
	"rollout promote clone/web --to 80%",
	"rollout abort clone/web",
	"rollout retry clone/web --to 10%",
	"set env clone/web A=1",
	"set resources clone/web --limits cpu=1",
	"scale clone/web --replicas=3",
	"scaledown web --pods web-a",
	"image pull repo/web:4",
	"image pull repo/web:4 repo/log:4",
	"image predownload clone/web --image app=repo/web:4",
	"image retry pull-web",
	"image cancel pull-web",
	"container restart web-a",
	"container restart clone/web",
	"container cancel r",
	"create containerrecreaterequest r9 --pod web-a",
}

// pausedFor is a shop in which the command has something to do.
func pausedFor(line string) *shop {
	switch {
	case strings.Contains(line, "resume"):
		return newShop(3, paused)
	case strings.Contains(line, "promote"), strings.Contains(line, "abort"):
		return newShop(3, partition("70%"))
	case strings.Contains(line, "retry"):
		return aborted()
	}
	return newShop(10)
}

func TestDryRunWritesNothing(t *testing.T) {
	for _, line := range writing {
		for _, mode := range []string{"client", "server"} {
			t.Run(line+" "+mode, func(t *testing.T) {
				w := newWorld(t, join(pausedFor(line).objects(), done(oneBad), []client.Object{crr("r", v1beta1.RecreatePending, "")})...)
				r := w.run(append(strings.Fields(line), "--dry-run="+mode)...)
				if r.code != 0 || len(r.writes) > 0 {
					t.Errorf("wrote %v\n%s", r.writes, r)
				}
				want := map[string]string{"client": " (dry run)\n", "server": " (server dry run)\n"}[mode]
				if !strings.HasSuffix(r.out, want) {
					t.Errorf("output does not end in %q:\n%s", want, r)
				}
			})
		}
	}
}

// The list above must not miss a command: each one with --dry-run is in it, and each one
// without never writes.
func TestEveryWritingCommandIsInTheDryRunTest(t *testing.T) {
	listed := map[string]bool{}
	for _, line := range writing {
		words := strings.Fields(line)
		listed[words[0]], listed[words[0]+" "+words[1]] = true, true
	}
	root := New(factory.New("kruisectl", genericiooptions.NewTestIOStreamsDiscard()))
	walk(root, func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "kruisectl ")
		group, _, _ := strings.Cut(path, " ")
		if c.Flags().Lookup("dry-run") != nil && !listed[path] && slices.Contains([]string{"rollout", "set", "image", "container", "create", "scale", "scaledown"}, group) {
			t.Errorf("%s has --dry-run and is not tested for it", path)
		}
	})
}

func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, child := range c.Commands() {
		walk(child, f)
	}
}

func TestReadingCommandsWriteNothing(t *testing.T) {
	for _, line := range []string{
		"rollout status clone/web", "rollout watch clone/web", "rollout history clone/web", "rollout preview clone/web --image app=x:1",
		"why clone/web", "why pod/web-a", "inplace status web-a",
		"image status pull-web", "image wait pull-web", "image list", "image nodes", "image nodes repo/web:2",
		"container list", "container wait r", "probe", "probe web-a",
	} {
		if r := newWorld(t, join(newShop(10).objects(), done(oneBad), []client.Object{crr("r", v1beta1.RecreateCompleted, "pod has gone")})...).run(strings.Fields(line)...); len(r.writes) > 0 {
			t.Errorf("%s wrote %v", line, r.writes)
		}
	}
}

// The transport refuses a write under dry run whatever the client above it does.
func TestTransportRefusesWritesUnderDryRun(t *testing.T) {
	var reached []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.Method)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"CloneSet","apiVersion":"apps.kruise.io/v1beta1","metadata":{"name":"web"}}`))
	}))
	defer server.Close()
	f := factory.New("kruisectl", genericiooptions.NewTestIOStreamsDiscard())
	f.Flags.APIServer = new(server.URL)
	f.DryRunOnly()
	cfg, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	s, err := factory.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s, Mapper: testrestmapper.TestOnlyStaticRESTMapper(s)})
	if err != nil {
		t.Fatal(err)
	}
	cs := newShop(10).set
	patch := client.RawPatch(types.JSONPatchType, []byte(`[]`))
	if err := c.Patch(t.Context(), cs, patch); err == nil || !strings.Contains(err.Error(), "--dry-run is set") {
		t.Errorf("a patch went through: %v", err)
	}
	if err := c.Delete(t.Context(), cs); err == nil {
		t.Error("a deletion went through")
	}
	if len(reached) > 0 {
		t.Errorf("the server saw %v", reached)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(cs), cs); err != nil {
		t.Errorf("a read was refused: %v", err)
	}
	if err := c.Patch(t.Context(), cs, patch, client.DryRunAll); err != nil {
		t.Errorf("a server dry run was refused: %v", err)
	}
	if err := c.Delete(t.Context(), newShop(10).set, client.DryRunAll); err != nil {
		t.Errorf("the dry run of a deletion was refused: %v", err)
	}
}

// A write of somebody else between read and patch is neither lost nor overwritten.
func TestUndoIsRetriedAfterSomebodyElsesWrite(t *testing.T) {
	w := newShop(10).world(t)
	w.onPatch = func(c client.WithWatch) {
		cs := &v1beta1.CloneSet{}
		if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
			t.Fatal(err)
		}
		cs.Spec.Replicas = new(int32(12))
		cs.Labels = map[string]string{"edited": "yes"}
		if err := c.Update(context.Background(), cs); err != nil {
			t.Fatal(err)
		}
	}
	r := w.run("rollout", "undo", "clone/web")
	if r.code != 0 || len(r.writes) != 2 { // the first one failed its test
		t.Fatalf("%v\n%s", r.writes, r)
	}
	cs := &v1beta1.CloneSet{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
		t.Fatal(err)
	}
	if *cs.Spec.Replicas != 12 || cs.Labels["edited"] != "yes" || cs.Spec.Template.Spec.Containers[0].Image != "repo/web:2" {
		t.Errorf("replicas %d, labels %v, image %s", *cs.Spec.Replicas, cs.Labels, cs.Spec.Template.Spec.Containers[0].Image)
	}
}

func TestUndoRemovesWhatTheOldTemplateDidNotHave(t *testing.T) {
	s := newShop(10, func(c *v1beta1.CloneSet) {
		c.Spec.Template.Labels = map[string]string{"app": "web", "x": "y"}
		c.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	})
	w := s.world(t)
	if r := w.run("rollout", "undo", "clone/web", "--to-revision=2"); r.code != 0 {
		t.Fatal(r)
	}
	cs := &v1beta1.CloneSet{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
		t.Fatal(err)
	}
	if len(cs.Spec.Template.Labels) != 1 || cs.Spec.Template.Spec.NodeSelector != nil {
		t.Errorf("left over: labels %v, nodeSelector %v", cs.Spec.Template.Labels, cs.Spec.Template.Spec.NodeSelector)
	}
}

func TestCanaryUndoIsOnePatch(t *testing.T) {
	w := newShop(3, partition("70%")).world(t)
	r := w.run("rollout", "undo", "clone/web")
	if r.code != 0 || len(r.writes) != 1 {
		t.Fatalf("writes %v\n%s", r.writes, r)
	}
	cs := &v1beta1.CloneSet{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
		t.Fatal(err)
	}
	if p := cs.Spec.UpdateStrategy.RollingUpdate.Partition; p == nil || p.String() != "0" {
		t.Errorf("partition is %v", p)
	}
}

func TestUnchangedMeansNoWrite(t *testing.T) {
	cases := map[string]*shop{
		"rollout pause clone/web":              newShop(3, paused),
		"rollout resume clone/web":             newShop(3),
		"rollout partition clone/web 70%":      newShop(3, partition("70%")),
		"set image clone/web app=repo/web:3":   newShop(10),
		"rollout undo clone/web --to-revision": newShop(10),
	}
	for line, s := range cases {
		if strings.HasSuffix(line, "--to-revision") {
			line += "=3"
		}
		if r := s.world(t).run(strings.Fields(line)...); r.code != 0 || len(r.writes) > 0 {
			t.Errorf("%s wrote %v\n%s", line, r.writes, r)
		}
	}
}

func TestSetImageMovesNoOtherByte(t *testing.T) {
	s := newShop(10, func(c *v1beta1.CloneSet) { c.Spec.Template.Spec.Containers[0].WorkingDir = "/srv" })
	w := s.world(t)
	if r := w.run("set", "image", "clone/web", "app=repo/web:4"); r.code != 0 {
		t.Fatal(r)
	}
	cs := &v1beta1.CloneSet{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, cs); err != nil {
		t.Fatal(err)
	}
	want := s.set.Spec.DeepCopy()
	want.Template.Spec.Containers[0].Image = "repo/web:4"
	if !equal(*want, cs.Spec) {
		t.Errorf("spec is %+v", cs.Spec)
	}
}

// A user who may only get the CloneSet still gets an answer.
func TestStatusWithoutPermissionForDetails(t *testing.T) {
	w := newShop(4).world(t)
	w.deny = map[string]bool{"Pod": true, "ControllerRevision": true, "Event": true}
	r := w.run("rollout", "status", "clone/web", "-w=false")
	if r.code != 0 || !strings.Contains(r.err, "details hidden: cannot list pods") || !strings.Contains(r.out, "4 of 10 updated") {
		t.Error(r)
	}
}

func TestOwnershipGuard(t *testing.T) {
	controlled := func(c *v1beta1.CloneSet) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "UnitedDeployment", Name: "all", UID: "u", Controller: new(true)}}
	}
	r := newShop(10, controlled).world(t).run("rollout", "undo", "clone/web")
	if r.code != 1 || len(r.writes) > 0 || !strings.Contains(r.err, "uniteddeployment/all") {
		t.Errorf("a controlled object was changed:\n%s", r)
	}
	if r := newShop(10, controlled).world(t).run("rollout", "undo", "clone/web", "--force"); r.code != 0 {
		t.Errorf("--force does not help:\n%s", r)
	}
	argo := func(c *v1beta1.CloneSet) {
		c.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "shop-web:apps.kruise.io/CloneSet:shop/web"}
	}
	if r := newShop(10, argo).world(t).run("rollout", "pause", "clone/web"); r.code != 0 || !strings.Contains(r.err, "Argo CD app shop-web") {
		t.Errorf("no note about Argo CD:\n%s", r)
	}
}

func TestSeveralObjectsFoldTheirCodes(t *testing.T) {
	r := newShop(10).world(t).run("rollout", "pause", "clone/web", "clone/none")
	if r.code != 8 || !strings.Contains(r.out, "web paused") || !strings.Contains(r.err, "shop/none: not found") {
		t.Error(r)
	}
}

func TestAnswersAsKubectlPlugin(t *testing.T) {
	cases := map[string]struct {
		argv []string
		name string
		args string
	}{
		"its own name":          {[]string{"/usr/bin/kruisectl", "version"}, "kruisectl", "version"},
		"a kubectl plugin":      {[]string{"/x/kubectl-kruise", "rollout"}, "kubectl kruise", "rollout"},
		"on Windows":            {[]string{"kubectl-kruise.exe"}, "kubectl kruise", ""},
		"the plugin completion": {[]string{"kubectl_complete-kruise", "roll"}, "kubectl kruise", "__complete roll"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, args := program(tc.argv)
			if got != tc.name || strings.Join(args, " ") != tc.args {
				t.Errorf("program() = %q %v", got, args)
			}
		})
	}
	w := newShop(10).world(t)
	w.name = "kubectl kruise"
	if r := w.run("rollout", "--help"); !strings.Contains(r.out, "kubectl kruise rollout COMMAND") || strings.Contains(r.out, "kruisectl rollout status cloneset") {
		t.Error(r)
	}
	if r := w.run("rollout", "status", "web"); !strings.Contains(r.err, "next:  kubectl kruise rollout status cloneset/web") {
		t.Error(r)
	}
}

func TestEnvironmentSetsFlags(t *testing.T) {
	w := newShop(3, partition("70%")).world(t)
	w.env["KRUISECTL_FULL"] = "true"
	if r := w.run("rollout", "status", "clone/web"); r.code != 5 {
		t.Errorf("KRUISECTL_FULL has no effect: %s", r)
	}
	w.env["KRUISECTL_TIMEOUT"] = "soon"
	if r := w.run("rollout", "status", "clone/web"); r.code != 2 || !strings.Contains(r.err, "KRUISECTL_TIMEOUT") {
		t.Errorf("a bad value is not named: %s", r)
	}
	w.env = map[string]string{"KRUISECTL_COMPAT": "1", "KRUISECTL_FULL": "true"}
	if r := w.run("rollout", "status", "clone/web"); r.code != 1 {
		t.Errorf("KRUISECTL_COMPAT: exit code %d", r.code)
	}
}

func TestNoEscapeBytesInPipes(t *testing.T) {
	for _, line := range []string{"rollout status clone/web", "rollout history clone/web", "why clone/web", "rollout watch clone/web -d", "rollout preview clone/web"} {
		if r := newShop(3, partition("70%")).world(t).run(strings.Fields(line)...); strings.ContainsAny(r.out+r.err, "\x1b\r") {
			t.Errorf("%s: %q", line, r.out+r.err)
		}
		if r := newShop(3, partition("70%")).world(t).run(append(strings.Fields(line), "--color=always")...); line != "rollout history clone/web" && line != "rollout preview clone/web" && !strings.Contains(r.out, "\x1b[") {
			t.Errorf("%s --color=always has no colour", line)
		}
	}
}

func TestCompletion(t *testing.T) {
	w := newShop(10).world(t)
	cases := map[string]string{
		"rollout undo cloneset/":                "cloneset/web\n",
		"rollout undo clone/web --to-revision=": "2\trepo/web:2",
		"rollout pause ":                        "cloneset/\n",
	}
	for line, want := range cases {
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		r := w.runBare(args...)
		if !strings.Contains(r.out, want) {
			t.Errorf("%s completes to\n%s", line, r.out)
		}
	}
}

func TestExplainRBACNamesEveryCommandOfOurs(t *testing.T) {
	root := New(factory.New("kruisectl", genericiooptions.NewTestIOStreamsDiscard()))
	walk(root, func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "kruisectl ")
		group, _, _ := strings.Cut(path, " ")
		ours := group == "rollout" || group == "set" || group == "image" || group == "why" || group == "inplace"
		if ours && !c.HasSubCommands() && c.Flags().Lookup("explain-rbac") == nil {
			t.Errorf("%s has no --explain-rbac", path)
		}
	})
	r := newShop(10).world(t).run("why", "--explain-rbac")
	golden(t, "explain-rbac", r.String())
}

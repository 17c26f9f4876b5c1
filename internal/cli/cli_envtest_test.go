// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// server is a real API server without controllers: the tests write the status.
type server struct {
	t          *testing.T
	c          client.Client
	kubeconfig string
	ns         string
}

func kubeconfig(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	kc := clientcmdapi.NewConfig()
	kc.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kc.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	kc.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: "shop"}
	kc.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kc, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *server) run(args ...string) result {
	s.t.Helper()
	return s.runCtx(s.t.Context(), args...)
}

func (s *server) runCtx(ctx context.Context, args ...string) result {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	f := factory.New("kruisectl", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	f.Getenv = func(string) string { return "" }
	code := Execute(ctx, f, append([]string{"--kubeconfig", s.kubeconfig, "--cache-dir", s.t.TempDir(), "-n", s.ns}, args...))
	return result{out: stdout.String(), err: stderr.String(), code: code}
}

func (s *server) must(code int, words []string, args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	wants(code, words...)(s.t, r)
	return r
}

// shop creates CloneSet web with three stored revisions and its Pods, all at the third.
func (s *server) shop() {
	const name = "web"
	s.t.Helper()
	ctx := s.t.Context()
	build := func(image string) fixture.CloneSetBuilder {
		return fixture.CloneSet(name).Namespace(s.ns).Replicas(4).Image(image).MaxUnavailable("25%").
			Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).With(func(c *v1beta1.CloneSet) { c.UID = "" })
	}
	cs := build("repo/web:3").Obj()
	s.create(cs)
	var last string
	for i := range 3 {
		made := build(fmt.Sprintf("repo/web:%d", i+1)).With(func(c *v1beta1.CloneSet) { c.UID = cs.UID }).Obj()
		r, err := revision.New(revision.OfCloneSet(made), int64(i+1))
		if err != nil {
			s.t.Fatal(err)
		}
		s.create(r)
		last = r.Name
	}
	set := build("repo/web:3").With(func(c *v1beta1.CloneSet) { c.UID = cs.UID })
	for i := range 4 {
		p := fixture.PodOf(set, fmt.Sprintf("%s-%c", name, 'a'+i)).At(fixture.Revision(set, 3)).Ready(time.Now().Add(-time.Hour)).Obj()
		p.UID, p.ResourceVersion = "", ""
		status := p.Status
		s.create(p)
		p.Status = status
		if err := s.c.Status().Update(ctx, p); err != nil {
			s.t.Fatal(err)
		}
	}
	cs.Status = v1beta1.CloneSetStatus{
		ObservedGeneration: cs.Generation, Replicas: 4, ReadyReplicas: 4, AvailableReplicas: 4, UpdatedReplicas: 4, UpdatedReadyReplicas: 4,
		UpdatedAvailableReplicas: 4, ExpectedUpdatedReplicas: 4, UpdateRevision: last, CurrentRevision: last,
	}
	if err := s.c.Status().Update(ctx, cs); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) create(o client.Object) {
	s.t.Helper()
	o.SetResourceVersion("")
	if err := s.c.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) get(name string) *v1beta1.CloneSet {
	s.t.Helper()
	cs := &v1beta1.CloneSet{}
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, cs); err != nil {
		s.t.Fatal(err)
	}
	return cs
}

func TestAgainstARealServer(t *testing.T) {
	cfg := apitest.Start(t)
	c := apitest.NewClient(t, cfg)
	base := &server{t: t, c: c, kubeconfig: kubeconfig(t, cfg)}
	n := 0
	at := func(t *testing.T) *server {
		n++
		s := &server{t: t, c: c, kubeconfig: base.kubeconfig, ns: fmt.Sprintf("shop-%d", n)}
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}})
		return s
	}
	cases := map[string]func(*testing.T, *server){
		"undo puts the template back":                   undoStory,
		"pause and resume touch one field":              pauseStory,
		"partition stores what was asked":               partitionStory,
		"set image is one small patch":                  setImageStory,
		"preview changes nothing":                       previewStory,
		"a rejected write says why":                     rejectedStory,
		"a wait ends with the status":                   waitStory,
		"a user with few permissions gets the sentence": permissionStory(cfg),
		"image pull makes a job and finds it again":     pullStory,
		"several images make one list":                  listStory,
		"a pull comes before the change":                predownloadStory,
		"containers are restarted with requests":        restartStory,
		"probes are joined":                             probeStory,
		"history and why read":                          readStory,
		"every command drives a StatefulSet":            statefulSetStory,
		"every command drives a DaemonSet":              daemonSetStory,
		"chosen Pods leave with scaledown":              scaledownStory,
	}
	for name, story := range cases {
		t.Run(name, func(t *testing.T) { story(t, at(t)) })
	}
}

func undoStory(t *testing.T, s *server) {
	s.shop()
	before := s.get("web")
	s.must(0, []string{"(dry run)"}, "rollout", "undo", "clone/web", "--dry-run=client")
	s.must(0, []string{"(server dry run)"}, "rollout", "undo", "clone/web", "--dry-run=server")
	if s.get("web").ResourceVersion != before.ResourceVersion {
		t.Error("a dry run wrote")
	}
	s.must(0, []string{"rolled back to revision 2 (was 3)", "in place"}, "rollout", "undo", "clone/web")
	after := s.get("web")
	if got := after.Spec.Template.Spec.Containers[0].Image; got != "repo/web:2" || after.Generation != before.Generation+1 {
		t.Errorf("image %s, generation %d", got, after.Generation)
	}
	s.must(0, []string{"already at revision 2"}, "rollout", "undo", "clone/web", "--to-revision=2")
	s.must(1, []string{"revision 9 is not stored", "1, 2, 3"}, "rollout", "undo", "clone/web", "--to-revision=9")
}

func pauseStory(t *testing.T, s *server) {
	s.shop()
	before := s.get("web")
	s.must(0, []string{"cloneset.apps.kruise.io/web paused"}, "rollout", "pause", "clone/web")
	s.must(0, []string{"already paused"}, "rollout", "pause", "clone/web")
	after := s.get("web")
	want := before.Spec.DeepCopy()
	want.UpdateStrategy.RollingUpdate.Paused = true
	if !equal(*want, after.Spec) {
		t.Errorf("spec is %+v", after.Spec.UpdateStrategy.RollingUpdate)
	}
	for _, m := range after.ManagedFields {
		if m.Manager == factory.FieldManager && !strings.Contains(m.FieldsV1.GetRawString(), "f:paused") {
			t.Errorf("kruisectl owns %s", m.FieldsV1.GetRawString())
		}
	}
	s.must(0, []string{"resumed"}, "rollout", "resume", "clone/web")
}

func partitionStory(t *testing.T, s *server) {
	s.shop()
	s.must(0, []string{"keeps 3 of 4 pods, 1 to be updated"}, "rollout", "partition", "clone/web", "75%")
	if p := s.get("web").Spec.UpdateStrategy.RollingUpdate.Partition; p.String() != "75%" {
		t.Errorf("partition is %s", p)
	}
	s.must(0, []string{"unchanged"}, "rollout", "partition", "clone/web", "75%")
	s.must(0, nil, "rollout", "partition", "clone/web", "2")
	if p := s.get("web").Spec.UpdateStrategy.RollingUpdate.Partition; p.IntValue() != 2 || p.String() != "2" {
		t.Errorf("partition is %s", p)
	}
	bare := fixture.CloneSet("bare").Namespace(s.ns).With(func(c *v1beta1.CloneSet) {
		c.UID, c.Spec.UpdateStrategy = "", v1beta1.CloneSetUpdateStrategy{}
	}).Obj()
	s.create(bare)
	s.must(0, nil, "rollout", "partition", "clone/bare", "1")
	if p := s.get("bare").Spec.UpdateStrategy.RollingUpdate; p == nil || p.Partition.String() != "1" {
		t.Errorf("parents are not made: %+v", p)
	}
}

func setImageStory(t *testing.T, s *server) {
	s.shop()
	before := s.get("web")
	s.must(0, []string{"image updated", "repo/web:3 -> repo/web:4", "in place: 4 pods keep IP and volumes"},
		"set", "image", "clone/web", "app=repo/web:4", "--reason", "release 4")
	after := s.get("web")
	want := before.Spec.DeepCopy()
	want.Template.Spec.Containers[0].Image = "repo/web:4"
	if !equal(*want, after.Spec) || after.Annotations["kubernetes.io/change-cause"] != "release 4" {
		t.Errorf("spec or annotation differ: %v", after.Annotations)
	}
	s.must(1, []string{`no container is named "nginx"`}, "set", "image", "clone/web", "nginx=repo/web:4")
}

func previewStory(t *testing.T, s *server) {
	s.shop()
	before := s.get("web").ResourceVersion
	manifest := fmt.Sprintf(`apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: web, namespace: %s}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: repo/web:5
        imagePullPolicy: Always
`, s.ns)
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must(0, []string{"repo/web:3 -> repo/web:5", "verdict: IN PLACE - 4 pods keep IP and volumes", "web-a", "up to 1 at a time"}, "rollout", "preview", "-f", file)
	s.must(0, []string{"verdict: RECREATE", "containers[app].env"}, "rollout", "preview", "clone/web", "--env", "A=1")
	s.must(0, []string{"NO CHANGE"}, "rollout", "preview", "clone/web")
	if s.get("web").ResourceVersion != before {
		t.Error("preview wrote")
	}
	if err := os.WriteFile(file, []byte("kind: ["), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must(2, []string{"error:"}, "rollout", "preview", "-f", file)
}

func rejectedStory(t *testing.T, s *server) {
	s.shop()
	r := s.run("rollout", "status", "clone/none")
	wants(1, "not found", "has no cloneset named")(t, r)
	s.must(2, []string{"over 100%"}, "rollout", "partition", "clone/web", "130%")
}

func waitStory(t *testing.T, s *server) {
	s.shop()
	cs := s.get("web")
	cs.Status.UpdatedAvailableReplicas = 1
	if err := s.c.Status().Update(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(1500 * time.Millisecond)
		cs.Status.UpdatedAvailableReplicas = 4
		if err := s.c.Status().Update(context.Background(), cs); err != nil {
			t.Error(err)
		}
	}()
	s.must(0, []string{"4 updated, 1 available", "successfully rolled out in "}, "rollout", "status", "clone/web", "--timeout", "20s")
	ctx, cancel := context.WithCancelCause(t.Context())
	cs.Status.UpdatedAvailableReplicas = 2
	if err := s.c.Status().Update(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(time.Second)
		cancel(&out.Signal{Code: out.CodeInterrupted})
	}()
	wants(130, "the rollout itself goes on")(t, s.runCtx(ctx, "rollout", "status", "clone/web"))
}

// permissionStory looks through the eyes of a user who may only get the CloneSet.
func permissionStory(cfg *rest.Config) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		s.shop()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "looker", Namespace: s.ns}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets"}, Verbs: []string{"get"}},
		}}
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "looker", Namespace: s.ns},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "looker"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "looker"}}}
		s.create(role)
		s.create(binding)
		s.must(0, []string{"successfully rolled out", "details hidden: cannot list pods"}, "--as", "looker", "rollout", "status", "clone/web", "-w=false")
		s.must(1, []string{"forbidden"}, "--as", "looker", "rollout", "pause", "clone/web")
		s.allow("driver", s.must(0, []string{"kind: Role"}, "rollout", "pause", "--explain-rbac").out)
		s.must(0, []string{"paused"}, "--as", "driver", "rollout", "pause", "clone/web")
		s.must(1, []string{"forbidden"}, "--as", "nobody", "rollout", "status", "clone/web")
	}
}

// allow gives the user the Role that --explain-rbac printed.
func (s *server) allow(user, role string) {
	s.t.Helper()
	role, _, _ = strings.Cut(role, "---\n") // what is for the whole cluster may be missing
	r := &rbacv1.Role{}
	if err := yaml.Unmarshal([]byte(role), r); err != nil {
		s.t.Fatal(err)
	}
	s.create(r)
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: s.ns},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
}

func readStory(t *testing.T, s *server) {
	s.shop()
	s.must(0, []string{"REVISION", "update,current,live"}, "rollout", "history", "clone/web")
	s.must(0, []string{"repo/web:1"}, "rollout", "history", "clone/web", "--revision=1", "-o", "yaml")
	s.must(0, []string{"nothing blocks"}, "why", "clone/web")
	s.must(0, []string{"nothing blocks"}, "why", "pod/web-a")
	s.must(0, []string{"cloneset/web\n"}, "__complete", "rollout", "undo", "cloneset/")
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// t0 is the time of every test in this package.
var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a fake cluster and a way to run commands against it.
type world struct {
	t       *testing.T
	objects []client.Object
	client  client.WithWatch
	// writes are the requests that would have changed the cluster.
	writes []string
	// deny makes a list or get of this kind fail as forbidden.
	deny map[string]bool
	// onPatch, when set, runs before each patch, e.g. for a write of somebody else.
	onPatch func(client.WithWatch)
	env     map[string]string
	clock   clock.WithTicker // nil stands still at t0
	name    string
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s, err := factory.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, objects: objects, name: "kruisectl", env: map[string]string{}, deny: map[string]bool{}}
	base := fake.NewClientBuilder().WithScheme(s).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(s)).WithObjects(objects...).WithStatusSubresource(&v1beta1.CloneSet{}, &v1beta1.StatefulSet{}, &v1beta1.DaemonSet{}, &v1beta1.ImagePullJob{}, &v1beta1.ImageListPullJob{}, &v1beta1.NodeImage{}, &v1beta1.ContainerRecreateRequest{}, &corev1.Pod{}).Build()
	note := func(verb string, obj client.Object, dry []string) {
		if len(dry) == 0 {
			w.writes = append(w.writes, fmt.Sprintf("%s %s", verb, obj.GetName()))
		}
	}
	w.client = interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			o := (&client.CreateOptions{}).ApplyOptions(opts)
			note("create", obj, o.DryRun)
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			o := (&client.PatchOptions{}).ApplyOptions(opts)
			note("patch", obj, o.DryRun)
			if w.onPatch != nil {
				f := w.onPatch
				w.onPatch = nil
				f(c)
			}
			if len(o.DryRun) > 0 {
				return dryPatch(obj, p)
			}
			return c.Patch(ctx, obj, p, opts...)
		},
		// The scale of a custom resource: its patch has the paths of the object's own.
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			o := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
			note(name, obj, o.DryRun)
			if w.onPatch != nil {
				f := w.onPatch
				w.onPatch = nil
				f(base)
			}
			if name != "scale" || len(o.DryRun) > 0 {
				return nil
			}
			return c.Patch(ctx, obj, p)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			note("update", obj, nil)
			return c.Update(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			o := (&client.DeleteOptions{}).ApplyOptions(opts)
			note("delete", obj, o.DryRun)
			return c.Delete(ctx, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.forbidden(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
	return w
}

// dryPatch answers a dry-run JSON patch as a server does: with the patched object. The
// fake client only answers that it would have worked.
func dryPatch(obj client.Object, p client.Patch) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	data, err := p.Data(obj)
	if err != nil {
		return err
	}
	ops, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return err
	}
	doc, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if doc, err = ops.Apply(doc); err != nil {
		return err
	}
	return u.UnmarshalJSON(doc)
}

func (w *world) forbidden(list client.ObjectList) error {
	kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1."), "List")
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		kind = strings.TrimSuffix(u.GetKind(), "List")
	}
	if w.deny[kind] {
		return forbidden(kind)
	}
	return nil
}

// result is what one command line did.
type result struct {
	out, err string
	code     int
	writes   []string
}

// String is the whole result, as golden files hold it.
func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.out, r.err)
}

func (w *world) run(args ...string) result {
	w.t.Helper()
	return w.runCtx(w.t.Context(), args...)
}

// runBare is run without -n, for command lines that must start with their own word.
func (w *world) runBare(args ...string) result {
	w.t.Helper()
	return w.execute(w.t.Context(), args)
}

func (w *world) runCtx(ctx context.Context, args ...string) result {
	w.t.Helper()
	return w.execute(ctx, append([]string{"-n", "shop"}, args...))
}

func (w *world) execute(ctx context.Context, args []string) result {
	var stdout, stderr bytes.Buffer
	f := factory.New(w.name, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	f.Clock = clocktesting.NewFakeClock(t0)
	if w.clock != nil {
		f.Clock = w.clock
	}
	f.Getenv = func(k string) string { return w.env[k] }
	f.Flags.KubeConfig = new(filepath.Join(w.t.TempDir(), "none"))
	f.Flags.Namespace = new("shop")
	f.OpenClient = func(*rest.Config, *runtime.Scheme) (client.WithWatch, error) { return w.client, nil }
	before := len(w.writes)
	code := Execute(ctx, f, args)
	return result{out: stdout.String(), err: stderr.String(), code: code, writes: w.writes[before:]}
}

// golden compares got with testdata/NAME.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), run with -update to accept:\n%s", file, diff)
	}
}

// shop is CloneSet web of namespace shop: ten Pods, three revisions, images repo/web:1 to
// :3, Pods named web-a to web-j.
type shop struct {
	set       *v1beta1.CloneSet
	revisions []*appsv1.ControllerRevision
	pods      []*corev1.Pod
}

func shopSet(image string) fixture.CloneSetBuilder {
	return fixture.CloneSet("web").Namespace("shop").Replicas(10).Image(image).MaxUnavailable("20%").
		Policy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType).With(func(c *v1beta1.CloneSet) { c.UID, c.Generation = "uid-web", 9 })
}

// newShop has updated Pods at revision 3, the rest at revision 2, all of them ready.
func newShop(updated int, change ...func(*v1beta1.CloneSet)) *shop {
	b := shopSet("repo/web:3")
	for _, c := range change {
		b = b.With(c)
	}
	s := &shop{}
	for i, image := range []string{"repo/web:1", "repo/web:2", "repo/web:3"} {
		r := fixture.Revision(shopSet(image), int64(i+1))
		r.Namespace = "shop"
		r.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(i-3) * time.Hour))
		s.revisions = append(s.revisions, r)
	}
	s.set = b.Obj()
	s.set.Status = v1beta1.CloneSetStatus{
		ObservedGeneration: 9, Replicas: 10, ReadyReplicas: 10, AvailableReplicas: 10,
		UpdatedReplicas: int32(updated), UpdatedReadyReplicas: int32(updated), UpdatedAvailableReplicas: int32(updated),
		UpdateRevision: s.revisions[2].Name, CurrentRevision: s.revisions[1].Name,
	}
	if updated == 10 {
		s.set.Status.CurrentRevision = s.revisions[2].Name
	}
	for i := range 10 {
		rev := s.revisions[1]
		image := "repo/web:2"
		if i < updated {
			rev, image = s.revisions[2], "repo/web:3"
		}
		name := fmt.Sprintf("web-%c", 'a'+i)
		p := fixture.PodOf(shopSet(image), name).At(rev).Node(fmt.Sprintf("node-%d", i%3)).
			Created(t0.Add(-24 * time.Hour)).Ready(t0.Add(-time.Duration(60-i) * time.Minute)).Obj()
		p.Namespace, p.UID = "shop", types.UID("uid-"+name)
		s.pods = append(s.pods, p)
	}
	return s
}

func (s *shop) objects() []client.Object {
	list := []client.Object{s.set}
	for _, r := range s.revisions {
		list = append(list, r)
	}
	for _, p := range s.pods {
		list = append(list, p)
	}
	return list
}

func (s *shop) world(t *testing.T) *world { return newWorld(t, s.objects()...) }

func equal(a, b any) bool { return cmp.Equal(a, b) }

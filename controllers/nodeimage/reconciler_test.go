// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func newClient(objects ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1beta1.NodeImage{}).Build()
}

// counted counts what is asked of the API server.
func counted(c client.WithWatch, reads *int) client.Reader {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			*reads++
			return c.Get(ctx, key, obj, opts...)
		},
	})
}

func owned(name string) *v1beta1.NodeImage {
	return nodeImage(func(n *v1beta1.NodeImage, tag *v1beta1.ImageTagSpec) {
		n.Name = name
		tag.OwnerReferences[0].Namespace, tag.OwnerReferences[0].Name = "shop", "pull"
	})
}

func namedNode(name string) *corev1.Node {
	return node(func(n *corev1.Node) { n.Name = name })
}

func pullJob(uid types.UID) *v1beta1.ImagePullJob {
	return &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pull", UID: uid}}
}

// A cache that does not show a job, or shows its namesake, is asked about no more than once.
func TestTasksOutliveACacheThatIsBehind(t *testing.T) {
	cases := map[string]struct {
		cached, live []client.Object
		tasks, reads int
	}{
		"the cache shows the job":                       {[]client.Object{pullJob("j")}, nil, 1, 0},
		"the cache is behind":                           {nil, []client.Object{pullJob("j")}, 1, 2},
		"the cache shows a former job of the name":      {[]client.Object{pullJob("i")}, []client.Object{pullJob("j")}, 1, 2},
		"the job is gone: that is asked once for all":   {nil, nil, 0, 1},
		"another job has the name: asked once, as well": {nil, []client.Object{pullJob("k")}, 0, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cache := newClient(append(tc.cached, owned("a"), namedNode("a"), owned("b"), namedNode("b"))...)
			reads := 0
			r := New(cache, counted(newClient(tc.live...), &reads), &record.FakeRecorder{}, Options{Clock: clocktesting.NewFakePassiveClock(t0)})
			for _, name := range []string{"a", "b"} {
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
				require.NoError(t, err)
				var got v1beta1.NodeImage
				require.NoError(t, cache.Get(t.Context(), client.ObjectKey{Name: name}, &got))
				require.Len(t, got.Spec.Images["nginx"].Tags, tc.tasks)
			}
			require.Equal(t, tc.reads, reads)
		})
	}
}

func TestANodeImageOutlivesACacheThatIsBehind(t *testing.T) {
	for name, live := range map[string][]client.Object{"there": {namedNode("a")}, "gone": nil} {
		t.Run(name, func(t *testing.T) {
			cache := newClient(owned("a"), pullJob("j"))
			r := New(cache, newClient(live...), &record.FakeRecorder{}, Options{Clock: clocktesting.NewFakePassiveClock(t0)})
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}})
			require.NoError(t, err)
			err = cache.Get(t.Context(), client.ObjectKey{Name: "a"}, &v1beta1.NodeImage{})
			require.Equal(t, name == "gone", err != nil)
		})
	}
}

// BenchmarkReconcile is what one event of a NodeImage costs that changes nothing here.
func BenchmarkReconcile(b *testing.B) {
	cache := newClient(owned("a"), namedNode("a"), pullJob("j"))
	r := New(cache, cache, &record.FakeRecorder{}, Options{Clock: clocktesting.NewFakePassiveClock(t0)})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Reconcile(b.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}}); err != nil {
			b.Fatal(err)
		}
	}
}

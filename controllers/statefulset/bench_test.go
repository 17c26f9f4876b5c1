// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/podupdate"
	plan "github.com/kruisectl/kruisectl/internal/rollout/plan/statefulset"
)

// bench is a Reconciler over an API server in memory, with a list of what it writes.
type bench struct {
	*Reconciler
	t      *testing.T
	api    client.Client
	clock  *clocktesting.FakePassiveClock
	sent   *record.FakeRecorder
	writes []string
	// refuse is asked before each write, as it is in writes; an error is the API server's.
	refuse func(write string) error
}

// indexer hands indexes to the client in memory.
type indexer struct{ to *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, by client.IndexerFunc) error {
	i.to.WithIndex(o, field, by)
	return nil
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakePassiveClock(t0), sent: record.NewFakeRecorder(1000)}
	builder := fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.StatefulSet{}, &corev1.Pod{})
	require.NoError(t, owned.AddIndexes(t.Context(), indexer{builder}, &corev1.Pod{}, &v1beta1.ImagePullJob{}))
	b.api = builder.WithIndex(&corev1.Pod{}, orphanIndex, orphanOf).Build()
	c := b.counting()
	b.Reconciler = &Reconciler{
		client: c, live: c, clock: b.clock, events: b.sent, parallel: 1,
		objects: owned.Writer{Client: c, Tracker: expectation.NewTracker(b.clock, 0, nil)},
		updater: &podupdate.Updater{Client: c, Live: c, Clock: b.clock},
		gates:   plan.Gates{AutoDeletePVC: true, AutoResizePVC: true, StartOrdinal: true, PodIndexLabel: true, PreparingUpdateAsUpdate: true},
	}
	return b
}

// counting is the API with the list and the refusals of writes before it.
func (b *bench) counting() client.Client {
	watched, ok := b.api.(client.WithWatch)
	require.True(b.t, ok)
	write := func(verb string, o client.Object) error {
		kind := fmt.Sprintf("%T", o)
		w := fmt.Sprintf("%s %s %s", verb, kind[strings.LastIndexByte(kind, '.')+1:], o.GetName())
		if b.refuse != nil {
			if err := b.refuse(w); err != nil {
				return err
			}
		}
		b.writes = append(b.writes, w)
		return nil
	}
	return interceptor.NewClient(watched, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write("create", o); err != nil {
				return err
			}
			o.SetUID(types.UID("uid-of-" + o.GetName()))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := write("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := write("update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := write("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := write("update "+sub+" of", o); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := write("patch "+sub+" of", o); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// pass runs the reconciler once and returns what it wrote.
func (b *bench) pass(namespace, name string) ([]string, ctrl.Result, error) {
	b.t.Helper()
	b.writes = nil
	got, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	return b.writes, got, err
}

// settle is a pass that must not fail.
func (b *bench) settle(namespace, name string) ([]string, ctrl.Result) {
	b.t.Helper()
	writes, got, err := b.pass(namespace, name)
	require.NoError(b.t, err)
	return writes, got
}

// events are those sent since the last call.
func (b *bench) events() (out []string) {
	for {
		select {
		case e := <-b.sent.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/history"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/revision"
)

// counted is a store over a fake API server that notes its writes.
type counted struct {
	history.Store
	writes []string
}

func newStore(t *testing.T, refuse error, stored ...*appsv1.ControllerRevision) *counted {
	t.Helper()
	c := &counted{}
	b := fake.NewClientBuilder().WithScheme(apitest.Scheme())
	for _, r := range stored {
		b = b.WithObjects(r.DeepCopy())
	}
	cl := b.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			c.writes = append(c.writes, "create "+o.GetName())
			if refuse != nil {
				return refuse
			}
			return w.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			c.writes = append(c.writes, "update "+o.GetName())
			return w.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			c.writes = append(c.writes, "delete "+o.GetName())
			return w.Delete(ctx, o, opts...)
		},
	}).Build()
	tracker := expectation.NewTracker(clocktesting.NewFakePassiveClock(fixture.Created), time.Minute, nil)
	c.Store = history.Store{Writer: owned.Writer{Client: cl, Tracker: tracker}, Live: cl}
	return c
}

// listed is what the server has, as a cache shows it.
func (c *counted) listed(t *testing.T) (out []*appsv1.ControllerRevision) {
	t.Helper()
	var list appsv1.ControllerRevisionList
	require.NoError(t, c.Client.List(t.Context(), &list))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func TestSync(t *testing.T) {
	one, two := fixture.CloneSet("web"), fixture.CloneSet("web").Image("app:2")
	r1, r2 := fixture.Revision(one, 1), fixture.Revision(two, 2)
	// Another template has the name that the second revision wants.
	taken := r1.DeepCopy()
	taken.Name = r2.Name
	cases := map[string]struct {
		set     fixture.CloneSetBuilder
		stored  []*appsv1.ControllerRevision
		writes  []string
		update  string
		current string
		count   *int32
	}{
		"the first is created": {one, nil, []string{"create " + r1.Name}, r1.Name, r1.Name, nil},
		"the last is used as it is": {two.Status(r1.Name, r2.Name), []*appsv1.ControllerRevision{r1, r2}, nil,
			r2.Name, r1.Name, new(int32(0))},
		"an earlier one gets a new number": {one.Status(r2.Name, r2.Name), []*appsv1.ControllerRevision{r1, r2}, []string{"update " + r1.Name},
			r1.Name, r2.Name, new(int32(0))},
		"a name that is taken leads to another": {two, []*appsv1.ControllerRevision{taken},
			[]string{"create " + r2.Name, "create " + revision.Name("web", revision.Hash(r2.Data.Raw, 1))},
			revision.Name("web", revision.Hash(r2.Data.Raw, 1)), revision.Name("web", revision.Hash(r2.Data.Raw, 1)), new(int32(1))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, nil, tc.stored...)
			got, err := s.Sync(t.Context(), revision.OfCloneSet(tc.set.Obj()), s.listed(t))
			require.NoError(t, err)
			assert.Equal(t, tc.writes, s.writes)
			assert.Equal(t, tc.update, got.Update.Name)
			assert.Equal(t, tc.current, got.Current.Name)
			assert.Equal(t, tc.count, got.CollisionCount)
			assert.NotEmpty(t, got.Update.ResourceVersion, "it is stored")
			assert.True(t, slices.Contains(got.Revisions, got.Update))
			// What was written is found, so nothing is written again.
			s.writes = nil
			again, err := s.Sync(t.Context(), revision.OfCloneSet(tc.set.Obj()), s.listed(t))
			require.NoError(t, err)
			assert.Empty(t, s.writes)
			assert.Equal(t, got.Update.Name, again.Update.Name)
		})
	}
}

func TestSyncFindsWhatTheCacheDoesNotShowYet(t *testing.T) {
	set := fixture.CloneSet("web")
	s := newStore(t, nil, fixture.Revision(set, 1))
	got, err := s.Sync(t.Context(), revision.OfCloneSet(set.Obj()), nil)
	require.NoError(t, err)
	assert.Equal(t, fixture.Revision(set, 1).Name, got.Update.Name)
	assert.Nil(t, got.CollisionCount)
}

func TestSyncTellsWhatWentWrong(t *testing.T) {
	s := newStore(t, apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "x", errors.New("quota")))
	_, err := s.Sync(t.Context(), revision.OfCloneSet(fixture.CloneSet("web").Obj()), nil)
	assert.ErrorContains(t, err, "storing ControllerRevision web-")
	s = newStore(t, apierrors.NewAlreadyExists(appsv1.Resource("controllerrevisions"), "x"))
	_, err = s.Sync(t.Context(), revision.OfCloneSet(fixture.CloneSet("web").Obj()), nil)
	assert.True(t, apierrors.IsNotFound(err), "a name that is taken by nobody: %v", err)
}

func TestTruncate(t *testing.T) {
	var stored []*appsv1.ControllerRevision
	for i, image := range []string{"app:1", "app:2", "app:3", "app:4"} {
		stored = append(stored, fixture.Revision(fixture.CloneSet("web").Image(image), int64(i+1)))
	}
	stored[1].OwnerReferences = nil
	s := newStore(t, nil, stored...)
	live := map[string]bool{revision.ShortHash(stored[3].Name): true}
	require.NoError(t, s.Truncate(t.Context(), s.listed(t), live, 0))
	assert.Equal(t, []string{"delete " + stored[0].Name, "delete " + stored[2].Name}, s.writes, "an orphan is not ours")
	s.writes = nil
	require.NoError(t, s.Truncate(t.Context(), s.listed(t), live, 1))
	assert.Empty(t, s.writes)
}

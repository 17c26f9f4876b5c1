// SPDX-License-Identifier: Apache-2.0

package predownload_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/expectation"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/inplace"
	"github.com/kruisectl/kruisectl/internal/owned"
	"github.com/kruisectl/kruisectl/internal/predownload"
)

// applied is an Applier over a fake API server, and the events it sent.
type applied struct {
	predownload.Applier
	events []string
}

func newApplied(refuse *error, objects ...client.Object) *applied {
	cl := fake.NewClientBuilder().WithScheme(apitest.Scheme()).WithObjects(objects...).
		WithIndex(&v1beta1.ImagePullJob{}, owned.Index, func(o client.Object) []string {
			var uids []string
			for _, ref := range o.GetOwnerReferences() {
				uids = append(uids, string(ref.UID))
			}
			return uids
		}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuse != nil && *refuse != nil {
				return *refuse
			}
			return w.Create(ctx, o, opts...)
		}}).Build()
	a := &applied{}
	a.Writer = owned.Writer{Client: cl, Tracker: expectation.NewTracker(clocktesting.NewFakePassiveClock(fixture.Created), time.Minute, nil)}
	a.Event = func(kind, reason, format string, args ...any) {
		a.events = append(a.events, kind+" "+reason+": "+fmt.Sprintf(format, args...))
	}
	return a
}

func (a *applied) jobs(t *testing.T) (names []string) {
	t.Helper()
	var list v1beta1.ImagePullJobList
	require.NoError(t, a.Client.List(t.Context(), &list))
	for _, j := range list.Items {
		names = append(names, j.Name)
	}
	return names
}

func TestApply(t *testing.T) {
	set := base().Image("app:2")
	current, update := fixture.Revision(base(), 1), fixture.Revision(set, 2)
	w := predownload.OfCloneSet(set.Obj(), current, update)
	refused := errors.New("the webhook is away")
	a := newApplied(&refused, update.DeepCopy())
	stored := &appsv1.ControllerRevision{}
	require.NoError(t, a.Client.Get(t.Context(), client.ObjectKeyFromObject(update), stored))
	create := predownload.Decide(w, []*appsv1.ControllerRevision{current}, stored, inplace.Options{})

	got, err := a.Apply(t.Context(), w, create, stored)
	require.ErrorIs(t, err, refused)
	assert.Same(t, stored, got, "without the label the next pass tries again")
	assert.Equal(t, []string{"Warning FailedCreateImagePullJob: failed to create ImagePullJob " + update.Name + "-app: the webhook is away"}, a.events)

	refused, a.events = nil, nil
	got, err = a.Apply(t.Context(), w, create, stored)
	require.NoError(t, err)
	assert.Equal(t, []string{update.Name + "-app"}, a.jobs(t))
	assert.Equal(t, []string{"Normal CreatedImagePullJob: created ImagePullJob " + update.Name + "-app for image: app:2"}, a.events)
	assert.Equal(t, "true", got.Labels["apps.kruise.io/pre-predownload-created"])
	assert.Empty(t, stored.Labels["apps.kruise.io/pre-predownload-created"], "what was read is only read")

	// The label was lost, and the jobs are there: fine.
	a.events = nil
	_, err = a.Apply(t.Context(), w, predownload.Decide(w, []*appsv1.ControllerRevision{current}, update, inplace.Options{}), got)
	require.NoError(t, err)
	assert.Empty(t, a.events)

	// The rollout is over: the workload's jobs go, those of others stay.
	other := predownload.Decide(w, []*appsv1.ControllerRevision{current}, update, inplace.Options{}).Jobs[0]
	other.Name, other.OwnerReferences[0].UID = "another", "uid-other"
	require.NoError(t, a.Client.Create(t.Context(), other))
	got, err = a.Apply(t.Context(), w, predownload.Decision{Verdict: predownload.CleanUp}, got)
	require.NoError(t, err)
	assert.Equal(t, []string{"another"}, a.jobs(t))

	got, err = a.Apply(t.Context(), w, predownload.Decision{Verdict: predownload.Ignore}, got)
	require.NoError(t, err)
	assert.Equal(t, "true", got.Labels["apps.kruise.io/image-predownload-ignored"])
	same, err := a.Apply(t.Context(), w, predownload.Decision{Verdict: predownload.Nothing}, got)
	require.NoError(t, err)
	assert.Same(t, got, same)
}

// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// sink keeps the events that pass the filter.
type sink struct {
	mu   sync.Mutex
	last map[string]int // by reason: how often something was written
}

func (s *sink) note(e *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[e.Reason]++
	return e, nil
}

func (s *sink) Create(e *corev1.Event) (*corev1.Event, error)          { return s.note(e) }
func (s *sink) Update(e *corev1.Event) (*corev1.Event, error)          { return s.note(e) }
func (s *sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return s.note(e) }

func (s *sink) written(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[reason]
}

func TestOneReasonDoesNotSilenceAnother(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := &sink{last: map[string]int{}}
	r := newRecorder(apitest.Scheme(), "test", s)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, r.Start(ctx)) })
	web := fixture.CloneSet("web").Obj()
	for i := range 100 {
		Send(r, web, Normal, Created, "succeed to create pod web-%d", i)
	}
	Send(r, web, Warning, InPlaceFailed, "failed to update pod web-1 in-place(revision web-2): no")
	require.Eventually(t, func() bool { return s.written(InPlaceFailed) == 1 }, 2*time.Minute, 10*time.Millisecond)
	assert.LessOrEqual(t, s.written(Created), 25, "one reason is limited")
	end()
	wg.Wait()
	Send(r, web, Normal, Deleted, "after the end it is dropped")
	assert.Zero(t, s.written(Deleted))
}

func TestARecorderThatNeverStartsLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	newRecorder(apitest.Scheme(), "test", &sink{})
}

func TestSendCutsLongMessages(t *testing.T) {
	fake := record.NewFakeRecorder(1)
	Send(fake, fixture.CloneSet("web").Obj(), Warning, CreateFailed, "%s", strings.Repeat("é", 2000))
	message := strings.TrimPrefix(<-fake.Events, fmt.Sprintf("%s %s ", Warning, CreateFailed))
	assert.Less(t, len(message), 1024)
	assert.True(t, strings.HasSuffix(message, "é…"))
}

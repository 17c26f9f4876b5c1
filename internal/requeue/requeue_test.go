// SPDX-License-Identifier: Apache-2.0

package requeue_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kruisectl/kruisectl/internal/requeue"
)

func TestSoonest(t *testing.T) {
	assert.Zero(t, requeue.Soonest())
	assert.Zero(t, requeue.Soonest(0, 0))
	assert.Equal(t, time.Second, requeue.Soonest(0, time.Minute, time.Second))
	assert.Equal(t, time.Second, requeue.Soonest(-time.Hour, time.Second))
}

func TestWishesKeepTheSoonest(t *testing.T) {
	var w requeue.Wishes
	assert.Zero(t, w.First())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { w.Add(time.Duration(i) * time.Second) })
	}
	wg.Wait()
	assert.Equal(t, time.Second, w.First())
}

// SPDX-License-Identifier: Apache-2.0

// Package podmark writes on Pods what results of probes make of them. The two controllers of
// PodProbeMarkers share it; what is to be written is decided in internal/podprobe.
package podmark

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

// Writer writes marks. All fields are needed.
type Writer struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Marked learns of every write.
	Marked *freshness.Writes
	// Limit is how many Pods are written to at once.
	Limit int
	// ThroughStatus sends labels and annotations without a condition to pods/status as well,
	// where those with one always go: so all marks of a Pod come in the same order.
	ThroughStatus bool
}

// Each writes to the Pods whose marks are not empty. One Pod's failure does not stop the others.
func (w Writer) Each(ctx context.Context, markings []podprobe.Marking) error {
	errs := make([]error, len(markings))
	var group errgroup.Group
	group.SetLimit(w.Limit)
	for i, m := range markings {
		if m.Marks.Empty() {
			continue
		}
		group.Go(func() error {
			errs[i] = w.write(ctx, m)
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	return errors.Join(errs...)
}

// write changes everything on a Pod in one request, so that nobody sees a label without the
// condition that goes with it. A Pod that is gone, or another one of its name, needs nothing.
func (w Writer) write(ctx context.Context, m podprobe.Marking) error {
	raw, err := m.Marks.Patch(m.Pod)
	if err != nil {
		return err
	}
	target := &corev1.Pod{}
	target.Namespace, target.Name = m.Pod.Namespace, m.Pod.Name
	patch := client.RawPatch(types.StrategicMergePatchType, raw)
	if w.ThroughStatus || len(m.Marks.Conditions)+len(m.Marks.DropConditions) > 0 {
		err = w.Client.Status().Patch(ctx, target, patch)
	} else {
		err = w.Client.Patch(ctx, target, patch)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patching Pod %s: %w", client.ObjectKeyFromObject(m.Pod), err)
	}
	w.Marked.Wrote(target, w.Clock.Now())
	return nil
}

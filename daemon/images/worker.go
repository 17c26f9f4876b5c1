// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
)

// Event reasons on the NodeImage; a failure also on the jobs that own the task.
const (
	EventPullSucceeded = "PullImageSucceed"
	EventPullFailed    = "PullImageFailed"
)

// pulledBy is the sandbox annotation that tells registry plugins who pulls.
const pulledBy = "apps.kruise.io/pulling-image-by"

const (
	firstBackoff, maxBackoff = time.Second, 30 * time.Second
	// listAge is how old a list of images may be for one look at it: on a node with
	// thousands of images, listing is expensive, and tasks come in groups.
	listAge = time.Second
)

var errDeadline = errors.New("pulling exceeds the activeDeadlineSeconds")

// worker pulls one image. Its status belongs to Puller.mu, all else to its goroutine.
type worker struct {
	puller *Puller
	task   Task
	node   corev1.ObjectReference // the NodeImage, for events
	cancel context.CancelFunc
	status v1beta1.ImageTagStatus
}

func newWorker(p *Puller, ni *v1beta1.NodeImage, task Task, cancel context.CancelFunc) *worker {
	return &worker{
		puller: p, task: task, cancel: cancel,
		node: corev1.ObjectReference{
			APIVersion: v1beta1.GroupVersion.String(), Kind: "NodeImage", Name: ni.Name, UID: ni.UID, ResourceVersion: ni.ResourceVersion,
		},
		status: v1beta1.ImageTagStatus{Tag: task.Ref.Tag, Version: task.Version, Phase: v1beta1.ImagePhaseWaiting},
	}
}

// run takes the task from waiting to its end, or returns without a word when ctx ends.
func (w *worker) run(ctx context.Context) {
	if slots := w.puller.slots; slots != nil {
		if err := slots.Acquire(ctx, 1); err != nil {
			return
		}
		defer slots.Release(1)
	}
	status := w.status
	started := time.Now()
	status.Phase, status.StartTime = v1beta1.ImagePhasePulling, seconds(started)
	if !w.puller.publish(w, status) {
		return
	}
	err := w.attempts(ctx, started)
	if ctx.Err() != nil {
		return
	}
	status.CompletionTime = seconds(time.Now())
	if err != nil {
		status.Phase, status.Message = v1beta1.ImagePhaseFailed, err.Error()
	} else {
		status.Phase, status.Progress, status.ImageID = v1beta1.ImagePhaseSucceeded, 100, w.imageID(ctx)
	}
	if w.puller.publish(w, status) {
		w.report(ctx, err, time.Since(started))
	}
}

// seconds is t as the API stores it; anything finer would look like a change for ever.
func seconds(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// attempts tries until one succeeds, the retries are used up or the deadline has passed,
// and returns the last error.
func (w *worker) attempts(ctx context.Context, started time.Time) error {
	var last error
	backoff := firstBackoff
	for try := range w.task.Retries + 1 {
		if try > 0 {
			klog.FromContext(ctx).Info("Pulling again", "image", w.task.Ref.String(), "in", backoff, "reason", last.Error())
			if !pause(ctx, w.untilDeadline(started, backoff)) {
				return ctx.Err()
			}
			backoff = min(2*backoff, maxBackoff)
			w.puller.o.Credentials.Refresh(w.task.Secrets)
		}
		timeout := w.untilDeadline(started, w.task.Timeout)
		if timeout <= 0 {
			return errors.Join(errDeadline, last)
		}
		if last = w.attempt(ctx, timeout); last == nil || ctx.Err() != nil {
			return last
		}
	}
	return last
}

// untilDeadline cuts d to what the deadline leaves.
func (w *worker) untilDeadline(started time.Time, d time.Duration) time.Duration {
	if w.task.Deadline == 0 {
		return d
	}
	return min(d, w.task.Deadline-time.Since(started))
}

func (w *worker) attempt(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.pull(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("pulling %s is canceled: no result within %s", w.task.Ref, timeout)
	}
	return err
}

// pull gets the image with the first login that works. Registries answer a wrong login and
// a missing image alike, so all logins are tried, and no anonymous pull after them.
func (w *worker) pull(ctx context.Context) error {
	if w.task.SkipPresent {
		image, err := w.puller.list.find(ctx, w.task, listAge)
		if err != nil || image != nil {
			return err
		}
	}
	request := cri.Pull{
		Reference:          w.task.Ref.String(),
		SandboxLabels:      w.task.Labels,
		SandboxAnnotations: maps.Clone(w.task.Annotations),
	}
	if request.SandboxAnnotations == nil {
		request.SandboxAnnotations = map[string]string{}
	}
	request.SandboxAnnotations[pulledBy] = "kruise-daemon"
	logins := w.puller.o.Credentials.Lookup(ctx, w.task.Ref.Repository(), w.task.Secrets)
	if len(logins) == 0 {
		_, err := w.puller.o.Runtime.PullImage(ctx, request)
		return err
	}
	var errs []error
	for _, login := range logins {
		request.Auth = &login
		_, err := w.puller.o.Runtime.PullImage(ctx, request)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// imageID is name@id, or empty when the runtime does not list the image.
func (w *worker) imageID(ctx context.Context) string {
	image, err := w.puller.list.find(ctx, w.task, 0)
	if err != nil || image == nil {
		return ""
	}
	return w.task.Ref.Name + "@" + image.ID
}

func (w *worker) report(ctx context.Context, err error, took time.Duration) {
	events, metrics := w.puller.o.Events, w.puller.o.Metrics
	metrics.pulled(err, took)
	if err == nil {
		klog.FromContext(ctx).Info("Pulled an image", "image", w.task.Ref.String(), "took", took)
		events.Eventf(&w.node, corev1.EventTypeNormal, EventPullSucceeded, "Image %s pulled in %s", w.task.Ref, took.Round(time.Millisecond))
		return
	}
	klog.FromContext(ctx).Info("Gave up an image", "image", w.task.Ref.String(), "took", took, "reason", err.Error())
	for _, owner := range w.task.Owners {
		events.Eventf(&owner, corev1.EventTypeWarning, EventPullFailed, "Image %s on node %s: %v", w.task.Ref, w.node.Name, err)
	}
	events.Eventf(&w.node, corev1.EventTypeWarning, EventPullFailed, "Image %s: %v", w.task.Ref, err)
}

// imageList shares one list of the node's images between workers.
type imageList struct {
	runtime cri.Runtime

	mu     sync.Mutex
	images []cri.Image
	at     time.Time
}

// find returns the image of a task, or nil, from a list that is at most maxAge old.
func (l *imageList) find(ctx context.Context, task Task, maxAge time.Duration) (*cri.Image, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= maxAge {
		images, err := l.runtime.Images(ctx)
		if err != nil {
			return nil, err
		}
		l.images, l.at = images, time.Now()
	}
	for i := range l.images {
		if task.Ref.In(l.images[i].RepoTags, l.images[i].RepoDigests) {
			return &l.images[i], nil
		}
	}
	return nil, nil
}

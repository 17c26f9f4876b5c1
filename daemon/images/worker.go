// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/imageref"
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
	// awayPoll is between two looks whether the runtime is back.
	awayPoll = 2 * time.Second
	// maxLost is how many attempts a runtime may lose by restarting before they count: an
	// image that brings the runtime down must not do so for ever.
	maxLost = 5
	// quietly is the wait before a retry, and the length of an attempt, below which a
	// failure is not worth a write of its own.
	quietly = 4 * time.Second
)

// worker pulls one image. Its task and status belong to Puller.mu, all else to its goroutine.
type worker struct {
	puller *Puller
	ref    imageref.Ref
	node   corev1.ObjectReference // the NodeImage, for events
	cancel context.CancelFunc
	turn   *turn

	task   Task
	status v1beta1.ImageTagStatus
}

func newWorker(p *Puller, ni *v1beta1.NodeImage, task Task, cancel context.CancelFunc) *worker {
	return &worker{
		puller: p, ref: task.Ref, task: task, cancel: cancel, turn: p.slots.join(registryOf(task.Ref)),
		node: corev1.ObjectReference{
			APIVersion: v1beta1.GroupVersion.String(), Kind: "NodeImage", Name: ni.Name, UID: ni.UID, ResourceVersion: ni.ResourceVersion,
		},
		status: v1beta1.ImageTagStatus{Tag: task.Ref.Tag, Version: task.Version, Phase: v1beta1.ImagePhaseWaiting},
	}
}

func registryOf(ref imageref.Ref) string {
	registry, _, _ := strings.Cut(ref.Repository(), "/")
	return registry
}

// now is the task as the NodeImage asks for it now: policies, logins and owners may change
// while the worker runs.
func (w *worker) now() Task {
	w.puller.mu.Lock()
	defer w.puller.mu.Unlock()
	return w.task
}

// safely runs the worker. A panic over an odd answer must not take the whole agent along.
func (w *worker) safely(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "A pull panicked", "image", w.ref.String(), "panic", p, "stack", string(debug.Stack()))
			status := v1beta1.ImageTagStatus{
				Tag: w.ref.Tag, Version: w.now().Version, Phase: v1beta1.ImagePhaseFailed,
				StartTime: seconds(time.Now()), CompletionTime: seconds(time.Now()), Message: oneLine(fmt.Sprint("internal error of the node agent: ", p)),
			}
			w.puller.publish(w, status)
		}
	}()
	w.run(ctx)
}

// run takes the task from waiting to its end, or returns without a word when ctx ends.
func (w *worker) run(ctx context.Context) {
	defer func() { w.turn.leave() }()
	if !w.turn.wait(ctx) {
		return
	}
	w.puller.o.Metrics.started()
	defer w.puller.o.Metrics.ended()
	started := time.Now()
	status := w.status
	status.Phase, status.StartTime = v1beta1.ImagePhasePulling, seconds(started)
	if !w.puller.publish(w, status) {
		return
	}
	err := w.attempts(ctx, started, status)
	if ctx.Err() != nil {
		return
	}
	status.CompletionTime = seconds(time.Now())
	if err != nil {
		status.Phase, status.Message = v1beta1.ImagePhaseFailed, w.why(err)
	} else {
		status.Phase, status.Progress, status.ImageID = v1beta1.ImagePhaseSucceeded, 100, w.imageID(ctx)
	}
	if w.puller.publish(w, status) {
		w.report(ctx, err, status.Message, time.Since(started))
	}
}

// why is the sentence for the status.
func (w *worker) why(err error) string {
	text := explain(w.ref, err)
	if causeOf(err) == CauseUnauthorized {
		if problems := w.puller.o.Credentials.Problems(w.now().Secrets); problems != "" {
			text += "; " + problems
		}
	}
	return text
}

// seconds is t as the API stores it; anything finer would look like a change for ever.
func seconds(t time.Time) *metav1.Time { return &metav1.Time{Time: t.Truncate(time.Second)} }

// attempts tries until one succeeds, the retries are used up or the deadline has passed,
// and returns the last error. An attempt that fails because the runtime is away does not
// count. The slot is given back between attempts.
func (w *worker) attempts(ctx context.Context, started time.Time, status v1beta1.ImageTagStatus) error {
	backoff, lost := firstBackoff, 0
	var last error
	for tried := 0; ; {
		began := time.Now()
		err := w.attempt(ctx, started)
		w.turn.leave()
		if errors.Is(err, errDeadline) && last != nil {
			return fmt.Errorf("%w; the last attempt: %w", err, last)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, errDeadline) {
			return err
		}
		last = err
		if errors.Is(last, cri.ErrUnavailable) && lost < maxLost {
			lost++
			status.Message = "waiting for the container runtime: " + oneLine(last.Error())
			w.puller.publish(w, status)
			if err := w.untilBack(ctx, started); err != nil {
				return err
			}
		} else {
			if tried++; tried > w.now().Retries {
				return last
			}
			if backoff >= quietly || time.Since(began) >= quietly {
				status.Message = fmt.Sprintf("attempt %d of %d failed, the next one in %s: %s", tried, w.now().Retries+1, backoff, w.why(last))
				w.puller.publish(w, status)
			}
			klog.FromContext(ctx).Info("Pulling again", "image", w.ref.String(), "in", backoff, "reason", last.Error())
			if !pause(ctx, w.untilDeadline(started, backoff)) {
				return ctx.Err()
			}
			backoff = min(2*backoff, maxBackoff)
			w.puller.o.Credentials.Refresh(w.now().Secrets)
		}
		w.turn = w.puller.slots.join(registryOf(w.ref))
		if !w.turn.wait(ctx) {
			return ctx.Err()
		}
	}
}

// untilBack waits until the runtime answers, whatever it says.
func (w *worker) untilBack(ctx context.Context, started time.Time) error {
	for {
		if !pause(ctx, w.untilDeadline(started, awayPoll)) {
			return ctx.Err()
		}
		if w.untilDeadline(started, awayPoll) <= 0 {
			return errDeadline
		}
		if _, err := w.puller.list.find(ctx, w.ref, time.Now()); !errors.Is(err, cri.ErrUnavailable) {
			return nil
		}
	}
}

// untilDeadline cuts d to what the deadline leaves.
func (w *worker) untilDeadline(started time.Time, d time.Duration) time.Duration {
	deadline := w.now().Deadline
	if deadline == 0 {
		return d
	}
	return min(d, deadline-time.Since(started))
}

// attempt pulls once, for as long as its timeout and the deadline allow.
func (w *worker) attempt(ctx context.Context, started time.Time) error {
	timeout := w.untilDeadline(started, w.now().Timeout)
	if timeout <= 0 {
		return errDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.pull(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &timeoutError{fmt.Sprintf("pulling %s is canceled: no result within %s", w.ref, timeout)}
	}
	return err
}

// timeoutError is an errTimeout in the words of a status.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (e *timeoutError) Unwrap() error { return errTimeout }

// pull gets the image with the first login that works. Registries answer a wrong login and
// a missing image alike, so all logins are tried, and no anonymous pull after them.
func (w *worker) pull(ctx context.Context) error {
	task := w.now()
	if task.SkipPresent {
		image, err := w.puller.list.find(ctx, w.ref, time.Now().Add(-listAge))
		if err != nil || image != nil {
			return err
		}
	}
	request := cri.Pull{
		Reference:          w.ref.String(),
		SandboxLabels:      maps.Clone(task.Labels),
		SandboxAnnotations: maps.Clone(task.Annotations),
	}
	if request.SandboxAnnotations == nil {
		request.SandboxAnnotations = map[string]string{}
	}
	request.SandboxAnnotations[pulledBy] = "kruise-daemon"
	var errs []error
	for login := range w.puller.o.Credentials.Lookup(ctx, w.ref.Repository(), task.Secrets) {
		request.Auth = &login
		_, err := w.puller.o.Runtime().PullImage(ctx, request)
		if err == nil {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil || errors.Is(err, cri.ErrUnavailable) {
			break
		}
	}
	switch len(errs) {
	case 0:
		_, err := w.puller.o.Runtime().PullImage(ctx, request)
		return err
	case 1:
		return errs[0]
	}
	// The last login is the least specific one; what the registry says of it is what counts.
	return fmt.Errorf("none of %d logins works, the last: %w", len(errs), errs[len(errs)-1])
}

// imageID is name@id, or empty when the runtime does not list the image.
func (w *worker) imageID(ctx context.Context) string {
	image, err := w.puller.list.find(ctx, w.ref, time.Now())
	if err != nil || image == nil {
		return ""
	}
	return w.ref.Name + "@" + image.ID
}

func (w *worker) report(ctx context.Context, err error, message string, took time.Duration) {
	events, metrics := w.puller.o.Events, w.puller.o.Metrics
	metrics.pulled(err, took)
	if err == nil {
		klog.FromContext(ctx).Info("Pulled an image", "image", w.ref.String(), "took", took)
		events.Eventf(&w.node, corev1.EventTypeNormal, EventPullSucceeded, "Image %s pulled in %s", w.ref, took.Round(time.Millisecond))
		return
	}
	klog.FromContext(ctx).Info("Gave up an image", "image", w.ref.String(), "took", took, "reason", err.Error())
	for _, owner := range w.now().Owners {
		events.Eventf(&owner, corev1.EventTypeWarning, EventPullFailed, "Image %s on node %s: %s", w.ref, w.node.Name, message)
	}
	events.Eventf(&w.node, corev1.EventTypeWarning, EventPullFailed, "Image %s: %s", w.ref, message)
}

// imageList shares one list of the node's images between workers.
type imageList struct {
	runtime func() cri.Runtime

	mu     sync.Mutex
	images []cri.Image
	asked  time.Time // when the runtime was asked for images
}

// find returns an image, or nil, from a list that was made after notBefore.
func (l *imageList) find(ctx context.Context, ref imageref.Ref, notBefore time.Time) (*cri.Image, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() || !l.asked.After(notBefore) {
		asked := time.Now()
		images, err := l.runtime().Images(ctx)
		if err != nil {
			return nil, err
		}
		l.images, l.asked = images, asked
	}
	for i := range l.images {
		if ref.In(l.images[i].RepoTags, l.images[i].RepoDigests) {
			return &l.images[i], nil
		}
	}
	return nil, nil
}

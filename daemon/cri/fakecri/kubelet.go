// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

// Kubelet does, for the Pods of one node in a real API server, what the kubelet does that
// matters to the node agent (daemon.md 3): it starts the containers of Pods in a Runtime,
// restarts the ones that exit, replaces the ones whose image changed, and mirrors their
// state into the Pods' status. It pulls no images and counts no restart backoff.
type Kubelet struct {
	Client  client.Client
	Runtime *Runtime
	// Node is the value of spec.nodeName of its Pods.
	Node string
	// PodIP is the address of every Pod; empty is 127.0.0.1, so that tests can serve it.
	PodIP string
	// Behave says how a container of a Pod behaves; nil is the zero Behaviour. It is called
	// by the kubelet's goroutine when a container starts and when its state is mirrored.
	Behave func(pod *corev1.Pod, container string) Behaviour

	mu     sync.Mutex
	paused bool
	count  int
}

// Behaviour is how a container behaves; the zero value starts, is ready and stops at once.
type Behaviour struct {
	// RestartDelay is between its exit and its restart.
	RestartDelay time.Duration
	// PostStart is how long its postStart hook runs. Like the real kubelet, this one does
	// nothing else for the Pod meanwhile, and does not update its status.
	PostStart time.Duration
	// ReadyDelay is between its start (hook included) and its readiness; negative is never.
	ReadyDelay time.Duration
	// Waiting, when not empty, is why it cannot be started, for example ImagePullBackOff.
	Waiting string
	// HideEnv keeps the runtime from telling the environment.
	HideEnv bool
	// StopDelay, Exec and ExecCalls are those of the Container that is started. With a nil
	// Exec, "env" and "env -0" answer.
	StopDelay time.Duration
	Exec      map[string]ExecScript
	ExecCalls map[string][]ExecScript
}

// kubeletTick is how often the kubelet looks. A real one reacts within about a second.
const kubeletTick = 50 * time.Millisecond

// Start runs the kubelet until the test ends.
func (k *Kubelet) Start(t testing.TB) *Kubelet {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(kubeletTick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			// The API server may be away; the next tick tries again.
			_ = k.Sync(ctx)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return k
}

// SetPaused stops the kubelet from doing anything, as on a node that is cut off, or ends that.
func (k *Kubelet) SetPaused(paused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused = paused
}

// Sync does what is due now, once, for every Pod of the node. Tests with their own steps
// call it in place of Start.
func (k *Kubelet) Sync(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.paused {
		return nil
	}
	var pods corev1.PodList
	if err := k.Client.List(ctx, &pods, client.MatchingFields{"spec.nodeName": k.Node}); err != nil {
		return fmt.Errorf("listing the Pods of node %s: %w", k.Node, err)
	}
	var errs []error
	for i := range pods.Items {
		if err := k.sync(ctx, &pods.Items[i]); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// uidOf is the UID on the labels of containers: of a static Pod that of its source.
func uidOf(pod *corev1.Pod) string {
	if hash := pod.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(pod.UID)
}

func (k *Kubelet) sync(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return k.remove(ctx, pod)
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	uid := uidOf(pod)
	if _, err := k.sandbox(uid); err != nil {
		k.Runtime.AddSandbox(uid, cri.Sandbox{ID: "sandbox-" + uid, IPs: []string{k.podIP()}, Created: time.Now()})
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !k.container(pod, c, restartsAlways(c)) {
			return nil
		}
		if newest := k.newest(uid, c.Name); newest != nil && !restartsAlways(c) {
			k.Runtime.Exit(newest.ID, 0)
		}
	}
	for i := range pod.Spec.Containers {
		if !k.container(pod, &pod.Spec.Containers[i], pod.Spec.RestartPolicy == corev1.RestartPolicyAlways) {
			return nil
		}
	}
	return k.mirror(ctx, pod)
}

func restartsAlways(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func (k *Kubelet) podIP() string {
	if k.PodIP == "" {
		return "127.0.0.1"
	}
	return k.PodIP
}

func (k *Kubelet) sandbox(uid string) (cri.Sandbox, error) {
	k.Runtime.mu.Lock()
	defer k.Runtime.mu.Unlock()
	if s, ok := k.Runtime.sandboxes[uid]; ok {
		return s, nil
	}
	return cri.Sandbox{}, cri.ErrNoSandbox
}

func (k *Kubelet) behaviour(pod *corev1.Pod, container string) Behaviour {
	if k.Behave == nil {
		return Behaviour{}
	}
	return k.Behave(pod, container)
}

func (k *Kubelet) newest(uid, name string) *Container {
	for _, c := range k.Runtime.OfPod(uid) {
		if c.Name == name {
			return &c
		}
	}
	return nil
}

// container starts, restarts or replaces one container if that is due. It returns false
// while the container's postStart hook holds up its Pod.
func (k *Kubelet) container(pod *corev1.Pod, spec *corev1.Container, restart bool) bool {
	uid := uidOf(pod)
	behave := k.behaviour(pod, spec.Name)
	c := k.newest(uid, spec.Name)
	switch {
	case c == nil:
		if behave.Waiting == "" {
			k.start(pod, spec, behave, 0)
		}
	case c.State == cri.StateRunning && c.Annotations[cri.AnnotationHash] != hashOf(spec):
		k.Runtime.Exit(c.ID, 0)
		k.start(pod, spec, behave, c.Attempt+1)
	case c.State == cri.StateExited && (restart || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && c.ExitCode != 0):
		if behave.Waiting == "" && time.Since(c.Finished) >= behave.RestartDelay {
			k.start(pod, spec, behave, c.Attempt+1)
		}
	}
	c = k.newest(uid, spec.Name)
	return c == nil || c.State != cri.StateRunning || time.Since(c.Started) >= behave.PostStart
}

// hashOf is the kubelet's hash of a container, as it stands in the annotation.
func hashOf(spec *corev1.Container) string { return strconv.FormatUint(runtimehash.Plain(spec), 16) }

// start creates a running container and forgets all but its predecessor.
func (k *Kubelet) start(pod *corev1.Pod, spec *corev1.Container, behave Behaviour, attempt uint32) {
	uid := uidOf(pod)
	older := 0
	for _, c := range k.Runtime.OfPod(uid) {
		if c.Name == spec.Name {
			if older++; older > 1 {
				k.Runtime.RemoveContainer(c.ID)
			}
		}
	}
	k.count++
	now := time.Now()
	env := environmentOf(pod, spec)
	c := Container{
		Status: cri.Status{
			Container: cri.Container{
				ID: fmt.Sprintf("%s-%s-%d-%d", pod.Name, spec.Name, attempt, k.count), Name: spec.Name, Attempt: attempt,
				State: cri.StateRunning, Created: now,
				Labels: map[string]string{
					cri.LabelPodName: pod.Name, cri.LabelPodNamespace: pod.Namespace, cri.LabelPodUID: uid, cri.LabelContainerName: spec.Name,
				},
				Annotations: annotationsOf(pod, spec, attempt),
			},
			Started: now, Image: spec.Image, ImageRef: imageID(spec.Image), Env: env,
		},
		Exec: behave.Exec, ExecCalls: behave.ExecCalls, StopDelay: behave.StopDelay,
	}
	if behave.HideEnv {
		c.Env = nil
	}
	if c.Exec == nil {
		c.Exec = map[string]ExecScript{"env": {Stdout: printEnv(env, "\n")}, "env -0": {Stdout: printEnv(env, "\x00")}}
	}
	k.Runtime.AddContainer(c)
}

func imageID(image string) string { return "sha256:id-of-" + image }

func printEnv(env map[string]string, end string) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(env)) {
		text += name + "=" + env[name] + end
	}
	return text
}

// environmentOf resolves plain values and labels and annotations of the Pod.
func environmentOf(pod *corev1.Pod, spec *corev1.Container) map[string]string {
	env := map[string]string{"PATH": "/bin"}
	for _, e := range spec.Env {
		if e.ValueFrom == nil {
			env[e.Name] = e.Value
		}
	}
	for _, e := range runtimehash.MetadataEnvs(spec) {
		values := pod.Labels
		if e.Kind == runtimehash.Annotations {
			values = pod.Annotations
		}
		env[e.Name] = values[e.Key]
	}
	return env
}

func annotationsOf(pod *corev1.Pod, spec *corev1.Container, attempt uint32) map[string]string {
	annotations := map[string]string{
		cri.AnnotationHash:                                 hashOf(spec),
		cri.AnnotationRestartCount:                         strconv.Itoa(int(attempt)),
		"io.kubernetes.container.terminationMessagePath":   spec.TerminationMessagePath,
		"io.kubernetes.container.terminationMessagePolicy": string(spec.TerminationMessagePolicy),
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		annotations[cri.AnnotationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
		annotations[cri.AnnotationPreStop] = text(spec.Lifecycle.PreStop)
	}
	if len(spec.Ports) > 0 {
		annotations[cri.AnnotationPorts] = text(spec.Ports)
	}
	return annotations
}

func text(v any) string {
	data, _ := json.Marshal(v) // of an API type: cannot fail
	return string(data)
}

// remove ends a Pod that is being deleted.
func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	for _, c := range k.Runtime.OfPod(uidOf(pod)) {
		k.Runtime.RemoveContainer(c.ID)
	}
	k.Runtime.mu.Lock()
	delete(k.Runtime.sandboxes, uidOf(pod))
	k.Runtime.mu.Unlock()
	return k.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
}

// mirror writes the status of a Pod if it changed.
func (k *Kubelet) mirror(ctx context.Context, pod *corev1.Pod) error {
	after := pod.DeepCopy()
	k.status(after)
	if equality.Semantic.DeepEqual(pod.Status, after.Status) {
		return nil
	}
	if err := k.Client.Status().Patch(ctx, after, client.StrategicMergeFrom(pod)); err != nil {
		return fmt.Errorf("patching the status of Pod %s: %w", client.ObjectKeyFromObject(pod), err)
	}
	return nil
}

// second is now as the API server stores it.
func second() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

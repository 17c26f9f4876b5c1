// SPDX-License-Identifier: Apache-2.0

// Package hollow plays nodes and their kubelets without running a container: it registers Node objects, keeps their
// leases, and writes for each Pod bound to them the status that a kubelet would write, in-place image changes
// included. Next decides, and is pure; Run talks to the API server. On request it also plays the product's node agent,
// which NextPulls decides, purely.
//
// Pods can ask for trouble: a container whose image tag starts with "broken" runs and never becomes ready, an image
// on a host that starts with "invalid." cannot be pulled, and a Node with the annotation of AnnotationDown goes
// silent.
package hollow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Behaviour says how long things take.
type Behaviour struct {
	Start    time.Duration // from binding to running containers
	Restart  time.Duration // from the end of a container to its next instance
	Stop     time.Duration // from a request of deletion to the end of the Pod, unless its grace period is shorter
	Complete time.Duration // how long containers run that are not to be restarted
	Pull     time.Duration // how long the node agent takes for an image, to the second
	// Idle names the namespaces whose Pods stay Pending and say so: what they would run, nothing simulates.
	Idle []string
}

// Host is where the Pod is.
type Host struct {
	IP    string // of the node
	PodIP string // for a Pod that has none yet
}

// Memory is what has been decided about one Pod and is not in its status yet. The zero value is right for a Pod seen
// for the first time, also after a restart of the simulation. Next never changes a Memory it was given.
type Memory struct {
	StartAt    time.Time            // when the containers run
	StopAt     time.Time            // when the Pod is gone
	CompleteAt time.Time            // when the containers end by themselves
	RestartAt  map[string]time.Time // when the next instance of a container runs
	EndAt      map[string]time.Time // when an ephemeral container ends
}

// Outcome is what is to be done about a Pod now.
type Outcome struct {
	Status *corev1.PodStatus // to write; nil if the Pod's status is right
	Delete bool              // remove the Pod, after writing
	Memory Memory
	Again  time.Duration // look again then; 0: when the Pod changes
}

// Next decides about a Pod that is bound to a hollow node.
func Next(pod *corev1.Pod, host Host, mem Memory, now time.Time, b Behaviour) Outcome {
	s := &step{pod: pod, host: host, now: now, behaviour: b, status: pod.Status.DeepCopy(), mem: Memory{
		StartAt: mem.StartAt, StopAt: mem.StopAt, CompleteAt: mem.CompleteAt,
		RestartAt: cloned(mem.RestartAt), EndAt: cloned(mem.EndAt),
	}}
	switch {
	case pod.DeletionTimestamp != nil:
		s.stop()
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		// Nothing happens to a finished Pod.
	case slices.Contains(b.Idle, pod.Namespace):
		s.hold()
	case pod.Status.StartTime == nil || pod.Status.Phase != corev1.PodRunning && len(pod.Status.ContainerStatuses) == 0:
		s.start()
	default:
		s.sync()
	}
	out := Outcome{Delete: s.remove, Memory: s.mem, Again: s.again}
	if !apiequality.Semantic.DeepEqual(s.status, &pod.Status) {
		s.status.ObservedGeneration = pod.Generation
		out.Status = s.status
	}
	return out
}

func cloned(m map[string]time.Time) map[string]time.Time {
	if m == nil {
		return map[string]time.Time{}
	}
	return maps.Clone(m)
}

// step is one call of Next.
type step struct {
	pod       *corev1.Pod
	host      Host
	now       time.Time
	behaviour Behaviour
	mem       Memory
	status    *corev1.PodStatus // becomes the new status
	remove    bool
	again     time.Duration
}

// due says whether the time has come. If not, the Pod is looked at again then.
func (s *step) due(at time.Time) bool {
	wait := at.Sub(s.now)
	if wait <= 0 {
		return true
	}
	if s.again == 0 || wait < s.again {
		s.again = wait
	}
	return false
}

// dueAfter is due for a time that is decided at the first call: d from now.
func (s *step) dueAfter(at *time.Time, d time.Duration) bool {
	if at.IsZero() {
		*at = s.now.Add(d)
	}
	return s.due(*at)
}

func (s *step) dueIn(times map[string]time.Time, name string, d time.Duration) bool {
	at := times[name]
	due := s.dueAfter(&at, d)
	times[name] = at
	return due
}

// hold keeps a Pod Pending, for good, and says in its status that nothing runs: no container, no address.
func (s *step) hold() {
	st := s.status
	st.Phase = corev1.PodPending
	st.HostIP, st.HostIPs = s.host.IP, []corev1.HostIP{{IP: s.host.IP}}
	if st.StartTime == nil {
		st.StartTime = new(metav1.NewTime(s.now))
	}
	held := func(specs []corev1.Container) []corev1.ContainerStatus {
		var list []corev1.ContainerStatus
		for _, c := range specs {
			cs := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(false)}
			cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "NotSimulated", Message: notSimulated}
			list = append(list, cs)
		}
		return list
	}
	st.InitContainerStatuses, st.ContainerStatuses = held(s.pod.Spec.InitContainers), held(s.pod.Spec.Containers)
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.setCondition(condition(kind, "NotSimulated", notSimulated))
	}
}

// notSimulated is what an idle Pod says; people read it in kubectl describe.
const notSimulated = "this node is simulated and runs no container; nothing plays this Pod"

// start runs the containers of a new Pod.
func (s *step) start() {
	if !s.dueAfter(&s.mem.StartAt, s.behaviour.Start) {
		return
	}
	s.mem.StartAt = time.Time{}
	st := s.status
	st.HostIP, st.HostIPs = s.host.IP, []corev1.HostIP{{IP: s.host.IP}}
	podIP := s.host.PodIP
	if s.pod.Spec.HostNetwork {
		podIP = s.host.IP
	}
	st.PodIP, st.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}
	st.StartTime = new(metav1.NewTime(s.now))
	st.Phase = corev1.PodRunning
	for _, c := range s.pod.Spec.InitContainers {
		if restartable(c) {
			st.InitContainerStatuses = append(st.InitContainerStatuses, s.instance(c, 0, nil))
			continue
		}
		done := s.instance(c, 0, nil)
		done.State = corev1.ContainerState{Terminated: s.ended(done, 0, "Completed")}
		done.Started, done.Ready = new(false), true
		st.InitContainerStatuses = append(st.InitContainerStatuses, done)
	}
	for _, c := range s.pod.Spec.Containers {
		cs := s.instance(c, 0, nil)
		if cs.State.Waiting != nil {
			st.Phase = corev1.PodPending
		}
		st.ContainerStatuses = append(st.ContainerStatuses, cs)
	}
	s.sync() // conditions, and when to look again
}

// sync brings the status of a started Pod in line with its spec and its readiness gates.
func (s *step) sync() {
	s.syncContainers(s.pod.Spec.InitContainers, s.status.InitContainerStatuses, false)
	s.syncContainers(s.pod.Spec.Containers, s.status.ContainerStatuses, true)
	s.syncEphemeral()
	if s.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && allRunning(s.status.ContainerStatuses) &&
		s.dueAfter(&s.mem.CompleteAt, s.behaviour.Complete) {
		s.complete()
		return
	}
	if s.status.Phase == corev1.PodPending && !slices.ContainsFunc(s.status.ContainerStatuses, waiting) {
		s.status.Phase = corev1.PodRunning
	}
	s.setConditions()
}

// syncContainers restarts the containers whose image differs from what runs, and those that have ended.
func (s *step) syncContainers(specs []corev1.Container, statuses []corev1.ContainerStatus, all bool) {
	for _, c := range specs {
		i := slices.IndexFunc(statuses, func(cs corev1.ContainerStatus) bool { return cs.Name == c.Name })
		if i < 0 || !all && !restartable(c) {
			continue
		}
		cs := &statuses[i]
		switch changed := cs.Image != c.Image; {
		case cs.State.Running != nil && !changed:
			s.resize(c, cs)
			continue
		case cs.State.Waiting != nil && !changed:
			continue // the image cannot be pulled
		case cs.State.Running != nil:
			// The kubelet reports the end of the old instance before the new one runs.
			cs.State = corev1.ContainerState{Terminated: s.ended(*cs, 0, "Completed")}
			cs.Ready, cs.Started = false, new(false)
		}
		if !s.dueIn(s.mem.RestartAt, c.Name, s.behaviour.Restart) {
			continue
		}
		delete(s.mem.RestartAt, c.Name)
		count := cs.RestartCount
		last := cs.State.Terminated
		if last != nil {
			count++
		}
		*cs = s.instance(c, count, last)
	}
}

// resize takes over changed resources at once, as a kubelet with room does.
func (s *step) resize(c corev1.Container, cs *corev1.ContainerStatus) {
	want := c.Resources.DeepCopy()
	want.Claims = nil
	if cs.Resources == nil || !apiequality.Semantic.DeepEqual(cs.Resources, want) {
		cs.Resources = want
		cs.AllocatedResources = c.Resources.Requests.DeepCopy()
	}
}

// syncEphemeral runs each ephemeral container once.
func (s *step) syncEphemeral() {
	for _, e := range s.pod.Spec.EphemeralContainers {
		i := slices.IndexFunc(s.status.EphemeralContainerStatuses, func(cs corev1.ContainerStatus) bool { return cs.Name == e.Name })
		if i < 0 {
			cs := s.instance(corev1.Container{Name: e.Name, Image: e.Image}, 0, nil)
			cs.Ready, cs.Started, cs.Resources = false, nil, nil
			s.status.EphemeralContainerStatuses = append(s.status.EphemeralContainerStatuses, cs)
			i = len(s.status.EphemeralContainerStatuses) - 1
		}
		cs := &s.status.EphemeralContainerStatuses[i]
		if cs.State.Running != nil && s.dueIn(s.mem.EndAt, e.Name, s.behaviour.Complete) {
			delete(s.mem.EndAt, e.Name)
			cs.State = corev1.ContainerState{Terminated: s.ended(*cs, 0, "Completed")}
		}
	}
}

// instance is a container that starts now.
func (s *step) instance(c corev1.Container, restarts int32, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	cs := corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: restarts}
	if last != nil {
		cs.LastTerminationState.Terminated = last
	}
	if unpullable(c.Image) {
		cs.Started = new(false)
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image " + c.Image}
		return cs
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", s.pod.UID, c.Name, restarts))
	cs.ContainerID = "containerd://" + hex.EncodeToString(id[:])
	cs.ImageID = ImageID(c.Image)
	cs.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.now)}
	cs.Started, cs.Ready = new(true), !broken(c.Image)
	s.resize(c, &cs)
	return cs
}

// ended is how an instance that ends now is reported.
func (s *step) ended(cs corev1.ContainerStatus, code int32, reason string) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, ContainerID: cs.ContainerID, StartedAt: metav1.NewTime(s.now), FinishedAt: metav1.NewTime(s.now),
	}
	if cs.State.Running != nil {
		t.StartedAt = cs.State.Running.StartedAt
	}
	return t
}

// complete ends a Pod whose containers are not to be restarted.
func (s *step) complete() {
	s.mem.CompleteAt = time.Time{}
	s.end()
	s.status.Phase = corev1.PodSucceeded
	s.setConditions()
}

// end reports all containers as ended.
func (s *step) end() {
	for i := range s.status.ContainerStatuses {
		cs := &s.status.ContainerStatuses[i]
		if cs.State.Running != nil {
			cs.State = corev1.ContainerState{Terminated: s.ended(*cs, 0, "Completed")}
		}
		cs.Ready, cs.Started = false, new(false)
	}
}

// stop ends a Pod that is to be deleted.
func (s *step) stop() {
	grace := s.pod.DeletionGracePeriodSeconds
	if grace != nil && *grace == 0 {
		return // removed already; finalizers keep the object
	}
	wait := s.behaviour.Stop
	if grace != nil {
		wait = min(wait, time.Duration(*grace)*time.Second)
	}
	if !s.dueAfter(&s.mem.StopAt, wait) {
		return
	}
	s.remove = true
	if len(s.pod.Finalizers) > 0 && len(s.status.ContainerStatuses) > 0 { // somebody will still look at it
		s.end()
		s.status.Phase = corev1.PodSucceeded
		s.setConditions()
	}
}

// ImageID is the identity of an image, made up from its name: equal names give equal identities. The tag
// mainline-alpine names the same image as alpine, as in the registry of real clusters.
func ImageID(image string) string {
	repository, tag := image, "latest"
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		repository, tag = image[:i], image[i+1:]
	}
	if tag == "mainline-alpine" {
		tag = "alpine"
	}
	if at := strings.IndexByte(image, '@'); at >= 0 {
		return image
	}
	sum := sha256.Sum256([]byte(repository + ":" + tag))
	return fullRepository(repository) + "@sha256:" + hex.EncodeToString(sum[:])
}

func fullRepository(repository string) string {
	host, _, ok := strings.Cut(repository, "/")
	switch {
	case !ok:
		return "docker.io/library/" + repository
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return "docker.io/" + repository
	}
	return repository
}

func unpullable(image string) bool { return strings.HasPrefix(image, "invalid.") }

func broken(image string) bool {
	return strings.HasPrefix(image[strings.LastIndexByte(image, ':')+1:], "broken")
}

func restartable(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func waiting(cs corev1.ContainerStatus) bool { return cs.State.Waiting != nil }

func allRunning(list []corev1.ContainerStatus) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(cs corev1.ContainerStatus) bool { return cs.State.Running == nil })
}

// SPDX-License-Identifier: Apache-2.0

package containermeta

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/internal/runtimehash"
)

const (
	// restartDelay lets the kubelet win when image and environment changed together, so that
	// the container restarts once.
	restartDelay = 3 * time.Second
	// kubeletDelay is for containers that differ from their spec in more than environment:
	// the kubelet is about to replace them, within their grace period and this. Not for ever,
	// because a spec that was defaulted differently after creation never matches.
	kubeletDelay = 10 * time.Second
	// defaultGrace is that of Pods whose containers do not say.
	defaultGrace = 30 * time.Second
)

// Snapshot is all that Decide may look at. Nobody writes to it.
type Snapshot struct {
	Pod *corev1.Pod
	// Runtime is the scheme of container IDs.
	Runtime string
	// Containers are those of the Pod in the runtime, newest first.
	Containers []cri.Container
	// Envs has the environment of containers by runtime ID, as far as it was asked for.
	Envs map[string]map[string]string
	// TrackEnv is the gate InPlaceUpdateEnvFromMetadata.
	TrackEnv bool
}

// Plan is what act must do, as data.
type Plan struct {
	// Meta is the new annotation, nil when the present one is right.
	Meta *runtimehash.ContainersMeta
	// AskEnv are the runtime IDs of running containers whose environment is not known yet.
	AskEnv []string
	// Restart are containers whose environment is not what the Pod asks for.
	Restart []Restart
}

// Restart is one container to stop, so that the kubelet starts it anew.
type Restart struct {
	ID, Name string
	// Recorded is the hash of its environment, Expected the one that it should have.
	Recorded, Expected uint64
	Delay              time.Duration
}

// Decide compares what runs with what the Pod says (inplace-update.md 9.3).
func Decide(s Snapshot) Plan {
	var plan Plan
	old, err := runtimehash.FromObject(s.Pod)
	if err != nil {
		old = nil // unreadable: written anew
	}
	meta := &runtimehash.ContainersMeta{}
	for i := range s.Pod.Status.ContainerStatuses {
		status := &s.Pod.Status.ContainerStatuses[i]
		running, spec := find(s.Containers, status.Name), specOf(s.Pod, status.Name)
		if running == nil || spec == nil {
			continue
		}
		record := recordOf(old, s.Runtime, running, status)
		if s.TrackEnv {
			if record.Hashes.ExtractedEnvFromMetadataHash == 0 && running.State == cri.StateRunning {
				hash, ok := envHash(spec, s.Envs[running.ID])
				if !ok {
					plan.AskEnv = append(plan.AskEnv, running.ID)
				}
				record.Hashes.ExtractedEnvFromMetadataHash = hash
			}
			plan.restart(s.Pod, spec, running, record.Hashes)
		}
		meta.Containers = append(meta.Containers, record)
	}
	if len(meta.Containers) > 0 && (old == nil || !slices.Equal(old.Containers, meta.Containers)) {
		plan.Meta = meta
	}
	return plan
}

// find returns the newest container of a name.
func find(containers []cri.Container, name string) *cri.Container {
	for i := range containers {
		if containers[i].Labels[cri.LabelContainerName] == name || containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

func specOf(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

// recordOf keeps what is known of a container instance; hashes never change while it lives.
func recordOf(old *runtimehash.ContainersMeta, runtime string, c *cri.Container, status *corev1.ContainerStatus) runtimehash.ContainerMeta {
	id := runtime + "://" + c.ID
	if have := old.Container(status.Name); have != nil && have.ContainerID == id {
		return *have
	}
	record := runtimehash.ContainerMeta{Name: status.Name, ContainerID: id, RestartCount: status.RestartCount}
	if n, err := strconv.ParseInt(c.Annotations[cri.AnnotationRestartCount], 10, 32); err == nil {
		record.RestartCount = int32(n)
	}
	if hash, err := runtimehash.ParsePlain(c.Annotations[cri.AnnotationHash]); err == nil {
		record.Hashes.PlainHash = hash
	}
	return record
}

// envHash is false when the container has variables from metadata and env is not known.
func envHash(spec *corev1.Container, env map[string]string) (uint64, bool) {
	wanted := runtimehash.MetadataEnvs(spec)
	if len(wanted) == 0 {
		return runtimehash.Env(nil), true
	}
	if env == nil {
		return 0, false
	}
	vars := make([]runtimehash.EnvVar, 0, len(wanted))
	for _, w := range wanted {
		vars = append(vars, runtimehash.EnvVar{Name: w.Name, Value: env[w.Name]})
	}
	return runtimehash.Env(vars), true
}

// restart notes a container that an in-place update under way has left with an environment
// of before. Metadata that somebody changed on a settled Pod restarts nothing.
func (p *Plan) restart(pod *corev1.Pod, spec *corev1.Container, c *cri.Container, hashes runtimehash.Hashes) {
	expected := runtimehash.ExpectedEnv(spec, pod)
	if !updating(pod) || c.State != cri.StateRunning || hashes.ExtractedEnvFromMetadataHash == 0 || hashes.ExtractedEnvFromMetadataHash == expected {
		return
	}
	delay := restartDelay
	if !runtimehash.PlainFits(hashes.PlainHash, spec) {
		delay = kubeletDelay + graceOf(c)
	}
	p.Restart = append(p.Restart, Restart{ID: c.ID, Name: spec.Name, Recorded: hashes.ExtractedEnvFromMetadataHash, Expected: expected, Delay: delay})
}

// graceOf is how long the kubelet may take to stop a container: a second stop meanwhile would
// run its preStop hook twice.
func graceOf(c *cri.Container) time.Duration {
	if n, err := strconv.ParseInt(c.Annotations[cri.AnnotationGracePeriod], 10, 32); err == nil && n >= 0 {
		return time.Duration(n) * time.Second
	}
	return defaultGrace
}

// fitting lists the containers whose environment is what the Pod asks for. meta is what was
// found out about them; nil is what the Pod's annotation says.
func fitting(pod *corev1.Pod, meta *runtimehash.ContainersMeta) []string {
	if meta == nil {
		var err error
		if meta, err = runtimehash.FromObject(pod); err != nil || meta == nil {
			return nil
		}
	}
	var names []string
	for _, record := range meta.Containers {
		spec := specOf(pod, record.Name)
		if spec != nil && record.Hashes.ExtractedEnvFromMetadataHash == runtimehash.ExpectedEnv(spec, pod) {
			names = append(names, record.Name)
		}
	}
	return names
}

// Verdict is what becomes of a restart when it is due.
type Verdict int

// The verdicts.
const (
	// Go: the container still lacks the environment that its Pod asks for.
	Go Verdict = iota
	// Drop: it has it by now, because somebody took the change back.
	Drop
	// Wait: the image has changed meanwhile, and the kubelet is about to replace it.
	Wait
)

// Due looks again at a restart that was planned some time ago. It does not ask whether the
// update is still under way: it may count as complete by now, and the restart is due all the
// same. Without a record of this very container it is.
func Due(pod *corev1.Pod, name, containerID string) Verdict {
	meta, err := runtimehash.FromObject(pod)
	record, spec := meta.Container(name), specOf(pod, name)
	switch {
	case err != nil, record == nil, spec == nil, record.ContainerID != containerID:
		return Go
	case record.Hashes.ExtractedEnvFromMetadataHash == runtimehash.ExpectedEnv(spec, pod):
		return Drop
	case !runtimehash.PlainFits(record.Hashes.PlainHash, spec):
		return Wait
	}
	return Go
}

func updating(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1beta1.InPlaceUpdateReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// ours reports whether the manager wants to know about a Pod's containers.
func ours(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	if _, injected := pod.Annotations[v1beta1.SidecarSetHashAnnotation]; injected {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && strings.HasPrefix(owner.APIVersion, v1beta1.GroupVersion.Group+"/")
}

// relevant reports whether a Pod's change, or its appearance when before is nil, makes a
// look at its containers worth while (inplace-update.md 9.2). Containers are matched by
// name: the kubelet sorts statuses, nobody sorts the spec.
func relevant(before, after *corev1.Pod, trackEnv bool) bool {
	if !ours(after) {
		return false
	}
	_, has := after.Annotations[v1beta1.RuntimeContainersMetaAnnotation]
	if before == nil && !has {
		return false // a start of the agent must not rewrite every Pod of the node
	}
	if before != nil && len(before.Spec.Containers) != len(after.Spec.Containers) {
		return true
	}
	meta, err := runtimehash.FromObject(after)
	if err != nil {
		return true
	}
	started := 0
	for i := range after.Status.ContainerStatuses {
		status := &after.Status.ContainerStatuses[i]
		if status.ContainerID == "" {
			continue
		}
		started++
		record := meta.Container(status.Name)
		if record == nil || record.ContainerID != status.ContainerID {
			return true
		}
		if trackEnv && envRelevant(before, after, status.Name, record) {
			return true
		}
	}
	return meta != nil && len(meta.Containers) > started
}

func envRelevant(before, after *corev1.Pod, name string, record *runtimehash.ContainerMeta) bool {
	spec := specOf(after, name)
	if spec == nil {
		return false
	}
	expected := runtimehash.ExpectedEnv(spec, after)
	if record.Hashes.ExtractedEnvFromMetadataHash != expected {
		return true
	}
	if before == nil {
		return false
	}
	old := specOf(before, name)
	return old == nil || runtimehash.ExpectedEnv(old, before) != expected
}

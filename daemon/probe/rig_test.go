// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

var nodePodProbes = v1alpha1.GroupVersion.WithResource("nodepodprobes").GroupResource()

// memory is a Store of one NodePodProbe.
type memory struct {
	mu       sync.Mutex
	npp      *v1alpha1.NodePodProbe // nil: not found
	failing  error                  // of writes
	writes   int
	told     []string // what each write says of m#a of u1, without repetitions
	onChange func()
}

func (m *memory) NodePodProbe(context.Context) (*v1alpha1.NodePodProbe, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.npp == nil {
		return nil, apierrors.NewNotFound(nodePodProbes, "node")
	}
	return m.npp, nil
}

func (m *memory) WriteProbeStatus(_ context.Context, npp *v1alpha1.NodePodProbe) (*v1alpha1.NodePodProbe, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	switch {
	case m.failing != nil:
		return nil, m.failing
	case m.npp == nil:
		return nil, apierrors.NewNotFound(nodePodProbes, "node")
	case npp.ResourceVersion != m.npp.ResourceVersion:
		return nil, apierrors.NewConflict(nodePodProbes, "node", errors.New("changed"))
	}
	m.replace(npp)
	if text := text(m.npp, "u1", "m#a"); len(m.told) == 0 || m.told[len(m.told)-1] != text {
		m.told = append(m.told, text)
	}
	return m.npp, nil
}

// replace stores a copy as a new version. The caller holds mu.
func (m *memory) replace(npp *v1alpha1.NodePodProbe) {
	npp = npp.DeepCopy()
	version, _ := strconv.Atoi(npp.ResourceVersion)
	npp.ResourceVersion = strconv.Itoa(version + 1)
	m.npp = npp
	m.onChange()
}

// text is the state and the message of a probe.
func text(npp *v1alpha1.NodePodProbe, uid, name string) string {
	for _, pod := range npp.Status.PodProbeStatuses {
		for _, s := range pod.ProbeStates {
			if string(pod.UID) == uid && s.Name == name {
				return string(s.State) + " " + s.Message
			}
		}
	}
	return ""
}

// doubles is a Network with scripted answers.
type doubles struct {
	mu     sync.Mutex
	asked  []string
	answer func(asked string) Result
}

func (d *doubles) ask(format string, args ...any) Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := fmt.Sprintf(format, args...)
	d.asked = append(d.asked, asked)
	if d.answer == nil {
		return Result{State: v1alpha1.ProbeSucceeded}
	}
	return d.answer(asked)
}

func (d *doubles) HTTP(_ context.Context, ip string, a *corev1.HTTPGetAction) Result {
	return d.ask("http %s:%d%s", ip, a.Port.IntValue(), a.Path)
}
func (d *doubles) TCP(_ context.Context, ip string, port int) Result {
	return d.ask("tcp %s:%d", ip, port)
}

// rig is a Prober with a NodePodProbe in memory, a fake runtime and synthetic time.
type rig struct {
	t       *testing.T
	store   *memory
	runtime *fakecri.Runtime
	network *doubles
	events  *record.FakeRecorder
	metrics *Metrics
	prober  *Prober
	stop    func()
}

// start starts the agent.
func start(t *testing.T, store *memory, runtime *fakecri.Runtime) *rig {
	r := &rig{t: t, store: store, runtime: runtime, network: &doubles{}, events: record.NewFakeRecorder(10000), metrics: NewMetrics(prometheus.NewRegistry())}
	r.prober = New(Options{
		Store: store, Runtimes: []cri.Runtime{runtime}, Events: r.events, Network: r.network, Metrics: r.metrics,
	})
	store.onChange = r.prober.Wake
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := r.prober.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.stop = func() { cancel(); group.Wait() }
	return r
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// container adds the container main of Pod u1, or another, that runs for an hour.
func (r *rig) container(uid, id string, execs map[string][]fakecri.ExecScript) {
	now := time.Now()
	r.runtime.AddContainer(fakecri.Container{
		Status: cri.Status{
			Container: cri.Container{ID: id, Name: "main", State: cri.StateRunning, Created: now, Labels: map[string]string{cri.LabelPodUID: uid}},
			Started:   now.Add(-time.Hour),
		},
		ExecCalls: execs,
	})
}

func (r *rig) edit(change func(*v1alpha1.NodePodProbe)) {
	m := r.store
	m.mu.Lock()
	defer m.mu.Unlock()
	npp := m.npp
	if npp == nil {
		npp = &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n1", ResourceVersion: "1"}}
	}
	npp = npp.DeepCopy()
	change(npp)
	m.replace(npp)
}

// want replaces the list of probes of a Pod.
func (r *rig) want(uid string, probes ...v1alpha1.ContainerProbe) {
	r.edit(func(npp *v1alpha1.NodePodProbe) {
		npp.Spec.PodProbes = slices.DeleteFunc(npp.Spec.PodProbes, func(p v1alpha1.PodProbe) bool { return p.UID == types.UID(uid) })
		if len(probes) > 0 {
			npp.Spec.PodProbes = append(npp.Spec.PodProbes, v1alpha1.PodProbe{Namespace: "shop", Name: "web-" + uid, UID: types.UID(uid), IP: "10.0.0.1", Probes: probes})
		}
	})
}

func (r *rig) told() []string {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return slices.Clone(r.store.told)
}

func (r *rig) writes() int {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return r.store.writes
}

func (r *rig) fail(err error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.failing = err
}

func (r *rig) now(uid, name string) string {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return text(r.store.npp, uid, name)
}

func execProbe(name, command string, change func(*v1alpha1.ContainerProbeSpec)) v1alpha1.ContainerProbe {
	p := v1alpha1.ContainerProbe{Name: name, ContainerName: "main"}
	p.Probe.Exec = &corev1.ExecAction{Command: []string{command}}
	if change != nil {
		change(&p.Probe)
	}
	return p
}

func tcpProbe(name string, port int32) v1alpha1.ContainerProbe {
	p := v1alpha1.ContainerProbe{Name: name, ContainerName: "main"}
	p.Probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}
	return p
}

func answers(script ...fakecri.ExecScript) map[string][]fakecri.ExecScript {
	return map[string][]fakecri.ExecScript{"check": script}
}

func says(text string) fakecri.ExecScript  { return fakecri.ExecScript{Stdout: text} }
func fails(text string) fakecri.ExecScript { return fakecri.ExecScript{Stderr: text, Code: 1} }

func (r *rig) recorded() (out []string) {
	for {
		select {
		case e := <-r.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

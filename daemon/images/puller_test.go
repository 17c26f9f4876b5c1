// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store of one NodeImage.
type memory struct {
	mu       sync.Mutex
	ni       *v1beta1.NodeImage // nil: not found
	failing  error              // of writes
	writes   int
	phases   []string // what each write says of nginx:1
	onChange func()
}

func (m *memory) NodeImage(context.Context) (*v1beta1.NodeImage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ni == nil {
		return nil, apierrors.NewNotFound(v1beta1.GroupVersion.WithResource("nodeimages").GroupResource(), "node")
	}
	return m.ni, nil
}

func (m *memory) WriteStatus(_ context.Context, ni *v1beta1.NodeImage) (*v1beta1.NodeImage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if m.failing != nil {
		return nil, m.failing
	}
	if m.ni == nil || ni.ResourceVersion != m.ni.ResourceVersion {
		return nil, apierrors.NewConflict(v1beta1.GroupVersion.WithResource("nodeimages").GroupResource(), "node", errors.New("changed"))
	}
	for _, tag := range ni.Status.ImageStatuses["nginx"].Tags {
		if tag.Tag == "1" {
			m.phases = append(m.phases, string(tag.Phase))
		}
	}
	m.replace(ni)
	return m.ni, nil
}

// replace stores a copy as a new version. The caller holds mu.
func (m *memory) replace(ni *v1beta1.NodeImage) {
	ni = ni.DeepCopy()
	version, _ := strconv.Atoi(ni.ResourceVersion)
	ni.ResourceVersion = strconv.Itoa(version + 1)
	m.ni = ni
	m.onChange()
}

// edit changes the NodeImage as somebody else would.
func (m *memory) edit(change func(*v1beta1.NodeImage)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ni := m.ni
	if ni == nil {
		ni = &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "u1", ResourceVersion: "1"}}
	}
	ni = ni.DeepCopy()
	change(ni)
	m.replace(ni)
}

// now returns the NodeImage, what writes said of nginx:1, and how many there were.
func (m *memory) now() (ni *v1beta1.NodeImage, phases []string, writes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ni, slices.Clone(m.phases), m.writes
}

func (m *memory) told() []string {
	_, phases, _ := m.now()
	return phases
}

func (m *memory) writeCount() int {
	_, _, writes := m.now()
	return writes
}

func (m *memory) counts() v1beta1.NodeImageStatus {
	ni, _, _ := m.now()
	return ni.Status
}

func (m *memory) listen(onChange func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onChange = onChange
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = err
}

func (m *memory) status(tag string) v1beta1.ImageTagStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.ni.Status.ImageStatuses["nginx"].Tags {
		if t.Tag == tag {
			return t
		}
	}
	return v1beta1.ImageTagStatus{}
}

// logins is a Credentials with the same answer for all.
type logins struct {
	auths     []cri.Auth
	refreshes atomic.Int32
	problems  string
}

func (l *logins) Lookup(context.Context, string, []v1beta1.ReferenceObject) iter.Seq[cri.Auth] {
	return slices.Values(l.auths)
}
func (l *logins) Problems([]v1beta1.ReferenceObject) string { return l.problems }
func (l *logins) Refresh([]v1beta1.ReferenceObject)         { l.refreshes.Add(1) }

// rig is a Puller with everything it needs, running in synthetic time.
type rig struct {
	store   *memory
	runtime *fakecri.Runtime
	logins  *logins
	events  *record.FakeRecorder
	puller  *Puller
	stop    func()
}

func start(t *testing.T, maxWorkers int) *rig {
	t.Helper()
	r := &rig{store: &memory{}, runtime: fakecri.New("containerd"), logins: &logins{}, events: record.NewFakeRecorder(10_000)}
	r.run(t, maxWorkers)
	return r
}

// run runs a Puller that knows nothing yet.
func (r *rig) run(t *testing.T, maxWorkers int) {
	t.Helper()
	puller := New(Options{Store: r.store, Runtime: func() cri.Runtime { return r.runtime }, Credentials: r.logins, Events: r.events, MaxWorkers: maxWorkers})
	r.puller = puller
	r.store.listen(puller.Wake)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- puller.Run(ctx) }()
	r.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// restart ends the Puller and runs another one.
func (r *rig) restart(t *testing.T, maxWorkers int) {
	t.Helper()
	r.stop()
	r.run(t, maxWorkers)
}

// after lets d pass and all goroutines come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func tagSpec(tag string, change func(*v1beta1.ImageTagSpec)) v1beta1.ImageTagSpec {
	spec := v1beta1.ImageTagSpec{
		Tag: tag, ImagePullPolicy: v1beta1.PullIfNotPresent,
		PullPolicy:      &v1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(60)), BackoffLimit: new(int32(2))},
		OwnerReferences: []corev1.ObjectReference{{Kind: "ImagePullJob", Namespace: "shop", Name: "job"}},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func (r *rig) ask(tags ...v1beta1.ImageTagSpec) {
	r.store.edit(func(ni *v1beta1.NodeImage) {
		ni.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {Tags: tags}}
	})
}

func TestPuller(t *testing.T) {
	cases := map[string]func(*testing.T, *rig){
		"a present image is not pulled, and told in one write": func(t *testing.T, r *rig) {
			r.runtime.AddImage(cri.Image{ID: "sha256:1", RepoTags: []string{"docker.io/library/nginx:1"}})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			require.Equal(t, []string{"Succeeded"}, r.store.told())
			require.Equal(t, "nginx@sha256:1", r.store.status("1").ImageID)
			require.Zero(t, r.runtime.CallsOf("PullImage"))
		},
		"with policy Always a present image is pulled": func(t *testing.T, r *rig) {
			r.runtime.AddImage(cri.Image{ID: "sha256:1", RepoTags: []string{"docker.io/library/nginx:1"}})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.ImagePullPolicy = v1beta1.PullAlways }))
			after(5 * time.Second)
			require.Equal(t, []string{"PullImage nginx:1", "ListImages"}, r.runtime.Calls())
		},
		"with an empty policy too": func(t *testing.T, r *rig) {
			r.runtime.AddImage(cri.Image{ID: "sha256:1", RepoTags: []string{"docker.io/library/nginx:1"}})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.ImagePullPolicy = "" }))
			after(5 * time.Second)
			require.Equal(t, 1, r.runtime.CallsOf("PullImage"))
		},
		"a missing image is looked for, pulled and looked for again": func(t *testing.T, r *rig) {
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			require.Equal(t, []string{"ListImages", "PullImage nginx:1", "ListImages"}, r.runtime.Calls())
			require.Equal(t, []string{"Succeeded"}, r.store.told(), "one write per quick pull")
			s := r.store.status("1")
			require.EqualValues(t, 100, s.Progress)
			require.NotNil(t, s.StartTime)
			require.NotNil(t, s.CompletionTime)
			require.Equal(t, "nginx@sha256:id-of-nginx:1", s.ImageID)
			require.Contains(t, <-r.events.Events, "Normal PullImageSucceed Image nginx:1")
			require.Equal(t, map[string]string{"apps.kruise.io/pulling-image-by": "kruise-daemon"}, r.runtime.Pulls()[0].SandboxAnnotations)
		},
		"a digest is pulled with an at sign and recognised": func(t *testing.T, r *rig) {
			digest := "sha256:59bc5d24e6286c567201f6524f6cf5b5bfb547df27e9ed7146671a0b9caf53c3"
			r.ask(tagSpec(digest, nil))
			after(5 * time.Second)
			require.Equal(t, "PullImage nginx@"+digest, r.runtime.Calls()[1])
			require.Equal(t, "nginx@sha256:id-of-nginx@"+digest, r.store.status(digest).ImageID)
		},
		"a slow pull is told while it runs": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Latency: 40 * time.Second})
			r.ask(tagSpec("1", nil))
			after(2 * time.Second)
			require.Equal(t, []string{"Pulling"}, r.store.told())
			after(40 * time.Second)
			require.Equal(t, []string{"Pulling", "Succeeded"}, r.store.told())
		},
		"failures are retried, and the last error is told": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Failures: -1})
			r.ask(tagSpec("1", nil))
			after(20 * time.Second)
			require.Equal(t, 3, r.runtime.CallsOf("PullImage"), "backoffLimit 2 is three attempts")
			s := r.store.status("1")
			require.Equal(t, v1beta1.ImagePhaseFailed, s.Phase)
			require.Contains(t, s.Message, "scripted failure")
			require.Equal(t, 3*time.Second, s.CompletionTime.Sub(s.StartTime.Time), "1 s and 2 s between attempts, nothing after the last")
			require.Contains(t, <-r.events.Events, "Warning PullImageFailed Image nginx:1 on node node", "for the job")
			require.Contains(t, <-r.events.Events, "Warning PullImageFailed Image nginx:1", "for the NodeImage")
			require.Equal(t, 2, int(r.logins.refreshes.Load()), "a retry reads secrets anew")
		},
		"an attempt that succeeds ends the task": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Failures: 1})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			require.Equal(t, 2, r.runtime.CallsOf("PullImage"))
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
		},
		"an attempt that hangs is canceled": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Hang: true})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.BackoffLimit = new(int32(0)) }))
			after(59 * time.Second)
			require.Equal(t, v1beta1.ImagePhasePulling, r.store.status("1").Phase)
			after(5 * time.Second)
			require.Equal(t, "pulling nginx:1 is canceled: no result within 1m0s", r.store.status("1").Message)
		},
		"a deadline bounds all attempts": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Hang: true})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.ActiveDeadlineSeconds = new(int64(70)) }))
			after(80 * time.Second)
			s := r.store.status("1")
			require.Contains(t, s.Message, "pulling exceeds the activeDeadlineSeconds")
			require.Equal(t, 70*time.Second, s.CompletionTime.Sub(s.StartTime.Time))
			require.Equal(t, 2, r.runtime.CallsOf("PullImage"))
		},
		"a runtime that is away is waited for, however long": func(t *testing.T, r *rig) {
			r.runtime.SetDown(true)
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.BackoffLimit = new(int32(0)) }))
			after(time.Hour)
			s := r.store.status("1")
			require.Equal(t, v1beta1.ImagePhasePulling, s.Phase)
			require.Contains(t, s.Message, "waiting for the container runtime")
			require.LessOrEqual(t, r.store.writeCount(), 2, "and told once")
			r.runtime.SetDown(false)
			after(10 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Empty(t, r.store.status("1").Message)
			require.Equal(t, 1, r.runtime.CallsOf("PullImage"), "no attempt was used up")
		},
		"but not beyond the deadline": func(t *testing.T, r *rig) {
			r.runtime.SetDown(true)
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.ActiveDeadlineSeconds = new(int64(90)) }))
			after(100 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseFailed, r.store.status("1").Phase)
			require.Contains(t, r.store.status("1").Message, "pulling exceeds the activeDeadlineSeconds")
		},
		"attempts that a restart of the runtime breaks off do not count": func(t *testing.T, r *rig) {
			r.runtime.Inject(fakecri.Fault{Call: "PullImage", Times: 3, Delay: time.Second, Err: fakecri.ErrUnavailable})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.BackoffLimit = new(int32(0)) }))
			after(time.Minute)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Equal(t, 4, r.runtime.CallsOf("PullImage"))
		},
		"an image that brings the runtime down is given up": func(t *testing.T, r *rig) {
			r.runtime.Inject(fakecri.Fault{Call: "PullImage", Err: fakecri.ErrUnavailable})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.BackoffLimit = new(int32(1)) }))
			after(10 * time.Minute)
			require.Equal(t, v1beta1.ImagePhaseFailed, r.store.status("1").Phase)
			require.Equal(t, 7, r.runtime.CallsOf("PullImage"), "5 that do not count and 2 that do")
		},
		"a retry says why, and the last error stays": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Latency: 10 * time.Second, Err: errors.New("429 Too Many Requests")})
			r.ask(tagSpec("1", nil))
			after(12 * time.Second)
			require.Equal(t, v1beta1.ImagePhasePulling, r.store.status("1").Phase)
			require.Equal(t, "attempt 1 of 3 failed, the next one in 1s: registry docker.io limits how much this node may pull (HTTP 429): 429 Too Many Requests", r.store.status("1").Message)
			after(time.Minute)
			require.Equal(t, v1beta1.ImagePhaseFailed, r.store.status("1").Phase)
			require.Equal(t, "registry docker.io limits how much this node may pull (HTTP 429): 429 Too Many Requests", r.store.status("1").Message)
		},
		"quick retries are not worth a write each": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Failures: 2})
			r.ask(tagSpec("1", nil))
			after(time.Minute)
			require.Equal(t, []string{"Pulling", "Succeeded"}, r.store.told())
		},
		"a login that is refused because its secret is missing says so": func(t *testing.T, r *rig) {
			r.logins.problems = "Secret config/s cannot be used: not found"
			r.runtime.Script("nginx:1", fakecri.PullScript{Auth: &cri.Auth{Username: "ann"}})
			r.ask(tagSpec("1", nil))
			after(time.Minute)
			require.Contains(t, r.store.status("1").Message, "; Secret config/s cannot be used: not found")
		},
		"a longer timeout and more retries count for a pull under way": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Latency: 90 * time.Second})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.TimeoutSeconds = new(int32(100)) }))
			after(3 * time.Minute)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Equal(t, 2, r.runtime.CallsOf("PullImage"), "from the next attempt on")
		},
		"a panic fails the task and nothing else": func(t *testing.T, r *rig) {
			r.puller.o.Runtime = func() cri.Runtime { panic("odd answer") }
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.ImagePullPolicy = v1beta1.PullAlways }))
			after(5 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseFailed, r.store.status("1").Phase)
			require.Equal(t, "internal error of the node agent: odd answer", r.store.status("1").Message)
		},
		"at rest nothing is asked and nothing written": func(t *testing.T, r *rig) {
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			calls, writes := len(r.runtime.Calls()), r.store.writeCount()
			after(48 * time.Hour)
			require.Len(t, r.runtime.Calls(), calls)
			require.Equal(t, writes, r.store.writeCount())
		},
		"all logins are tried, and no anonymous pull after them": func(t *testing.T, r *rig) {
			r.logins.auths = []cri.Auth{{Username: "wrong"}, {Username: "right"}}
			r.runtime.Script("nginx:1", fakecri.PullScript{Auth: &cri.Auth{Username: "right"}})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Len(t, r.runtime.Pulls(), 2)
			require.NotNil(t, r.runtime.Pulls()[0].Auth)
		},
		"a new version pulls again": func(t *testing.T, r *rig) {
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.Version, s.ImagePullPolicy = 1, v1beta1.PullAlways }))
			after(5 * time.Second)
			require.Equal(t, 2, r.runtime.CallsOf("PullImage"))
			require.EqualValues(t, 1, r.store.status("1").Version)
		},
		"a new version takes the place of a pull that hangs": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Hang: true})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.runtime.Script("nginx:1", fakecri.PullScript{})
			r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.Version = 1 }))
			after(5 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.EqualValues(t, 1, r.store.status("1").Version)
			require.Len(t, r.events.Events, 1, "nothing is told of the task that was stopped")
		},
		"a task that goes is stopped and forgotten": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Hang: true})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.ask()
			after(5 * time.Second)
			require.Equal(t, v1beta1.NodeImageStatus{}, r.store.counts())
			require.Empty(t, r.events.Events)
		},
		"what the NodeImage tells already is not pulled again": func(t *testing.T, r *rig) {
			r.store.edit(func(ni *v1beta1.NodeImage) {
				ni.Spec.Images = map[string]v1beta1.ImageSpec{"nginx": {Tags: []v1beta1.ImageTagSpec{tagSpec("1", nil)}}}
				ni.Status = v1beta1.NodeImageStatus{Desired: 1, Failed: 1, ImageStatuses: map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{{
					Tag: "1", Phase: v1beta1.ImagePhaseFailed, CompletionTime: &metav1.Time{Time: time.Now()},
				}}}}}
			})
			after(time.Hour)
			require.Empty(t, r.runtime.Calls())
			require.Zero(t, r.store.writeCount())
		},
		"a task that the manager fails meanwhile is given up": func(t *testing.T, r *rig) {
			r.runtime.Script("nginx:1", fakecri.PullScript{Hang: true})
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.store.edit(func(ni *v1beta1.NodeImage) {
				tags := ni.Status.ImageStatuses["nginx"].Tags
				tags[0].Phase, tags[0].CompletionTime = v1beta1.ImagePhaseFailed, &metav1.Time{Time: time.Now().Truncate(time.Second)}
				ni.Status.Pulling, ni.Status.Failed = 0, 1
			})
			writes := r.store.writeCount()
			after(time.Hour)
			require.Equal(t, writes, r.store.writeCount())
			require.Equal(t, v1beta1.ImagePhaseFailed, r.store.status("1").Phase)
		},
		"a result that was overwritten is told again": func(t *testing.T, r *rig) {
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.store.edit(func(ni *v1beta1.NodeImage) { ni.Status = v1beta1.NodeImageStatus{} })
			after(5 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Equal(t, 1, r.runtime.CallsOf("PullImage"))
		},
		"another NodeImage of the same name begins anew": func(t *testing.T, r *rig) {
			r.ask(tagSpec("1", nil))
			after(5 * time.Second)
			r.store.edit(func(ni *v1beta1.NodeImage) { ni.UID, ni.Status = types.UID("u2"), v1beta1.NodeImageStatus{} })
			after(5 * time.Second)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
			require.Equal(t, 4, r.runtime.CallsOf("ListImages"), "looked for again")
		},
		"a status that cannot be written is written later": func(t *testing.T, r *rig) {
			r.store.fail(errors.New("server is away"))
			r.ask(tagSpec("1", nil))
			after(time.Minute)
			require.Less(t, r.store.writeCount(), 10, "with a backoff")
			r.store.fail(nil)
			after(time.Minute)
			require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("1").Phase)
		},
	}
	for name, check := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, 0)
				defer r.stop()
				after(time.Second) // no NodeImage yet
				check(t, r)
			})
		})
	}
}

func TestPullerHoldsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 2)
		defer r.stop()
		var tags []v1beta1.ImageTagSpec
		for i := range 6 {
			tag := fmt.Sprint(i)
			r.runtime.Script("nginx:"+tag, fakecri.PullScript{Latency: 10 * time.Second})
			tags = append(tags, tagSpec(tag, nil))
		}
		r.ask(tags...)
		after(5 * time.Second)
		s := r.store.counts()
		require.Equal(t, []int32{6, 2, 4}, []int32{s.Desired, s.Pulling, s.Waiting})
		after(30 * time.Second)
		require.Equal(t, 2, r.runtime.MaxConcurrentPulls())
		require.EqualValues(t, 6, r.store.counts().Succeeded)
	})
}

// A pull that waits for its retry does not keep others from pulling.
func TestASlotIsFreeBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 1)
		defer r.stop()
		r.runtime.Script("nginx:1", fakecri.PullScript{Failures: -1})
		r.runtime.Script("nginx:2", fakecri.PullScript{Latency: 500 * time.Millisecond})
		r.ask(tagSpec("1", func(s *v1beta1.ImageTagSpec) { s.PullPolicy.BackoffLimit = new(int32(10)) }), tagSpec("2", nil))
		after(3 * time.Second)
		require.Equal(t, v1beta1.ImagePhaseSucceeded, r.store.status("2").Phase)
		require.Equal(t, v1beta1.ImagePhasePulling, r.store.status("1").Phase)
		require.Equal(t, 1, r.runtime.MaxConcurrentPulls())
	})
}

// Tasks that are stopped while they wait are not started, and no word of them is told.
func TestATaskCanceledInTheQueueNeverPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 1)
		defer r.stop()
		r.runtime.Script("nginx:1", fakecri.PullScript{Latency: 30 * time.Second})
		r.ask(tagSpec("1", nil), tagSpec("2", nil), tagSpec("3", nil))
		after(5 * time.Second)
		r.ask(tagSpec("1", nil), tagSpec("2", func(s *v1beta1.ImageTagSpec) { s.Version = 1 }))
		after(time.Minute)
		require.Zero(t, r.runtime.CallsOf("PullImage nginx:3"))
		require.Equal(t, 1, r.runtime.CallsOf("PullImage nginx:2"))
		require.EqualValues(t, 1, r.store.status("2").Version)
	})
}

// Many changes must not become many writes, and none may stay untold for long.
func TestPullerWritesLittleAndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, 0)
		defer r.stop()
		var tags []v1beta1.ImageTagSpec
		const images = 60
		for i := range images {
			tag := fmt.Sprint(i)
			r.runtime.Script("nginx:"+tag, fakecri.PullScript{Latency: time.Duration(i) * time.Second})
			tags = append(tags, tagSpec(tag, func(s *v1beta1.ImageTagSpec) { s.PullPolicy.TimeoutSeconds = new(int32(1000)) }))
		}
		r.ask(tags...)
		for second := 1; second <= images; second++ {
			after(time.Second)
			if told := int(r.store.counts().Succeeded); told < second-5 {
				t.Fatalf("after %d s only %d of %d results are told", second, told, second)
			}
		}
		after(5 * time.Second)
		require.EqualValues(t, images, r.store.counts().Succeeded)
		require.LessOrEqual(t, r.store.writeCount(), 40, "0.5 per second and a burst of 5")
	})
}

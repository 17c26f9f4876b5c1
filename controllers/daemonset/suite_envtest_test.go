// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package daemonset

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/workload"
)

// The suite shares one API server, one manager and one fake kubelet; every test has a
// namespace of its own.
var (
	testClient client.Client
	writes     = &writeLog{}
)

const detector = "KUBE_CACHE_MUTATION_DETECTOR"

func TestMain(m *testing.M) {
	if os.Getenv(detector) == "" { // client-go reads it before main
		_ = os.Setenv(detector, "true")
		exe, err := os.Executable()
		if err == nil {
			err = syscall.Exec(exe, os.Args, os.Environ())
		}
		fmt.Fprintln(os.Stderr, "running with the cache mutation detector:", err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	server, err := apitest.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	code := 1
	if err := start(ctx, &running, server.Config); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	stop()
	running.Wait()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// Transports of client-go live as long as the process.
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func start(ctx context.Context, running *sync.WaitGroup, cfg *rest.Config) error {
	var err error
	if testClient, err = client.New(cfg, client.Options{Scheme: apitest.Scheme()}); err != nil {
		return err
	}
	counted := rest.CopyConfig(cfg)
	counted.Wrap(writes.wrap)
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme:  apitest.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	// The gates of the acceptance environment.
	gates, err := features.Parse("AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false")
	if err != nil {
		return err
	}
	if err := Add(mgr, Options{Settings: workload.Settings{Features: gates}}); err != nil {
		return err
	}
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "manager:", err)
		}
	})
	running.Go(func() { (&kubelet{client: testClient}).run(ctx) })
	return nil
}

// writeLog counts the manager's successful writes.
type writeLog struct {
	mu   sync.Mutex
	list []string // METHOD path
}

func (l *writeLog) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && req.Method != http.MethodGet && resp.StatusCode < 300 {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.list = append(l.list, req.Method+" "+req.URL.Path)
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// in returns the writes in a namespace so far, events aside.
func (l *writeLog) in(namespace string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.list {
		if strings.Contains(w, "/namespaces/"+namespace+"/") && !strings.HasSuffix(w, "/events") && !strings.Contains(w, "/events/") {
			out = append(out, w)
		}
	}
	return out
}

// namespace makes a namespace for one test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := testClient.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// maxWait is how long a test waits for something that takes a fraction of a second on an
// idle machine.
const maxWait = 2 * time.Minute

// eventually polls until check returns nil; its last error fails the test.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(maxWait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// SystemNamespace is where the product is installed.
const SystemNamespace = "kruise-system"

// testLabel marks the namespaces of tests.
const testLabel = "kruisectl.test/e2e"

// Env is one test's view of the cluster: a namespace of its own and a client.
type Env struct {
	T         testing.TB
	Client    client.WithWatch
	Config    *rest.Config
	Namespace string
}

// Scheme knows the built-in kinds and both versions of the product's.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// Connect returns a client of the cluster that KUBECONFIG names.
func Connect() (client.WithWatch, *rest.Config, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, nil, fmt.Errorf("KUBECONFIG is not set: run the suite with make test-e2e")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", path, err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: Scheme()})
	return c, cfg, err
}

// New gives t a namespace that is deleted when t passed, and kept and dumped when it failed.
func New(t *testing.T) *Env {
	t.Helper()
	c, cfg, err := Connect()
	require.NoError(t, err)
	e := &Env{T: t, Client: c, Config: cfg}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-" + slug(t.Name()) + "-",
		Labels:       map[string]string{testLabel: "true"},
	}}
	require.NoError(t, c.Create(t.Context(), ns))
	e.Namespace = ns.Name
	e.Eventually("ServiceAccount default exists", Short, func() string {
		return found(c.Get(t.Context(), e.Key("default"), &corev1.ServiceAccount{}))
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Short)
		defer cancel()
		if t.Failed() {
			e.dump(ctx)
			return
		}
		if err := c.Delete(ctx, ns); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting Namespace %s: %v", ns.Name, err)
		}
	})
	return e
}

// NamespacesGone waits until every namespace that a test has deleted is gone: nothing may
// keep a finalizer, or create anything in a namespace that is being deleted.
func NamespacesGone(ctx context.Context) error {
	c, _, err := Connect()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(Long)
	for {
		list := &corev1.NamespaceList{}
		err := c.List(ctx, list, client.MatchingLabels{testLabel: "true"})
		var left []string
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				left = append(left, fmt.Sprintf("%s: %+v", ns.Name, ns.Status.Conditions))
			}
		}
		if err == nil && len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("listing the namespaces of tests: %w", err)
			}
			return fmt.Errorf("namespaces still being deleted after %s: %q", Long, left)
		}
		time.Sleep(poll)
	}
}

// slug makes a test name fit for a namespace.
func slug(name string) string {
	s := strings.ToLower(strings.TrimPrefix(name, "Test"))
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 40)], "-")
}

// Ctx ends with the test.
func (e *Env) Ctx() context.Context { return e.T.Context() }

// Key names an object of the test's namespace.
func (e *Env) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: e.Namespace, Name: name}
}

// Eventually polls check until it returns "", which means true; any other text says what
// is still missing and ends up in the failure.
func (e *Env) Eventually(what string, timeout time.Duration, check func() string) {
	e.T.Helper()
	e.EventuallyIn(e.Ctx(), what, timeout, check)
}

// EventuallyIn is Eventually with a context of the caller's, for clean-up.
func (e *Env) EventuallyIn(ctx context.Context, what string, timeout time.Duration, check func() string) {
	e.T.Helper()
	deadline := time.Now().Add(timeout)
	missing := check()
	for missing != "" {
		if time.Now().After(deadline) {
			e.T.Fatalf("%s: not within %s: %s", what, timeout, missing)
		}
		select {
		case <-ctx.Done():
			e.T.Fatalf("%s: test ended: %s", what, missing)
		case <-time.After(poll):
		}
		missing = check()
	}
}

// Throughout polls check for the given time and fails at the first answer that is not "".
func (e *Env) Throughout(what string, span time.Duration, check func() string) {
	e.T.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(poll) {
		if broken := check(); broken != "" {
			e.T.Fatalf("%s: %s", what, broken)
		}
	}
}

func found(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// Create creates obj in the test's namespace.
func (e *Env) Create(obj client.Object) {
	e.T.Helper()
	obj.SetNamespace(e.Namespace)
	require.NoError(e.T, e.Client.Create(e.Ctx(), obj))
}

// read repeats get while the API server cannot answer, which faults bring about; an answer
// that the object does not exist is one.
func (e *Env) read(what string, get func() error) {
	e.T.Helper()
	var last error
	e.Eventually("reading "+what, Short, func() string {
		last = get()
		if apierrors.IsNotFound(last) {
			return ""
		}
		return found(last)
	})
	require.NoError(e.T, last)
}

// CloneSet reads the CloneSet of that name.
func (e *Env) CloneSet(name string) *v1beta1.CloneSet {
	e.T.Helper()
	cs := &v1beta1.CloneSet{}
	e.read("CloneSet "+name, func() error { return e.Client.Get(e.Ctx(), e.Key(name), cs) })
	return cs
}

// Update reads the CloneSet, lets change edit it, and writes it, again on conflict.
func (e *Env) Update(name string, change func(*v1beta1.CloneSet)) {
	e.T.Helper()
	e.Eventually("updating CloneSet "+name, Short, func() string {
		cs := e.CloneSet(name)
		change(cs)
		return found(e.Client.Update(e.Ctx(), cs))
	})
}

// Pods lists the Pods that the workload controls and that are not being deleted, by name.
func (e *Env) Pods(owner string) []corev1.Pod {
	e.T.Helper()
	list := &corev1.PodList{}
	e.read("the Pods of "+owner, func() error { return e.Client.List(e.Ctx(), list, client.InNamespace(e.Namespace)) })
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ref := metav1.GetControllerOf(&p)
		return p.DeletionTimestamp != nil || ref == nil || ref.Name != owner
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// WaitAvailable waits until the status speaks of the present generation, and want Pods
// exist, all of them at the update revision and available.
func (e *Env) WaitAvailable(name string, want int32) {
	e.T.Helper()
	e.WaitUpdated(name, want, want)
}

// WaitUpdated waits until total Pods exist and are available, updated of them at the update revision.
func (e *Env) WaitUpdated(name string, total, updated int32) {
	e.T.Helper()
	e.Eventually(fmt.Sprintf("CloneSet %s has %d Pods, %d updated and available", name, total, updated), Long, func() string {
		cs := e.CloneSet(name)
		s := cs.Status
		if s.ObservedGeneration < cs.Generation {
			return "the controller has not seen the last change"
		}
		if s.Replicas != total || s.AvailableReplicas != total || s.UpdatedReplicas != updated || s.UpdatedAvailableReplicas != updated {
			return fmt.Sprintf("replicas %d, available %d, updated %d, updated and available %d", s.Replicas, s.AvailableReplicas, s.UpdatedReplicas, s.UpdatedAvailableReplicas)
		}
		return ""
	})
}

// Background is for what must happen also after the test's own context has ended.
func (e *Env) Background() context.Context { return context.WithoutCancel(e.T.Context()) }

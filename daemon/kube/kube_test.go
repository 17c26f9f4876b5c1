// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every request with an empty object of the right kind and notes it.
type server struct {
	mu       sync.Mutex
	requests []string
	types    map[string]string // Accept and Content-Type by request
	bodies   map[string]string
}

func newServer(t *testing.T) (*server, *Client) {
	t.Helper()
	s := &server{types: map[string]string{}, bodies: map[string]string{}}
	http := httptest.NewServer(s)
	c, err := New(&rest.Config{Host: http.URL, QPS: -1}, Core(), Group{Version: v1beta1.GroupVersion, Types: []runtime.Object{&v1beta1.NodeImage{}, &v1beta1.NodeImageList{}}})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.groups[corev1.SchemeGroupVersion].(*rest.RESTClient).Client.CloseIdleConnections()
		http.Close()
	})
	return s, c
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	request := r.Method + " " + r.URL.String()
	s.requests = append(s.requests, request)
	s.types[request] = r.Header.Get("Accept") + " " + r.Header.Get("Content-Type")
	s.bodies[request] = string(body)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"metadata":{"name":"answer"}}`))
}

func nodeImages(c *Client) *Typed[*v1beta1.NodeImage, *v1beta1.NodeImageList] {
	return Resource(c, v1beta1.GroupVersion, "nodeimages", "",
		func() *v1beta1.NodeImage { return &v1beta1.NodeImage{} }, func() *v1beta1.NodeImageList { return &v1beta1.NodeImageList{} })
}

func TestRequests(t *testing.T) {
	const protobuf, jsonType = "application/vnd.kubernetes.protobuf,application/json", "application/json"
	cases := map[string]struct {
		do      func(context.Context, *Client) error
		request string
		types   string
	}{
		"a Secret, from the API server's cache": {
			func(ctx context.Context, c *Client) error {
				secret, err := c.Secrets("config").Get(ctx, "s", metav1.GetOptions{ResourceVersion: "0"})
				assert.Equal(t, "answer", secret.Name)
				return err
			}, "GET /api/v1/namespaces/config/secrets/s?resourceVersion=0", protobuf + " ",
		},
		"Pods of all namespaces": {
			func(ctx context.Context, c *Client) error {
				_, err := c.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
				return err
			}, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1", protobuf + " ",
		},
		"a patch of a status": {
			func(ctx context.Context, c *Client) error {
				_, err := c.Pods("shop").Patch(ctx, "web", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
				return err
			}, "PATCH /api/v1/namespaces/shop/pods/web/status", protobuf + " application/strategic-merge-patch+json",
		},
		"a status of a custom resource, in JSON": {
			func(ctx context.Context, c *Client) error {
				_, err := nodeImages(c).UpdateStatus(ctx, &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.UpdateOptions{})
				return err
			}, "PUT /apis/apps.kruise.io/v1beta1/nodeimages/n1/status", jsonType + ", */* " + jsonType,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, c := newServer(t)
			require.NoError(t, tc.do(t.Context(), c))
			require.Equal(t, []string{tc.request}, s.requests)
			require.Equal(t, tc.types, s.types[tc.request])
		})
	}
}

func TestEventsOfOneReasonDoNotSilenceAnother(t *testing.T) {
	s, c := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	events := NewEvents(ctx, c)
	recorder := events.Recorder("kruise-daemon-test", "n1")
	object := &corev1.ObjectReference{Kind: "NodeImage", APIVersion: "apps.kruise.io/v1beta1", Name: "n1", UID: "u"}
	for range 100 {
		recorder.Event(object, corev1.EventTypeNormal, "Often", time.Now().String())
	}
	recorder.Event(object, corev1.EventTypeWarning, "Rare", "look at this")
	// Strings are as they are in protobuf. Posts share their URL: the last one is noted.
	require.Eventually(t, func() bool { return s.sent("look at this") }, 2*time.Minute, time.Millisecond)
	require.LessOrEqual(t, s.count(), 30, "of 101")
	cancel()
	events.Stop()
}

func (s *server) sent(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, body := range s.bodies {
		if strings.Contains(body, text) {
			return true
		}
	}
	return false
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

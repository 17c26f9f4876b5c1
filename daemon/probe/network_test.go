// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// site answers what the tests ask for.
func site(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ok":
		_, _ = fmt.Fprintf(w, "query %s host %s agent %s accept %q test %s", r.URL.RawQuery, r.Host, r.UserAgent(), r.Header.Values("Accept"), r.Header.Get("X-Test"))
	case "/long":
		_, _ = w.Write([]byte(strings.Repeat("x", 100_000)))
	case "/empty":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/around":
		http.Redirect(w, r, "/around", http.StatusFound)
	case "/local":
		http.Redirect(w, r, "/ok", http.StatusFound)
	case "/away":
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	case "/slow":
		<-r.Context().Done()
	default:
		http.Error(w, "no such page", http.StatusNotFound)
	}
}

func TestHTTP(t *testing.T) {
	plain, secure := httptest.NewServer(http.HandlerFunc(site)), httptest.NewTLSServer(http.HandlerFunc(site))
	defer plain.Close()
	defer secure.Close()
	port := func(s *httptest.Server) intstr.IntOrString {
		return intstr.FromInt(s.Listener.Addr().(*net.TCPAddr).Port)
	}
	header := func(name, value string) corev1.HTTPHeader { return corev1.HTTPHeader{Name: name, Value: value} }
	cases := map[string]struct {
		action  corev1.HTTPGetAction
		failed  bool
		message string // a part of it
	}{
		"a page, with the defaults of the kubelet": {
			action: corev1.HTTPGetAction{Path: "/ok?a=b&c", Port: port(plain)}, message: `query a=b&c host 127.0.0.1:` + fmt.Sprint(port(plain).IntVal) + ` agent kube-probe accept ["*/*"] test `,
		},
		"headers, the host among them": {
			action:  corev1.HTTPGetAction{Path: "/ok", Port: port(plain), HTTPHeaders: []corev1.HTTPHeader{header("host", "shop.example"), header("X-Test", "1"), header("User-Agent", "me")}},
			message: `host shop.example agent me accept ["*/*"] test 1`,
		},
		"an empty Accept leaves it out": {
			action: corev1.HTTPGetAction{Path: "/ok", Port: port(plain), HTTPHeaders: []corev1.HTTPHeader{header("Accept", "")}}, message: "accept []",
		},
		"any certificate will do": {
			action: corev1.HTTPGetAction{Path: "/ok", Port: port(secure), Scheme: corev1.URISchemeHTTPS}, message: "query ",
		},
		"an error of the server has failed, with its text": {
			action: corev1.HTTPGetAction{Path: "/missing", Port: port(plain)}, failed: true, message: "no such page",
		},
		"an error without text tells the status": {
			action: corev1.HTTPGetAction{Path: "/empty", Port: port(plain)}, failed: true, message: "HTTP status 503 Service Unavailable",
		},
		"a redirect to the same host is followed": {
			action: corev1.HTTPGetAction{Path: "/local", Port: port(plain)}, message: "query ",
		},
		"a redirect to another host is success and not followed": {
			action: corev1.HTTPGetAction{Path: "/away", Port: port(plain)}, message: "Probe terminated redirects",
		},
		"a redirect in circles has failed": {
			action: corev1.HTTPGetAction{Path: "/around", Port: port(plain)}, failed: true, message: "stopped after 10 redirects",
		},
		"the wrong protocol has failed": {
			action: corev1.HTTPGetAction{Path: "/ok", Port: port(plain), Scheme: corev1.URISchemeHTTPS}, failed: true, message: "HTTP response to HTTPS client",
		},
		"a path without slash, as a path with one": {
			action: corev1.HTTPGetAction{Path: "ok", Port: port(plain)}, message: "query ",
		},
		"a header that is none has failed": {
			action: corev1.HTTPGetAction{Path: "/ok", Port: port(plain), HTTPHeaders: []corev1.HTTPHeader{header("a b", "c")}}, failed: true, message: "invalid header",
		},
	}
	n := newNetwork()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := n.HTTP(t.Context(), "127.0.0.1", &tc.action)
			require.Contains(t, got.Message, tc.message)
			require.Equal(t, tc.failed, got.State == v1alpha1.ProbeFailed, got.Message)
		})
	}
	require.Len(t, n.HTTP(t.Context(), "127.0.0.1", &corev1.HTTPGetAction{Path: "/long", Port: port(plain)}).Message, maxBody)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, v1alpha1.ProbeFailed, n.HTTP(ctx, "127.0.0.1", &corev1.HTTPGetAction{Path: "/slow", Port: port(plain)}).State)
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	n := newNetwork()
	require.Equal(t, Result{State: v1alpha1.ProbeSucceeded}, n.TCP(t.Context(), "127.0.0.1", port))
	require.NoError(t, l.Close())
	got := n.TCP(t.Context(), "127.0.0.1", port)
	require.Equal(t, v1alpha1.ProbeFailed, got.State)
	require.Contains(t, got.Message, "connection refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, v1alpha1.ProbeFailed, n.TCP(ctx, "192.0.2.1", 80).State)
}

func TestTargetOfIPv6(t *testing.T) {
	require.Equal(t, "https://[fd00::1]:8443/x?y=1", target("fd00::1", &corev1.HTTPGetAction{Path: "/x?y=1", Port: intstr.FromInt32(8443), Scheme: "HTTPS"}))
	require.Equal(t, "http://10.0.0.1:80/%25zz", target("10.0.0.1", &corev1.HTTPGetAction{Path: "/%zz", Port: intstr.FromInt32(80)}))
}

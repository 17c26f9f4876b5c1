// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// proxy stands between the agent and the API server: it counts requests and can go away.
type proxy struct {
	addr    string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server
	writes []string // method and path
	reads  int
}

func newProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,                         // watches
		ErrorLog:      log.New(io.Discard, "", 0), // who goes away breaks off
	}
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.note(r)
		defer func() { _ = recover() }() // the copy of a watch ends with a panic
		forward.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.addr = listener.Addr().String()
	p.serve(listener)
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) note(r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		p.reads++
		return
	}
	p.writes = append(p.writes, r.Method+" "+r.URL.Path)
}

func (p *proxy) serve(listener net.Listener) {
	server := &http.Server{Handler: p.handler} //nolint:gosec // a test on localhost
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // ends with stop
}

// stop makes the API server unreachable: connections break and new ones are refused.
func (p *proxy) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.server.Close()
}

// start ends that.
func (p *proxy) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", p.addr)
	require.NoError(t, err)
	p.serve(listener)
}

// written lists the writes so far, without events.
func (p *proxy) written() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.writes), func(w string) bool { return strings.HasSuffix(w, "/events") })
}

// readings counts the reads so far, watches included when they begin.
func (p *proxy) readings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

// kubeconfig writes a file for who speaks to the proxy.
func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "http://" + p.addr}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(klog.Background())
	os.Exit(m.Run())
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func body(url string) string {
	response, err := http.Get(url) //nolint:gosec,noctx // of the agent under test
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", string(text))
}

// socketDir is a directory for sockets: t.TempDir is too long for their paths.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kd") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/daemon/cri"
	"github.com/kruisectl/kruisectl/daemon/cri/fakecri"
)

// annotatedKill kills the way the kubelet would.
func annotatedKill(t *testing.T, rt cri.Runtime, c cri.Status, ip string) (hookErr, err error) {
	t.Helper()
	o, hookErr := cri.AnnotatedKill(c)
	o.PodIP = ip
	runErr, err := cri.Kill(t.Context(), rt, c, o)
	return errors.Join(hookErr, runErr), err
}

func TestKill(t *testing.T) {
	const hookKey = "io.kubernetes.container.preStopHandler"
	cases := map[string]struct {
		annotations map[string]string
		exec        fakecri.ExecScript
		stopDelay   time.Duration
		calls       []string
		took        time.Duration
		hookErr     string
		exitCode    int32
		state       cri.State // running when empty
	}{
		"without anything the process has 30 s": {
			stopDelay: time.Hour, calls: []string{"StopContainer c"}, took: 30 * time.Second, exitCode: 137,
		},
		"the Pod's grace period counts": {
			annotations: map[string]string{"io.kubernetes.pod.terminationGracePeriod": "7"},
			stopDelay:   time.Hour, calls: []string{"StopContainer c"}, took: 7 * time.Second, exitCode: 137,
		},
		"that of its deletion counts more": {
			annotations: map[string]string{"io.kubernetes.pod.terminationGracePeriod": "7", "io.kubernetes.pod.deletionGracePeriod": "5"},
			stopDelay:   time.Hour, calls: []string{"StopContainer c"}, took: 5 * time.Second, exitCode: 137,
		},
		"the hook runs first and uses up the time": {
			annotations: map[string]string{hookKey: `{"exec":{"command":["bye","now"]}}`},
			exec:        fakecri.ExecScript{Delay: 10 * time.Second}, stopDelay: time.Hour,
			calls: []string{"ExecSync c bye now", "StopContainer c"}, took: 30 * time.Second, exitCode: 137,
		},
		"a hook that fails does not keep the container": {
			annotations: map[string]string{hookKey: `{"exec":{"command":["bye","now"]}}`},
			exec:        fakecri.ExecScript{Code: 3}, stopDelay: time.Second,
			calls: []string{"ExecSync c bye now", "StopContainer c"}, took: time.Second, hookErr: "command exited with code 3",
		},
		"nor does one that hangs; the process still has 2 s": {
			annotations: map[string]string{hookKey: `{"exec":{"command":["bye","now"]}}`},
			exec:        fakecri.ExecScript{Delay: time.Hour}, stopDelay: time.Hour,
			calls: []string{"ExecSync c bye now", "StopContainer c"}, took: 32 * time.Second, hookErr: "timed out", exitCode: 137,
		},
		"a hook may sleep": {
			annotations: map[string]string{hookKey: `{"sleep":{"seconds":4}}`},
			calls:       []string{"StopContainer c"}, took: 4 * time.Second,
		},
		"without grace there is no hook, and the process dies at once": {
			annotations: map[string]string{hookKey: `{"exec":{"command":["bye","now"]}}`, "io.kubernetes.pod.terminationGracePeriod": "0"},
			stopDelay:   time.Hour, calls: []string{"StopContainer c"}, exitCode: 137,
		},
		"a container that has exited gets no hook": {
			annotations: map[string]string{hookKey: `{"exec":{"command":["bye","now"]}}`}, state: cri.StateExited, calls: []string{"StopContainer c"},
		},
		"a hook of no known kind fails": {
			annotations: map[string]string{hookKey: `{}`}, calls: []string{"StopContainer c"}, hookErr: "neither exec nor httpGet nor sleep",
		},
		"a hook that is no JSON fails": {
			annotations: map[string]string{hookKey: `{`}, calls: []string{"StopContainer c"}, hookErr: "parsing annotation",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fakecri.New("containerd")
				status := cri.Status{Container: cri.Container{ID: "c", State: cmp.Or(tc.state, cri.StateRunning), Annotations: tc.annotations}}
				rt.AddContainer(fakecri.Container{Status: status, StopDelay: tc.stopDelay, Exec: map[string]fakecri.ExecScript{"bye now": tc.exec}})
				started := time.Now()
				hookErr, err := annotatedKill(t, rt, status, "")
				require.NoError(t, err)
				require.Equal(t, tc.took, time.Since(started))
				require.Equal(t, tc.calls, rt.Calls())
				if tc.hookErr == "" {
					require.NoError(t, hookErr)
				} else {
					require.ErrorContains(t, hookErr, tc.hookErr)
				}
				after, err := rt.Container(t.Context(), "c")
				require.NoError(t, err)
				require.Equal(t, cri.StateExited, after.State)
				require.Equal(t, tc.exitCode, after.ExitCode)
			})
		})
	}
}

func TestKillWithHTTPHook(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("X-Why"))
		if strings.Contains(r.URL.Path, "bad") {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	kill := func(hook, ip string) error {
		rt := fakecri.New("containerd")
		status := cri.Status{Container: cri.Container{ID: "c", State: cri.StateRunning, Annotations: map[string]string{
			"io.kubernetes.container.preStopHandler": hook,
			"io.kubernetes.container.ports":          fmt.Sprintf(`[{"name":"web","containerPort":%s}]`, port),
		}}}
		rt.AddContainer(fakecri.Container{Status: status})
		hookErr, err := annotatedKill(t, rt, status, ip)
		require.NoError(t, err)
		return hookErr
	}
	require.NoError(t, kill(`{"httpGet":{"path":"/bye","port":"web","httpHeaders":[{"name":"X-Why","value":"test"}]}}`, host))
	require.NoError(t, kill(`{"httpGet":{"path":"bye","port":`+port+`,"host":"`+host+`"}}`, ""))
	require.Equal(t, []string{"/bye test", "/bye "}, asked)
	require.ErrorContains(t, kill(`{"httpGet":{"path":"/bad","port":"web"}}`, host), "418")
	require.ErrorContains(t, kill(`{"httpGet":{"path":"/bye","port":"admin"}}`, host), `no port named "admin"`)
	require.ErrorContains(t, kill(`{"httpGet":{"path":"/bye","port":"web"}}`, ""), "no IP")
}

// A hook that outlives the grace period is not cut off while the process still stops.
func TestAnAbandonedHookEndsWithItsContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New("containerd")
		status := cri.Status{Container: cri.Container{ID: "c", State: cri.StateRunning}}
		rt.AddContainer(fakecri.Container{Status: status, StopDelay: time.Hour, Exec: map[string]fakecri.ExecScript{"bye": {Delay: 4 * time.Second}}})
		started := time.Now()
		hookErr, err := cri.Kill(t.Context(), rt, status, cri.KillOptions{
			Hook: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}, Grace: new(3 * time.Second),
		})
		require.NoError(t, err)
		require.ErrorIs(t, hookErr, cri.ErrTimedOut)
		require.Equal(t, 5*time.Second, time.Since(started))
	})
}

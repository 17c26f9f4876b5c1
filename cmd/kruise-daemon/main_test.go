// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/pullsecret"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestParse(t *testing.T) {
	node := env(map[string]string{"NODE_NAME": "n1"})
	cases := map[string]struct {
		args  []string
		env   func(string) string
		check func(*testing.T, options)
		want  string // part of the error
	}{
		"defaults": {env: node, check: func(t *testing.T, o options) {
			require.Equal(t, []any{":10221", ":10222", true, "/hostvarrun", "", -1, "kruise-daemon-config", "n1"},
				[]any{o.addr, o.pprofAddr, o.enablePprof, o.hostRunDir, o.socketFile, o.maxWorkers, o.configNamespace, o.node})
			require.True(t, o.gates.Enabled(features.DaemonWatchingPod))
		}},
		"the arguments of the acceptance environment": {
			args: []string{"--logtostderr=true", "-v=5", "--feature-gates=AllAlpha=true,AllBeta=true", "--max-workers-for-pull-image=2"},
			env:  node, check: func(t *testing.T, o options) { require.Equal(t, 2, o.maxWorkers) },
		},
		"the arguments of the manifests": {
			args: []string{"--logtostderr=true", "--v=4", "--addr=:10221", "--feature-gates=ImagePullJobGate=true", "--socket-file=", "--enable-pprof=true", "--pprof-addr=localhost:10222"},
			env:  node, check: func(t *testing.T, o options) { require.Equal(t, "localhost:10222", o.pprofAddr) },
		},
		"dependent gates follow": {
			args: []string{"--feature-gates=KruiseDaemon=false"},
			env:  node, check: func(t *testing.T, o options) { require.False(t, o.gates.Enabled(features.DaemonWatchingPod)) },
		},
		"another namespace of pull secrets": {
			env:   env(map[string]string{"NODE_NAME": "n1", "KRUISE_DAEMON_CONFIG_NS": "other"}),
			check: func(t *testing.T, o options) { require.Equal(t, "other", o.configNamespace) },
		},
		"no node name":     {env: env(nil), want: "NODE_NAME"},
		"an unknown gate":  {args: []string{"--feature-gates=Nonsense=true"}, env: node, want: "Nonsense"},
		"an unknown flag":  {args: []string{"--nonsense"}, env: node, want: "nonsense"},
		"a stray argument": {args: []string{"stray"}, env: node, want: "stray"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := parse(tc.args, tc.env)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			tc.check(t, o)
		})
	}
}

// On every node the agent must be small. These bring in all types of Kubernetes, or keep the
// linker from leaving out methods that nobody calls. The tag is the release's: without it
// gRPC brings in text/template.
func TestLeanImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "grpcnotrace", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, dep := range strings.Fields(string(out)) {
		for _, heavy := range []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/testing", "text/template"} {
			require.False(t, dep == heavy || strings.HasPrefix(dep, heavy+"/"), "%s costs memory on every node: use daemon/kube", dep)
		}
	}
}

func TestConfigNamespaceIsTheManagers(t *testing.T) {
	require.Equal(t, pullsecret.DefaultNamespace, defaultConfigNamespace)
}

// Hashes of older kubelets cover the whole container: it must survive.
func TestStripPodKeepsContainers(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "nginx", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
		Volumes:    []corev1.Volume{{Name: "v"}},
	}}
	want := pod.Spec.Containers[0].DeepCopy()
	stripPod(pod)
	require.Equal(t, *want, pod.Spec.Containers[0])
	require.Empty(t, pod.Spec.Volumes)
}

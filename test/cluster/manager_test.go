// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestManagerStandsInForItsContainer(t *testing.T) {
	s := testState(t, Shape{Simulated: 3, Rootless: true})
	spec := s.managerSpec(corev1.Container{
		Args: []string{"--metrics-addr=:8080", "--feature-gates=A=true", "--health-probe-addr=:8000"},
		Env: []corev1.EnvVar{
			{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
			{Name: "WEBHOOK_PORT", Value: "9876"}, {Name: "CERTS_RENEW_BEFORE", Value: "10d"},
		},
	}, managerPorts{webhook: 11, health: 12, metrics: 13}, []string{"--nodeimage-creation-delay=1s", "--feature-gates=B=true"})

	got := flags(spec)
	require.Equal(t, "127.0.0.1:13", got["--metrics-addr"], "not a port that the world reaches and two clusters share")
	require.Equal(t, "127.0.0.1:12", got["--health-probe-addr"])
	require.Equal(t, "A=true", got["--feature-gates"], "the Deployment decides")
	require.Equal(t, "1s", got["--nodeimage-creation-delay"])
	require.Equal(t, s.managerKubeconfig(), got["--kubeconfig"])
	require.NotEqual(t, s.Kubeconfig, got["--kubeconfig"], "the manager is no administrator")

	env := map[string]string{}
	for _, e := range spec.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	require.Equal(t, "kruise-system", env["POD_NAMESPACE"])
	require.Equal(t, "127.0.0.1", env["WEBHOOK_HOST"])
	require.Equal(t, "11", env["WEBHOOK_PORT"])
	require.Equal(t, "10d", env["CERTS_RENEW_BEFORE"])
	for _, file := range []string{spec.Args[0], env["WEBHOOK_CERT_DIR"], got["--protection-log-path"], spec.Log} {
		require.Contains(t, file, s.DataDir, "down removes it")
	}
}

func TestInstalledManager(t *testing.T) {
	deployment := func(container string) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, Name: managerDeployment},
			Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar"}, {Name: container}}}}},
		}
	}
	got, err := installedManager(t.Context(), fake.NewClientset(deployment("manager")))
	require.NoError(t, err)
	require.Equal(t, "manager", got.Name)

	_, err = installedManager(t.Context(), fake.NewClientset())
	require.ErrorContains(t, err, "kruisectl install --wait=false")
	_, err = installedManager(t.Context(), fake.NewClientset(deployment("other")))
	require.ErrorContains(t, err, "has no container manager")
}

func TestRealNodesRunTheManagerThemselves(t *testing.T) {
	c := newCluster(testState(t, Shape{Nodes: 1}))
	require.ErrorContains(t, c.RunManager(t.Context(), ManagerOptions{}), "has real nodes")
}

func TestNobodyClaimsToRunTheProductOnSimulatedNodes(t *testing.T) {
	alone := testState(t, Shape{Simulated: 2, Rootless: true}).simulatorSpec().Args
	require.Contains(t, alone, "--node-agent")
	require.Contains(t, alone, "--idle-namespace=kruise-system")
	beside := testState(t, Shape{Nodes: 1, Simulated: 2}).simulatorSpec().Args
	require.Contains(t, beside, "--node-agent", "of the simulated nodes; real ones have their own")
	require.False(t, slices.ContainsFunc(beside, func(a string) bool { return a == "--idle-namespace=kruise-system" }))
}

//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// The registry with authentication and its credentials come from the cluster under test.
func TestPrivateImageIsPulledWithASecret(t *testing.T) {
	t.Parallel()
	e := harness.New(t)
	registry, user, password := os.Getenv("E2E_PRIVATE_REGISTRY"), os.Getenv("E2E_PRIVATE_USER"), os.Getenv("E2E_PRIVATE_PASSWORD")
	require.NotEmpty(t, registry, "E2E_PRIVATE_REGISTRY: run the suite with make test-e2e")
	image := registry + "/private/app:1"

	// Without the secret every node fails, and the command says so.
	r := e.Try("image", "pull", image, "--name", "refused", "--policy", "Always", "--backoff", "0", "--parallelism", "3", "--wait", "--timeout", "5m")
	require.Equal(t, 3, r.Code, "exit code without credentials:\n%s", r.Text())

	config, err := json.Marshal(map[string]any{"auths": map[string]any{registry: map[string]string{"username": user, "password": password}}})
	require.NoError(t, err)
	e.Create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "regcred"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	})
	e.Kruisectl("image", "pull", image, "--name", "granted", "--pull-secret", "regcred", "--parallelism", "3", "--wait", "--timeout", "5m")
	status := e.Kruisectl("image", "status", "granted")
	for _, node := range []string{"node1", "node2", "node3"} {
		require.Contains(t, status.Stdout, node)
	}
	e.Kruisectl("image", "wait", "granted", "--timeout", "2m")
}

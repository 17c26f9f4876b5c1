//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// registryUser is what the private registry's own images want, wherever a test does not say otherwise.
func registryUser() (registry, user, password string) {
	return os.Getenv("E2E_PRIVATE_REGISTRY"), os.Getenv("E2E_PRIVATE_USER"), os.Getenv("E2E_PRIVATE_PASSWORD")
}

func TestASecretOpensARegistryThatFailsAndIsSlow(t *testing.T) {
	t.Parallel()
	secretScenario(newSuite(t, beta{}))
}

// secretScenario is the life of a job with a pull secret and a TTL, from a registry that
// gives out tokens, fails at first, and is slow then.
func secretScenario(s suite) {
	image := s.MakePrivateImage("app", 3, 100_000)
	registry, _, _ := registryUser()
	rule := harness.Rule{Auth: &harness.Auth{Scheme: "bearer", User: "ann", Password: "open sesame"}, Status: 500, Times: 5}
	s.Spoil(image, rule)
	source := s.PullSecret("pull-secret", registry, "ann", "open sesame")
	nodes := s.NodeNames()

	s.pull("job", image.Ref, secrets("pull-secret"), parallel(4), attempts(120, 5), ttl(20))
	s.waitDesired(len(nodes))
	s.waitCopied("job", source.Data)
	s.Eventually("the registry has failed a few times", harness.Long, func() string {
		if s.Spoiled(image) < rule.Times {
			return "not yet"
		}
		return ""
	})
	rule.Status, rule.Times, rule.BytesPerSecond = 0, 0, 50_000
	s.Spoil(image, rule)

	status := s.waitCompleted("job", len(nodes), 0)
	require.Empty(s.T, status.FailedNodes)
	s.RequireDownloadedOnce(image, nodes...)
	for _, n := range nodes {
		st := statusOf(s.nodeImage(n), image.Ref)
		require.NotNil(s.T, st, "status on %s", n)
		require.Equal(s.T, v1beta1.ImagePhaseSucceeded, st.Phase)
		require.Contains(s.T, st.ImageID, image.Name+"@")
	}
	s.waitNoCopy("pull-secret")
	s.waitGone("ImagePullJob", s.api.job().Object, "job")
	s.waitTagGone(image.Ref)
}

// What a user does: nothing that the registry refuses is reported as pulled, and the reason
// is named.
func TestWrongCredentialsAreNamedAndCanBePutRight(t *testing.T) {
	t.Parallel()
	s := newSuite(t, beta{})
	image := s.MakePrivateImage("app", 1, 1000)
	registry, user, password := registryUser()
	secret := s.PullSecret("pull-secret", registry, user, "wrong")

	r := s.Try("image", "pull", image.Ref, "--name", "refused", "--node", "node1", "--pull-secret", "pull-secret", "--backoff", "0", "--wait", "--timeout", "5m")
	require.Equal(t, 3, r.Code, "exit code with wrong credentials:\n%s", r.Text())
	status := s.Try("image", "status", "refused")
	require.Contains(t, status.Text(), "node1")
	require.Regexp(t, "does not let this login pull .*401", status.Text())
	require.Empty(t, s.Downloads(image), "nothing was served")

	// A job that is still trying sees the new password.
	s.pull("patient", image.Ref, on("node2"), secrets("pull-secret"), attempts(60, 20))
	s.Eventually("the wrong password was tried", harness.Long, func() string {
		if len(s.Requests(image)) == 0 || s.job("patient").status.Active != 1 {
			return "not yet"
		}
		return ""
	})
	secret.Data = map[string][]byte{".dockerconfigjson": harness.DockerConfig(registry, user, password)}
	require.NoError(t, s.Client.Update(s.Ctx(), secret))
	s.waitCompleted("patient", 1, 0)
	s.RequireDownloadedOnce(image, "node2")
}

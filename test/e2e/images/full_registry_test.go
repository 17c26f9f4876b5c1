//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package images_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// A registry that goes wrong, and what becomes of a job with one attempt of 30 s and three
// retries on one node.
func TestARegistryThatGoesWrong(t *testing.T) {
	t.Parallel()
	const layer = 100_000
	cases := map[string]struct {
		rule harness.Rule
		ok   bool
		// twice says that a layer may have been asked for again, from where the first
		// download ended or all over.
		twice bool
		says  string // regular expression of the message on the node
	}{
		"slow, but fast enough":                {rule: harness.Rule{Kind: "blob", BytesPerSecond: 30_000}, ok: true},
		"errors, then works":                   {rule: harness.Rule{Status: 500, Times: 5}, ok: true, twice: true},
		"errors about layers, then works":      {rule: harness.Rule{Kind: "blob", Status: 503, Times: 3}, ok: true, twice: true},
		"limits requests, then works":          {rule: harness.Rule{Status: 429, RetryAfter: 1, Times: 8}, ok: true, twice: true},
		"a connection is cut, once":            {rule: harness.Rule{Kind: "blob", TruncateAt: 20_000, Times: 1}, ok: true, twice: true},
		"layers are cut short, always":         {rule: harness.Rule{Kind: "blob", TruncateAt: 20_000}, says: "(?i)unexpected EOF|short"},
		"another content than the digest says": {rule: harness.Rule{Kind: "blob", Corrupt: true}, says: "(?i)digest|unexpected commit|invalid|mismatch"},
		"another content, once":                {rule: harness.Rule{Kind: "blob", Corrupt: true, Times: 1}, ok: true, twice: true},
		"a manifest of another content":        {rule: harness.Rule{Kind: "manifest", Corrupt: true}, says: "(?i)digest|unexpected commit|invalid|mismatch"},
		"always errors":                        {rule: harness.Rule{Status: 500}, says: "does not answer.*500"},
		"always limits requests":               {rule: harness.Rule{Status: 429}, says: "limits how much this node may pull"},
		"forbids":                              {rule: harness.Rule{Status: 403}, says: "does not let this login pull .*403"},
		"does not know the image":              {rule: harness.Rule{Kind: "manifest", Status: 404}, says: "registry docker.io has no "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t, beta{})
			image := s.MakeImage("app", 2, layer)
			s.Spoil(image, tc.rule)
			s.pull("job", image.Ref, on("node1"), attempts(30, 3))
			if tc.ok {
				s.waitCompleted("job", 1, 0)
				s.requireDownloaded(image, tc.twice, "node1")
				require.Empty(t, statusOf(s.nodeImage("node1"), image.Ref).Message, "nothing is left of what went wrong")
				return
			}
			status := s.waitCompleted("job", 0, 1)
			require.Equal(t, []string{"node1"}, status.FailedNodes)
			st := statusOf(s.nodeImage("node1"), image.Ref)
			require.Equal(t, v1beta1.ImagePhaseFailed, st.Phase)
			require.Regexp(t, tc.says, st.Message)
			require.Regexp(t, tc.says, s.events("ImagePullJob", "job"), "an event says why")
			s.stillFailed(image)
		})
	}
}

// requireDownloaded fails unless each of the nodes has downloaded each layer, exactly once
// unless twice.
func (s suite) requireDownloaded(image harness.TestImage, twice bool, nodes ...string) {
	s.T.Helper()
	if !twice {
		s.RequireDownloadedOnce(image, nodes...)
		return
	}
	require.Equal(s.T, nodes, s.pulledOn(image), "nodes that have downloaded %s", image.Ref)
	for _, n := range nodes {
		require.Len(s.T, s.Downloads(image)[n], len(image.Layers)-1, "layers that %s has downloaded", n)
	}
}

// stillFailed mends the registry and wants that a failed job leaves it alone, and the next
// one succeeds.
func (s suite) stillFailed(image harness.TestImage) {
	s.T.Helper()
	s.Mend(image)
	asked := len(s.Requests(image))
	s.Throughout("nobody asks any more", harness.Still, func() string {
		if n := len(s.Requests(image)); n != asked {
			return fmt.Sprintf("%d requests, %d before", n, asked)
		}
		return ""
	})
	s.pull("next", image.Ref, on("node1"), attempts(60, 2))
	s.waitCompleted("next", 1, 0)
}

// A job makes as many attempts as it is allowed, and no more.
func TestAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSuite(t, beta{})
	image := s.MakeImage("app", 1, 1000)
	s.Spoil(image, harness.Rule{Kind: "manifest", Status: 403})
	s.pull("job", image.Ref, parallel(3), attempts(30, 2))
	nodes := s.NodeNames()
	status := s.waitCompleted("job", 0, len(nodes))
	require.Equal(t, nodes, status.FailedNodes)
	for _, n := range nodes {
		require.Equal(t, 3, s.Manifests(image)[n], "attempts of %s", n)
	}
}

// A registry that never answers costs the time of the attempts and no more; the attempt
// that comes after it has recovered succeeds.
func TestARegistryThatHangs(t *testing.T) {
	t.Parallel()
	s := newSuite(t, beta{})
	image := s.MakeImage("app", 1, 1000)
	s.Spoil(image, harness.Rule{Hang: true})
	s.pull("cut", image.Ref, on("node1"), attempts(3, 1))
	s.waitCompleted("cut", 0, 1)
	require.Contains(t, statusOf(s.nodeImage("node1"), image.Ref).Message, "no result within 3s")
	require.Equal(t, 2, s.Manifests(image)["node1"], "attempts")

	s.pull("patient", image.Ref, on("node2"), attempts(3, 30))
	s.Eventually("the second attempt", harness.Long, func() string {
		if n := s.Manifests(image)["node2"]; n < 2 {
			return fmt.Sprintf("%d attempts", n)
		}
		return ""
	})
	s.Mend(image)
	s.waitCompleted("patient", 1, 0)
	s.RequireDownloadedOnce(image, "node2")
}

// The deadline of a job ends it, whatever its nodes do, and names those that were not done.
func TestTheDeadlineOfAJob(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 1, 1000)
		s.Spoil(image, harness.Rule{Hang: true})
		s.pull("job", image.Ref, parallel(1), attempts(5, 50), func(j *v1beta1.ImagePullJobTemplate) {
			j.CompletionPolicy.ActiveDeadlineSeconds = new(int64(10))
		})
		nodes := s.NodeNames()
		status := s.waitCompleted("job", 0, len(nodes))
		require.ElementsMatch(s.T, nodes, status.FailedNodes)
		require.Contains(s.T, status.Message, "activeDeadlineSeconds")
		s.Eventually("the nodes give up", harness.Long, func() string {
			asked := len(s.Requests(image))
			time.Sleep(harness.Still)
			if n := len(s.Requests(image)); n != asked {
				return fmt.Sprintf("%d requests, %d before", n, asked)
			}
			return ""
		})
	})
}

// A large image of many layers, two jobs for it at once, on all nodes. The second job starts
// the pull of the first one again, which costs the layers that were on their way.
func TestALargeImageForTwoJobsAtOnce(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("large", 16, 1<<20)
		s.Spoil(image, harness.Rule{Kind: "blob", BytesPerSecond: 1 << 20})
		nodes := s.NodeNames()
		s.pull("first", image.Ref, parallel(3))
		s.pull("second", image.Ref, parallel(3))
		s.waitCompleted("second", len(nodes), 0)
		s.waitCompleted("first", len(nodes), 0)
		s.requireDownloaded(image, true, nodes...)
		for _, n := range nodes {
			for layer, count := range s.Downloads(image)[n] {
				require.LessOrEqual(s.T, count, 2, "downloads of %s by %s: one of each job", layer, n)
			}
		}
	})
}

// A present image is not pulled again, unless the policy says so; then only its manifest is
// looked at.
func TestWhatIsPresentIsNotPulledAgain(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakeImage("app", 2, 1000)
		nodes := s.NodeNames()
		s.pull("first", image.Ref, parallel(3))
		s.waitCompleted("first", len(nodes), 0)
		asked := len(s.Requests(image))
		s.pull("second", image.Ref, parallel(3))
		s.waitCompleted("second", len(nodes), 0)
		require.Len(s.T, s.Requests(image), asked, "requests after a job with IfNotPresent")
		s.pull("third", image.Ref, parallel(3), policy(v1beta1.PullAlways))
		s.waitCompleted("third", len(nodes), 0)
		for _, n := range nodes {
			require.Equal(s.T, 2, s.Manifests(image)[n], "manifests that %s has looked at", n)
		}
		s.RequireDownloadedOnce(image, nodes...)
	})
}

// Scheme by scheme, the user's login opens the registry, and nobody's does not.
func TestLoginsOfEachScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"basic", "bearer"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t, beta{})
			image := s.MakePrivateImage("app", 1, 1000)
			registry, _, _ := registryUser()
			s.Spoil(image, harness.Rule{Auth: &harness.Auth{Scheme: scheme, User: "ann", Password: "open sesame"}})
			s.PullSecret("right", registry, "ann", "open sesame")
			s.PullSecret("wrong", registry, "ann", "sesame")
			s.PullSecret("elsewhere", "other.registry.test", "ann", "open sesame")
			s.pull("anonymous", image.Ref, on("node1"), attempts(30, 0))
			s.waitCompleted("anonymous", 0, 1)
			s.pull("mistaken", image.Ref, on("node1"), attempts(30, 0), secrets("wrong"))
			s.waitCompleted("mistaken", 0, 1)
			s.pull("misplaced", image.Ref, on("node1"), attempts(30, 0), secrets("elsewhere"))
			s.waitCompleted("misplaced", 0, 1)
			for _, r := range s.Requests(image) {
				require.Equal(t, http.StatusUnauthorized, r.Status, "%+v", r)
			}
			// The first secret is wrong, the second one is right: all are tried.
			s.pull("granted", image.Ref, on("node1"), attempts(30, 0), secrets("wrong", "elsewhere", "right"))
			s.waitCompleted("granted", 1, 0)
			s.RequireDownloadedOnce(image, "node1")
			for _, n := range []string{"right", "wrong", "elsewhere"} {
				s.waitNoCopy(n)
			}
		})
	}
}

// One secret of two jobs has one copy, which goes with the last of them.
func TestTwoJobsShareTheCopyOfASecret(t *testing.T) {
	inBothVersions(t, func(s suite) {
		image := s.MakePrivateImage("app", 1, 1000)
		registry, user, password := registryUser()
		source := s.PullSecret("pull-secret", registry, user, password)
		s.pull("first", image.Ref, on("node1"), never, secrets("pull-secret"))
		s.pull("second", image.Ref, on("node2"), never, secrets("pull-secret"))
		s.waitSucceeded("first", 1)
		s.waitSucceeded("second", 1)
		s.waitCopied("first", source.Data)
		s.waitCopied("second", source.Data)
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.job("first").Object))
		s.waitGone("ImagePullJob", s.api.job().Object, "first")
		s.waitCopied("second", source.Data)
		require.NoError(s.T, s.Client.Delete(s.Ctx(), s.job("second").Object))
		s.waitNoCopy("pull-secret")
	})
}

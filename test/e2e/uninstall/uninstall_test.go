//go:build e2e

// SPDX-License-Identifier: Apache-2.0

// Package uninstall_test takes the product away again and puts it back. It runs after the
// other suites, for it leaves nothing that they could use.
package uninstall_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// One story, for the steps depend on each other.
func TestUninstallAndInstallAgain(t *testing.T) {
	e := harness.New(t)
	require.NoError(t, harness.Install(e.Ctx()))
	e.Create(harness.WebSet("web", 2))
	e.WaitAvailable("web", 2)

	refused := e.Try("uninstall", "--yes", "--purge-crds")
	require.Equal(t, 1, refused.Code, "exit code of uninstall while a CloneSet exists:\n%s", refused.Text())
	require.Contains(t, refused.Text(), "CloneSet")
	require.Empty(t, managerMissing(e), "a refused uninstall must change nothing")

	e.Kruisectl("uninstall", "--yes", "--purge-crds", "--force")
	e.Eventually("manager and CRDs are gone", harness.Long, func() string {
		if managerMissing(e) == "" {
			return "the manager is still there"
		}
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clonesets.apps.kruise.io"}}
		if err := e.Client.Get(e.Ctx(), client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return "the CRD is still there"
		}
		return ""
	})
	again := e.Try("uninstall", "--yes")
	require.Zero(t, again.Code, "a second uninstall finds nothing to do:\n%s", again.Text())
	require.Equal(t, 1, e.Try("status").Code, "exit code of status when nothing is installed")

	require.NoError(t, harness.Install(e.Ctx()))
	e.Create(harness.WebSet("again", 2))
	e.WaitAvailable("again", 2)
}

func managerMissing(e *harness.Env) string {
	key := client.ObjectKey{Namespace: harness.SystemNamespace, Name: "kruise-controller-manager"}
	if err := e.Client.Get(e.Ctx(), key, &appsv1.Deployment{}); err != nil {
		return err.Error()
	}
	return ""
}

// What render prints is what install applies: applying the one over the other changes nothing.
func TestRenderedManifestsAreWhatIsInstalled(t *testing.T) {
	e := harness.New(t)
	require.NoError(t, harness.Install(e.Ctx()))
	args := append([]string{"manifest", "render"}, renderArgs()...)
	first, second := e.Kruisectl(args...), e.Kruisectl(args...)
	require.Equal(t, first.Stdout, second.Stdout, "rendering twice")

	diff := e.Kruisectl(append([]string{"manifest", "diff"}, renderArgs()...)...)
	require.Empty(t, strings.TrimSpace(diff.Stdout), "difference between the cluster and the rendered manifests")

	applied, err := harness.Run(e.Ctx(), first.Stdout, harness.Kubectl(), "apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-")
	require.NoError(t, err)
	require.Zero(t, applied.Code, applied.Text())
	require.NotContains(t, applied.Stdout, "created", "an object that install did not make")
}

// renderArgs are the arguments of install that shape the manifests.
func renderArgs() []string {
	return harness.Without(harness.InstallArgs()[1:], "--yes", "--timeout")
}

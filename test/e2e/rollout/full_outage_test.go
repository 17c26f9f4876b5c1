//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// While the manager is down its webhooks refuse every write of a CloneSet. An administrator
// who lets writes through meanwhile still cannot store what the schema's rules forbid, and
// is told the field.
func TestForbiddenWritesAreRefusedWhileTheManagerIsDown(t *testing.T) {
	e := harness.New(t)
	e.Create(harness.WebSet("web", 2))
	e.WaitAvailable("web", 2)
	before := harness.Identities(e.Pods("web"))
	scaleManager(e, 0)
	t.Cleanup(func() { scaleManager(e, 2) })
	waitForNoManager(e)

	err := e.Client.Create(e.Ctx(), inNamespace(e, harness.WebSet("refused", 1)))
	require.ErrorContains(t, err, "failed calling webhook")

	letWritesThrough(e)
	e.Eventually("a valid write goes through", harness.Short, func() string {
		cs := e.CloneSet("web")
		cs.Spec.RevisionHistoryLimit = new(int32(7))
		if err := e.Client.Update(e.Ctx(), cs); err != nil {
			return err.Error()
		}
		return ""
	})

	cases := map[string]struct {
		change func(*v1beta1.CloneSet)
		field  string
		says   string
	}{
		"partition without a percent sign": {func(cs *v1beta1.CloneSet) {
			cs.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromString("5"))
		}, "spec.updateStrategy.rollingUpdate.partition", "percentage"},
		"negative replicas": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Replicas = new(int32(-1))
		}, "spec.replicas", "0 or more"},
		"surge without ever creating a Pod": {func(cs *v1beta1.CloneSet) {
			cs.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
			cs.Spec.UpdateStrategy.RollingUpdate.MaxSurge = new(intstr.FromInt32(1))
		}, "spec.updateStrategy", "maxSurge"},
		"an unknown policy": {func(cs *v1beta1.CloneSet) {
			cs.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = "Sometimes"
		}, "spec.updateStrategy.rollingUpdate.podUpdatePolicy", "InPlaceIfPossible"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			requireRefused(t, e.Client.Create(t.Context(), inNamespace(e, harness.WebSet("refused", 1, tc.change))), tc.field, tc.says)
			cs := e.CloneSet("web")
			tc.change(cs)
			requireRefused(t, e.Client.Update(t.Context(), cs), tc.field, tc.says)
		})
	}
	// What only v1alpha1 forbids. Nothing converts while the manager is down, and nothing needs to.
	t.Run("deadline before Pods can be available, in v1alpha1", func(t *testing.T) {
		cs := alphaSet("refused", 1)
		cs.Spec.MinReadySeconds, cs.Spec.ProgressDeadlineSeconds = 20, new(int32(10))
		requireRefused(t, e.Client.Create(t.Context(), inNamespace(e, cs)), "spec", "progressDeadlineSeconds")
	})
	t.Run("another selector", func(t *testing.T) {
		cs := e.CloneSet("web")
		cs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
		requireRefused(t, e.Client.Update(t.Context(), cs), "spec.selector", "forbidden")
	})
	e.RequireSamePods("web", before)
}

func requireRefused(t *testing.T, err error, field, says string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, apierrors.IsInvalid(err), "the schema refuses, not a webhook: %v", err)
	require.ErrorContains(t, err, field)
	require.ErrorContains(t, err, says)
}

func inNamespace(e *harness.Env, obj client.Object) client.Object {
	obj.SetNamespace(e.Namespace)
	return obj
}

// letWritesThrough lets the webhooks of CloneSets be skipped when they do not answer, until
// the test ends.
func letWritesThrough(e *harness.Env) {
	e.T.Helper()
	set := func(policy admissionv1.FailurePolicyType) {
		mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
		edit(e, "kruise-mutating-webhook-configuration", mutating, func() {
			for i := range mutating.Webhooks {
				if strings.Contains(mutating.Webhooks[i].Name, "cloneset") {
					mutating.Webhooks[i].FailurePolicy = &policy
				}
			}
		})
		edit(e, "kruise-validating-webhook-configuration", validating, func() {
			for i := range validating.Webhooks {
				if strings.Contains(validating.Webhooks[i].Name, "cloneset") {
					validating.Webhooks[i].FailurePolicy = &policy
				}
			}
		})
	}
	set(admissionv1.Ignore)
	e.T.Cleanup(func() { set(admissionv1.Fail) })
}

// edit reads a cluster-wide object, changes and writes it, again on conflict.
func edit(e *harness.Env, name string, obj client.Object, change func()) {
	e.T.Helper()
	ctx := e.Background()
	e.EventuallyIn(ctx, "changing "+name, harness.Short, func() string {
		err := e.Client.Get(ctx, client.ObjectKey{Name: name}, obj)
		if err == nil {
			change()
			err = e.Client.Update(ctx, obj)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package valid_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
)

// Nothing is refused in a template that the API server accepts in a Pod.
func TestTheAPIServerRefusesWhatWeRefuse(t *testing.T) {
	c := client.NewDryRunClient(apitest.NewClient(t, apitest.Start(t, apitest.WithoutCRDs(), apitest.WithAPIServerArg("disable-admission-plugins", "ServiceAccount"))))
	create := func(change ...func(p *corev1.Pod)) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		for _, f := range change {
			f(p)
		}
		return c.Create(t.Context(), p)
	}
	require.NoError(t, create(func(p *corev1.Pod) { p.Spec = web().Spec.Template.Spec }), "the Pod without fault")
	for name, fault := range podFaults() {
		t.Run(name, func(t *testing.T) {
			template := web(fault.change).Spec.Template
			err := create(func(p *corev1.Pod) {
				p.Labels, p.Annotations, p.Finalizers, p.Spec = template.Labels, template.Annotations, template.Finalizers, template.Spec
			})
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
		})
	}
}

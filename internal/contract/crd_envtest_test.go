// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package contract_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// converter answers ConversionReviews as the webhook server does.
func converter(t *testing.T) http.Handler {
	scheme := apitest.Scheme()
	registry := conversion.NewRegistry()
	for kind, make := range map[string]func(*runtime.Scheme) (conversion.Converter, error){
		"CloneSet": conversion.NewHubSpokeConverter(&v1beta1.CloneSet{},
			conversion.NewSpokeConverter(&v1alpha1.CloneSet{}, v1alpha1.CloneSetFromHub, v1alpha1.CloneSetToHub)),
		"DaemonSet": conversion.NewHubSpokeConverter(&v1beta1.DaemonSet{},
			conversion.NewSpokeConverter(&v1alpha1.DaemonSet{}, v1alpha1.DaemonSetFromHub, v1alpha1.DaemonSetToHub)),
		"StatefulSet": conversion.NewHubSpokeConverter(&v1beta1.StatefulSet{},
			conversion.NewSpokeConverter(&v1alpha1.StatefulSet{}, v1alpha1.StatefulSetFromHub, v1alpha1.StatefulSetToHub)),
		"ImagePullJob": conversion.NewHubSpokeConverter(&v1beta1.ImagePullJob{},
			conversion.NewSpokeConverter(&v1alpha1.ImagePullJob{}, v1alpha1.ImagePullJobFromHub, v1alpha1.ImagePullJobToHub)),
		"ContainerRecreateRequest": conversion.NewHubSpokeConverter(&v1beta1.ContainerRecreateRequest{},
			conversion.NewSpokeConverter(&v1alpha1.ContainerRecreateRequest{}, v1alpha1.ContainerRecreateRequestFromHub, v1alpha1.ContainerRecreateRequestToHub)),
		"ImageListPullJob": conversion.NewHubSpokeConverter(&v1beta1.ImageListPullJob{},
			conversion.NewSpokeConverter(&v1alpha1.ImageListPullJob{}, v1alpha1.ImageListPullJobFromHub, v1alpha1.ImageListPullJobToHub)),
		"NodeImage": conversion.NewHubSpokeConverter(&v1beta1.NodeImage{},
			conversion.NewSpokeConverter(&v1alpha1.NodeImage{}, v1alpha1.NodeImageFromHub, v1alpha1.NodeImageToHub)),
	} {
		c, err := make(scheme)
		require.NoError(t, err)
		require.NoError(t, registry.RegisterConverter(v1beta1.GroupVersion.WithKind(kind).GroupKind(), c))
	}
	return conversion.NewWebhookHandler(scheme, registry)
}

// cloneSet parses a spec in YAML, with what every CloneSet needs unless the text has it.
func cloneSet(t *testing.T, version, spec string) *unstructured.Unstructured {
	return workload(t, "CloneSet", version, spec)
}

// workload is cloneSet for any kind.
func workload(t *testing.T, kind, version, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	fields := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields), spec)
	if fields["selector"] == nil {
		fields["selector"] = map[string]any{"matchLabels": map[string]any{"app": "web"}}
	}
	fields["template"] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}}
	require.NoError(t, unstructured.SetNestedMap(u.Object, fields, "spec"))
	u.SetAPIVersion("apps.kruise.io/" + version)
	u.SetKind(kind)
	u.SetNamespace("default")
	u.SetGenerateName("web-")
	return u
}

// Without any webhook the schema alone refuses what OpenKruise's webhook refused.
func TestSchemaRefusesInvalidCloneSets(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	const alpha, beta = "v1alpha1", "v1beta1"
	for name, in := range map[string]struct{ version, spec, path string }{
		"negative replicas":                    {beta, "replicas: -1", "spec.replicas"},
		"negative replicas, v1alpha1":          {alpha, "replicas: -1", "spec.replicas"},
		"an empty selector":                    {beta, "selector: {}", "empty selector is invalid for cloneset"},
		"empty terms of a selector":            {alpha, "selector: {matchLabels: {}, matchExpressions: []}", "empty selector is invalid for cloneset"},
		"an unknown type":                      {beta, "updateStrategy: {type: InPlaceOnly}", "spec.updateStrategy.type"},
		"an unknown type, v1alpha1":            {alpha, "updateStrategy: {type: RollingUpdate}", "spec.updateStrategy.type"},
		"an unknown policy":                    {beta, "updateStrategy: {rollingUpdate: {podUpdatePolicy: Recreate}}", "podUpdatePolicy"},
		"a negative partition":                 {beta, "updateStrategy: {rollingUpdate: {partition: -1}}", "partition"},
		"a partition in quotes":                {alpha, `updateStrategy: {partition: "5"}`, "spec.updateStrategy.partition"},
		"maxUnavailable that is no percentage": {beta, "updateStrategy: {rollingUpdate: {maxUnavailable: 5percent}}", "maxUnavailable"},
		"maxSurge that is no percentage":       {alpha, "updateStrategy: {maxSurge: 5%%}", "spec.updateStrategy.maxSurge"},
		"a surge with InPlaceOnly":             {beta, "updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxSurge: 1}}", "can not use maxSurge with podUpdatePolicy InPlaceOnly"},
		"a surge with InPlaceOnly, v1alpha1":   {alpha, "updateStrategy: {type: InPlaceOnly, maxSurge: 1}", "can not use maxSurge with strategy type InPlaceOnly"},
		"weights and orders at once":           {beta, "updateStrategy: {rollingUpdate: {priorityStrategy: {orderPriority: [{orderedKey: a}], weightPriority: [{weight: 1, matchSelector: {}}]}}}", "exclude each other"},
		"a weight above 100":                   {beta, "updateStrategy: {rollingUpdate: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {}}]}}}", "weight"},
		"an order without key":                 {alpha, `updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: ""}]}}`, "orderedKey"},
		"scatter without key":                  {beta, `updateStrategy: {rollingUpdate: {scatterStrategy: [{key: "", value: x}]}}`, "key"},
		"a deadline before Pods are available": {alpha, "progressDeadlineSeconds: 10\nminReadySeconds: 10", "progressDeadlineSeconds"},
		"a negative deadline":                  {alpha, "progressDeadlineSeconds: -1", "progressDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), cloneSet(t, in.version, in.spec))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, in.path)
		})
	}
	for name, in := range map[string]struct{ version, spec string }{
		"next to nothing":            {beta, "{}"},
		"next to nothing, v1alpha1":  {alpha, "{}"},
		"numbers":                    {beta, "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 3, maxUnavailable: 0, maxSurge: 2}}"},
		"percentages":                {alpha, `updateStrategy: {partition: "12.5%", maxUnavailable: 100%, maxSurge: 0%, type: InPlaceOnly}`},
		"InPlaceOnly without surge":  {beta, "updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxSurge: 0}}"},
		"OnDelete":                   {beta, "updateStrategy: {type: OnDelete}"},
		"no deadline":                {alpha, "progressDeadlineSeconds: 2147483647\nminReadySeconds: 2147483647"},
		"what only the webhook sees": {beta, "scaleStrategy: {podsToDelete: [a, a]}\nupdateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0}}"},
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			require.NoError(t, c.Create(t.Context(), cloneSet(t, in.version, in.spec)))
		})
	}

	t.Run("the selector cannot change", func(t *testing.T) {
		cs := cloneSet(t, beta, "{}")
		require.NoError(t, c.Create(t.Context(), cs))
		require.NoError(t, unstructured.SetNestedField(cs.Object, "b", "spec", "selector", "matchLabels", "a"))
		err := c.Update(t.Context(), cs)
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.Regexp(t, "updates to cloneset spec for fields other than .* are forbidden", err.Error())
	})
}

// The API server itself reads, writes and stores through the conversion.
func TestConversionThroughTheAPIServer(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	key := client.ObjectKey{Namespace: "default", Name: "web"}

	written := cloneSet(t, "v1beta1", `
scaleStrategy: {excludePreparingDelete: true, enablePVCReuse: true}
updateStrategy:
  type: RollingUpdate
  rollingUpdate:
    podUpdatePolicy: InPlaceIfPossible
    partition: 50%
    inPlaceUpdateStrategy: {imagePreDownloadParallelism: "5", imagePreDownloadTimeoutSeconds: 60}
`)
	written.SetGenerateName("")
	written.SetName("web")
	require.NoError(t, c.Create(t.Context(), written))
	before := &v1beta1.CloneSet{}
	require.NoError(t, c.Get(t.Context(), key, before))

	old := &v1alpha1.CloneSet{}
	require.NoError(t, c.Get(t.Context(), key, old))
	require.Equal(t, v1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType, old.Spec.UpdateStrategy.Type)
	require.Equal(t, "true", old.Labels[v1beta1.ExcludePreparingDeleteLabel])
	require.Equal(t, "5", old.Annotations[v1beta1.ImagePreDownloadParallelismAnnotation])
	old.Spec.Replicas = new(int32(7))
	require.NoError(t, c.Update(t.Context(), old))

	after := &v1beta1.CloneSet{}
	require.NoError(t, c.Get(t.Context(), key, after))
	before.Spec.Replicas = new(int32(7))
	require.Equal(t, before.Spec, after.Spec, "a v1alpha1 client changed more than the replicas")
	require.Equal(t, before.Labels, after.Labels)
	require.Equal(t, before.Annotations, after.Annotations)

	ni := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: v1beta1.NodeImageSpec{Images: map[string]v1beta1.ImageSpec{
		"nginx": {Tags: []v1beta1.ImageTagSpec{{Tag: "1"}}, PullSecrets: []v1beta1.ReferenceObject{{Namespace: "a", Name: "b", Mode: v1beta1.PullSecretModeBatch}}},
	}}}
	require.NoError(t, c.Create(t.Context(), ni))
	oldImage := &v1alpha1.NodeImage{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ni), oldImage))
	oldImage.Spec.Images["nginx"].PullSecrets[0].Mode = "" // as a client does that does not know the field
	require.NoError(t, c.Update(t.Context(), oldImage))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ni), ni))
	require.Equal(t, v1beta1.PullSecretModeBatch, ni.Spec.Images["nginx"].PullSecrets[0].Mode)
	require.Empty(t, ni.Annotations)
}

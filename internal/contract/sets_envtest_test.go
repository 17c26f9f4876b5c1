// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// rolling is a spec whose only noteworthy part is updateStrategy.rollingUpdate.
func rolling(fields string) string { return "updateStrategy: {rollingUpdate: {" + fields + "}}" }

// Without any webhook the schema alone refuses what the webhook refuses, at the same path.
func TestSchemaRefusesInvalidSets(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	const alpha, beta, sts, ads = "v1alpha1", "v1beta1", "StatefulSet", "DaemonSet"
	for name, in := range map[string]struct{ kind, version, spec, path string }{
		"negative replicas":                    {sts, beta, "replicas: -1", "spec.replicas"},
		"an empty selector":                    {sts, beta, "selector: {}", "spec.selector"},
		"an empty selector, v1alpha1":          {sts, alpha, "selector: {matchLabels: {}}", "spec.selector"},
		"an unknown policy of Pods":            {sts, beta, "podManagementPolicy: Ordered", "spec.podManagementPolicy"},
		"an unknown type":                      {sts, beta, "updateStrategy: {type: InPlaceOnly}", "spec.updateStrategy.type"},
		"limits with OnDelete":                 {sts, beta, "updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}", "spec.updateStrategy.rollingUpdate"},
		"an unknown update policy":             {sts, alpha, rolling("podUpdatePolicy: Recreate"), "spec.updateStrategy.rollingUpdate.podUpdatePolicy"},
		"a negative partition":                 {sts, beta, rolling("partition: -1"), "spec.updateStrategy.rollingUpdate.partition"},
		"nothing unavailable":                  {sts, beta, "podManagementPolicy: Parallel\n" + rolling("maxUnavailable: 0"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"no percent unavailable":               {sts, beta, "podManagementPolicy: Parallel\n" + rolling("maxUnavailable: 0%"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"unavailable in quotes":                {sts, beta, "podManagementPolicy: Parallel\n" + rolling(`maxUnavailable: "2"`), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"two unavailable in order":             {sts, beta, rolling("maxUnavailable: 2"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"a percentage in order":                {sts, alpha, "podManagementPolicy: OrderedReady\n" + rolling("maxUnavailable: 100%"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"unordered in order":                   {sts, beta, rolling("unorderedUpdate: {}"), "spec.updateStrategy.rollingUpdate.unorderedUpdate"},
		"weights and orders at once":           {sts, beta, "podManagementPolicy: Parallel\n" + rolling("unorderedUpdate: {priorityStrategy: {orderPriority: [{orderedKey: a}], weightPriority: [{weight: 1, matchSelector: {}}]}}"), "spec.updateStrategy.rollingUpdate.unorderedUpdate.priorityStrategy"},
		"six minutes until available":          {sts, beta, rolling("minReadySeconds: 301"), "spec.updateStrategy.rollingUpdate.minReadySeconds"},
		"a negative history":                   {sts, beta, "revisionHistoryLimit: -1", "spec.revisionHistoryLimit"},
		"an unknown retention":                 {sts, beta, "persistentVolumeClaimRetentionPolicy: {whenScaled: Recycle}", "spec.persistentVolumeClaimRetentionPolicy.whenScaled"},
		"a negative start":                     {sts, beta, "ordinals: {start: -1}", "spec.ordinals.start"},
		"scaling by two in order":              {sts, beta, "scaleStrategy: {maxUnavailable: 2}", "spec.scaleStrategy.maxUnavailable"},
		"scaling by none":                      {sts, beta, "podManagementPolicy: Parallel\nscaleStrategy: {maxUnavailable: 0}", "spec.scaleStrategy.maxUnavailable"},
		"an empty selector of a DaemonSet":     {ads, beta, "selector: {}", "spec.selector"},
		"an unknown type of a DaemonSet":       {ads, beta, "updateStrategy: {type: Recreate}", "spec.updateStrategy.type"},
		"Surging in v1beta1":                   {ads, beta, rolling("rollingUpdateType: Surging, maxSurge: 1"), "spec.updateStrategy.rollingUpdate.rollingUpdateType"},
		"both limits":                          {ads, beta, rolling("maxSurge: 1, maxUnavailable: 1"), "spec.updateStrategy.rollingUpdate"},
		"no limit":                             {ads, beta, rolling("maxSurge: 0, maxUnavailable: 0%"), "spec.updateStrategy.rollingUpdate"},
		"one limit, and that is 0":             {ads, beta, rolling("maxSurge: 0"), "spec.updateStrategy.rollingUpdate"},
		"Surging with both limits":             {ads, alpha, rolling("rollingUpdateType: Surging, maxUnavailable: 1"), "spec.updateStrategy.rollingUpdate"},
		"a surge in place":                     {ads, beta, rolling("rollingUpdateType: InPlaceIfPossible, maxSurge: 1"), "spec.updateStrategy.rollingUpdate.maxSurge"},
		"more than all nodes":                  {ads, beta, rolling("maxUnavailable: 101%"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"a negative limit":                     {ads, beta, rolling("maxUnavailable: -1"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"a word for a limit":                   {ads, beta, rolling("maxUnavailable: many, maxSurge: 1"), "spec.updateStrategy.rollingUpdate.maxUnavailable"},
		"a partition in quotes":                {ads, alpha, rolling(`partition: "5"`), "spec.updateStrategy.rollingUpdate.partition"},
		"a negative minReadySeconds":           {ads, beta, "minReadySeconds: -1", "spec.minReadySeconds"},
		"a burst of none":                      {ads, beta, "burstReplicas: 0", "spec.burstReplicas"},
		"a negative burst":                     {ads, alpha, "burstReplicas: -1", "spec.burstReplicas"},
		"a word for a burst":                   {ads, beta, "burstReplicas: all", "spec.burstReplicas"},
		"a negative history of a DaemonSet":    {ads, beta, "revisionHistoryLimit: -1", "spec.revisionHistoryLimit"},
		"an in-place hook on a DaemonSet":      {ads, beta, "lifecycle: {inPlaceUpdate: {labelsHandler: {a: b}}}", "spec.lifecycle.inPlaceUpdate"},
		"an in-place hook, empty, in v1alpha1": {ads, alpha, "lifecycle: {inPlaceUpdate: {}}", "spec.lifecycle.inPlaceUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), workload(t, in.kind, in.version, in.spec))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, in.path+":")
		})
	}
	for name, in := range map[string]struct{ kind, version, spec string }{
		"next to nothing":             {sts, beta, "{}"},
		"next to nothing, v1alpha1":   {sts, alpha, "{}"},
		"one unavailable in order":    {sts, beta, rolling("maxUnavailable: 1") + "\nscaleStrategy: {maxUnavailable: 1}"},
		"a partition above replicas":  {sts, beta, "replicas: 1\n" + rolling("partition: 9, minReadySeconds: 300")},
		"all at once":                 {sts, beta, "podManagementPolicy: Parallel\n" + rolling("maxUnavailable: 100%, unorderedUpdate: {}") + "\nscaleStrategy: {maxUnavailable: 150%}"},
		"OnDelete":                    {sts, beta, "updateStrategy: {type: OnDelete}"},
		"half a retention":            {sts, beta, "persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}"},
		"any claim strategy":          {sts, beta, "volumeClaimUpdateStrategy: {type: Whatever}"},
		"reserved ordinals":           {sts, beta, `reserveOrdinals: [1, "4-6"]`},
		"what only the webhook sees":  {sts, beta, `reserveOrdinals: ["5", "9-2"]`},
		"nothing on nodes":            {ads, beta, "{}"},
		"nothing on nodes, v1alpha1":  {ads, alpha, "{}"},
		"Surging":                     {ads, alpha, rolling("rollingUpdateType: Surging")},
		"Surging with its limit":      {ads, alpha, rolling("rollingUpdateType: Surging, maxSurge: 50%, maxUnavailable: 0")},
		"Surging with its limit only": {ads, alpha, rolling("rollingUpdateType: Surging, maxUnavailable: 0")},
		"a surge":                     {ads, beta, rolling("maxSurge: 100%, maxUnavailable: 0, partition: 0%")},
		"one limit":                   {ads, beta, rolling("maxUnavailable: 5")},
		"in place":                    {ads, beta, rolling("rollingUpdateType: InPlaceIfPossible, maxUnavailable: 20, maxSurge: 0")},
		"odd limits with OnDelete":    {ads, beta, "updateStrategy: {type: OnDelete, rollingUpdate: {rollingUpdateType: Odd, maxSurge: -3, maxUnavailable: odd, partition: -1}}"},
		"a preDelete hook":            {ads, beta, "lifecycle: {preDelete: {labelsHandler: {a: b}}, preNormal: {}}"},
		"a burst in percent":          {ads, beta, "burstReplicas: 150%"},
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			require.NoError(t, c.Create(t.Context(), workload(t, in.kind, in.version, in.spec)))
		})
	}

	t.Run("what must not change", func(t *testing.T) {
		for _, in := range []struct{ kind, version, field, value string }{
			{sts, beta, "selector", "{matchLabels: {app: web, a: b}}"},
			{sts, alpha, "serviceName", "other"},
			{sts, beta, "serviceName", "other"},
			{sts, beta, "podManagementPolicy", "Parallel"},
			{ads, beta, "selector", "{matchLabels: {app: web, a: b}}"},
			{ads, alpha, "selector", "{matchLabels: {app: web, a: b}}"},
		} {
			u := workload(t, in.kind, in.version, "{}")
			require.NoError(t, c.Create(t.Context(), u))
			set(t, u, in.field, in.value)
			err := c.Update(t.Context(), u)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, "spec."+in.field+": Forbidden: updates to ")
		}
	})
	t.Run("what may be written out", func(t *testing.T) {
		u := workload(t, sts, beta, "{}")
		require.NoError(t, c.Create(t.Context(), u))
		set(t, u, "podManagementPolicy", "OrderedReady")
		set(t, u, "serviceName", `""`)
		require.NoError(t, c.Update(t.Context(), u))
	})
	t.Run("a name that is no label", func(t *testing.T) {
		u := workload(t, sts, beta, "{}")
		u.SetGenerateName("")
		u.SetName("a.b")
		require.ErrorContains(t, c.Create(t.Context(), u), "metadata.name")
	})
}

// set sets a field of the spec to a value in YAML.
func set(t *testing.T, u *unstructured.Unstructured, field, value string) {
	t.Helper()
	var v any
	require.NoError(t, yaml.Unmarshal([]byte(value), &v))
	require.NoError(t, unstructured.SetNestedField(u.Object, v, "spec", field))
}

// A client of v1alpha1 that reads, changes and writes keeps what it does not know of.
func TestConversionOfSetsThroughTheAPIServer(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	key := client.ObjectKey{Namespace: "default", Name: "db"}
	written := workload(t, "StatefulSet", "v1beta1", `
reserveOrdinals: [1, "4-6"]
ordinals: {start: 2}
scaleStrategy: {maxUnavailable: 1}
lifecycle: {preDelete: {labelsHandler: {a: b}}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
`)
	written.SetGenerateName("")
	written.SetName("db")
	require.NoError(t, c.Create(t.Context(), written))
	before, after, old := &v1beta1.StatefulSet{}, &v1beta1.StatefulSet{}, &v1alpha1.StatefulSet{}
	require.NoError(t, c.Get(t.Context(), key, before))
	before.Status.UpdatedReadyReplicas = 3
	require.NoError(t, c.Status().Update(t.Context(), before))

	require.NoError(t, c.Get(t.Context(), key, old))
	old.Spec.Replicas = new(int32(7))
	require.NoError(t, c.Update(t.Context(), old))
	old.Status.ReadyReplicas = 2
	require.NoError(t, c.Status().Update(t.Context(), old))
	require.NoError(t, c.Get(t.Context(), key, after))
	before.Spec.Replicas, before.Status.ReadyReplicas = new(int32(7)), 2
	require.Equal(t, before.Spec, after.Spec, "a v1alpha1 client changed more than the replicas")
	require.Equal(t, before.Status, after.Status, "a v1alpha1 client changed more of the status than it meant to")
	require.Empty(t, after.Annotations)

	agent := workload(t, "DaemonSet", "v1alpha1", rolling("rollingUpdateType: Surging"))
	agent.SetGenerateName("")
	agent.SetName("db")
	agent.SetAnnotations(map[string]string{v1beta1.DaemonSetProgressiveCreateAnnotation: "true"})
	require.NoError(t, c.Create(t.Context(), agent))
	stored := &v1beta1.DaemonSet{}
	require.NoError(t, c.Get(t.Context(), key, stored))
	require.True(t, stored.Spec.ScaleStrategy.PartitionedScaling)
	require.Equal(t, v1beta1.StandardRollingUpdateType, stored.Spec.UpdateStrategy.RollingUpdate.RollingUpdateType)
	require.NotContains(t, stored.Annotations, v1beta1.DaemonSetProgressiveCreateAnnotation)
	stored.Spec.ScaleStrategy.PartitionedScaling = false
	require.NoError(t, c.Update(t.Context(), stored))
	view := &v1alpha1.DaemonSet{}
	require.NoError(t, c.Get(t.Context(), key, view))
	view.Spec.MinReadySeconds = 3
	require.NoError(t, c.Update(t.Context(), view))
	require.NoError(t, c.Get(t.Context(), key, stored))
	require.False(t, stored.Spec.ScaleStrategy != nil && stored.Spec.ScaleStrategy.PartitionedScaling)
}

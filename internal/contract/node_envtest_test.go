// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
)

// object parses a spec in YAML, on top of the least that an object of the kind must have.
func object(t *testing.T, kind, version, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(map[string]string{
		"ContainerRecreateRequest": "{podName: web, containers: [{name: app}]}",
		"ImageListPullJob":         "{images: [nginx], completionPolicy: {}}",
		"ImagePullJob":             "{image: nginx, completionPolicy: {}}",
		"PodProbeMarker":           "{selector: {matchLabels: {app: web}}, probes: [" + probe("") + "]}",
	}[kind]), &fields))
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields), spec)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetAPIVersion("apps.kruise.io/" + version)
	u.SetKind(kind)
	u.SetNamespace("default")
	u.SetGenerateName("x-")
	return u
}

// probe is a probe of a PodProbeMarker with other fields.
func probe(fields string) string {
	p := "name: idle, containerName: app, podConditionType: example.com/idle, probe: {exec: {command: [\"true\"]}}"
	if fields != "" {
		p = fields
	}
	return "{" + p + "}"
}

// Without any webhook the schema alone refuses what the webhook refuses, at the same path.
func TestSchemaRefusesInvalidJobsAndProbes(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	const (
		alpha, beta = "v1alpha1", "v1beta1"
		crr, list   = "ContainerRecreateRequest", "ImageListPullJob"
		pull, ppm   = "ImagePullJob", "PodProbeMarker"
	)
	probes := func(fields string) string { return "probes: [" + probe(fields) + "]" }
	for name, in := range map[string]struct{ kind, version, spec, path string }{
		"no Pod":                             {crr, beta, `podName: ""`, "spec.podName"},
		"no container":                       {crr, alpha, "containers: []", "spec.containers"},
		"an unknown failure policy":          {crr, beta, "strategy: {failurePolicy: Retry}", "spec.strategy.failurePolicy"},
		"the same in v1alpha1":               {crr, alpha, "strategy: {failurePolicy: Retry}", "spec.strategy.failurePolicy"},
		"a deadline of two seconds":          {crr, beta, "activeDeadlineSeconds: 2", "spec.activeDeadlineSeconds"},
		"the same deadline in v1alpha1":      {crr, alpha, "activeDeadlineSeconds: 2", "spec.activeDeadlineSeconds"},
		"a negative grace":                   {crr, alpha, "strategy: {unreadyGracePeriodSeconds: -1}", "spec.strategy.unreadyGracePeriodSeconds"},
		"a negative termination grace":       {crr, beta, "strategy: {terminationGracePeriodSeconds: -1}", "spec.strategy.terminationGracePeriodSeconds"},
		"a negative minStartedSeconds":       {crr, beta, "strategy: {minStartedSeconds: -1}", "spec.strategy.minStartedSeconds"},
		"a negative ttl":                     {crr, beta, "ttlSecondsAfterFinished: -1", "spec.ttlSecondsAfterFinished"},
		"no images":                          {list, beta, "images: []", "spec.images"},
		"both selectors":                     {list, alpha, "selector: {names: [a]}\npodSelector: {matchLabels: {a: b}}", "spec"},
		"names and labels":                   {list, beta, "selector: {names: [a], matchLabels: {a: b}}", "spec.selector.names"},
		"a parallelism in percent":           {list, beta, `parallelism: "10%"`, "spec.parallelism"},
		"a negative parallelism":             {pull, beta, "parallelism: -1", "spec.parallelism"},
		"a parallelism beyond int32":         {pull, alpha, `parallelism: "2147483648"`, "spec.parallelism"},
		"a parallelism beyond int64":         {pull, alpha, `parallelism: "99999999999999999999"`, "spec.parallelism"},
		"an unknown type":                    {list, beta, "completionPolicy: {type: Sometimes}", "spec.completionPolicy.type"},
		"a deadline for ever":                {list, beta, "completionPolicy: {type: Never, activeDeadlineSeconds: 50}", "spec.completionPolicy"},
		"a ttl of what never ends":           {pull, alpha, "completionPolicy: {type: Never, ttlSecondsAfterFinished: 50}", "spec.completionPolicy"},
		"no image":                           {pull, beta, `image: ""`, "spec.image"},
		"a deadline before the first pull":   {pull, beta, "completionPolicy: {activeDeadlineSeconds: 50}\npullPolicy: {timeoutSeconds: 51}", "spec.completionPolicy.activeDeadlineSeconds"},
		"an empty selector of Pods":          {ppm, alpha, "selector: {}", "spec.selector"},
		"empty terms of a selector":          {ppm, alpha, "selector: {matchLabels: {}, matchExpressions: []}", "spec.selector"},
		"no probes":                          {ppm, alpha, "probes: []", "spec.probes"},
		"a name with the separator":          {ppm, alpha, probes(`name: "a#b", containerName: app, podConditionType: a, probe: {exec: {}}`), "spec.probes[0].name"},
		"no container to probe":              {ppm, alpha, probes(`name: a, containerName: "", podConditionType: a, probe: {exec: {}}`), "spec.probes[0].containerName"},
		"a probe that leads to nothing":      {ppm, alpha, probes(`name: a, containerName: app, probe: {exec: {}}`), "podConditionType and markerPolicy"},
		"a probe that leads to nothing, yet": {ppm, alpha, probes(`name: a, containerName: app, podConditionType: "", probe: {exec: {}}`), "podConditionType and markerPolicy"},
		"a probe of nothing":                 {ppm, alpha, probes("name: a, containerName: app, podConditionType: a, probe: {periodSeconds: 1}"), "must specify exactly one"},
		"a probe by gRPC":                    {ppm, alpha, probes("name: a, containerName: app, podConditionType: a, probe: {grpc: {port: 1}}"), "must specify exactly one"},
		"two probes in one":                  {ppm, alpha, probes("name: a, containerName: app, podConditionType: a, probe: {exec: {}, tcpSocket: {port: 1}}"), "must specify exactly one"},
		"a mark for Unknown":                 {ppm, alpha, probes("name: a, containerName: app, probe: {exec: {}}, markerPolicy: [{state: Unknown, labels: {a: b}}]"), "spec.probes[0].markerPolicy[0].state"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), object(t, in.kind, in.version, in.spec))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, in.path)
		})
	}
	for name, in := range map[string]struct{ kind, version, spec string }{
		"next to nothing":               {crr, beta, "{}"},
		"next to nothing, v1alpha1":     {crr, alpha, "{}"},
		"an empty failure policy":       {crr, alpha, `strategy: {failurePolicy: ""}`},
		"a deadline of three seconds":   {crr, beta, "activeDeadlineSeconds: 3"},
		"every hook":                    {crr, beta, "containers: [{name: a, preStop: {exec: {command: [a]}}}, {name: b, preStop: {httpGet: {port: 80}}, ports: [{containerPort: 80}]}, {name: c, preStop: {tcpSocket: {port: x}}}, {name: d, preStop: {sleep: {seconds: 5}}}]"},
		"a list":                        {list, beta, "{}"},
		"a list, v1alpha1":              {list, alpha, "{}"},
		"a parallelism in quotes":       {list, beta, `parallelism: "5"`},
		"a parallelism of none":         {pull, beta, "parallelism: 0"},
		"an empty selector of nodes":    {pull, beta, "selector: {}"},
		"names and empty label terms":   {pull, alpha, "selector: {names: [a], matchLabels: {}}"},
		"a deadline as the timeout":     {pull, beta, "completionPolicy: {type: Always, activeDeadlineSeconds: 50}\npullPolicy: {timeoutSeconds: 50}"},
		"a list with a short deadline":  {list, beta, "completionPolicy: {type: Always, activeDeadlineSeconds: 5}\npullPolicy: {timeoutSeconds: 50}"},
		"a job without end":             {pull, beta, "completionPolicy: {type: Never}"},
		"a probe":                       {ppm, alpha, "{}"},
		"a probe of a page, no scheme":  {ppm, alpha, probes("name: a, containerName: app, podConditionType: a, probe: {httpGet: {path: /, port: http}}")},
		"a mark for either state":       {ppm, alpha, probes("name: a, containerName: app, probe: {tcpSocket: {port: 80}}, markerPolicy: [{state: Succeeded, labels: {a: b}}, {state: Failed, annotations: {a: b}}]")},
		"what only the webhook can see": {ppm, alpha, probes("name: Ready, containerName: app, podConditionType: Ready, probe: {exec: {}}")},
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			require.NoError(t, c.Create(t.Context(), object(t, in.kind, in.version, in.spec)))
		})
	}
	t.Run("what must not change", func(t *testing.T) {
		for _, in := range []struct{ kind, version, field, value, want string }{
			{crr, beta, "podName", "other", "spec of ContainerRecreateRequest is immutable"},
			{crr, alpha, "ttlSecondsAfterFinished", "5", "spec of ContainerRecreateRequest is immutable"},
			{pull, beta, "pullSecrets", "[a]", "spec.pullSecrets is immutable"},
			{pull, alpha, "pullSecrets", "[a]", "spec.pullSecrets is immutable"},
			{ppm, alpha, "selector", "{matchLabels: {app: other}}", "selector must be immutable"},
		} {
			u := object(t, in.kind, in.version, "{}")
			require.NoError(t, c.Create(t.Context(), u))
			set(t, u, in.field, in.value)
			err := c.Update(t.Context(), u)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, in.want)
		}
	})
	t.Run("what may be written out", func(t *testing.T) {
		u := object(t, pull, beta, "{}")
		require.NoError(t, c.Create(t.Context(), u))
		set(t, u, "pullSecrets", "[]")
		require.NoError(t, c.Update(t.Context(), u))
	})
}

// Clients of both versions see one request, and neither takes from the other what it does not
// know (container-recreate.md 2.3).
func TestRequestInBothVersions(t *testing.T) {
	c := apitest.NewClient(t, apitest.Start(t, apitest.WithConversion(converter(t))))
	ctx := t.Context()
	since := metav1.NewTime(time.Now().Truncate(time.Second))
	hub := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crr", Annotations: map[string]string{"kept": "yes"}},
		Spec:       v1beta1.ContainerRecreateRequestSpec{PodName: "web", Containers: []v1beta1.RecreateContainer{{Name: "app"}}},
	}
	key := client.ObjectKeyFromObject(hub)
	require.NoError(t, c.Create(ctx, hub), "a request that nobody answered has no status")
	hub.Labels = map[string]string{"a": "b"}
	require.NoError(t, c.Update(ctx, hub))
	hub.Status = v1beta1.ContainerRecreateRequestStatus{
		Phase:                   v1beta1.RecreateRecreating,
		ContainerRecreateStates: []v1beta1.RecreateState{{Name: "app", Phase: v1beta1.RecreateRecreating, IsKilled: true}},
		ContainerStatusSnapshot: []v1beta1.ContainerSnapshot{{Name: "app", Ready: true, RestartCount: 1, ContainerID: "containerd://2"}},
		Conditions: []metav1.Condition{{
			Type: v1beta1.PreRecreateGraceCondition, Status: metav1.ConditionTrue, Reason: v1beta1.PreRecreateGraceCondition,
			LastTransitionTime: since, Message: v1beta1.PreRecreateGraceMessage,
		}},
	}
	require.NoError(t, c.Status().Update(ctx, hub))
	status := hub.Status

	old := &v1alpha1.ContainerRecreateRequest{}
	require.NoError(t, c.Get(ctx, key, old))
	require.Equal(t, map[string]string{
		"kept": "yes",
		v1beta1.RecreateUnreadyAcquiredAnnotation: since.UTC().Format(time.RFC3339),
		v1beta1.RecreateSnapshotAnnotation:        `[{"name":"app","ready":true,"restartCount":1,"containerID":"containerd://2"}]`,
	}, old.Annotations)
	require.Equal(t, v1beta1.RecreateRecreating, old.Status.Phase)

	for name, write := range map[string]func() error{
		"writes back what it read": func() error {
			old.Labels["c"] = "d"
			return c.Update(ctx, old)
		},
		"updates the status": func() error {
			old.Status.Message = "x"
			return c.Status().Update(ctx, old)
		},
		"patches the status": func() error {
			return c.Status().Patch(ctx, old, client.RawPatch(types.MergePatchType, []byte(`{"status":{"message":"x"}}`)))
		},
		"updates the status without annotations": func() error {
			old.Annotations = nil
			return c.Status().Update(ctx, old)
		},
	} {
		t.Run("a v1alpha1 client "+name, func(t *testing.T) {
			require.NoError(t, c.Get(ctx, key, old))
			require.NoError(t, write())
			got := &v1beta1.ContainerRecreateRequest{}
			require.NoError(t, c.Get(ctx, key, got))
			require.Equal(t, map[string]string{"kept": "yes"}, got.Annotations)
			got.Status.Message = ""
			require.Equal(t, encode(t, status), encode(t, got.Status))
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/podready"
)

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1.36"}}},
	}
}

func alpha(name string) *v1alpha1.CloneSet {
	return &v1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(),
			UpdateStrategy: v1alpha1.CloneSetUpdateStrategy{Type: v1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType, Partition: new(intstr.FromInt32(2))},
		},
	}
}

func TestManager(t *testing.T) {
	c := newCluster(t)
	m := c.startReady()
	t.Run("defaults and converts", func(t *testing.T) { testVersions(t, c) })
	t.Run("rejects with every field path", func(t *testing.T) { testRejects(t, c) })
	t.Run("admits StatefulSets and DaemonSets", func(t *testing.T) { testSets(t, c) })
	t.Run("protects from deletion", func(t *testing.T) { testProtection(t, c, m) })
	t.Run("initialises the readiness gate", func(t *testing.T) { testReadinessGate(t, c) })
	t.Run("makes Pods of a CloneSet", func(t *testing.T) { testPods(t, c) })
	t.Run("makes Pods of a StatefulSet", func(t *testing.T) { testStatefulSet(t, c) })
	t.Run("makes NodeImages of Nodes", func(t *testing.T) { testNodeImage(t, c) })
	t.Run("lists what it serves", func(t *testing.T) { testConfigurations(t, c, m) })
	t.Run("answers on its ports", func(t *testing.T) { testPorts(t, c, m) })
	t.Run("serves a rotated certificate", func(t *testing.T) { testRotation(t, c, m) })
	t.Run("survives a second start", func(t *testing.T) {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		testOutage(t, c)
		c.startReady()
	})
}

// testOutage creates Pods while no manager runs: only those of Kruise workloads wait for one.
func testOutage(t *testing.T, c *cluster) {
	pod := func(name, apiVersion string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: template().Spec}
		if apiVersion != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: "Owner", Name: "o", UID: "1", Controller: new(true)}}
		}
		return p
	}
	for name, apiVersion := range map[string]string{"outage-bare": "", "outage-rs": "apps/v1", "outage-job": "batch/v1"} {
		if err := c.client.Create(t.Context(), pod(name, apiVersion)); err != nil {
			t.Errorf("a Pod of %q cannot be created without a manager: %v", apiVersion, err)
		}
	}
	err := c.client.Create(t.Context(), pod("outage-cs", "apps.kruise.io/v1beta1"))
	if err == nil || !strings.Contains(err.Error(), "mpod.kb.io") {
		t.Errorf("a Pod of a CloneSet without a manager: %v", err)
	}
}

func testVersions(t *testing.T, c *cluster) {
	ctx := t.Context()
	set := alpha("web")
	if err := c.client.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	if u := set.Spec.UpdateStrategy; u.MaxUnavailable == nil || u.MaxUnavailable.String() != "20%" || u.InPlaceUpdateStrategy == nil {
		t.Errorf("strategy as created = %+v", u)
	}
	if p := set.Spec.Template.Spec.Containers[0].ImagePullPolicy; p != corev1.PullAlways {
		t.Errorf("imagePullPolicy = %q", p)
	}
	hub := &v1beta1.CloneSet{}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(set), hub); err != nil {
		t.Fatal(err)
	}
	u := hub.Spec.UpdateStrategy
	if u.Type != "RollingUpdate" || u.RollingUpdate == nil || u.RollingUpdate.PodUpdatePolicy != "InPlaceIfPossible" || u.RollingUpdate.Partition.IntValue() != 2 {
		t.Errorf("strategy as v1beta1 = %+v", u)
	}
	if *hub.Spec.Replicas != 1 || *hub.Spec.RevisionHistoryLimit != 10 {
		t.Errorf("replicas = %d, revisionHistoryLimit = %d", *hub.Spec.Replicas, *hub.Spec.RevisionHistoryLimit)
	}
	generation := hub.Generation
	if err := c.client.Patch(ctx, hub, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
		t.Fatal(err)
	}
	if hub.Generation != generation {
		t.Errorf("an update of metadata changed the spec: generation %d, was %d", hub.Generation, generation)
	}
	// A client that puts the manifest it wrote again, without defaults, changes nothing.
	again := alpha("web")
	c.eventually("the manifest can be put again", func(ctx context.Context) error {
		stored := &v1alpha1.CloneSet{}
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(again), stored); err != nil {
			return err
		}
		again = alpha("web")
		again.ResourceVersion = stored.ResourceVersion
		return c.client.Update(ctx, again)
	})
	if again.Generation != generation {
		t.Errorf("putting the same manifest again changed the spec: generation %d, was %d", again.Generation, generation)
	}
	job := &v1alpha1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pull"}, Spec: v1beta1.ImagePullJobSpec{Image: "busybox:1.36"}}
	if err := c.client.Create(ctx, job); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(job.Finalizers, "apps.kruise.io/deletion-protection") || *job.Spec.PullPolicy.TimeoutSeconds != 600 {
		t.Errorf("job = %+v", job)
	}
}

func testRejects(t *testing.T, c *cluster) {
	bad := alpha("bad")
	bad.Spec.Replicas = new(int32(-1))
	bad.Spec.Template.Labels = map[string]string{"app": "other"}
	err := c.client.Create(t.Context(), bad)
	if !apierrors.IsInvalid(err) {
		t.Fatalf("creating an invalid CloneSet: %v", err)
	}
	if got := err.(apierrors.APIStatus).Status(); got.Code != 422 {
		t.Errorf("code = %d", got.Code)
	}
	hub := &v1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bad"}}
	hub.Spec.Selector, hub.Spec.Template = bad.Spec.Selector, bad.Spec.Template
	hub.Spec.ScaleStrategy.PodsToDelete = []string{"nobody"}
	err = c.client.Create(t.Context(), hub)
	if !apierrors.IsInvalid(err) {
		t.Fatalf("creating an invalid CloneSet: %v", err)
	}
	var fields []string
	for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	for _, want := range []string{"spec.template.metadata.labels", "spec.scaleStrategy.podsToDelete[0]"} {
		if !slices.Contains(fields, want) {
			t.Errorf("causes %q lack %s", fields, want)
		}
	}
	job := &v1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bad"}, Spec: v1beta1.ImagePullJobSpec{Image: "::"}}
	if err := c.client.Create(t.Context(), job); !apierrors.IsBadRequest(err) {
		t.Errorf("creating an invalid ImagePullJob: %v", err)
	}
	job = &v1beta1.ImagePullJob{}
	key := types.NamespacedName{Namespace: "shop", Name: "pull"}
	c.eventually("pull secrets of a job cannot change", func(ctx context.Context) error {
		if err := c.client.Get(ctx, key, job); err != nil {
			return err
		}
		job.Spec.PullSecrets = []string{"s"}
		if err := c.client.Update(ctx, job); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.pullSecrets is immutable") {
			return fmt.Errorf("update: %w", err)
		}
		return nil
	})
}

func testProtection(t *testing.T, c *cluster, m *manager) {
	set := alpha("precious")
	set.Labels = map[string]string{"policy.kruise.io/delete-protection": "Always"}
	if err := c.client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	err := c.client.Delete(t.Context(), set)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "forbidden by ResourcesProtectionDeletion") {
		t.Errorf("deleting: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(m.dir, "log", "protection.log"))
	if err != nil || !strings.Contains(string(raw), `"Name":"precious"`) {
		t.Errorf("protection log = %q, %v", raw, err)
	}
	if err := c.client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := c.client.Delete(t.Context(), set); err != nil {
		t.Errorf("deleting without the label: %v", err)
	}
}

func testReadinessGate(t *testing.T, c *cluster) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: template().Spec}
	}
	bare := pod("bare")
	c.create(bare)
	if len(bare.Spec.ReadinessGates) > 0 {
		t.Errorf("a Pod of nobody has gates %v", bare.Spec.ReadinessGates)
	}
	owned := pod("owned")
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", UID: "1", Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	c.create(owned)
	c.eventually("the condition is True", func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(owned), owned); err != nil {
			return err
		}
		for _, cond := range owned.Status.Conditions {
			if cond.Type == "KruisePodReady" && cond.Status == "True" && !cond.LastTransitionTime.IsZero() {
				return nil
			}
		}
		return fmt.Errorf("gates %v, conditions %v", owned.Spec.ReadinessGates, owned.Status.Conditions)
	})
	if len(owned.Spec.ReadinessGates) != 1 || owned.Spec.ReadinessGates[0].ConditionType != "KruisePodReady" {
		t.Errorf("gates = %v", owned.Spec.ReadinessGates)
	}
}

// testPods goes through admission, the CloneSet controller, admission of its Pods and the
// readiness controller.
func testPods(t *testing.T, c *cluster) {
	t.Helper()
	set := alpha("pods")
	set.Spec.Replicas = new(int32(3))
	set.Spec.Selector.MatchLabels = map[string]string{"app": "pods"}
	set.Spec.Template.Labels = map[string]string{"app": "pods"}
	c.create(set)
	c.eventually("three Pods have the readiness gate and its condition", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.client.List(ctx, &pods, client.InNamespace("shop"), client.MatchingLabels{"app": "pods"}); err != nil {
			return err
		}
		ready := 0
		for _, pod := range pods.Items {
			if podready.HasGate(&pod, "KruisePodReady") && podready.Condition(&pod, "KruisePodReady") != nil {
				ready++
			}
		}
		if len(pods.Items) != 3 || ready != 3 {
			return fmt.Errorf("%d of %d Pods are so", ready, len(pods.Items))
		}
		return nil
	})
}

func testNodeImage(t *testing.T, c *cluster) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	c.create(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if err := c.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	image := &v1alpha1.NodeImage{}
	c.eventually("the NodeImage exists", func(ctx context.Context) error {
		return c.client.Get(ctx, types.NamespacedName{Name: "n1"}, image)
	})
}

func testConfigurations(t *testing.T, c *cluster, m *manager) {
	cfg := &admissionv1.MutatingWebhookConfiguration{}
	key := types.NamespacedName{Name: "kruise-mutating-webhook-configuration"}
	if err := c.client.Get(t.Context(), key, cfg); err != nil {
		t.Fatal(err)
	}
	for _, w := range cfg.Webhooks {
		if w.ClientConfig.URL == nil || !strings.HasPrefix(*w.ClientConfig.URL, "https://"+m.hook+"/") || len(w.ClientConfig.CABundle) == 0 {
			t.Errorf("webhook %s has client configuration %+v", w.Name, w.ClientConfig)
		}
	}
	fresh := &admissionv1.MutatingWebhookConfiguration{}
	c.manifest("base/webhook/mutating.yaml", fresh)
	served := len(fresh.Webhooks) // with every gate on: all of them
	if len(cfg.Webhooks) != served || !strings.Contains(cfg.Annotations["template"], "/mutate-pod") {
		t.Errorf("%d webhooks, template %q", len(cfg.Webhooks), cfg.Annotations["template"])
	}
	// Applying the manifests again resets everything; it is repaired at once.
	fresh.Webhooks = append(fresh.Webhooks, *fresh.Webhooks[1].DeepCopy())
	fresh.Webhooks[served].Name, fresh.Webhooks[served].ClientConfig.Service.Path = "mfuture.kb.io", new("/mutate-apps-kruise-io-future")
	fresh.ResourceVersion = cfg.ResourceVersion
	if err := c.client.Update(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	c.eventually("the configuration is repaired", func(ctx context.Context) error {
		if err := c.client.Get(ctx, key, cfg); err != nil {
			return err
		}
		if len(cfg.Webhooks) != served || cfg.Webhooks[0].ClientConfig.URL == nil || len(cfg.Webhooks[0].ClientConfig.CABundle) == 0 {
			return fmt.Errorf("%d webhooks, first %+v", len(cfg.Webhooks), cfg.Webhooks[0].ClientConfig)
		}
		return nil
	})
	c.eventually("the metric names what was left out", func(context.Context) error {
		text, err := body("http://" + m.metric + "/metrics")
		if err == nil && !strings.Contains(text, `kruise_webhook_dropped{configuration="kruise-mutating-webhook-configuration",gate="",path="/mutate-apps-kruise-io-future",webhook="mfuture.kb.io"} 1`) {
			err = fmt.Errorf("no kruise_webhook_dropped in %d bytes", len(text))
		}
		return err
	})
	crds, err := apitest.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		converted := crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
		if err := c.client.Get(t.Context(), types.NamespacedName{Name: crd.Name}, crd); err != nil {
			t.Fatal(err)
		}
		if got := crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter; got != converted {
			t.Errorf("%s has strategy %s", crd.Name, crd.Spec.Conversion.Strategy)
		}
		if converted && *crd.Spec.Conversion.Webhook.ClientConfig.URL != "https://"+m.hook+"/convert" {
			t.Errorf("%s is converted at %v", crd.Name, crd.Spec.Conversion.Webhook.ClientConfig)
		}
	}
}

func testPorts(t *testing.T, c *cluster, m *manager) {
	if err := get("http://" + m.probe + "/healthz"); err != nil {
		t.Error(err)
	}
	c.eventually("the metrics are there", func(context.Context) error {
		text, err := body("http://" + m.metric + "/metrics")
		if err != nil {
			return err
		}
		for _, want := range []string{
			"kruise_manager_is_leader 1", `kruise_feature_enabled{name="PodWebhook",stage="Beta"} 1`, "rest_client_requests_total{",
			"workqueue_depth{", "controller_runtime_webhook_requests_total{", "go_goroutines", "kruise_webhook_certificate_expiry_timestamp_seconds",
			`workload_deletion_protection{kind_namespace_name="CloneSet_shop_precious",username=`,
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("/metrics lacks %s", want)
			}
		}
		return nil
	})
}

// serving returns the serial number of the certificate in use.
func serving(addr string) (string, error) {
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

func testRotation(t *testing.T, c *cluster, m *manager) {
	before, err := serving(m.hook)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: "kruise-system", Name: "kruise-webhook-certs"}
	if err := c.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	ca := secret.Data["ca-cert.pem"]
	delete(secret.Data, "cert.pem")
	if err := c.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.eventually("another certificate is served", func(context.Context) error {
		now, err := serving(m.hook)
		if err == nil && now == before {
			err = fmt.Errorf("still %s", before)
		}
		return err
	})
	if err := c.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data["ca-cert.pem"]) != string(ca) {
		t.Error("the CA changed with the certificate")
	}
	set := alpha("after-rotation-" + strconv.Itoa(int(time.Now().Unix()%1000)))
	if err := c.client.Create(t.Context(), set); err != nil {
		t.Errorf("admission after the rotation: %v", err)
	}
	// The CA is lost as well: the new one is published together with the old one.
	delete(secret.Data, "ca-key.pem")
	delete(secret.Data, "cert.pem")
	if err := c.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.eventually("both CAs are trusted", func(ctx context.Context) error {
		cfg := &admissionv1.MutatingWebhookConfiguration{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: "kruise-mutating-webhook-configuration"}, cfg); err != nil {
			return err
		}
		count := 0
		for block, rest := pem.Decode(cfg.Webhooks[0].ClientConfig.CABundle); block != nil; block, rest = pem.Decode(rest) {
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				return err
			}
			count++
		}
		if count != 2 {
			return fmt.Errorf("%d CAs", count)
		}
		return nil
	})
	c.eventually("the manager stays ready", func(context.Context) error { return get("http://" + m.probe + "/readyz") })
}

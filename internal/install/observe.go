// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Leader is who holds the Lease of the controllers.
type Leader struct {
	// Pod is the holder's Pod, empty when nobody holds the Lease.
	Pod string
	// Age is the time since the last renewal.
	Age time.Duration
	// Alive: the Pod exists and the Lease has not expired.
	Alive bool
}

// Leader reads the Lease.
func (c *Cluster) Leader(ctx context.Context, ns string) (Leader, error) {
	lease, err := c.get(ctx, gvkLease, ns, leaseName)
	if err != nil || lease == nil {
		return Leader{}, err
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	if holder == "" {
		return Leader{}, nil
	}
	l := Leader{}
	l.Pod, _, _ = strings.Cut(holder, "_")
	renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
	if t, err := time.Parse(time.RFC3339Nano, renewed); err == nil {
		l.Age = c.Clock.Since(t)
	}
	seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
	pod, err := c.get(ctx, gvkPod, ns, l.Pod)
	if err != nil {
		return Leader{}, err
	}
	l.Alive = pod != nil && pod.GetDeletionTimestamp() == nil && l.Age < 2*time.Duration(seconds)*time.Second
	return l, nil
}

func (c *Cluster) bundlesMatch(ns string) Condition {
	return Condition{ID: "webhook-cabundle", Check: func(ctx context.Context) (bool, string, error) {
		ca, err := c.servingCA(ctx, ns)
		if err != nil {
			return false, "", err
		}
		if len(ca) == 0 {
			return false, "Secret " + webhookSecret + " has no CA yet", nil
		}
		wrong, _, err := c.otherBundles(ctx, ca)
		return len(wrong) == 0 && err == nil, "without the CA of the manager: " + strings.Join(wrong, ", "), err
	}}
}

// servingCA returns the CA certificate, in PEM, of the Secret: that of the manager or that
// of an external issuer. Keys of the Secret are not looked at.
func (c *Cluster) servingCA(ctx context.Context, ns string) ([]byte, error) {
	secret, err := c.get(ctx, gvkSecret, ns, webhookSecret)
	if err != nil || secret == nil {
		return nil, err
	}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for _, key := range []string{"ca-cert.pem", "ca.crt"} {
		if data[key] != "" {
			return base64.StdEncoding.DecodeString(data[key])
		}
	}
	return nil, nil
}

// otherBundles lists webhooks and CRDs whose CA bundle is not ca, and counts all of them.
func (c *Cluster) otherBundles(ctx context.Context, ca []byte) (wrong []string, total int, err error) {
	want := base64.StdEncoding.EncodeToString(ca)
	for _, ref := range []*unstructured.Unstructured{named(gvkMutating, mutatingName), named(gvkValidating, validatingName)} {
		cfg, err := c.live(ctx, ref)
		if err != nil {
			return nil, 0, err
		}
		if cfg == nil {
			wrong = append(wrong, Name(ref)+" (missing)")
			continue
		}
		hooks, _, _ := unstructured.NestedSlice(cfg.Object, "webhooks")
		for _, h := range hooks {
			m, _ := h.(map[string]any)
			total++
			if bundle, _, _ := unstructured.NestedString(m, "clientConfig", "caBundle"); bundle != want {
				wrong = append(wrong, fmt.Sprint(m["name"]))
			}
		}
	}
	crds, err := c.kruiseCRDs(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, crd := range crds {
		if strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); strategy != "Webhook" {
			continue
		}
		total++
		if bundle, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle"); bundle != want {
			wrong = append(wrong, Name(&crd))
		}
	}
	return wrong, total, nil
}

// kruiseCRDs lists the CRDs of the two groups of the product, by name.
func (c *Cluster) kruiseCRDs(ctx context.Context) ([]unstructured.Unstructured, error) {
	all, err := c.list(ctx, gvkCRD)
	if err != nil {
		return nil, err
	}
	var ours []unstructured.Unstructured
	for _, crd := range all {
		if group, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); group == "apps.kruise.io" || group == "policy.kruise.io" {
			ours = append(ours, crd)
		}
	}
	return ours, nil
}

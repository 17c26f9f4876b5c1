// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// short keeps failover within the patience of a test.
var short = []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"}

func holder(ctx context.Context, c client.Client) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: "kruise-system", Name: "kruise-manager"}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

func TestLeadership(t *testing.T) {
	c := newCluster(t)
	inCluster := map[string]string{"WEBHOOK_HOST": "", "WEBHOOK_CERT_WRITER": ""}
	first := c.start(inCluster, short...)
	c.eventually("the first replica leads", func(context.Context) error { return metric(first, "kruise_manager_is_leader 1") })
	second := c.start(inCluster, short...)
	c.eventually("the second replica serves webhooks without leading", func(context.Context) error {
		return get("http://" + second.probe + "/readyz")
	})
	before, err := holder(t.Context(), c.client)
	if err != nil || before == "" {
		t.Fatalf("holder %q, %v", before, err)
	}

	// A graceful end keeps the lease: the other waits for it to run out.
	if err := first.stop(); err != nil {
		t.Errorf("the first replica ended with %v", err)
	}
	if kept, err := holder(t.Context(), c.client); err != nil || kept == "" {
		t.Errorf("holder after the end %q, %v", kept, err)
	}
	c.eventually("the second replica takes over", func(ctx context.Context) error {
		now, err := holder(ctx, c.client)
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("the holder is %q", now)
		}
		return err
	})

	// Losing the lease ends the process with an error.
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: "kruise-system", Name: "kruise-manager"}
	c.eventually("somebody else takes the lease", func(ctx context.Context) error {
		if err := c.client.Get(ctx, key, lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("somebody else")
		lease.Spec.LeaseDurationSeconds = new(int32(3600))
		return c.client.Update(ctx, lease)
	})
	if err := second.wait(); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("a replica without its lease ended with %v", err)
	}
}

func TestReleaseOfTheLease(t *testing.T) {
	c := newCluster(t)
	leaks := goleak.IgnoreCurrent()
	m := c.start(map[string]string{"WEBHOOK_HOST": "", "WEBHOOK_CERT_WRITER": ""}, append(short, "--leader-election-release-on-exit")...)
	c.eventually("it leads", func(context.Context) error { return metric(m, "kruise_manager_is_leader 1") })
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	// The metadata client of client-go leaves the filter of a watch behind that is stopped
	// in the middle of an event; the cache of some namespaces of controller-runtime waits for
	// informers that have not synced when the manager ends.
	goleak.VerifyNone(t, leaks, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"),
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1"),
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"))
	if got, err := holder(t.Context(), c.client); err != nil || got != "" {
		t.Errorf("holder after the end %q, %v", got, err)
	}
}

func TestManagerWithoutWebhookConfigurationsDoesNotStart(t *testing.T) {
	c := newCluster(t)
	cfg := &admissionv1.ValidatingWebhookConfiguration{}
	cfg.Name = "kruise-validating-webhook-configuration"
	if err := c.client.Delete(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	m := c.start(nil, "--webhook-initialize-timeout=10s")
	err := m.wait()
	if err == nil || !strings.Contains(err.Error(), "not found ValidatingWebhookConfiguration kruise-validating-webhook-configuration") {
		t.Errorf("it ended with %v", err)
	}
}

func metric(m *manager, line string) error {
	text, err := body("http://" + m.metric + "/metrics")
	if err != nil {
		return err
	}
	if !strings.Contains(text, line+"\n") {
		return fmt.Errorf("/metrics lacks %s", line)
	}
	return nil
}

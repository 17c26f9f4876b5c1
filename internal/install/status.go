// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Health is how a component is.
type Health string

// The states. HealthNone is of lines that only count.
const (
	HealthOK       Health = "Healthy"
	HealthDegraded Health = "Degraded"
	HealthFailed   Health = "Failed"
	HealthNone     Health = ""
)

// ComponentStatus is one line of the status.
type ComponentStatus struct {
	// ID is stable: manager, webhooks, daemon, crds, gates or objects.
	ID    string `json:"id"`
	State Health `json:"state"`
	// Ready is "2/2" or a count, Version the tag of the image.
	Ready   string `json:"ready"`
	Version string `json:"version"`
	Message string `json:"message"`
}

// Status is the health of an installation.
type Status struct {
	Namespace   string            `json:"namespace"`
	Version     string            `json:"version"`
	InstalledBy Owner             `json:"installedBy"`
	Components  []ComponentStatus `json:"components"`
}

// Healthy reports that no component is degraded.
func (s Status) Healthy() bool {
	for _, c := range s.Components {
		if c.State == HealthDegraded || c.State == HealthFailed {
			return false
		}
	}
	return true
}

// ReadStatus looks at every component; what cannot be read degrades only its own line.
func (c *Cluster) ReadStatus(ctx context.Context, e Existing) (Status, error) {
	if e.Owner == OwnerNone {
		return Status{}, ErrNotInstalled
	}
	s := Status{Namespace: e.Namespace, Version: e.Version, InstalledBy: e.Owner}
	s.Components = []ComponentStatus{
		c.managerStatus(ctx, e), c.webhookStatus(ctx, e), c.daemonStatus(ctx, e), c.crdStatus(ctx), gateStatus(e), c.objectStatus(ctx),
	}
	return s, nil
}

func (c *Cluster) managerStatus(ctx context.Context, e Existing) ComponentStatus {
	s := ComponentStatus{ID: "manager", State: HealthFailed, Ready: "0/0", Message: "the Deployment is missing"}
	if e.Manager == nil {
		return s
	}
	ready, want, done := deploymentState(e.Manager)
	s.Ready, s.Version = fmt.Sprintf("%d/%d", ready, want), versionOf(containerImage(e.Manager))
	leader, err := c.Leader(ctx, e.Namespace)
	switch {
	case err != nil:
		s.Message = "leader unknown: " + err.Error()
	case !leader.Alive:
		s.Message = "no leader"
	default:
		s.Message = fmt.Sprintf("leader %s (renewed %s ago)", leader.Pod, leader.Age.Round(time.Second))
	}
	switch {
	case done && want > 0 && leader.Alive:
		s.State = HealthOK
	case ready > 0:
		s.State = HealthDegraded
	}
	if !done || want == 0 {
		why := c.podTrouble(ctx, e.Namespace, "control-plane=controller-manager")
		if want == 0 {
			why = "scaled to 0"
		}
		if why != "" {
			s.Message += "; " + why
		}
	}
	return s
}

func (c *Cluster) webhookStatus(ctx context.Context, e Existing) ComponentStatus {
	s := ComponentStatus{ID: "webhooks", State: HealthFailed}
	n, err := c.endpoints(ctx, e.Namespace)
	if err != nil {
		s.Ready, s.Message = "?", err.Error()
		return s
	}
	s.Ready = plural(n, "endpoint")
	ca, err := c.servingCA(ctx, e.Namespace)
	if err != nil {
		s.State, s.Message = HealthDegraded, "the CA cannot be read: "+err.Error()
		return s
	}
	if len(ca) == 0 {
		s.Message = "no CA in Secret " + webhookSecret
		return s
	}
	wrong, total, err := c.otherBundles(ctx, ca)
	if err != nil {
		s.State, s.Message = HealthDegraded, err.Error()
		return s
	}
	until, expiry := expiryOf(ca)
	s.Message = fmt.Sprintf("CA valid until %s, bundle matches on %d of %d", until, total-len(wrong), total)
	switch {
	case len(wrong) > 0:
		s.Message += ", not on " + strings.Join(wrong, ", ")
	case n > 0 && c.Clock.Now().Before(expiry):
		s.State = HealthOK
	}
	return s
}

// plural is "1 Pod" or "2 Pods".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// endpoints counts the ready addresses behind the webhook Service.
func (c *Cluster) endpoints(ctx context.Context, ns string) (int, error) {
	slices, err := c.list(ctx, gvkEndpoints, client.InNamespace(ns), client.MatchingLabels{"kubernetes.io/service-name": webhookService})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range slices {
		list, _, _ := unstructured.NestedSlice(s.Object, "endpoints")
		for _, x := range list {
			m, _ := x.(map[string]any)
			if ready, found, _ := unstructured.NestedBool(m, "conditions", "ready"); ready || !found {
				addresses, _, _ := unstructured.NestedStringSlice(m, "addresses")
				n += len(addresses)
			}
		}
	}
	return n, nil
}

// expiryOf returns the end of the first certificate in a PEM text.
func expiryOf(text []byte) (string, time.Time) {
	block, _ := pem.Decode(text)
	if block == nil {
		return "unknown", time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "unknown", time.Time{}
	}
	return cert.NotAfter.UTC().Format(time.DateOnly), cert.NotAfter
}

func (c *Cluster) daemonStatus(ctx context.Context, e Existing) ComponentStatus {
	s := ComponentStatus{ID: "daemon", State: HealthFailed, Ready: "-", Message: "the DaemonSet is missing"}
	if e.Daemon == nil {
		if states, _, err := Gates(e.Flags()); err == nil {
			for _, g := range states {
				if g.Name == "KruiseDaemon" && g.Manager != nil && !*g.Manager {
					s.State, s.Message = HealthNone, "not installed, the feature gate KruiseDaemon is off"
				}
			}
		}
		return s
	}
	n := func(field string) int64 {
		v, _, _ := unstructured.NestedInt64(e.Daemon.Object, "status", field)
		return v
	}
	desired, ready := n("desiredNumberScheduled"), n("numberReady")
	s.Ready, s.Version = fmt.Sprintf("%d/%d", ready, desired), versionOf(containerImage(e.Daemon))
	s.Message = ""
	switch {
	case n("observedGeneration") < e.Daemon.GetGeneration():
		s.State, s.Message = HealthDegraded, "not looked at yet by Kubernetes"
	case ready == desired && n("updatedNumberScheduled") == desired:
		s.State = HealthOK
	case ready > 0:
		s.State = HealthDegraded
	}
	if s.State != HealthOK {
		if why := c.podTrouble(ctx, e.Namespace, "control-plane=daemon"); why != "" {
			s.Message = why
		}
	}
	return s
}

func (c *Cluster) crdStatus(ctx context.Context) ComponentStatus {
	s := ComponentStatus{ID: "crds", State: HealthFailed}
	crds, err := c.kruiseCRDs(ctx)
	if err != nil {
		s.Ready, s.Message = "?", err.Error()
		return s
	}
	established, old := 0, 0
	storage := map[string]int{}
	for _, crd := range crds {
		if conditionTrue(&crd, "Established") {
			established++
		}
		storage[storageVersion(&crd).Version]++
		if stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions"); len(stored) > 1 {
			old++
		}
		s.Version = crd.GetLabels()["app.kubernetes.io/version"]
	}
	s.Ready = fmt.Sprintf("%d/%d", established, len(crds))
	var parts []string
	for _, v := range sortedKeys(storage) {
		parts = append(parts, fmt.Sprintf("%d %s", storage[v], v))
	}
	s.Message = "storage: " + strings.Join(parts, ", ")
	if old > 0 {
		s.Message += fmt.Sprintf("; %d kinds hold old stored versions", old)
	}
	if len(crds) > 0 && established == len(crds) {
		s.State = HealthOK
	}
	return s
}

func gateStatus(e Existing) ComponentStatus {
	s := ComponentStatus{ID: "gates", State: HealthOK}
	states, _, err := Gates(e.Flags())
	if err != nil {
		s.State, s.Message = HealthFailed, err.Error()
		return s
	}
	changed := 0
	var disagree []string
	for _, g := range states {
		if now := g.Current(); now != nil && *now != g.Default {
			changed++
		}
		if g.Disagree() {
			disagree = append(disagree, string(g.Name))
		}
	}
	s.Ready = fmt.Sprint(len(states))
	s.Message = fmt.Sprintf("%d changed from default", changed)
	if len(disagree) > 0 {
		s.State = HealthDegraded
		s.Message += "; manager and daemon disagree on " + strings.Join(disagree, ", ")
	}
	return s
}

// objectStatus counts custom resources by kind.
func (c *Cluster) objectStatus(ctx context.Context) ComponentStatus {
	s := ComponentStatus{ID: "objects", Ready: "-"}
	crds, err := c.kruiseCRDs(ctx)
	if err != nil {
		s.Message = err.Error()
		return s
	}
	var parts []string
	for _, crd := range crds {
		gvk := storageVersion(&crd)
		items, err := c.list(ctx, gvk)
		if err != nil {
			parts = append(parts, gvk.Kind+" ?")
			continue
		}
		if len(items) == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d", gvk.Kind, len(items))
		if gvk.Kind == "ImagePullJob" {
			active := 0
			for _, i := range items {
				if done, _, _ := unstructured.NestedString(i.Object, "status", "completionTime"); done == "" {
					active++
				}
			}
			text = fmt.Sprintf("%s (%d active)", text, active)
		}
		parts = append(parts, text)
	}
	if s.Message = strings.Join(parts, ", "); s.Message == "" {
		s.Message = "none"
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// api knows what the API server is and serves.
type api struct {
	discovery discovery.DiscoveryInterface
	version   string // gitVersion

	once  sync.Once
	kinds map[string]map[string]bool // by group version; one that could not be found out is missing
}

// newAPI asks for the version of the API server.
func newAPI(ctx context.Context, cfg *rest.Config) (*api, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the discovery client: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	klog.FromContext(ctx).Info("Found the API server", "serverVersion", v.GitVersion)
	return &api{discovery: d, version: v.GitVersion}, nil
}

// hubOf is the version in which controllers read and write a kind.
func hubOf(kind string) string {
	if kind == "PodProbeMarker" || kind == "NodePodProbe" { // they have no other
		return v1alpha1.GroupVersion.String()
	}
	return v1beta1.GroupVersion.String()
}

// serves reports whether kind is served in the hub version. Discovery is asked once; a
// group version that is not there, or an API that does not answer, counts as served, so
// that a hiccup does not turn features off (platform.md 6).
func (a *api) serves(ctx context.Context, kind string) bool {
	a.once.Do(func() {
		a.kinds = map[string]map[string]bool{}
		for _, gv := range []string{v1beta1.GroupVersion.String(), v1alpha1.GroupVersion.String()} {
			resources, err := a.resources(ctx, gv)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Discovery does not answer, taking all kinds as served", "groupVersion", gv)
				continue
			}
			a.kinds[gv] = map[string]bool{}
			for _, r := range resources.APIResources {
				a.kinds[gv][r.Kind] = true
			}
		}
	})
	kinds, known := a.kinds[hubOf(kind)]
	return !known || kinds[kind]
}

func (a *api) resources(ctx context.Context, gv string) (*metav1.APIResourceList, error) {
	var resources *metav1.APIResourceList
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 5, Steps: 4}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(context.Context) (bool, error) {
		var err error
		resources, err = a.discovery.ServerResourcesForGroupVersion(gv)
		if apierrors.IsNotFound(err) {
			return false, err
		}
		return err == nil, nil
	})
	return resources, err
}

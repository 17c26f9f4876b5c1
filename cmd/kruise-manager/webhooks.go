// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/webhook/admit"
	"github.com/kruisectl/kruisectl/webhook/cloneset"
	"github.com/kruisectl/kruisectl/webhook/containerrecreaterequest"
	"github.com/kruisectl/kruisectl/webhook/daemonset"
	"github.com/kruisectl/kruisectl/webhook/deletion"
	"github.com/kruisectl/kruisectl/webhook/imagelistpulljob"
	"github.com/kruisectl/kruisectl/webhook/imagepulljob"
	"github.com/kruisectl/kruisectl/webhook/nodeimage"
	"github.com/kruisectl/kruisectl/webhook/pod"
	"github.com/kruisectl/kruisectl/webhook/podprobemarker"
	"github.com/kruisectl/kruisectl/webhook/server"
	"github.com/kruisectl/kruisectl/webhook/statefulset"
)

// handlers are all paths of the webhook server.
func handlers(mgr ctrl.Manager, set *features.Set, denials *protection.Recorder) (admit.Handlers, error) {
	hs := admit.Handlers{}
	pod.Register(hs, set, mgr.GetClient())
	cloneset.Register(hs, cloneset.Options{Features: set, Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Denials: denials})
	statefulset.Register(hs, statefulset.Options{Features: set, Live: mgr.GetAPIReader(), Denials: denials})
	daemonset.Register(hs, set)
	imagepulljob.Register(hs, set)
	imagelistpulljob.Register(hs, set)
	containerrecreaterequest.Register(hs, containerrecreaterequest.Options{Features: set, Live: mgr.GetAPIReader(), Cached: mgr.GetClient()})
	podprobemarker.Register(hs, podprobemarker.Options{Features: set, Markers: mgr.GetClient()})
	nodeimage.Register(hs, set, clock.RealClock{})
	objects, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of metadata: %w", err)
	}
	deletion.Register(hs, deletion.Options{Features: set, Counter: deletion.Live{Reader: mgr.GetAPIReader(), Metadata: objects}, Denials: denials})
	hs.Handle("/healthz", server.Healthz())

	registry := mgr.GetConverterRegistry()
	for _, add := range []func(ctrl.Manager, conversion.Registry) error{
		converter(cloneset.Converter()), converter(statefulset.Converter()), converter(daemonset.Converter()),
		converter(imagepulljob.Converter()), converter(imagelistpulljob.Converter()), converter(nodeimage.Converter()),
		converter(containerrecreaterequest.Converter()),
	} {
		if err := add(mgr, registry); err != nil {
			return nil, fmt.Errorf("registering conversion: %w", err)
		}
	}
	hs.Handle("/convert", conversion.NewWebhookHandler(mgr.GetScheme(), registry))
	return hs, nil
}

func converter[T client.Object](hub T, spoke conversion.SpokeConverter[T]) func(ctrl.Manager, conversion.Registry) error {
	return func(mgr ctrl.Manager, registry conversion.Registry) error {
		gvk, err := mgr.GetClient().GroupVersionKindFor(hub)
		if err != nil {
			return err
		}
		c, err := conversion.NewHubSpokeConverter(hub, spoke)(mgr.GetScheme())
		if err != nil {
			return err
		}
		return registry.RegisterConverter(gvk.GroupKind(), c)
	}
}

// gatedOff tells which gate keeps a path of the manifests from being served, so that its
// absence is no surprise.
func gatedOff(set *features.Set) func(path string) string {
	gates := map[string]features.Gate{
		pod.MutatePath:      features.PodWebhook,
		"/validate-pod":     features.PodWebhook,
		"/validate-service": features.ResourcesDeletionProtection,
		"/validate-ingress": features.ResourcesDeletionProtection,
	}
	return func(path string) string {
		if g, ok := gates[path]; ok && !set.Enabled(g) {
			return string(g)
		}
		return ""
	}
}

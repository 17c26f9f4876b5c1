// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kruisectl/kruisectl/internal/features"
)

// Check returns the gates that v asks for, warnings about them, and every value that is
// wrong on any cluster, each as a ValueError.
func (v Values) Check() (gates *features.Set, warnings []string, err error) {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, &ValueError{Key: key, Err: fmt.Errorf(format, args...)})
	}
	gates, err = features.Parse(v.FeatureGates)
	if err != nil {
		errs = append(errs, &ValueError{Key: "featureGates", Err: err})
	} else {
		warnings = gates.Warnings()
	}
	if msgs := validation.IsDNS1123Label(v.Installation.Namespace); len(msgs) > 0 {
		bad("installation.namespace", "%q is not a name of a namespace: %s", v.Installation.Namespace, msgs[0])
	} else if v.Installation.Namespace == "kruise-daemon-config" || v.Installation.Namespace == "kube-system" {
		bad("installation.namespace", "%s is taken by something else", v.Installation.Namespace)
	}
	if v.Manager.Replicas < 1 {
		bad("manager.replicas", "%d managers cannot serve webhooks, use 1 or more", v.Manager.Replicas)
	}
	v.checkImage(bad)
	v.checkPorts(bad)
	if v.Webhooks.TimeoutSeconds < 1 || v.Webhooks.TimeoutSeconds > 30 {
		bad("webhookConfiguration.timeoutSeconds", "%d is not between 1 and 30", v.Webhooks.TimeoutSeconds)
	}
	oneOf := func(key, value string, known ...string) {
		if !slices.Contains(known, value) {
			bad(key, "%q is not one of %s", value, strings.Join(known, ", "))
		}
	}
	oneOf("webhookConfiguration.failurePolicy.pods", v.Webhooks.FailurePolicy.Pods, "Fail", "Ignore")
	oneOf("externalCerts.mode", v.ExternalCerts.Mode, "none", "cert-manager", "manual")
	oneOf("manager.loggingFormat", v.Manager.LoggingFormat, "", "text", "json")
	oneOf("manager.image.pullPolicy", string(v.Manager.Image.PullPolicy), "Always", "IfNotPresent", "Never")
	for key, level := range map[string]string{"manager.log.level": v.Manager.Log.Level, "daemon.log.level": v.Daemon.Log.Level} {
		if n, err := strconv.Atoi(level); err != nil || n < 0 {
			bad(key, "%q is not a number of 0 or more", level)
		}
	}
	if !strings.HasPrefix(v.Daemon.SocketLocation, "/") {
		bad("daemon.socketLocation", "%q is not an absolute path", v.Daemon.SocketLocation)
	}
	for _, ns := range v.Webhooks.ExcludeNamespaces {
		if msgs := validation.IsDNS1123Label(ns); len(msgs) > 0 {
			bad("webhookConfiguration.excludeNamespaces", "%q is not a name of a namespace: %s", ns, msgs[0])
		}
	}
	if v.CRDs.Only && !v.CRDs.Managed {
		bad("crds.only", "contradicts crds.managed=false")
	}
	if err == nil && gates != nil {
		external := gates.Enabled(features.EnableExternalCerts)
		if external && v.ExternalCerts.Mode == "none" {
			warnings = append(warnings, "EnableExternalCerts is on: the Secret kruise-webhook-certs with ca.crt, tls.crt and tls.key must exist, or the manager does not start")
		}
		if !external && v.ExternalCerts.Mode != "none" {
			bad("externalCerts.mode", "%s needs the feature gate EnableExternalCerts=true", v.ExternalCerts.Mode)
		}
	}
	if v.Manager.Metrics.ServiceMonitor && !v.Manager.Metrics.Service {
		bad("manager.metrics.serviceMonitor", "needs manager.metrics.service=true")
	}
	if v.Webhooks.FailurePolicy.Pods == "Ignore" {
		warnings = append(warnings, "Pods that are created while no manager answers miss their readiness gate: they are updated in place without being taken out of Services first")
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, nil, joinErrors(errs)
	}
	return gates, warnings, nil
}

func (v Values) checkImage(bad func(key, format string, args ...any)) {
	i := v.Manager.Image
	if _, err := reference.ParseNormalizedNamed(i.Repository); err != nil {
		bad("manager.image.repository", "%q is not an image: %w", i.Repository, err)
		return
	}
	if named, err := reference.ParseNormalizedNamed(i.Repository); err == nil && !reference.IsNameOnly(named) {
		bad("manager.image.repository", "%q holds a tag or digest, which belongs in manager.image.tag or manager.image.digest", i.Repository)
	}
	if i.Digest != "" {
		if _, err := reference.Parse("x@" + i.Digest); err != nil {
			bad("manager.image.digest", "%q is not a digest such as sha256:…: %w", i.Digest, err)
		}
		return
	}
	if _, err := reference.Parse("x:" + i.Tag); err != nil || i.Tag == "" {
		bad("manager.image.tag", "%q is not a tag", i.Tag)
	}
}

func (v Values) checkPorts(bad func(key, format string, args ...any)) {
	ports := []struct {
		key  string
		port int32
	}{
		{"manager.webhook.port", v.Manager.Webhook.Port},
		{"manager.metrics.port", v.Manager.Metrics.Port},
		{"manager.healthProbe.port", v.Manager.HealthProbe.Port},
	}
	seen := map[int32]string{}
	for _, p := range ports {
		if p.port < 1 || p.port > 65535 {
			bad(p.key, "%d is not a port, use 1 to 65535", p.port)
		} else if other, taken := seen[p.port]; taken {
			bad(p.key, "%d is the port of %s too", p.port, other)
		}
		seen[p.port] = p.key
	}
	if v.Daemon.Port < 1024 || v.Daemon.Port > 65535 {
		bad("daemon.port", "%d is not a port that the daemon may listen on, use 1024 to 65535", v.Daemon.Port)
	}
}

// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// takenConditions are Pod conditions that kubelet or a controller of ours writes. No probe may be
// called like the first six, and no probe may write any of them.
var takenConditions = []string{
	string(corev1.PodScheduled), string(corev1.PodInitialized), string(corev1.PodReady), string(corev1.ContainersReady),
	string(v1beta1.KruisePodReady), string(v1beta1.InPlaceUpdateReady),
	string(corev1.DisruptionTarget), string(corev1.PodReadyToStartContainers), string(corev1.PodResizePending), string(corev1.PodResizeInProgress),
}

const takenNames = 6

// PodProbeMarker returns the faults of a PodProbeMarker (podprobe.md 2).
func PodProbeMarker(ppm *v1alpha1.PodProbeMarker) field.ErrorList {
	spec := field.NewPath("spec")
	errs := markerSelector(ppm.Spec.Selector, spec.Child("selector"))
	path := spec.Child("probes")
	if len(ppm.Spec.Probes) == 0 {
		errs = append(errs, field.Required(path, "list at least one probe"))
	}
	names, types := map[string]bool{}, map[string]bool{}
	for i := range ppm.Spec.Probes {
		p, at := &ppm.Spec.Probes[i], path.Index(i)
		errs = append(errs, probeName(p.Name, names, at.Child("name"))...)
		errs = append(errs, required(p.ContainerName, at.Child("containerName"), "name the container to probe")...)
		errs = append(errs, markerProbe(&p.Probe.Probe, at.Child("probe"))...)
		if p.PodConditionType == "" && len(p.MarkerPolicy) == 0 {
			errs = append(errs, field.Required(at, "podConditionType and markerPolicy cannot both be empty: set what the result becomes"))
		}
		errs = append(errs, conditionType(p.PodConditionType, types, at.Child("podConditionType"))...)
		errs = append(errs, markerPolicies(p.MarkerPolicy, at.Child("markerPolicy"))...)
	}
	return errs
}

// PodProbeMarkerUpdate returns the faults of an UPDATE: those that PodProbeMarker finds, less the
// ones that the stored object has already, and a changed selector.
func PodProbeMarkerUpdate(old, ppm *v1alpha1.PodProbeMarker) field.ErrorList {
	errs := newFaults(PodProbeMarker(old), PodProbeMarker(ppm))
	if !apiequality.Semantic.DeepEqual(old.Spec.Selector, ppm.Spec.Selector) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "selector"), "selector must be immutable; create another PodProbeMarker"))
	}
	return errs
}

func markerSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "set matchLabels to labels of the Pods to probe")}
	}
	if empty(s) {
		return field.ErrorList{field.Invalid(path, "{}", "empty selector is not valid for PodProbeMarker: it would select every Pod; set matchLabels")}
	}
	errs := labelSelector(s, path)
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(path, metav1.FormatLabelSelector(s), err.Error()))
	}
	return errs
}

func probeName(name string, seen map[string]bool, path *field.Path) field.ErrorList {
	defer func() { seen[name] = true }()
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "give every probe a name")}
	case strings.Contains(name, "#"):
		return field.ErrorList{field.Invalid(path, name, "must not contain #, which separates the names of PodProbeMarker and probe")}
	case slices.Contains(takenConditions[:takenNames], name):
		return field.ErrorList{field.Invalid(path, name, "is the name of a condition that every Pod may have; choose another one")}
	case seen[name]:
		return field.ErrorList{field.Duplicate(path, name)}
	}
	return nil
}

// markerProbe wants one of the three actions that the node agent can do. Zero stands for the
// default of a number.
func markerProbe(p *corev1.Probe, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	actions := 0
	if p.Exec != nil {
		actions++
		if len(p.Exec.Command) == 0 {
			errs = append(errs, field.Required(path.Child("exec", "command"), "set the command to run in the container"))
		}
	}
	if p.HTTPGet != nil {
		actions++
		errs = append(errs, httpProbe(p.HTTPGet, path.Child("httpGet"))...)
	}
	if t := p.TCPSocket; t != nil {
		actions++
		errs = append(errs, noHost(t.Host, path.Child("tcpSocket", "host"))...)
		errs = append(errs, portOrName(t.Port, path.Child("tcpSocket", "port"))...)
	}
	switch {
	case actions == 0 && p.GRPC != nil:
		errs = append(errs, field.Required(path, "must specify a handler type: exec, httpGet or tcpSocket; grpc is not supported"))
	case actions == 0:
		errs = append(errs, field.Required(path, "must specify a handler type: exec, httpGet or tcpSocket"))
	case actions > 1:
		errs = append(errs, field.Forbidden(path, "may not specify more than 1 handler type; use one of exec, httpGet and tcpSocket"))
	}
	for _, n := range []struct {
		child string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds}, {"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, notNegative(int64(n.value), path.Child(n.child))...)
	}
	return errs
}

// httpProbe takes a missing scheme for HTTP, as the manual of OpenKruise shows it, though
// OpenKruise itself does not.
func httpProbe(h *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := noHost(h.Host, path.Child("host"))
	if h.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), "set the path to get, such as /healthz"))
	} else if _, err := url.Parse(h.Path); err != nil {
		errs = append(errs, field.Invalid(path.Child("path"), h.Path, fmt.Sprintf("must be a path of a URL: %v", err)))
	}
	errs = append(errs, portOrName(h.Port, path.Child("port"))...)
	errs = append(errs, oneOf(h.Scheme, path.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for i, header := range h.HTTPHeaders {
		errs = append(errs, messages(path.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

func noHost(host string, path *field.Path) field.ErrorList {
	if host == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "the probe always goes to the IP of the Pod; leave the host out")}
}

func conditionType(name string, seen map[string]bool, path *field.Path) field.ErrorList {
	defer func() { seen[name] = true }()
	switch {
	case name == "":
		return nil
	case slices.Contains(takenConditions, name):
		return field.ErrorList{field.Invalid(path, name, "this condition is written by others; choose a name of your own, such as example.com/healthy")}
	case seen[name]:
		return field.ErrorList{field.Duplicate(path, name)}
	}
	return messages(path, name, validation.IsQualifiedName(name))
}

func markerPolicies(list []v1alpha1.ProbeMarkerPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[v1alpha1.ProbeState]bool{}
	for i := range list {
		p, at := &list[i], path.Index(i)
		states := []v1alpha1.ProbeState{v1alpha1.ProbeSucceeded, v1alpha1.ProbeFailed}
		switch {
		case !slices.Contains(states, p.State):
			errs = append(errs, field.NotSupported(at.Child("state"), p.State, states))
		case seen[p.State]:
			errs = append(errs, field.Duplicate(at.Child("state"), p.State))
		}
		seen[p.State] = true
		if len(p.Labels)+len(p.Annotations) == 0 {
			errs = append(errs, field.Required(at, "labels and annotations cannot both be empty: set what marks a Pod in this state"))
		}
		errs = append(errs, metavalidation.ValidateLabels(p.Labels, at.Child("labels"))...)
		errs = append(errs, apivalidation.ValidateAnnotations(p.Annotations, at.Child("annotations"))...)
	}
	return errs
}

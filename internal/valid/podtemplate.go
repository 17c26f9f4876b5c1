// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podTemplate is rows 5 and 6: what the API server would refuse in every Pod made from the
// template, as far as it can be said without the API server's own code. It never refuses what
// the API server accepts, so values that newer releases may add to an enumeration are only
// checked where a wrong one is a common mistake; the rest shows when the first Pod is created.
// kind is that of the workload, for messages.
func podTemplate(t *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim, kind string, spec *field.Path) field.ErrorList {
	path := spec.Child("template")
	errs := templateMetadata(t, path.Child("metadata"))
	errs = append(errs, runsForever(&t.Spec, kind, path.Child("spec"))...)

	vols, volErrs := volumes(t.Spec.Volumes, claims, path.Child("spec", "volumes"), spec.Child("volumeClaimTemplates"))
	errs = append(errs, volErrs...)
	return append(errs, podSpec(&t.Spec, vols, path.Child("spec"))...)
}

func templateMetadata(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, apivalidation.ValidateFinalizers(t.Finalizers, path.Child("finalizers"))...)
}

// runsForever refuses what ends Pods by itself: a workload replaces those, again and again.
func runsForever(s *corev1.PodSpec, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), s.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in a "+kind+" is not supported: its Pods run until they are replaced; remove it"))
	}
	return errs
}

func podSpec(s *corev1.PodSpec, vols map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), "a Pod needs at least one container"))
	}
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	for i := range s.Containers {
		cPath := path.Child("containers").Index(i)
		errs = append(errs, container(&s.Containers[i], vols, names, cPath)...)
		errs = append(errs, hostNetworkPorts(s.HostNetwork, s.Containers[i].Ports, cPath.Child("ports"))...)
		errs = append(errs, uniqueHostPorts(s.Containers[i].Ports, hostPorts, cPath.Child("ports"))...)
		errs = append(errs, hooksAndProbes(&s.Containers[i], cPath)...)
	}
	for i := range s.InitContainers {
		c, cPath := &s.InitContainers[i], path.Child("initContainers").Index(i)
		errs = append(errs, container(c, vols, names, cPath)...)
		errs = append(errs, uniqueHostPorts(c.Ports, map[string]bool{}, cPath.Child("ports"))...)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			errs = append(errs, hooksAndProbes(c, cPath)...)
		} else {
			errs = append(errs, noHooksAndProbes(c, cPath)...)
		}
	}
	if len(s.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "ephemeral containers can only be added to running Pods; remove them from the template"))
	}
	errs = append(errs, oneOf(s.DNSPolicy, path.Child("dnsPolicy"),
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, podNames(s, path)...)
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, tolerations(s.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, topologySpread(s.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	for i, gate := range s.ReadinessGates {
		errs = append(errs, messages(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType),
			validation.IsQualifiedName(string(gate.ConditionType)))...)
	}
	for i, alias := range s.HostAliases {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("hostAliases").Index(i).Child("ip"), alias.IP, false, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, messages(path.Child("hostAliases").Index(i).Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(path.Child("dnsConfig", "nameservers"), "dnsPolicy None needs at least one name server"))
	}
	return append(errs, affinity(s.Affinity, path.Child("affinity"))...)
}

// podNames checks the names of other objects and of the Pod itself; empty ones pass.
func podNames(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		child, value string
		check        func(string) []string
	}{
		{"serviceAccountName", s.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"nodeName", s.NodeName, validation.IsDNS1123Subdomain},
		{"priorityClassName", s.PriorityClassName, validation.IsDNS1123Subdomain},
		{"hostname", s.Hostname, validation.IsDNS1123Label},
		{"subdomain", s.Subdomain, validation.IsDNS1123Label},
	} {
		if n.value != "" {
			errs = append(errs, messages(path.Child(n.child), n.value, n.check(n.value))...)
		}
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, messages(path.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain(*s.RuntimeClassName))...)
	}
	return errs
}

func tolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		p := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, p.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(p.Child("operator"), t.Operator, "must be Exists when key is empty, which tolerates every taint"))
		}
		if t.Operator == corev1.TolerationOpExists && t.Value != "" {
			errs = append(errs, field.Invalid(p.Child("value"), t.Value, "must be empty when operator is Exists"))
		}
		errs = append(errs, oneOf(t.Operator, p.Child("operator"),
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt)...)
		errs = append(errs, oneOf(t.Effect, p.Child("effect"),
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(p.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
		}
	}
	return errs
}

// topologySpread leaves label selectors alone: stored templates with invalid ones are tolerated.
func topologySpread(list []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range list {
		p := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(p.Child("maxSkew"), c.MaxSkew, "must be 1 or more"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(p.Child("topologyKey"), "name a label of the nodes"))
		} else {
			errs = append(errs, metavalidation.ValidateLabelName(c.TopologyKey, p.Child("topologyKey"))...)
		}
		if c.WhenUnsatisfiable == "" {
			errs = append(errs, field.Required(p.Child("whenUnsatisfiable"), "set DoNotSchedule or ScheduleAnyway"))
		}
		errs = append(errs, oneOf(c.WhenUnsatisfiable, p.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
	}
	return errs
}

// affinity checks the node terms and what every Pod term needs; selectors are tolerated.
func affinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		p := path.Child("nodeAffinity")
		if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			terms := p.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
			if len(required.NodeSelectorTerms) == 0 {
				errs = append(errs, field.Required(terms, "must have at least one term"))
			}
			for i, t := range required.NodeSelectorTerms {
				errs = append(errs, nodeTerm(t, terms.Index(i))...)
			}
		}
		for i, t := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			tp := p.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
			errs = append(errs, weight(t.Weight, tp.Child("weight"))...)
			errs = append(errs, nodeTerm(t.Preference, tp.Child("preference"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

func nodeTerm(t corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range t.MatchExpressions {
		p := path.Child("matchExpressions").Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(e.Key, p.Child("key"))...)
		values := len(e.Values)
		switch e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if values == 0 {
				errs = append(errs, field.Required(p.Child("values"), "operators In and NotIn need at least one value"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if values > 0 {
				errs = append(errs, field.Forbidden(p.Child("values"), "operators Exists and DoesNotExist take no values"))
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if values != 1 {
				errs = append(errs, field.Required(p.Child("values"), "operators Gt and Lt need exactly one value"))
			}
		default:
			errs = append(errs, field.NotSupported(p.Child("operator"), e.Operator, []corev1.NodeSelectorOperator{
				corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
				corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
			}))
		}
	}
	return errs
}

func podTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	key := func(t corev1.PodAffinityTerm, p *field.Path) {
		if t.TopologyKey == "" {
			errs = append(errs, field.Required(p.Child("topologyKey"), "name a label of the nodes"))
		} else {
			errs = append(errs, metavalidation.ValidateLabelName(t.TopologyKey, p.Child("topologyKey"))...)
		}
	}
	for i, t := range required {
		key(t, path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
	}
	for i, t := range preferred {
		p := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		errs = append(errs, weight(t.Weight, p.Child("weight"))...)
		key(t.PodAffinityTerm, p.Child("podAffinityTerm"))
	}
	return errs
}

func weight(w int32, path *field.Path) field.ErrorList {
	if w < 1 || w > 100 {
		return field.ErrorList{field.Invalid(path, w, "must be between 1 and 100")}
	}
	return nil
}

// uniqueHostPorts adds the host ports to seen and reports those that are there already.
func uniqueHostPorts(ports []corev1.ContainerPort, seen map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("hostPort"), key))
		}
		seen[key] = true
	}
	return errs
}

// hostNetworkPorts wants the ports of a container on the network of its node to be their own
// host ports; absent ones are filled in when the Pod is created.
func hostNetworkPorts(hostNetwork bool, ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		if hostNetwork && p.HostPort != 0 && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(path.Index(i).Child("hostPort"), p.HostPort, "must equal containerPort when hostNetwork is true; leave it out"))
		}
	}
	return errs
}

// oneOf refuses a value outside the set; the empty one passes, it is defaulted or optional.
func oneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// messages makes a fault of each text.
func messages(path *field.Path, value any, texts []string) field.ErrorList {
	var errs field.ErrorList
	for _, text := range texts {
		errs = append(errs, field.Invalid(path, value, text))
	}
	return errs
}

func portNumber(n int32, path *field.Path) field.ErrorList {
	if n < 1 || n > math.MaxUint16 {
		return field.ErrorList{field.Invalid(path, n, "must be between 1 and 65535")}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Package poddefaults writes into a Pod template what the API server would write into the
// template of a Deployment, so that a template reads the same before and after it became a
// Pod. It is pure. What the API server only writes into Pods (service links, requests from
// limits, host ports) is left to it. Source: cloneset.md 5.1, platform.md 5.4; the values are
// those of the Kubernetes API reference.
//
// Two defaults of later Kubernetes releases are left out on purpose, the serviceAccount alias
// and the pull policy of image volumes: templates stored by OpenKruise 1.x lack them, so that
// adding them along with the user's next image change would turn an in-place update into a
// recreation of every Pod.
package poddefaults

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options varies the defaults of a template.
type Options struct {
	// HostNetworkHostPorts sets hostPort to containerPort where the Pod uses the network of
	// its node (gate DefaultHostNetworkHostPortsInPodTemplates).
	HostNetworkHostPorts bool
}

// Template fills in what t leaves open. An app container without imagePullPolicy gets Always
// whatever its tag, as OpenKruise does; an init container gets the Kubernetes rule.
func Template(t *corev1.PodTemplateSpec, o Options) {
	spec := &t.Spec
	podSpec(spec)
	for i := range spec.Volumes {
		volume(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		setString(&c.ImagePullPolicy, PullPolicy(c.Image))
		container(c)
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		setString(&c.ImagePullPolicy, corev1.PullAlways)
		container(c)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
	if o.HostNetworkHostPorts && spec.HostNetwork {
		hostPorts(spec.InitContainers)
		hostPorts(spec.Containers)
	}
}

// Claim fills in what the spec of a volume claim template leaves open; it has no status.
func Claim(c *corev1.PersistentVolumeClaim) {
	claimSpec(&c.Spec)
}

// PullPolicy is what Kubernetes does with a container that says nothing: Always for the tag
// latest, written or implied, else IfNotPresent, also for references that do not parse.
func PullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func podSpec(s *corev1.PodSpec) {
	setString(&s.DNSPolicy, corev1.DNSClusterFirst)
	setString(&s.RestartPolicy, corev1.RestartPolicyAlways)
	setString(&s.SchedulerName, corev1.DefaultSchedulerName)
	set(&s.SecurityContext, corev1.PodSecurityContext{})
	set(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
}

func container(c *corev1.Container) {
	setString(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setString(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setString(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			fieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				set(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				httpGet(h.HTTPGet)
			}
		}
	}
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setNumber(&p.TimeoutSeconds, 1)
	setNumber(&p.PeriodSeconds, 10)
	setNumber(&p.SuccessThreshold, 1)
	setNumber(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		set(&p.GRPC.Service, "")
	}
}

func httpGet(a *corev1.HTTPGetAction) {
	if a == nil {
		return
	}
	setString(&a.Path, "/")
	setString(&a.Scheme, corev1.URISchemeHTTP)
}

func fieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		setString(&f.APIVersion, "v1")
	}
}

func claimSpec(s *corev1.PersistentVolumeClaimSpec) {
	set(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(s.Resources.Limits)
	roundUp(s.Resources.Requests)
}

func hostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			setNumber(&p.HostPort, p.ContainerPort)
		}
	}
}

// roundUp brings quantities to whole thousandths, the finest that the API server keeps.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

func set[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func setString[T ~string](p *T, value T) {
	if *p == "" {
		*p = value
	}
}

func setNumber(p *int32, value int32) {
	if *p == 0 {
		*p = value
	}
}

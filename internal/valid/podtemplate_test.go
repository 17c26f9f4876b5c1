// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func quantity(text string) *resource.Quantity { return new(resource.MustParse(text)) }

// claimTemplate adds a valid volume claim template.
func claimTemplate(name string) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) {
		cs.Spec.VolumeClaimTemplates = append(cs.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": *quantity("1Gi")}},
			},
		})
	}
}

func secondContainer(cs *v1beta1.CloneSet) {
	c := *cs.Spec.Template.Spec.Containers[0].DeepCopy()
	c.Name = "second"
	cs.Spec.Template.Spec.Containers = append(cs.Spec.Template.Spec.Containers, c)
}

func pod(change func(*corev1.PodSpec)) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) { change(&cs.Spec.Template.Spec) }
}

func app(change func(*corev1.Container)) func(*v1beta1.CloneSet) {
	return pod(func(s *corev1.PodSpec) { change(&s.Containers[0]) })
}

func volume(source corev1.VolumeSource) func(*v1beta1.CloneSet) {
	return pod(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
}

// podFaults are faults of the template that the API server finds in a Pod as well.
func podFaults() map[string]wrong {
	const spec, c0 = "spec.template.spec", "spec.template.spec.containers[0]"
	init := func(change func(*corev1.Container)) func(*v1beta1.CloneSet) {
		return pod(func(s *corev1.PodSpec) {
			c := corev1.Container{Name: "init", Image: "busybox:1.36", TerminationMessagePolicy: "File", ImagePullPolicy: "Always"}
			change(&c)
			s.InitContainers = []corev1.Container{c}
		})
	}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}
	return map[string]wrong{
		"a label that cannot be":         {func(cs *v1beta1.CloneSet) { cs.Spec.Template.Labels["x"] = "a b" }, "spec.template.metadata.labels"},
		"an annotation that cannot be":   {func(cs *v1beta1.CloneSet) { cs.Spec.Template.Annotations = map[string]string{"a b": ""} }, "spec.template.metadata.annotations"},
		"a finalizer that cannot be":     {func(cs *v1beta1.CloneSet) { cs.Spec.Template.Finalizers = []string{"a b/c"} }, "spec.template.metadata.finalizers"},
		"no containers":                  {pod(func(s *corev1.PodSpec) { s.Containers = nil }), spec + ".containers"},
		"a container without name":       {app(func(c *corev1.Container) { c.Name = "" }), c0 + ".name"},
		"a container name in upper case": {app(func(c *corev1.Container) { c.Name = "App" }), c0 + ".name"},
		"two containers of one name": {func(cs *v1beta1.CloneSet) {
			secondContainer(cs)
			cs.Spec.Template.Spec.Containers[1].Name = "app"
		}, spec + ".containers[1].name"},
		"an init container named like an app container": {init(func(c *corev1.Container) { c.Name = "app" }), spec + ".initContainers[0].name"},
		"no image":                     {app(func(c *corev1.Container) { c.Image = "" }), c0 + ".image"},
		"white space around the image": {app(func(c *corev1.Container) { c.Image = " nginx" }), c0 + ".image"},
		"an unknown pull policy":       {app(func(c *corev1.Container) { c.ImagePullPolicy = "Sometimes" }), c0 + ".imagePullPolicy"},
		"an unknown message policy":    {app(func(c *corev1.Container) { c.TerminationMessagePolicy = "Log" }), c0 + ".terminationMessagePolicy"},
		"no container port":            {app(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{Protocol: "TCP"}} }), c0 + ".ports[0].containerPort"},
		"a container port too high":    {app(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 70000, Protocol: "TCP"}} }), c0 + ".ports[0].containerPort"},
		"a negative host port": {app(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: -1, Protocol: "TCP"}}
		}), c0 + ".ports[0].hostPort"},
		"an unknown protocol": {app(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: "HTTP"}} }), c0 + ".ports[0].protocol"},
		"a port name that is too long": {app(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{Name: "a-very-long-port-name", ContainerPort: 80, Protocol: "TCP"}}
		}), c0 + ".ports[0].name"},
		"two ports of one name": {app(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: "TCP"}, {Name: "http", ContainerPort: 81, Protocol: "TCP"}}
		}), c0 + ".ports[1].name"},
		"one host port twice": {app(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: "TCP"}, {ContainerPort: 81, HostPort: 80, Protocol: "TCP"}}
		}), c0 + ".ports[1].hostPort"},
		"a host port that differs on the network of the node": {pod(func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 81, Protocol: "TCP"}}
		}), c0 + ".ports[0].hostPort"},
		"a variable without name":        {app(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Value: "x"}} }), c0 + ".env[0].name"},
		"a variable with an equals sign": {app(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A=B"}} }), c0 + ".env[0].name"},
		"a variable with value and source": {app(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", Value: "x", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}}
		}), c0 + ".env[0].valueFrom"},
		"a variable from nowhere": {app(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{}}} }), c0 + ".env[0].valueFrom"},
		"a variable from a Secret without key": {app(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}}
		}), c0 + ".env[0].valueFrom.secretKeyRef.key"},
		"a variable from a ConfigMap without name": {app(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "k"}}}}
		}), c0 + ".env[0].valueFrom.configMapKeyRef.name"},
		"a variable from no field": {app(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1"}}}}
		}), c0 + ".env[0].valueFrom.fieldRef.fieldPath"},
		"variables from nowhere": {app(func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{}} }), c0 + ".envFrom[0]"},
		"variables from a Secret without name": {app(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		}), c0 + ".envFrom[0].secretRef.name"},
		"a mount of no volume": {app(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "missing", MountPath: "/x"}}
		}), c0 + ".volumeMounts[0].name"},
		"a mount without path": {func(cs *v1beta1.CloneSet) {
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(cs)
			cs.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v"}}
		}, c0 + ".volumeMounts[0].mountPath"},
		"two mounts at one path": {func(cs *v1beta1.CloneSet) {
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(cs)
			cs.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/x"}, {Name: "v", MountPath: "/x"}}
		}, c0 + ".volumeMounts[1].mountPath"},
		"a sub path that leaves the volume": {func(cs *v1beta1.CloneSet) {
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(cs)
			cs.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/x", SubPath: "a/../../b"}}
		}, c0 + ".volumeMounts[0].subPath"},
		"a block device that is a directory": {func(cs *v1beta1.CloneSet) {
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(cs)
			cs.Spec.Template.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
		}, c0 + ".volumeDevices[0].name"},
		"a negative limit": {app(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"cpu": *quantity("-1")}
		}), c0 + ".resources.limits[cpu]"},
		"a request above its limit": {app(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"cpu": *quantity("1")}
			c.Resources.Requests = corev1.ResourceList{"cpu": *quantity("2")}
		}), c0 + ".resources.requests[cpu]"},
		"a resource that cannot be": {app(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"my cpu": *quantity("1")}
		}), c0 + ".resources.limits[my cpu]"},
		"a probe without action": {app(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{SuccessThreshold: 1} }), c0 + ".livenessProbe"},
		"a probe with a bad port": {app(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}}}
		}), c0 + ".readinessProbe.tcpSocket.port"},
		"a probe with a negative period": {app(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: tcp, PeriodSeconds: -1}
		}), c0 + ".readinessProbe.periodSeconds"},
		"a liveness probe that must succeed twice": {app(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: tcp, SuccessThreshold: 2}
		}), c0 + ".livenessProbe.successThreshold"},
		"a hook without command": {app(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}}
		}), c0 + ".lifecycle.preStop.exec.command"},
		"an init container with a probe": {init(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: tcp}
		}), spec + ".initContainers[0].readinessProbe"},
		"ephemeral containers": {pod(func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "i", TerminationMessagePolicy: "File"}}}
		}), spec + ".ephemeralContainers"},
		"an unknown DNS policy":                {pod(func(s *corev1.PodSpec) { s.DNSPolicy = "Mine" }), spec + ".dnsPolicy"},
		"no DNS without name server":           {pod(func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSNone }), spec + ".dnsConfig.nameservers"},
		"a service account that cannot be":     {pod(func(s *corev1.PodSpec) { s.ServiceAccountName = "A_B" }), spec + ".serviceAccountName"},
		"a host name that cannot be":           {pod(func(s *corev1.PodSpec) { s.Hostname = "a.b" }), spec + ".hostname"},
		"a node selector that cannot be":       {pod(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "b c"} }), spec + ".nodeSelector"},
		"a toleration without key or operator": {pod(func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{{Value: "x"}} }), spec + ".tolerations[0].operator"},
		"a toleration with an unknown effect": {pod(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoRun"}}
		}), spec + ".tolerations[0].effect"},
		"toleration seconds without NoExecute": {pod(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists", Effect: "NoSchedule", TolerationSeconds: new(int64(1))}}
		}), spec + ".tolerations[0].effect"},
		"no skew at all": {pod(func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}), spec + ".topologySpreadConstraints[0].maxSkew"},
		"a spread over nothing": {pod(func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}}
		}), spec + ".topologySpreadConstraints[0].topologyKey"},
		"a readiness gate that cannot be": {pod(func(s *corev1.PodSpec) {
			s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a b"}}
		}), spec + ".readinessGates[0].conditionType"},
		"a host alias that is no address": {pod(func(s *corev1.PodSpec) {
			s.HostAliases = []corev1.HostAlias{{IP: "here", Hostnames: []string{"a"}}}
		}), spec + ".hostAliases[0].ip"},
		"node affinity with an unknown operator": {pod(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}}}}}
		}), spec + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator"},
		"Pod affinity without topology": {pod(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{}}}}
		}), spec + ".affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey"},
		"a preference of weight 0": {pod(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}}}}
		}), spec + ".affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight"},
		"a volume without name": {pod(func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), spec + ".volumes[0].name"},
		"two volumes of one name": {pod(func(s *corev1.PodSpec) {
			v := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
			s.Volumes = []corev1.Volume{v, v}
		}), spec + ".volumes[1].name"},
		"a volume with two sources": {volume(corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{}, HostPath: &corev1.HostPathVolumeSource{Path: "/x"},
		}), spec + ".volumes[0]"},
		"a Secret volume without name":    {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), spec + ".volumes[0].secret.secretName"},
		"a ConfigMap volume without name": {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), spec + ".volumes[0].configMap.name"},
		"a ConfigMap volume with a mode that cannot be": {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: new(int32(0o1777)),
		}}), spec + ".volumes[0].configMap.defaultMode"},
		"a claim volume without name": {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), spec + ".volumes[0].persistentVolumeClaim.claimName"},
		"a host path with back steps": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b"}}), spec + ".volumes[0].hostPath.path"},
		"an item outside the volume": {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "s", Items: []corev1.KeyToPath{{Key: "k", Path: "/etc/passwd"}},
		}}), spec + ".volumes[0].secret.items[0].path"},
		"a negative size limit": {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: quantity("-1")}}), spec + ".volumes[0].emptyDir.sizeLimit"},
	}
}

func TestTemplatesThatNoPodCanBeMadeOf(t *testing.T) {
	for name, c := range podFaults() {
		t.Run(name, c.check)
	}
}

func TestTemplatesThatNoCloneSetCanHave(t *testing.T) {
	for name, c := range map[string]wrong{
		"restartPolicy OnFailure": {pod(func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyOnFailure }), "spec.template.spec.restartPolicy"},
		"a deadline":              {pod(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(60)) }), "spec.template.spec.activeDeadlineSeconds"},
		"a volume with the name of a claim template": {func(cs *v1beta1.CloneSet) {
			claimTemplate("v")(cs)
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(cs)
		}, "spec.template.spec.volumes[0].name"},
		"two claim templates of one name":         {func(cs *v1beta1.CloneSet) { claimTemplate("v")(cs); claimTemplate("v")(cs) }, "spec.volumeClaimTemplates[1].metadata.name"},
		"a claim template that is no volume name": {claimTemplate("My.Data"), "spec.volumeClaimTemplates[0].metadata.name"},
		"a claim template without access mode": {func(cs *v1beta1.CloneSet) {
			claimTemplate("v")(cs)
			cs.Spec.VolumeClaimTemplates[0].Spec.AccessModes = nil
		}, "spec.volumeClaimTemplates[0].spec.accessModes"},
		"a claim template without size": {func(cs *v1beta1.CloneSet) {
			claimTemplate("v")(cs)
			cs.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = nil
		}, "spec.volumeClaimTemplates[0].spec.resources.requests[storage]"},
	} {
		t.Run(name, c.check)
	}
}

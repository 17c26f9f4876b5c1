// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// container checks what holds for app and init containers alike; names collects the names seen.
func container(c *corev1.Container, vols map[string]corev1.VolumeSource, names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.Name == "":
		errs = append(errs, field.Required(path.Child("name"), "give every container a name"))
	case names[c.Name]:
		errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
	default:
		errs = append(errs, messages(path.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	names[c.Name] = true
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), "name an image"))
	case c.Image != strings.TrimSpace(c.Image):
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not begin or end with white space"))
	}
	errs = append(errs, oneOf(c.ImagePullPolicy, path.Child("imagePullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, ports(c.Ports, path.Child("ports"))...)
	errs = append(errs, env(c, path)...)
	errs = append(errs, mounts(c, vols, path)...)
	return append(errs, resources(&c.Resources, path.Child("resources"))...)
}

func ports(list []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range list {
		at := path.Index(i)
		if p.Name != "" {
			errs = append(errs, messages(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, portNumber(p.ContainerPort, at.Child("containerPort"))...)
		if p.HostPort != 0 {
			errs = append(errs, portNumber(p.HostPort, at.Child("hostPort"))...)
		}
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}

func env(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		at := path.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "give every variable a name"))
		} else {
			errs = append(errs, messages(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, envSource(e, at.Child("valueFrom"))...)
		}
	}
	for i, e := range c.EnvFrom {
		at := path.Child("envFrom").Index(i)
		if (e.ConfigMapRef == nil) == (e.SecretRef == nil) {
			errs = append(errs, field.Invalid(at, "", "must have exactly one of configMapRef and secretRef"))
		}
		if e.ConfigMapRef != nil && e.ConfigMapRef.Name == "" {
			errs = append(errs, field.Required(at.Child("configMapRef", "name"), "name a ConfigMap of the namespace"))
		}
		if e.SecretRef != nil && e.SecretRef.Name == "" {
			errs = append(errs, field.Required(at.Child("secretRef", "name"), "name a Secret of the namespace"))
		}
	}
	return errs
}

func envSource(e corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, sources := e.ValueFrom, 0
	if r := from.FieldRef; r != nil {
		sources++
		if r.FieldPath == "" {
			errs = append(errs, field.Required(path.Child("fieldRef", "fieldPath"), "name a field of the Pod, such as metadata.name"))
		}
	}
	if r := from.ResourceFieldRef; r != nil {
		sources++
		if r.Resource == "" {
			errs = append(errs, field.Required(path.Child("resourceFieldRef", "resource"), "name a resource, such as limits.cpu"))
		}
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, keyRef(r.Name, r.Key, "ConfigMap", path.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, keyRef(r.Name, r.Key, "Secret", path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
	}
	switch {
	case sources != 1:
		errs = append(errs, field.Invalid(path, "", fmt.Sprintf("must have exactly one source, has %d", sources)))
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "must not be set together with value; remove one of them"))
	}
	return errs
}

func keyRef(name, key, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), "name a "+kind+" of the namespace"))
	}
	if key == "" {
		errs = append(errs, field.Required(path.Child("key"), "name a key of the "+kind))
	} else {
		errs = append(errs, messages(path.Child("key"), key, validation.IsConfigMapKey(key))...)
	}
	return errs
}

// mounts checks volumeMounts and volumeDevices against the volumes of the Pod.
func mounts(c *corev1.Container, vols map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		errs = append(errs, volumeName(m.Name, vols, at.Child("name"))...)
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), "set the path inside the container"))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique in the container"))
		}
		paths[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "excludes subPath; remove one of them"))
		}
		errs = append(errs, inside(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, inside(m.SubPathExpr, at.Child("subPathExpr"))...)
	}
	for i, d := range c.VolumeDevices {
		at := path.Child("volumeDevices").Index(i)
		errs = append(errs, volumeName(d.Name, vols, at.Child("name"))...)
		if v, ok := vols[d.Name]; ok && v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be a persistentVolumeClaim or ephemeral volume"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(at.Child("devicePath"), "set the path inside the container"))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique in the container"))
		}
		paths[d.DevicePath] = true
	}
	return errs
}

func volumeName(name string, vols map[string]corev1.VolumeSource, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name a volume of the template or a volumeClaimTemplate")}
	}
	if _, ok := vols[name]; !ok {
		return field.ErrorList{field.NotFound(path, name)}
	}
	return nil
}

// inside refuses paths that leave the volume.
func inside(p string, at *field.Path) field.ErrorList {
	if path.IsAbs(p) {
		return field.ErrorList{field.Invalid(at, p, "must be a relative path")}
	}
	return noBackSteps(p, at)
}

func noBackSteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}

// resources checks names, signs, and that no request exceeds its limit.
func resources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		child  string
		values corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			at := path.Child(list.child).Key(string(name))
			errs = append(errs, messages(at, string(name), validation.IsQualifiedName(string(name)))...)
			errs = append(errs, quantity(list.values[name], at)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be less than or equal to the limit of %s", limit.String())))
		}
	}
	return errs
}

func quantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be 0 or more")}
	}
	return nil
}

func hooksAndProbes(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Lifecycle != nil {
		for _, h := range []struct {
			child   string
			handler *corev1.LifecycleHandler
		}{{"postStart", c.Lifecycle.PostStart}, {"preStop", c.Lifecycle.PreStop}} {
			if h.handler != nil {
				errs = append(errs, handler(h.handler.Exec, h.handler.HTTPGet, h.handler.TCPSocket, nil, h.handler.Sleep, path.Child("lifecycle", h.child))...)
			}
		}
	}
	for _, p := range []struct {
		child string
		probe *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe != nil {
			errs = append(errs, probe(p.probe, p.child, path.Child(p.child))...)
		}
	}
	return errs
}

// noHooksAndProbes is for init containers that end before the Pod starts.
func noHooksAndProbes(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		child string
		set   bool
	}{
		{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.child), "only an init container with restartPolicy Always may have it"))
		}
	}
	return errs
}

func probe(p *corev1.Probe, kind string, path *field.Path) field.ErrorList {
	errs := handler(p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, path)
	for _, n := range []struct {
		child string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds}, {"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, notNegative(int64(n.value), path.Child(n.child))...)
	}
	if kind != "readinessProbe" && p.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if n := p.TerminationGracePeriodSeconds; n != nil {
		if kind == "readinessProbe" {
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *n, "must not be set for readinessProbes"))
		} else if *n <= 0 {
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *n, "must be 1 or more"))
		}
	}
	return errs
}

// handler wants exactly one action, and that one complete.
func handler(exec *corev1.ExecAction, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, grpc *corev1.GRPCAction, sleep *corev1.SleepAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	actions := 0
	if exec != nil {
		actions++
		if len(exec.Command) == 0 {
			errs = append(errs, field.Required(path.Child("exec", "command"), "set the command to run"))
		}
	}
	if http != nil {
		actions++
		errs = append(errs, portOrName(http.Port, path.Child("httpGet", "port"))...)
		errs = append(errs, oneOf(http.Scheme, path.Child("httpGet", "scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	}
	if tcp != nil {
		actions++
		errs = append(errs, portOrName(tcp.Port, path.Child("tcpSocket", "port"))...)
	}
	if grpc != nil {
		actions++
		errs = append(errs, portNumber(grpc.Port, path.Child("grpc", "port"))...)
	}
	if sleep != nil {
		actions++
		errs = append(errs, notNegative(sleep.Seconds, path.Child("sleep", "seconds"))...)
	}
	if actions != 1 {
		errs = append(errs, field.Invalid(path, "", fmt.Sprintf("must have exactly one action, has %d", actions)))
	}
	return errs
}

func portOrName(p intstr.IntOrString, path *field.Path) field.ErrorList {
	if p.Type == intstr.Int {
		return portNumber(p.IntVal, path)
	}
	return messages(path, p.StrVal, validation.IsValidPortName(p.StrVal))
}

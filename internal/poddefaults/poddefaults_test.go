// SPDX-License-Identifier: Apache-2.0

package poddefaults_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
)

func template(t *testing.T, text string) *corev1.PodTemplateSpec {
	out := &corev1.PodTemplateSpec{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &out.Spec))
	return out
}

func TestTemplate(t *testing.T) {
	const pod = `
restartPolicy: Always
dnsPolicy: ClusterFirst
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
`
	const container = "terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File"
	for name, c := range map[string]struct {
		in, want string
		o        poddefaults.Options
	}{
		"an app container is always pulled, whatever its tag": {
			in:   "containers: [{name: a, image: 'nginx:1.27'}]",
			want: pod + "containers: [{name: a, image: 'nginx:1.27', imagePullPolicy: Always, " + container + "}]",
		},
		"an init container is pulled by its tag": {
			in: "initContainers: [{name: a, image: 'b:1'}, {name: c, image: d}]",
			want: pod + "initContainers: [{name: a, image: 'b:1', imagePullPolicy: IfNotPresent, " + container +
				"}, {name: c, image: d, imagePullPolicy: Always, " + container + "}]",
		},
		"what is set stays": {
			in: `
restartPolicy: Never
dnsPolicy: Default
schedulerName: mine
securityContext: {runAsUser: 5}
terminationGracePeriodSeconds: 0
containers: [{name: a, image: b, imagePullPolicy: Never, terminationMessagePath: /x, terminationMessagePolicy: FallbackToLogsOnError}]`,
			want: `
restartPolicy: Never
dnsPolicy: Default
schedulerName: mine
securityContext: {runAsUser: 5}
terminationGracePeriodSeconds: 0
containers: [{name: a, image: b, imagePullPolicy: Never, terminationMessagePath: /x, terminationMessagePolicy: FallbackToLogsOnError}]`,
		},
		"volumes": {
			in: `
volumes:
- {name: a}
- {name: b, secret: {secretName: s}}
- {name: c, configMap: {name: c}}
- {name: d, hostPath: {path: /x}}
- {name: e, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}
- {name: f, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}
- {name: g, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}
- {name: h, iscsi: {targetPortal: p, iqn: i, lun: 0}}
- {name: i, rbd: {monitors: [m], image: i}}
- {name: j, azureDisk: {diskName: d, diskURI: u}}
- {name: k, scaleIO: {gateway: g, system: s, secretRef: {name: s}}}`,
			want: pod + `
volumes:
- {name: a, emptyDir: {}}
- {name: b, secret: {secretName: s, defaultMode: 420}}
- {name: c, configMap: {name: c, defaultMode: 420}}
- {name: d, hostPath: {path: /x, type: ""}}
- {name: e, downwardAPI: {defaultMode: 420, items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}
- {name: f, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}, {downwardAPI: {items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}]}}
- {name: g, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem}}}}
- {name: h, iscsi: {targetPortal: p, iqn: i, lun: 0, iscsiInterface: default}}
- {name: i, rbd: {monitors: [m], image: i, pool: rbd, user: admin, keyring: /etc/ceph/keyring}}
- {name: j, azureDisk: {diskName: d, diskURI: u, cachingMode: ReadWrite, fsType: ext4, readOnly: false, kind: Shared}}
- {name: k, scaleIO: {gateway: g, system: s, secretRef: {name: s}, storageMode: ThinProvisioned, fsType: xfs}}`,
		},
		"ports, variables, probes and hooks": {
			in: `
containers:
- name: a
  image: b
  ports: [{containerPort: 80}]
  env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  livenessProbe: {httpGet: {port: 80}}
  readinessProbe: {grpc: {port: 1}, periodSeconds: 3}
  lifecycle: {preStop: {httpGet: {port: 80, path: /stop, scheme: HTTPS}}}`,
			want: pod + `
containers:
- name: a
  image: b
  imagePullPolicy: Always
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
  ports: [{containerPort: 80, protocol: TCP}]
  env: [{name: N, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]
  livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
  readinessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 3, successThreshold: 1, failureThreshold: 3}
  lifecycle: {preStop: {httpGet: {port: 80, path: /stop, scheme: HTTPS}}}`,
		},
		"quantities are rounded up to thousandths": {
			in:   "containers: [{name: a, image: b, imagePullPolicy: Never, resources: {limits: {cpu: 0.1m}}}]",
			want: pod + "containers: [{name: a, image: b, imagePullPolicy: Never, resources: {limits: {cpu: 1m}}, " + container + "}]",
		},
		"host ports stay open": {
			in:   "hostNetwork: true\ncontainers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80}]}]",
			want: pod + "hostNetwork: true\ncontainers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80, protocol: TCP}], " + container + "}]",
		},
		"host ports follow where the gate says so": {
			o:    poddefaults.Options{HostNetworkHostPorts: true},
			in:   "hostNetwork: true\ncontainers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80}]}]",
			want: pod + "hostNetwork: true\ncontainers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80, hostPort: 80, protocol: TCP}], " + container + "}]",
		},
		"the gate says nothing about other Pods": {
			o:    poddefaults.Options{HostNetworkHostPorts: true},
			in:   "containers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80}]}]",
			want: pod + "containers: [{name: a, image: b, imagePullPolicy: Never, ports: [{containerPort: 80, protocol: TCP}], " + container + "}]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := template(t, c.in), template(t, c.want)
			poddefaults.Template(got, c.o)
			equal(t, want, got)
			poddefaults.Template(got, c.o)
			equal(t, want, got)
		})
	}
}

func equal(t *testing.T, want, got *corev1.PodTemplateSpec) {
	t.Helper()
	if !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("differs (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// What users applied becomes what OpenKruise 1.9 stored, to the last field: a template that is
// defaulted otherwise would restart every Pod after a take-over.
func TestTemplatesAsOpenKruiseStoredThem(t *testing.T) {
	text, err := os.ReadFile("../../apis/testdata/openkruise-1.9/1-created/clonesets.yaml")
	require.NoError(t, err)
	var list v1beta1.CloneSetList
	require.NoError(t, yaml.Unmarshal(text, &list))
	require.NotEmpty(t, list.Items)
	for _, cs := range list.Items {
		var applied v1beta1.CloneSet
		require.NoError(t, json.Unmarshal([]byte(cs.Annotations[corev1.LastAppliedConfigAnnotation]), &applied))
		poddefaults.Template(&applied.Spec.Template, poddefaults.Options{})
		equal(t, &cs.Spec.Template, &applied.Spec.Template)
	}
}

func TestPullPolicy(t *testing.T) {
	const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                      corev1.PullAlways,
		"nginx:latest":               corev1.PullAlways,
		"nginx:1.27":                 corev1.PullIfNotPresent,
		"localhost:5000/nginx":       corev1.PullAlways,
		"localhost:5000/nginx:1":     corev1.PullIfNotPresent,
		"nginx" + digest:             corev1.PullIfNotPresent,
		"nginx:latest" + digest:      corev1.PullAlways,
		"Not An Image":               corev1.PullIfNotPresent,
		"registry.k8s.io/pause:3.10": corev1.PullIfNotPresent,
	} {
		require.Equal(t, want, poddefaults.PullPolicy(image), filepath.Base(image))
	}
}

func TestClaim(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{}
	poddefaults.Claim(c)
	require.Equal(t, corev1.PersistentVolumeFilesystem, *c.Spec.VolumeMode)
	require.Empty(t, c.Status.Phase, "a template has no status")
	c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	poddefaults.Claim(c)
	require.Equal(t, corev1.PersistentVolumeBlock, *c.Spec.VolumeMode)
}

// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package poddefaults_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/internal/apitest"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
)

var templates = map[string]string{
	"a plain one": "containers: [{name: a, image: 'nginx:1.27'}]",
	"one with everything in it": `
serviceAccountName: default
hostNetwork: true
initContainers:
- {name: i, image: busybox}
- {name: j, image: 'busybox:1.36', restartPolicy: Always, startupProbe: {exec: {command: [ls]}}}
containers:
- name: a
  image: nginx
  ports: [{containerPort: 80}]
  env:
  - {name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
  resources: {limits: {cpu: 0.1m, memory: 1Gi}}
  livenessProbe: {httpGet: {port: 80}}
  readinessProbe: {grpc: {port: 1}, periodSeconds: 3}
  startupProbe: {tcpSocket: {port: 80}}
  lifecycle: {postStart: {exec: {command: [ls]}}, preStop: {httpGet: {port: 80}}}
volumes:
- {name: a}
- {name: b, secret: {secretName: s}}
- {name: c, configMap: {name: c}}
- {name: d, hostPath: {path: /x}}
- {name: e, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}
- {name: f, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}
- {name: g, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
- {name: h, iscsi: {targetPortal: '1.2.3.4:1', iqn: 'iqn.2015-02.example.com:test', lun: 0}}
- {name: i, rbd: {monitors: [m], image: i}}
- {name: j, azureDisk: {diskName: d, diskURI: 'https://x/d.vhd'}}
- {name: k, scaleIO: {gateway: 'https://g', system: s, volumeName: v, secretRef: {name: s}}}
`,
}

// A Deployment shows what the API server writes into a template.
func TestTemplateIsWhatTheAPIServerWrites(t *testing.T) {
	c := client.NewDryRunClient(apitest.NewClient(t, apitest.Start(t, apitest.WithoutCRDs())))
	labels := map[string]string{"app": "web"}
	for name, text := range templates {
		t.Run(name, func(t *testing.T) {
			in := template(t, text)
			in.Labels = labels
			d := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
				Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *in.DeepCopy()},
			}
			require.NoError(t, c.Create(t.Context(), d))
			want := &d.Spec.Template

			poddefaults.Template(in, poddefaults.Options{})
			// The two intended differences: see the package comment, and cloneset.md 5.1.
			want.Spec.DeprecatedServiceAccount = ""
			for i := range want.Spec.Containers {
				want.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
			}
			equal(t, want, in)
		})
	}
}

// A Pod made from a defaulted template is the Pod made from the template as written.
func TestDefaultsChangeNoPod(t *testing.T) {
	c := client.NewDryRunClient(apitest.NewClient(t, apitest.Start(t, apitest.WithoutCRDs(), apitest.WithAPIServerArg("disable-admission-plugins", "ServiceAccount"))))
	for name, text := range templates {
		t.Run(name, func(t *testing.T) {
			plain, defaulted := template(t, text), template(t, text)
			for _, in := range []*corev1.PodTemplateSpec{plain, defaulted} {
				for i := range in.Spec.Containers {
					in.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
				}
			}
			poddefaults.Template(defaulted, poddefaults.Options{})
			var specs []corev1.PodSpec
			for _, in := range []*corev1.PodTemplateSpec{plain, defaulted} {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: in.Spec}
				require.NoError(t, c.Create(t.Context(), p))
				specs = append(specs, p.Spec)
			}
			if !equality.Semantic.DeepEqual(specs[0], specs[1]) {
				t.Errorf("differs (-as written +defaulted):\n%s", cmp.Diff(specs[0], specs[1]))
			}
		})
	}
}

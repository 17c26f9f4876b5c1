// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/manifests"
)

// DefaultNamespace is the system namespace that the manifests are written for.
const DefaultNamespace = "kruise-system"

// Profile names a set of defaults (cli.md 4.2, --profile).
type Profile string

// The profiles. ProfileE2E is what conformance suites install (install.md 12).
const (
	ProfileDefault Profile = "default"
	ProfileHA      Profile = "ha"
	ProfileSingle  Profile = "single"
	ProfileMinimal Profile = "minimal"
	ProfileE2E     Profile = "e2e"
)

// Profiles lists the accepted profiles in the order of the documentation.
func Profiles() []string {
	return []string{string(ProfileDefault), string(ProfileHA), string(ProfileSingle), string(ProfileE2E), string(ProfileMinimal)}
}

// Platforms lists the accepted platforms. "generic" changes nothing.
func Platforms() []string { return []string{"generic", "k3s", "rke2", "eks", "aks", "gke"} }

// Values are the settings of an installation: the values of the Helm chart that existing
// users know, and what this tool adds. Keys in files and --set are the JSON names.
type Values struct {
	// Profile and Platform choose the defaults of everything else.
	Profile  Profile `json:"profile"`
	Platform string  `json:"platform"`
	// FeatureGates is the value of --feature-gates of manager and daemon.
	FeatureGates string `json:"featureGates"`

	Installation InstallationValues `json:"installation"`
	CRDs         CRDValues          `json:"crds"`
	Manager      ManagerValues      `json:"manager"`
	Daemon       DaemonValues       `json:"daemon"`
	Webhooks     WebhookValues      `json:"webhookConfiguration"`

	ImagePullSecrets                []corev1.LocalObjectReference `json:"imagePullSecrets"`
	EnableKubeCacheMutationDetector bool                          `json:"enableKubeCacheMutationDetector"`
	ExternalCerts                   ExternalCertValues            `json:"externalCerts"`
	ServiceAccount                  AnnotationValues              `json:"serviceAccount"`
}

// InstallationValues say where the product is installed.
type InstallationValues struct {
	Namespace       string `json:"namespace"`
	CreateNamespace bool   `json:"createNamespace"`
}

// CRDValues say what happens to the CRDs: Managed false leaves them out, Only leaves
// everything else out.
type CRDValues struct {
	Managed bool `json:"managed"`
	Only    bool `json:"only"`
}

// ImageValues name the one image of manager and daemon. A Digest wins over Tag.
type ImageValues struct {
	Repository string            `json:"repository"`
	Tag        string            `json:"tag"`
	Digest     string            `json:"digest"`
	PullPolicy corev1.PullPolicy `json:"pullPolicy"`
}

// PortValues is one port, 1 to 65535.
type PortValues struct {
	Port int32 `json:"port"`
}

// LogValues is the verbosity of a program's log, a number as text.
type LogValues struct {
	Level string `json:"level"`
}

// MetricsValues are about the metrics endpoint of the manager.
type MetricsValues struct {
	Port           int32 `json:"port"`
	Service        bool  `json:"service"`
	ServiceMonitor bool  `json:"serviceMonitor"`
}

// AnnotationValues are annotations to add.
type AnnotationValues struct {
	Annotations map[string]string `json:"annotations"`
}

// ManagerValues are about the Deployment of the manager.
type ManagerValues struct {
	Replicas            int32                       `json:"replicas"`
	Image               ImageValues                 `json:"image"`
	Log                 LogValues                   `json:"log"`
	LoggingFormat       string                      `json:"loggingFormat"`
	Webhook             PortValues                  `json:"webhook"`
	Metrics             MetricsValues               `json:"metrics"`
	HealthProbe         PortValues                  `json:"healthProbe"`
	PprofAddr           string                      `json:"pprofAddr"`
	ResyncPeriod        string                      `json:"resyncPeriod"`
	Resources           corev1.ResourceRequirements `json:"resources"`
	HostNetwork         bool                        `json:"hostNetwork"`
	NodeAffinity        *corev1.NodeAffinity        `json:"nodeAffinity"`
	NodeSelector        map[string]string           `json:"nodeSelector"`
	Tolerations         []corev1.Toleration         `json:"tolerations"`
	PriorityClassName   string                      `json:"priorityClassName"`
	ExtraArgs           []string                    `json:"extraArgs"`
	PodDisruptionBudget bool                        `json:"podDisruptionBudget"`
	NetworkPolicy       bool                        `json:"networkPolicy"`
}

// DaemonValues are about the DaemonSet of the node agent.
type DaemonValues struct {
	Log                LogValues                   `json:"log"`
	Port               int32                       `json:"port"`
	EnablePprof        bool                        `json:"enablePprof"`
	PprofAddr          string                      `json:"pprofAddr"`
	SocketLocation     string                      `json:"socketLocation"`
	SocketFile         string                      `json:"socketFile"`
	NodeSelector       map[string]string           `json:"nodeSelector"`
	Affinity           *corev1.Affinity            `json:"affinity"`
	Resources          corev1.ResourceRequirements `json:"resources"`
	ExtraEnvs          []corev1.EnvVar             `json:"extraEnvs"`
	ExtraArgs          []string                    `json:"extraArgs"`
	PriorityClassName  string                      `json:"priorityClassName"`
	CredentialProvider CredentialProviderValues    `json:"credentialProvider"`
}

// CredentialProviderValues mount kubelet's credential provider into the daemon.
type CredentialProviderValues struct {
	Enable            bool   `json:"enable"`
	ConfigMap         string `json:"configmap"`
	HostPath          string `json:"hostPath"`
	AWSCredentialsDir string `json:"awsCredentialsDir"`
}

// WebhookValues are about the webhook configurations.
type WebhookValues struct {
	// TimeoutSeconds is that of every webhook, 1 to 30.
	TimeoutSeconds int32               `json:"timeoutSeconds"`
	FailurePolicy  FailurePolicyValues `json:"failurePolicy"`
	// ExcludeNamespaces are namespaces whose Pods never reach the Pod webhook.
	ExcludeNamespaces []string `json:"excludeNamespaces"`
	AKSIntegration    bool     `json:"aksIntegration"`
}

// FailurePolicyValues are failure policies, Fail or Ignore.
type FailurePolicyValues struct {
	Pods string `json:"pods"`
}

// ExternalCertValues say who makes the webhook certificates.
type ExternalCertValues struct {
	// Mode is none, cert-manager or manual.
	Mode string `json:"mode"`
	// Annotations go on the webhook configurations and the CRDs with conversion.
	Annotations map[string]string `json:"annotations"`
}

// Defaults returns the values of a profile on a platform. An unknown profile or platform
// is an error that lists the accepted ones.
func Defaults(profile Profile, platform string) (Values, error) {
	if platform == "" {
		platform = "generic"
	}
	if !slices.Contains(Profiles(), string(profile)) {
		return Values{}, unknownValue("profile", string(profile), Profiles())
	}
	if !slices.Contains(Platforms(), platform) {
		return Values{}, unknownValue("platform", platform, Platforms())
	}
	v := chartDefaults()
	v.Profile, v.Platform = profile, platform
	switch profile {
	case ProfileHA:
		v.Manager.Replicas = 3
		v.Manager.PodDisruptionBudget = true
	case ProfileSingle:
		v.Manager.Replicas = 1
	case ProfileMinimal:
		v.Manager.Replicas = 1
		v.FeatureGates = string(features.KruiseDaemon) + "=false"
	case ProfileE2E:
		e2eDefaults(&v)
	}
	switch platform {
	case "k3s", "rke2":
		v.Daemon.SocketLocation = "/run/k3s"
	case "eks":
		v.Manager.HostNetwork = true
	case "aks":
		v.Webhooks.AKSIntegration = true
	}
	return v, nil
}

// chartDefaults are the defaults of install.md 6. They say what manifests/base says, which
// a test compares.
func chartDefaults() Values {
	var v Values
	v.FeatureGates = string(features.ImagePullJobGate) + "=true"
	v.Installation = InstallationValues{Namespace: DefaultNamespace, CreateNamespace: true}
	v.CRDs.Managed = true
	v.Manager = ManagerValues{
		Replicas:     2,
		Image:        ImageValues{Repository: DefaultRepository, Tag: ManifestsVersion(), PullPolicy: corev1.PullAlways},
		Log:          LogValues{Level: "4"},
		Webhook:      PortValues{9876},
		Metrics:      MetricsValues{Port: 8080},
		HealthProbe:  PortValues{8000},
		PprofAddr:    "localhost:8090",
		ResyncPeriod: "0",
		Resources:    resources("2", "512Mi", "100m", "256Mi"),
	}
	v.Daemon = DaemonValues{
		Log:            LogValues{Level: "4"},
		Port:           10221,
		EnablePprof:    true,
		PprofAddr:      "localhost:10222",
		SocketLocation: "/var/run",
		Affinity:       noVirtualNodes(),
		Resources:      resources("500m", "128Mi", "0", "0"),
		CredentialProvider: CredentialProviderValues{
			ConfigMap: "credential-provider-config", HostPath: "credential-provider-plugin",
		},
	}
	v.Webhooks.TimeoutSeconds = 30
	v.Webhooks.FailurePolicy.Pods = "Fail"
	v.ExternalCerts.Mode = "none"
	return v
}

// e2eDefaults are the column K of install.md 3 and 4.
func e2eDefaults(v *Values) {
	v.FeatureGates = "AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false"
	v.EnableKubeCacheMutationDetector = true
	v.Webhooks.TimeoutSeconds = 10
	v.Manager.Replicas = 1
	v.Manager.Image.PullPolicy = corev1.PullIfNotPresent
	v.Manager.Log.Level = "5"
	v.Manager.PprofAddr, v.Manager.ResyncPeriod = "", ""
	v.Manager.Resources = resources("2", "2Gi", "100m", "200Mi")
	v.Daemon.Log.Level = "5"
	v.Daemon.PprofAddr = ""
	v.Daemon.Affinity = nil
	v.Daemon.Resources = resources("100m", "100Mi", "0", "0")
}

func resources(limitCPU, limitMemory, requestCPU, requestMemory string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	return corev1.ResourceRequirements{Limits: list(limitCPU, limitMemory), Requests: list(requestCPU, requestMemory)}
}

func noVirtualNodes() *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet"}},
			}}},
		},
	}}
}

// DefaultRepository is where the image of a release is.
const DefaultRepository = "docker.io/kruisectl/kruise-manager"

// ManifestsVersion is the version that the embedded manifests install, e.g. "v0.1.0".
func ManifestsVersion() string {
	const file = "components/release/kustomization.yaml"
	data, err := manifests.Files.ReadFile(file)
	if err != nil {
		panic(err) // embedded at build time
	}
	var k struct {
		Images []struct{ Name, NewTag string }
	}
	if err := yaml.Unmarshal(data, &k); err != nil || len(k.Images) != 1 || k.Images[0].Name != DefaultRepository {
		panic(fmt.Sprintf("%s of the embedded manifests does not set one image: %v", file, err))
	}
	return k.Images[0].NewTag
}

// YAML returns v as a values file that gives v again.
func (v Values) YAML() []byte {
	data, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return data
}

func unknownValue(what, got string, known []string) error {
	err := fmt.Errorf("unknown %s %q: use one of %s", what, got, strings.Join(known, ", "))
	if near := nearest(got, known); len(near) > 0 {
		err = fmt.Errorf("unknown %s %q, did you mean %s? Known are %s", what, got, near[0], strings.Join(known, ", "))
	}
	return err
}

// AddPullSecret adds a pull secret of the system namespace, once.
func (v *Values) AddPullSecret(name string) {
	ref := corev1.LocalObjectReference{Name: name}
	if !slices.Contains(v.ImagePullSecrets, ref) {
		v.ImagePullSecrets = append(v.ImagePullSecrets, ref)
	}
}

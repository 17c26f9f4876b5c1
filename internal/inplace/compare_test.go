// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func quantities(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func TestCompare(t *testing.T) {
	set := func(mutate func(*corev1.PodTemplateSpec)) func(*corev1.PodTemplateSpec) { return mutate }
	burstable := func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("200m", "200Mi"), Limits: quantities("1", "1Gi")}
	}
	reads := func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Env = []corev1.EnvVar{envFrom("CONFIG", "metadata.annotations['config']")}
		t.Spec.Containers[1].Env = []corev1.EnvVar{envFrom("TIER", "metadata.labels['tier']"), envFrom("SIDECARSET_VERSION", "metadata.annotations['version']")}
		t.Annotations = map[string]string{"config": "a", "version": "1"}
		setKey(&t.Labels, "tier", "front")
	}
	all := Options{VerticalScaling: true, EnvFromMetadata: true}

	cases := map[string]struct {
		base    func(*corev1.PodTemplateSpec) // of both revisions
		change  func(*corev1.PodTemplateSpec) // of the new one
		options Options
		want    *UpdateSpec
		reasons []Reason // Message ignored when empty
	}{
		"equal revisions leave nothing to do": {
			want: &UpdateSpec{},
		},
		"an image changes by container name": {
			change: set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Image = "redis:2" }),
			want:   &UpdateSpec{ContainerImages: map[string]string{"redis": "redis:2"}},
		},
		"the grace period goes along": {
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = "app:2" }),
			options: Options{GracePeriodSeconds: 30},
			want:    &UpdateSpec{ContainerImages: map[string]string{"app": "app:2"}, GraceSeconds: 30},
		},
		"a label changes by metadata patch": {
			change:  set(func(t *corev1.PodTemplateSpec) { t.Labels["tier"] = "back" }),
			options: all,
			want:    &UpdateSpec{MetaDataPatch: []byte(`{"metadata":{"labels":{"tier":"back"}}}`)},
		},
		"a removed annotation is removed by metadata patch": {
			base:    set(func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"a": "1", "b": "2"} }),
			change:  set(func(t *corev1.PodTemplateSpec) { delete(t.Annotations, "a") }),
			options: all,
			want:    &UpdateSpec{MetaDataPatch: []byte(`{"metadata":{"annotations":{"a":null}}}`)},
		},
		"finalizers are added and removed one by one": {
			base:   set(func(t *corev1.PodTemplateSpec) { t.Finalizers = []string{"example.com/a"} }),
			change: set(func(t *corev1.PodTemplateSpec) { t.Finalizers = []string{"example.com/b"} }),
			want:   &UpdateSpec{MetaDataPatch: []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"],"$setElementOrder/finalizers":["example.com/b"],"finalizers":["example.com/b"]}}`)},
		},
		"other metadata of the template is no business of a running Pod": {
			change: set(func(t *corev1.PodTemplateSpec) { t.Name, t.Namespace = "x", "y" }),
			want:   &UpdateSpec{},
		},
		"an annotation read by a container goes to that container": {
			base:    reads,
			change:  set(func(t *corev1.PodTemplateSpec) { t.Annotations["config"] = "b" }),
			options: all,
			want: &UpdateSpec{
				ContainerRefMetadata:  map[string]RefMetadata{"app": {Annotations: map[string]string{"config": "b"}}},
				UpdateEnvFromMetadata: true,
			},
		},
		"only the keys that nobody reads are left for the metadata patch": {
			base: reads,
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Labels["tier"], t.Labels["zone"] = "back", "z1"
				t.Annotations["version"] = "2"
			}),
			options: all,
			want: &UpdateSpec{
				ContainerRefMetadata:  map[string]RefMetadata{"redis": {Labels: map[string]string{"tier": "back"}}},
				UpdateEnvFromMetadata: true,
				MetaDataPatch:         []byte(`{"metadata":{"annotations":{"version":"2"},"labels":{"zone":"z1"}}}`),
			},
		},
		"without the gate every key is metadata only": {
			base:   reads,
			change: set(func(t *corev1.PodTemplateSpec) { t.Annotations["config"] = "b" }),
			want:   &UpdateSpec{MetaDataPatch: []byte(`{"metadata":{"annotations":{"config":"b"}}}`)},
		},
		"a whole map added at once is seen key by key": {
			base: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Env = []corev1.EnvVar{envFrom("CONFIG", "metadata.annotations['example.com/config~v1']")}
			}),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"example.com/config~v1": "b"} }),
			options: all,
			want: &UpdateSpec{
				ContainerRefMetadata:  map[string]RefMetadata{"app": {Annotations: map[string]string{"example.com/config~v1": "b"}}},
				UpdateEnvFromMetadata: true,
			},
		},
		"a removed key that a container reads is an empty value": {
			base:    reads,
			change:  set(func(t *corev1.PodTemplateSpec) { delete(t.Labels, "tier"); t.Annotations = nil }),
			options: all,
			want: &UpdateSpec{
				ContainerRefMetadata: map[string]RefMetadata{
					"app":   {RemovedAnnotations: []string{"config"}},
					"redis": {RemovedLabels: []string{"tier"}},
				},
				UpdateEnvFromMetadata: true,
				MetaDataPatch:         []byte(`{"metadata":{"annotations":{"version":null}}}`),
			},
		},
		"cpu and memory change with the gate": {
			base: burstable,
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Resources.Requests = quantities("100m", "200Mi")
				t.Spec.Containers[0].Resources.Limits = quantities("1", "800Mi")
			}),
			options: all,
			want: &UpdateSpec{ContainerResources: map[string]corev1.ResourceRequirements{
				"app": {Requests: quantities("100m", ""), Limits: quantities("", "800Mi")},
			}},
		},
		"resources do not change without the gate": {
			base:    burstable,
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Resources.Requests = quantities("100m", "200Mi") }),
			reasons: []Reason{{Code: VerticalScalingDisabled, Path: "spec.template.spec.containers[app].resources.requests.cpu"}},
		},
		"a first limit cannot be added": {
			base:    burstable,
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Resources.Limits = quantities("1", "") }),
			options: all,
			reasons: []Reason{{Code: ResourceNotResizable, Path: "spec.template.spec.containers[redis].resources.limits"}},
		},
		"a request cannot be removed": {
			base:    burstable,
			change:  set(func(t *corev1.PodTemplateSpec) { delete(t.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU) }),
			options: all,
			reasons: []Reason{{Code: ResourceNotResizable, Path: "spec.template.spec.containers[app].resources.requests.cpu"}},
		},
		"other resources do not change": {
			base: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
			}),
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
			}),
			options: all,
			reasons: []Reason{{Code: ResourceNotResizable, Path: "spec.template.spec.containers[app].resources.limits[example.com/gpu]"}},
		},
		"a container cannot be removed": {
			base: burstable,
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Resources.Requests = quantities("1", "1Gi")
				t.Spec.Containers = t.Spec.Containers[:1]
			}),
			options: all,
			reasons: []Reason{{Code: ContainersChanged, Path: "spec.template.spec.containers[redis]"}},
		},
		"env is named with its container": {
			base:    set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}} }),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Env[0].Value = "2" }),
			reasons: []Reason{{Code: FieldNotUpdatable, Path: "spec.template.spec.containers[app].env[0].value", Message: "changed; of a container only the image and resources change in place"}},
		},
		"a list of another length is one reason": {
			base:    set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}} }),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "B"}, {Name: "A"}} }),
			reasons: []Reason{{Code: FieldNotUpdatable, Path: "spec.template.spec.containers[app].env"}},
		},
		"every reason is told": {
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[1].Command = []string{"sleep"}
				t.Spec.HostNetwork = true
				t.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
			}),
			reasons: []Reason{
				{Code: FieldNotUpdatable, Path: "spec.template.spec.containers[redis].command", Message: "added; of a container only the image and resources change in place"},
				{Code: FieldNotUpdatable, Path: "spec.template.spec.hostNetwork", Message: "added; only images, labels, annotations and resources change in place"},
				{Code: FieldNotUpdatable, Path: "spec.template.spec.nodeSelector"},
			},
		},
		"a key with dots is in brackets": {
			base:    set(func(t *corev1.PodTemplateSpec) { t.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"} }),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.NodeSelector["kubernetes.io/os"] = "windows" }),
			reasons: []Reason{{Code: FieldNotUpdatable, Path: "spec.template.spec.nodeSelector[kubernetes.io/os]"}},
		},
		"init containers do not change": {
			base: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "a:1"}}
			}),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.InitContainers[0].Image = "a:2" }),
			reasons: []Reason{{Code: InitContainersChanged, Path: "spec.template.spec.initContainers[setup].image", Message: "changed; init containers do not change in place"}},
		},
		"an added and a removed container are named": {
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[1] = corev1.Container{Name: "cache", Image: "cache:1"}
			}),
			reasons: []Reason{
				{Code: ContainersChanged, Path: "spec.template.spec.containers[redis]", Message: "removed; a running Pod keeps its containers"},
				{Code: ContainersChanged, Path: "spec.template.spec.containers[cache]", Message: "added; a running Pod gets no new containers"},
			},
		},
		"another order of containers is not a change of images": {
			change: set(func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0], t.Spec.Containers[1] = t.Spec.Containers[1], t.Spec.Containers[0]
			}),
			reasons: []Reason{{Code: ContainersChanged, Path: "spec.template.spec.containers", Message: "the order changed from app, redis to redis, app"}},
		},
		"a first image cannot be added": {
			base:    set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = "" }),
			change:  set(func(t *corev1.PodTemplateSpec) { t.Spec.Containers[0].Image = "app:1" }),
			reasons: []Reason{{Code: FieldNotUpdatable, Path: "spec.template.spec.containers[app].image"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old := template(tc.base, "app", "redis")
			new := old.DeepCopy()
			if tc.change != nil {
				tc.change(new)
			}
			got := Compare(revision(t, "web-1", old), revision(t, "web-2", new), tc.options)
			want := Comparison{InPlace: tc.want, Recreate: tc.reasons}
			if want.InPlace != nil {
				want.InPlace.Revision = "web-2"
			}
			for i := range got.Recreate {
				if i < len(tc.reasons) && tc.reasons[i].Message == "" {
					if got.Recreate[i].Message == "" {
						t.Errorf("reason %s has no message", got.Recreate[i].Code)
					}
					got.Recreate[i].Message = ""
				}
			}
			opt := cmp.Transformer("text", func(b []byte) string { return string(b) })
			if diff := cmp.Diff(want, got, opt); diff != "" {
				t.Errorf("Compare() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareForbidsAChangeOfTheQOSClass(t *testing.T) {
	old := template(func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("200m", "200Mi"), Limits: quantities("1", "1Gi")}
	}, "app")
	new := old.DeepCopy()
	new.Spec.Containers[0].Resources.Requests = quantities("1", "1Gi")
	got := Compare(revision(t, "web-1", old), revision(t, "web-2", new), Options{VerticalScaling: true})
	want := []Reason{{
		Code: QOSClassChanged, Path: "spec.template.spec.containers",
		Message: "the new resources change the QoS class from Burstable to Guaranteed, which a running Pod keeps",
	}}
	wantEqual(t, want, got.Recreate)

	// The server fills in a request from the limit, so this one is Guaranteed before and after.
	old.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: quantities("1", "1Gi")}
	new.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: quantities("2", "1Gi")}
	if got := Compare(revision(t, "web-1", old), revision(t, "web-2", new), Options{VerticalScaling: true}); got.InPlace == nil {
		t.Errorf("Compare() = %v, want an update in place", got.Recreate)
	}
}

func TestCompareRevisions(t *testing.T) {
	web1, web2 := revision(t, "web-1", template(nil, "app")), revision(t, "web-2", template(func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Image = "app:2"
	}, "app"))
	withHash := func(hash string) map[string]string {
		return map[string]string{"kruise.io/cloneset-volumeclaimtemplate-hash": hash}
	}
	broken := web1.DeepCopy()
	broken.Data = runtime.RawExtension{Raw: []byte(`{`)}
	outside := web1.DeepCopy()
	outside.Data.Raw = []byte(`{"spec":{"template":{"metadata":{},"spec":{}},"replicas":3}}`)
	recreate := Options{RecreateOnVolumeClaimTemplateChange: true}

	cases := map[string]struct {
		old, new metav1.ObjectMeta // annotations of web-1 and web-2
		options  Options
		want     string // code of the first reason; "" is in place
	}{
		"templates of claims that differ need new Pods":         {old: metav1.ObjectMeta{Annotations: withHash("a")}, new: metav1.ObjectMeta{Annotations: withHash("b")}, options: recreate, want: VolumeClaimTemplatesChanged},
		"without the gate they are ignored":                     {old: metav1.ObjectMeta{Annotations: withHash("a")}, new: metav1.ObjectMeta{Annotations: withHash("b")}},
		"with policy InPlaceOnly they are ignored":              {old: metav1.ObjectMeta{Annotations: withHash("a")}, new: metav1.ObjectMeta{Annotations: withHash("b")}, options: Options{RecreateOnVolumeClaimTemplateChange: true, IgnoreVolumeClaimTemplates: true}},
		"a revision from before the annotation counts as equal": {new: metav1.ObjectMeta{Annotations: withHash("b")}, options: recreate},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old, new := web1.DeepCopy(), web2.DeepCopy()
			old.Annotations, new.Annotations = tc.old.Annotations, tc.new.Annotations
			got := Compare(old, new, tc.options)
			if code := firstCode(got); code != tc.want {
				t.Errorf("Compare() gives %q, want %q", code, tc.want)
			}
		})
	}
	if got := firstCode(Compare(nil, web2, Options{})); got != MissingRevision {
		t.Errorf("no old revision gives %q", got)
	}
	if got := firstCode(Compare(web1, nil, Options{})); got != MissingRevision {
		t.Errorf("no new revision gives %q", got)
	}
	if got := firstCode(Compare(web1, broken, Options{})); got != UnreadableRevision {
		t.Errorf("broken data gives %q", got)
	}
	if got := firstCode(Compare(outside, web1, Options{})); got != OutsideTemplate && got != ContainersChanged {
		t.Errorf("data outside of the template gives %q", got)
	}
}

func firstCode(c Comparison) string {
	if c.InPlace != nil {
		return ""
	}
	return c.Recreate[0].Code
}

func TestRevisionNames(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"web-1", "1", true}, {"1", "web-1", true}, {"a-b-1", "a-b-1", true}, {"web-1", "web-2", false}, {"", "", false}, {"web-", "", false},
	} {
		if got := SameRevision(tc.a, tc.b); got != tc.want {
			t.Errorf("SameRevision(%q, %q) = %t", tc.a, tc.b, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package runtimehash

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"
)

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// The numbers are of kubelets and of annotations that OpenKruise 1.9 wrote.
func TestVectors(t *testing.T) {
	for name, tc := range map[string]struct{ got, want uint64 }{
		"nginx of the specification":        {Plain(&corev1.Container{Name: "main", Image: "nginx:1.25"}), 436018172},
		"nginx 1.16 on a captured Pod":      {Plain(&corev1.Container{Name: "app", Image: "nginx:1.16"}), 3644232629},
		"nginx 1.17 on a captured Pod":      {Plain(&corev1.Container{Name: "app", Image: "nginx:1.17"}), 517746522},
		"busybox 1.32 on a captured Pod":    {Plain(&corev1.Container{Name: "helper", Image: "busybox:1.32"}), 454734869},
		"no variable from metadata":         {Env(nil), 86995377},
		"an empty list of variables":        {Env([]EnvVar{}), 86995377},
		"one variable":                      {Env([]EnvVar{{Name: "TEST_ENV", Value: "foo"}}), 27323935},
		"app-config v1 on a captured Pod":   {Env([]EnvVar{{Name: "APP_CONFIG", Value: "v1"}}), 4274367333},
		"app-config v2 on a captured Pod":   {Env([]EnvVar{{Name: "APP_CONFIG", Value: "v2"}}), 984755435},
		"the legacy form covers all fields": {PlainLegacy(&corev1.Container{Name: "main", Image: "nginx:1.25"}), ofDump([]byte(`{"name":"main","image":"nginx:1.25","resources":{}}`))},
		"hexadecimal digits of the runtime": {must(ParsePlain("19fd1bfc")), 436018172},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", name, tc.got, tc.want)
		}
	}
	if _, err := ParsePlain("xyz"); err == nil {
		t.Error("digits that are not hexadecimal give no error")
	}
}

func must(h uint64, err error) uint64 {
	if err != nil {
		panic(err)
	}
	return h
}

func TestPlainFits(t *testing.T) {
	c := &corev1.Container{Name: "main", Image: "nginx:1.25", Command: []string{"nginx"}}
	other := &corev1.Container{Name: "main", Image: "nginx:1.26", Command: []string{"nginx"}}
	for name, tc := range map[string]struct {
		recorded uint64
		want     bool
	}{
		"the present form":     {Plain(c), true},
		"the legacy form":      {PlainLegacy(c), true},
		"another image":        {Plain(other), false},
		"another legacy image": {PlainLegacy(other), false},
		"unknown":              {0, false},
	} {
		if got := PlainFits(tc.recorded, c); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The text that is hashed is the one Kubernetes dumps, so its package is the reference.
func TestTheHashedTextIsTheDumpOfKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) EnvVar {
			return EnvVar{Name: rapid.StringMatching(`[A-Z_]{1,5}`).Draw(t, "name"), Value: rapid.String().Draw(t, "value")}
		}), 1, 4).Draw(t, "envs")
		shuffled := slices.Clone(envs)
		slices.SortStableFunc(shuffled, func(a, b EnvVar) int { return -cmpNames(a, b) })
		names := map[string]bool{}
		for _, e := range envs {
			if names[e.Name] {
				t.Skip("a name twice keeps its order")
			}
			names[e.Name] = true
		}
		if Env(envs) != Env(shuffled) {
			t.Fatal("the order of the variables changes the hash")
		}
		c := &corev1.Container{Name: envs[0].Name, Image: envs[0].Value}
		data := []byte(`{"image":` + quote(c.Image) + `,"name":` + quote(c.Name) + `}`)
		if got, want := Plain(c), ofDump(data); got != want {
			t.Fatalf("Plain() = %d, by the dump %d", got, want)
		}
	})
}

func cmpNames(a, b EnvVar) int {
	if a.Name < b.Name {
		return -1
	}
	return 1
}

func TestMetadataEnvs(t *testing.T) {
	c := &corev1.Container{Env: []corev1.EnvVar{
		{Name: "PLAIN", Value: "x"},
		fromField("LABEL", "metadata.labels['tier']"),
		fromField("ANNOTATION", "metadata.annotations['example.com/a.b']"),
		fromField("NAME", "metadata.name"),
		fromField("ALL", "metadata.labels"),
		fromField("EMPTY", "metadata.labels['']"),
		fromField("SIDECARSET_VERSION", "metadata.annotations['v']"),
		fromField("SIDECARSET_VERSION_ALT", "metadata.annotations['v']"),
		{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}},
		{Name: "BOTH", Value: "x", ValueFrom: fromField("", "metadata.labels['tier']").ValueFrom},
	}}
	want := []MetadataEnv{
		{Name: "LABEL", MetadataKey: MetadataKey{Kind: Labels, Key: "tier"}},
		{Name: "ANNOTATION", MetadataKey: MetadataKey{Kind: Annotations, Key: "example.com/a.b"}},
	}
	if diff := cmp.Diff(want, MetadataEnvs(c)); diff != "" {
		t.Errorf("MetadataEnvs() differs (-want +got):\n%s", diff)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "front"}}}
	if got, want := ExpectedEnv(c, pod), Env([]EnvVar{{Name: "LABEL", Value: "front"}, {Name: "ANNOTATION"}}); got != want {
		t.Errorf("ExpectedEnv() = %d, want %d: a missing annotation is an empty value", got, want)
	}
}

func TestContainersMeta(t *testing.T) {
	const text = `{"containers":[{"name":"main","containerID":"containerd://4f0c","restartCount":1,"hashes":{"plainHash":436018172,"extractedEnvFromMetadataHash":86995377}},{"name":"side","containerID":"containerd://5","restartCount":0,"hashes":{"plainHash":789757263}}]}`
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"apps.kruise.io/runtime-containers-meta": text}}}
	m, err := FromObject(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.JSON(); got != text {
		t.Errorf("written as %s", got)
	}
	if got := m.Container("side"); got == nil || got.Hashes.PlainHash != 789757263 || got.Hashes.ExtractedEnvFromMetadataHash != 0 {
		t.Errorf("Container(side) = %v", got)
	}
	if m.Container("other") != nil || (*ContainersMeta)(nil).Container("main") != nil {
		t.Error("a record that does not exist was found")
	}
	if m, err := FromObject(&corev1.Pod{}); m != nil || err != nil {
		t.Errorf("no annotation: %v, %v", m, err)
	}
	pod.Annotations["apps.kruise.io/runtime-containers-meta"] = "{"
	if m, err := FromObject(pod); m != nil || err == nil {
		t.Errorf("unreadable annotation: %v, %v", m, err)
	}
}

func ofDump(data []byte) uint64 { return fnvOf(dump.ForHash(data)) }

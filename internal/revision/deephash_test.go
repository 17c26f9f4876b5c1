// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/dump"
)

func webTemplate() *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1.14"}}},
	}
}

func TestDaemonSetHash(t *testing.T) {
	ads := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "ads"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1.16"}}},
	}
	next := ads.DeepCopy()
	next.Spec.Containers[0].Image = "nginx:1.17"
	for name, c := range map[string]struct {
		template *corev1.PodTemplateSpec
		count    *int32
		want     string
	}{
		"without a collision count":         {webTemplate(), nil, "5d897fb58d"},
		"with collision count 0":            {webTemplate(), new(int32(0)), "6767dd775b"},
		"with collision count 1":            {webTemplate(), new(int32(1)), "7df4989c8f"},
		"as OpenKruise 1.9 wrote it":        {ads, nil, "b8f67c9bd"},
		"as OpenKruise 1.9 wrote it, later": {next, nil, "68fc88dd6f"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, DaemonSetHash(c.template, c.count))
		})
	}
}

// The dump is that of the library which Kubernetes hashes with, field for field.
func TestDumpIsThatOfTheLibrary(t *testing.T) {
	raw := `{"metadata":{"labels":{"b":"1","a":"2"},"annotations":{}},"spec":{
	"nodeSelector":{"z":"1","y":"2"},"hostNetwork":true,"terminationGracePeriodSeconds":3,
	"tolerations":[{"operator":"Exists","tolerationSeconds":5}],
	"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}},
	"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}},{"name":"c","configMap":{"name":"c","defaultMode":420,"items":[{"key":"a","path":"b"}]}},
	{"name":"e","ephemeral":{"volumeClaimTemplate":{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"resources":{"requests":{"storage":"10Gi"}}}}}}],
	"containers":[{"name":"a","image":"a:1","command":["sh","-c"],"env":[{"name":"E","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
	"resources":{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{"example.com/gpu":"2"}},
	"readinessProbe":{"httpGet":{"port":"http","httpHeaders":[{"name":"a","value":"b"}]},"periodSeconds":3},
	"securityContext":{"privileged":true,"capabilities":{"add":["NET_ADMIN"]}}}]}}`
	template := corev1.PodTemplateSpec{}
	require.NoError(t, json.Unmarshal([]byte(raw), &template))
	d := dumper{}
	d.value(reflect.ValueOf(template), true)
	assert.Equal(t, dump.ForHash(template), d.String())
}

// Whoever prints a quantity makes it remember its text; the hash must not depend on that.
func TestHashIgnoresCachedTexts(t *testing.T) {
	template := webTemplate()
	q := *resource.NewQuantity(1<<30, resource.BinarySI)
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	before := DaemonSetHash(template, nil)
	for range 2 {
		template.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = q
		assert.Equal(t, before, DaemonSetHash(template, nil))
		require.Equal(t, "1Gi", q.String())
	}
}

func TestASetNewFieldChangesTheHash(t *testing.T) {
	template := webTemplate()
	template.Spec.HostnameOverride = new("x")
	assert.NotEqual(t, DaemonSetHash(webTemplate(), nil), DaemonSetHash(template, nil))
}

// A new Kubernetes library brings new fields: they must be in newer, or the hash of every
// DaemonSet changes.
func TestFieldsSince132AreKnown(t *testing.T) {
	raw, err := os.ReadFile("testdata/podtemplate-1.32-fields.txt")
	require.NoError(t, err)
	old := map[string]bool{}
	oldTypes := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		field, _, _ := strings.Cut(line, " ")
		old[field] = true
		oldTypes[field[:strings.LastIndexByte(field, '.')]] = true
	}
	seen := map[reflect.Type]bool{}
	found := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			if seen[typ] {
				return
			}
			seen[typ] = true
			for i := range typ.NumField() {
				f := typ.Field(i)
				name := typ.String() + "." + f.Name
				found[name] = true
				if oldTypes[typ.String()] && !old[name] && !slices.Contains(strings.Fields(newer[typ.String()]), f.Name) {
					t.Errorf("field %s came after Kubernetes 1.32 and is not in newer", name)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[corev1.PodTemplateSpec]())
	for name := range old {
		assert.True(t, found[name], "field %s is gone: the dump must go on printing it", name)
	}
}

// SPDX-License-Identifier: Apache-2.0

package revision_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
	"github.com/kruisectl/kruisectl/internal/revision"
)

func TestDataAndHashAreTheGoldenOnes(t *testing.T) {
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1.14"}}},
	}
	data, err := revision.Data(template)
	require.NoError(t, err)
	assert.Equal(t, `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1.14","name":"c","resources":{}}]}}}}`, string(data))
	assert.Len(t, data, 176)
	assert.Equal(t, "786b46cd6d", revision.Hash(data, 0))
	assert.Equal(t, "786b46cd6f", revision.Hash(data, 1))
}

func TestDataEscapesHTMLAndKeepsOldNulls(t *testing.T) {
	template := &corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Command: []string{"a<b&c>d"}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
			}}}},
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000660000))},
		},
	}
	data, err := revision.Data(template)
	require.NoError(t, err)
	assert.Equal(t, `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null},"spec":{"containers":[{"command":["a\u003cb\u0026c\u003ed"],"name":"c","resources":{}}],"securityContext":{"runAsUser":1000660000},"volumes":[{"ephemeral":{"volumeClaimTemplate":{"metadata":{"creationTimestamp":null},"spec":{"resources":{}}}},"name":"v"}]}}}}`, string(data))
}

func TestVolumeClaimTemplateHash(t *testing.T) {
	pvc := func(name, size string) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ignored": "yes"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
				VolumeMode:  new(corev1.PersistentVolumeFilesystem),
			},
		}
	}
	a, b := pvc("data", "1Gi"), pvc("logs", "1Gi")
	assert.Equal(t, "765486926", revision.VolumeClaimTemplateHash([]corev1.PersistentVolumeClaim{a}))
	assert.Empty(t, revision.VolumeClaimTemplateHash(nil))
	assert.Equal(t, revision.VolumeClaimTemplateHash([]corev1.PersistentVolumeClaim{a, b}), revision.VolumeClaimTemplateHash([]corev1.PersistentVolumeClaim{b, a}))
	assert.NotEqual(t, revision.VolumeClaimTemplateHash([]corev1.PersistentVolumeClaim{a}), revision.VolumeClaimTemplateHash([]corev1.PersistentVolumeClaim{pvc("data", "2Gi")}))
}

func TestSameRevision(t *testing.T) {
	cases := map[string]struct {
		label, name string
		want        bool
	}{
		"full name":                     {"web-786b46cd6d", "web-786b46cd6d", true},
		"short label":                   {"786b46cd6d", "web-786b46cd6d", true},
		"names with dashes":             {"my-web-786b46cd6d", "my-web-786b46cd6d", true},
		"another hash":                  {"web-786b46cd6f", "web-786b46cd6d", false},
		"a Pod without the label":       {"", "web-786b46cd6d", false},
		"no label against no revision":  {"", "", false},
		"a hash is not part of another": {"6cd6d", "web-786b46cd6d", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, revision.SameRevision(tc.label, tc.name)) })
	}
}

// list reads a YAML list the way an API server hands it to a client: as compact JSON.
func list[T any](t *testing.T, file string) []T {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	js, err := yaml.YAMLToJSON(raw)
	require.NoError(t, err)
	var items struct{ Items []T }
	require.NoError(t, json.Unmarshal(js, &items))
	return items.Items
}

// Take-over: what OpenKruise 1.9 stored is what we would store, so nothing is written
// and no Pod changes its revision.
func TestTakeOverFindsEveryRevisionOfOpenKruise(t *testing.T) {
	sets := list[v1beta1.CloneSet](t, "testdata/openkruise-1.9/clonesets.yaml")
	revisions := list[appsv1.ControllerRevision](t, "testdata/openkruise-1.9/controllerrevisions.yaml")
	require.Len(t, sets, 9)
	for _, set := range sets {
		updates := set.Status.UpdateRevision
		t.Run(set.Name+" at "+updates, func(t *testing.T) {
			var stored []*appsv1.ControllerRevision
			newest := int64(0)
			for i := range revisions {
				if revisions[i].OwnerReferences[0].Name == set.Name {
					stored = append(stored, &revisions[i])
				}
				if revisions[i].Name == updates {
					newest = revisions[i].Revision
				}
			}
			require.NotZero(t, newest)
			// As of this CloneSet's moment later revisions did not exist yet.
			stored = slices.DeleteFunc(stored, func(r *appsv1.ControllerRevision) bool { return r.Revision > newest })

			found, err := revision.Find(revision.OfCloneSet(&set), stored)
			require.NoError(t, err)
			assert.Equal(t, revision.ActionNone, found.Action)
			assert.Equal(t, set.Status.UpdateRevision, found.Update.Name)
			assert.Equal(t, set.Status.CurrentRevision, found.Current.Name)

			fresh, err := revision.New(revision.OfCloneSet(&set), found.Update.Revision)
			require.NoError(t, err)
			assert.Equal(t, string(found.Update.Data.Raw), string(fresh.Data.Raw))
			assert.Equal(t, found.Update.Name, fresh.Name)
			assert.Equal(t, found.Update.Labels["controller.kubernetes.io/hash"], fresh.Labels["controller.kubernetes.io/hash"])
			assert.Equal(t, found.Update.Annotations["kruise.io/cloneset-volumeclaimtemplate-hash"], fresh.Annotations["kruise.io/cloneset-volumeclaimtemplate-hash"])
			assert.Equal(t, found.Update.OwnerReferences, fresh.OwnerReferences)
		})
	}
}

func TestFind(t *testing.T) {
	web := fixture.CloneSet("web")
	one, two, three := web, web.Image("app:2"), web.Image("app:3")
	r1, r2 := fixture.Revision(one, 1), fixture.Revision(two, 2)
	cases := map[string]struct {
		set             fixture.CloneSetBuilder
		stored          []*appsv1.ControllerRevision
		update, current string
		number          int64
		action          revision.Action
	}{
		"the first revision is created with number 1":            {one, nil, r1.Name, r1.Name, 1, revision.ActionCreate},
		"the last stored one is used as it is":                   {two.Status(r1.Name, r2.Name), []*appsv1.ControllerRevision{r2, r1}, r2.Name, r1.Name, 2, revision.ActionNone},
		"an earlier one comes back with a new number":            {one.Status(r2.Name, r2.Name), []*appsv1.ControllerRevision{r1, r2}, r1.Name, r2.Name, 3, revision.ActionRenumber},
		"a new template is created after the last":               {three.Status(r2.Name, r2.Name), []*appsv1.ControllerRevision{r1, r2}, fixture.Revision(three, 3).Name, r2.Name, 3, revision.ActionCreate},
		"a current revision that is gone becomes the update one": {two.Status("web-gone", r2.Name), []*appsv1.ControllerRevision{r1, r2}, r2.Name, r2.Name, 2, revision.ActionNone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var before []*appsv1.ControllerRevision
			for _, r := range tc.stored {
				before = append(before, r.DeepCopy())
			}
			got, err := revision.Find(revision.OfCloneSet(tc.set.Obj()), tc.stored)
			require.NoError(t, err)
			assert.Equal(t, tc.update, got.Update.Name)
			assert.Equal(t, tc.current, got.Current.Name)
			assert.Equal(t, tc.number, got.Update.Revision)
			assert.Equal(t, tc.action, got.Action)
			assert.Empty(t, cmp.Diff(before, tc.stored), "stored revisions are only read")
		})
	}
}

func TestFindRefreshesTheClaimHashOnlyOnRollback(t *testing.T) {
	one := fixture.CloneSet("web")
	two := one.Image("app:2")
	r1, r2 := fixture.Revision(one, 1), fixture.Revision(two, 2)
	stored := []*appsv1.ControllerRevision{r1, r2}

	same, err := revision.Find(revision.OfCloneSet(two.Claim("data", "2Gi").Obj()), stored)
	require.NoError(t, err)
	assert.Equal(t, revision.ActionNone, same.Action)
	assert.Empty(t, same.Update.Annotations[v1beta1.VolumeClaimTemplateHashAnnotation])

	back, err := revision.Find(revision.OfCloneSet(one.Claim("data", "1Gi").Obj()), stored)
	require.NoError(t, err)
	assert.Equal(t, revision.ActionRenumber, back.Action)
	assert.Equal(t, "765486926", back.Update.Annotations[v1beta1.VolumeClaimTemplateHashAnnotation])
}

func TestSurplus(t *testing.T) {
	var stored []*appsv1.ControllerRevision
	names := []string{}
	for i, image := range []string{"app:1", "app:2", "app:3", "app:4"} {
		r := fixture.Revision(fixture.CloneSet("web").Image(image), int64(i+1))
		stored, names = append(stored, r), append(names, r.Name)
	}
	live := map[string]bool{revision.ShortHash(names[0]): true, revision.ShortHash(names[3]): true}
	got := func(limit int) (out []string) {
		for _, r := range revision.Surplus(stored, live, limit) {
			out = append(out, r.Name)
		}
		return out
	}
	assert.Empty(t, got(2))
	assert.Equal(t, names[1:2], got(1))
	assert.Equal(t, names[1:3], got(0))
}

func TestRenameChangesOnlyTheName(t *testing.T) {
	r := fixture.Revision(fixture.CloneSet("web"), 1)
	label := r.Labels["controller.kubernetes.io/hash"]
	revision.Rename(r, "web", 1)
	assert.Equal(t, "web-"+revision.Hash(r.Data.Raw, 1), r.Name)
	assert.Equal(t, label, r.Labels["controller.kubernetes.io/hash"])
}

func TestAnotherEncodingIsTheSameTemplate(t *testing.T) {
	t.Parallel()
	set := fixture.StatefulSet("db").Obj()
	set.Status.CurrentRevision, set.Status.UpdateRevision = "", ""
	ours, err := revision.New(revision.OfStatefulSet(set), 1)
	require.NoError(t, err)
	written := func(old, new string) *appsv1.ControllerRevision {
		r := ours.DeepCopy()
		r.Name = "db-fromelsewhere"
		require.Contains(t, string(r.Data.Raw), old)
		r.Data.Raw = []byte(strings.Replace(string(r.Data.Raw), old, new, 1))
		return r
	}
	for name, tc := range map[string]struct {
		old, new string
		same     bool
	}{
		"without the nil creation time":   {`"creationTimestamp":null,`, ``, true},
		"with an empty map":               {`"resources":{}`, `"resources":{"limits":{}}`, true},
		"with spaces":                     {`{"spec":`, `{ "spec": `, true},
		"of another image":                {`"image":"`, `"image":"x`, false},
		"that is no template at all":      {`{"spec":`, `{"spec":[`, false},
		"with a field that is set to nil": {`"resources":{}`, `"env":null,"resources":{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs := written(tc.old, tc.new)
			assert.Equal(t, tc.same, revision.Equal(theirs, ours))
			found, err := revision.Find(revision.OfStatefulSet(set), []*appsv1.ControllerRevision{theirs})
			require.NoError(t, err)
			assert.Equal(t, tc.same, found.Update.Name == theirs.Name, "the name is kept")
		})
	}
}

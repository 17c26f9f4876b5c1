// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func daemonSet(image string) *v1beta1.DaemonSet {
	set := &v1beta1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-web", Annotations: map[string]string{"a": "b"}}}
	set.Spec.Template = *webTemplate()
	set.Spec.Template.Spec.Containers[0].Image = image
	return set
}

// stored is the revision of an image as some release stored it, under any hash.
func stored(t *testing.T, image, hash string, number int64) *appsv1.ControllerRevision {
	t.Helper()
	found, err := FindDaemonSet(daemonSet(image), nil)
	require.NoError(t, err)
	r := found.Update
	r.Name, r.Revision = "web-"+hash, number
	r.Labels["controller-revision-hash"] = hash
	return r
}

func TestFindDaemonSet(t *testing.T) {
	one, two, three := stored(t, "nginx:1", "aaa", 1), stored(t, "nginx:2", "bbb", 2), stored(t, "nginx:3", "ccc", 3)
	twice := stored(t, "nginx:2", "ddd", 4)
	spelled := stored(t, "nginx:3", "ccc", 3)
	spelled.Data.Raw = []byte(strings.Replace(string(spelled.Data.Raw), `"resources":{}`, `"resources":{},"stdin":false`, 1))
	require.NotEqual(t, string(three.Data.Raw), string(spelled.Data.Raw))
	bare := stored(t, "nginx:3", "ccc", 3)
	delete(bare.Labels, "controller-revision-hash")
	broken := stored(t, "nginx:3", "ccc", 3)
	broken.Data.Raw = []byte("{")
	for name, c := range map[string]struct {
		image      string
		stored     []*appsv1.ControllerRevision
		action     Action
		update     string
		number     int64
		hash       string
		duplicates int
	}{
		"the first template":                    {"nginx:1.14", nil, ActionCreate, "web-5d897fb58d", 1, "5d897fb58d", 0},
		"a new template":                        {"nginx:1.14", []*appsv1.ControllerRevision{two, one}, ActionCreate, "web-5d897fb58d", 3, "5d897fb58d", 0},
		"the present template":                  {"nginx:3", []*appsv1.ControllerRevision{three, two, one}, ActionNone, "web-ccc", 3, "ccc", 0},
		"the same template in other bytes":      {"nginx:3", []*appsv1.ControllerRevision{spelled, two}, ActionNone, "web-ccc", 3, "ccc", 0},
		"back to an earlier one":                {"nginx:1", []*appsv1.ControllerRevision{three, two, one}, ActionRenumber, "web-aaa", 4, "aaa", 0},
		"a template that is stored twice":       {"nginx:2", []*appsv1.ControllerRevision{twice, three, two}, ActionNone, "web-ddd", 4, "ddd", 1},
		"a revision without hash gets its name": {"nginx:3", []*appsv1.ControllerRevision{bare}, ActionRenumber, "web-ccc", 3, "web-ccc", 0},
		"a revision that cannot be read":        {"nginx:1.14", []*appsv1.ControllerRevision{broken}, ActionCreate, "web-5d897fb58d", 4, "5d897fb58d", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var was []*appsv1.ControllerRevision
			for _, r := range c.stored {
				was = append(was, r.DeepCopy())
			}
			found, err := FindDaemonSet(daemonSet(c.image), c.stored)
			require.NoError(t, err)
			assert.Equal(t, c.action, found.Action)
			assert.Equal(t, c.update, found.Update.Name)
			assert.Equal(t, c.number, found.Update.Revision)
			assert.Equal(t, c.hash, DaemonSetHashOf(found.Update))
			assert.Len(t, found.Duplicates, c.duplicates)
			assert.Equal(t, was, c.stored, "what is stored is only read")
		})
	}
}

func TestNewRevisionOfADaemonSet(t *testing.T) {
	found, err := FindDaemonSet(daemonSet("nginx:1.14"), nil)
	require.NoError(t, err)
	r := found.Update
	assert.Equal(t, map[string]string{"app": "web", "controller-revision-hash": "5d897fb58d"}, r.Labels)
	assert.Equal(t, map[string]string{"a": "b"}, r.Annotations)
	assert.Equal(t, `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1.14","name":"c","resources":{}}]}}}}`, string(r.Data.Raw))
	RenameDaemonSet(r, "web", webTemplate(), 1)
	assert.Equal(t, "web-7df4989c8f", r.Name)
	assert.Equal(t, "7df4989c8f", DaemonSetHashOf(r), "name and label go together, unlike those of a CloneSet")
}

func TestDaemonSetSurplus(t *testing.T) {
	var all []*appsv1.ControllerRevision
	for i, hash := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, stored(t, "nginx:"+hash, hash, int64(i+1)))
	}
	update := all[4]
	for name, c := range map[string]struct {
		limit int
		live  string
		want  []string
	}{
		"as many as allowed":                  {4, "", nil},
		"the oldest goes first":               {2, "", []string{"web-a", "web-b"}},
		"one that a Pod is at is passed over": {2, "a", []string{"web-b", "web-c"}},
		"none are kept":                       {0, "", []string{"web-a", "web-b", "web-c", "web-d"}},
		"a negative limit is none":            {-1, "abcd", nil},
	} {
		t.Run(name, func(t *testing.T) {
			live := map[string]bool{}
			for _, h := range strings.Split(c.live, "") {
				live[h] = true
			}
			var got []string
			for _, r := range DaemonSetSurplus(all, update, live, c.limit) {
				got = append(got, r.Name)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

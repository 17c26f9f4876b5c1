// SPDX-License-Identifier: Apache-2.0

// Package admission holds the tables of objects that must be refused, and of those that must
// not, against a real API server: with the webhooks, with the schema alone as while the manager
// is down, and with the webhooks alone as under the CRDs of OpenKruise.
package admission

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// table is one file of testdata: what is wrong, and what is right, about objects of one kind.
// The keys are sentences.
type table struct {
	Base    map[string]any `json:"base"` // the spec that rows change
	Invalid map[string]row `json:"invalid"`
	Valid   map[string]row `json:"valid"`
}

// row is one object, made by merging patches (RFC 7386) into the base.
type row struct {
	Metadata map[string]any `json:"metadata"`
	// Old makes the row an UPDATE: it is the patch from the base to the stored object, and
	// Spec the one from there to the new object.
	Old      map[string]any `json:"old"`
	Spec     map[string]any `json:"spec"`
	Versions []string       `json:"versions"` // all, when absent
	// Path is the field to blame, and CELPath what the schema blames if it is not the same.
	Path    string `json:"path"`
	CELPath string `json:"celPath"`
	// CEL says whether the schema alone refuses the object. If not, it must accept it.
	CEL bool `json:"cel"`
	// Defaulted says that the schema refuses the object after the webhook has defaulted it.
	Defaulted bool `json:"defaulted"`
	// Also says that more fields may be blamed.
	Also bool `json:"also"`
	// Required says that the schema of OpenKruise refuses the object as well.
	Required bool   `json:"required"`
	Delete   bool   `json:"delete"`  // the row is a DELETE, refused with Message
	Denied   bool   `json:"denied"`  // the webhook answers 403 and Message, not a fault at Path
	Message  string `json:"message"` // part of the refusal
	// Warning is part of what the author of an accepted object is told.
	Warning string `json:"warning"`
	// Alpha replaces, for v1alpha1, the fields that it has.
	Alpha *struct {
		Old     map[string]any `json:"old"`
		Spec    map[string]any `json:"spec"`
		Path    string         `json:"path"`
		CELPath string         `json:"celPath"`
		CEL     *bool          `json:"cel"`
	} `json:"alpha"`
}

// kind is what a table is about.
type kind struct {
	name     string
	versions []string
	// code is the status of what the webhooks refuse.
	code int32
	// cluster says that objects have no namespace.
	cluster bool
	// resolved kinds are refused by their mutating webhook, before the schema is looked at.
	resolved bool
	// plain kinds have no mutating webhook.
	plain bool
}

// stored is the version that is stored, the last one.
func (k kind) stored() string { return k.versions[len(k.versions)-1] }

// kinds are the files of testdata.
var kinds = map[string]kind{
	"cloneset":                 {name: "CloneSet", versions: both, code: http.StatusUnprocessableEntity},
	"statefulset":              {name: "StatefulSet", versions: both, code: http.StatusUnprocessableEntity},
	"daemonset":                {name: "DaemonSet", versions: both, code: http.StatusUnprocessableEntity},
	"imagepulljob":             {name: "ImagePullJob", versions: both, code: http.StatusBadRequest},
	"imagelistpulljob":         {name: "ImageListPullJob", versions: both, code: http.StatusBadRequest},
	"nodeimage":                {name: "NodeImage", versions: both, code: http.StatusBadRequest, cluster: true},
	"containerrecreaterequest": {name: "ContainerRecreateRequest", versions: both, code: http.StatusBadRequest, resolved: true},
	"podprobemarker":           {name: "PodProbeMarker", versions: both[:1], code: http.StatusBadRequest, plain: true},
}

var both = []string{"v1alpha1", "v1beta1"}

// read reads the table of a file.
func read(t *testing.T, file string) table {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file+".yaml"))
	require.NoError(t, err)
	var out table
	require.NoError(t, yaml.UnmarshalStrict(raw, &out), file)
	return out
}

// in returns the row as it is for version, and whether there is one.
func (r row) in(version string) (row, bool) {
	if len(r.Versions) > 0 && !slices.Contains(r.Versions, version) {
		return r, false
	}
	if version != "v1alpha1" || r.Alpha == nil {
		return r, true
	}
	if r.Alpha.Old != nil {
		r.Old = r.Alpha.Old
	}
	if r.Alpha.Spec != nil {
		r.Spec = r.Alpha.Spec
	}
	if r.Alpha.Path != "" {
		r.Path, r.CELPath = r.Alpha.Path, ""
	}
	if r.Alpha.CELPath != "" {
		r.CELPath = r.Alpha.CELPath
	}
	if r.Alpha.CEL != nil {
		r.CEL = *r.Alpha.CEL
	}
	return r, true
}

// celPath is the field that the schema blames.
func (r row) celPath() string {
	if r.CELPath != "" {
		return r.CELPath
	}
	return r.Path
}

// objects returns the stored object, nil unless the row is an UPDATE or a DELETE, and the object
// of the request.
func (r row) objects(t *testing.T, base map[string]any, k kind, version string) (old, obj *unstructured.Unstructured) {
	t.Helper()
	if r.Old != nil || r.Delete {
		base = merged(t, base, r.Old)
		old = object(r.Metadata, base, k, version)
	}
	return old, object(r.Metadata, merged(t, base, r.Spec), k, version)
}

func object(metadata, spec map[string]any, k kind, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "spec": spec}}
	for key, value := range metadata {
		u.Object["metadata"].(map[string]any)[key] = value
	}
	u = u.DeepCopy()
	u.SetAPIVersion("apps.kruise.io/" + version)
	u.SetKind(k.name)
	if !k.cluster {
		u.SetNamespace("default")
	}
	if u.GetName() == "" {
		u.SetGenerateName("row-")
	}
	return u
}

func merged(t *testing.T, base, patch map[string]any) map[string]any {
	t.Helper()
	if patch == nil {
		patch = map[string]any{}
	}
	b, err := json.Marshal(base)
	require.NoError(t, err)
	p, err := json.Marshal(patch)
	require.NoError(t, err)
	both, err := jsonpatch.MergePatch(b, p)
	require.NoError(t, err)
	var u unstructured.Unstructured // which reads whole numbers as such
	require.NoError(t, u.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"None","spec":`+string(both)+`}`)))
	return u.Object["spec"].(map[string]any)
}

// The tables are as long as they are meant to be, and every row says what it needs to.
func TestTablesAreComplete(t *testing.T) {
	invalid, cel := 0, 0
	for file := range kinds {
		tab := read(t, file)
		invalid += len(tab.Invalid)
		for name, r := range tab.Invalid {
			require.True(t, r.Path != "" || (r.Delete || r.Denied) && r.Message != "", "%s: %s says nothing about the refusal", file, name)
			if r.CEL {
				cel++
			}
		}
		require.NotEmpty(t, tab.Valid, file)
	}
	require.GreaterOrEqual(t, invalid, 220)
	require.GreaterOrEqual(t, cel, 80)
	t.Logf("%d invalid objects, %d of which the schema alone refuses", invalid, cel)
}

// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"encoding/binary"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/rand"
)

// newer are the fields of a Pod template that Kubernetes has added since 1.32, by type. An
// unset one is left out of the hash, so that a new library changes no hash: the dump that
// is hashed otherwise prints every field there is (daemonset.md 6).
var newer = map[string]string{
	"v1.ClusterTrustBundleProjection":  "User",
	"v1.ConfigMapVolumeSource":         "DefaultUser",
	"v1.Container":                     "RestartPolicyRules",
	"v1.DownwardAPIVolumeFile":         "User",
	"v1.DownwardAPIVolumeSource":       "DefaultUser",
	"v1.EmptyDirVolumeSource":          "Mode",
	"v1.EnvVarSource":                  "FileKeyRef",
	"v1.EphemeralContainerCommon":      "RestartPolicyRules",
	"v1.GRPCAction":                    "Mode",
	"v1.HTTPGetAction":                 "Protocol",
	"v1.KeyToPath":                     "User",
	"v1.Lifecycle":                     "StopSignal",
	"v1.PodSpec":                       "EvictionResponders HostnameOverride SchedulingGroup",
	"v1.ProjectedVolumeSource":         "DefaultUser",
	"v1.SecretVolumeSource":            "DefaultUser",
	"v1.ServiceAccountTokenProjection": "User",
	"v1.VolumeMount":                   "BindMountOptions",
	"v1.VolumeProjection":              "PodCertificate",
}

// DaemonSetHash is the hash of a DaemonSet's template: FNV-1a over a dump of the template
// as the Go type of Kubernetes 1.32, and over the collision count unless that is nil, its
// decimal digits written in Kubernetes' safe alphabet. It is not the Hash of the other
// workloads.
func DaemonSetHash(template *corev1.PodTemplateSpec, collisionCount *int32) string {
	d := dumper{newer: newer}
	d.value(reflect.ValueOf(*template), true)
	h := fnv.New32a()
	h.Write([]byte(d.String()))
	if collisionCount != nil {
		var bytes [8]byte
		binary.LittleEndian.PutUint32(bytes[:], uint32(*collisionCount))
		h.Write(bytes[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// dumper prints a value as the library does that Kubernetes hashes templates with: names
// and types of fields, no methods, no addresses.
type dumper struct {
	strings.Builder
	newer map[string]string
}

// quantity is printed with the text that it caches of itself when it is decoded, even if it
// does not: that depends on who looked at it before.
var quantity = reflect.TypeFor[resource.Quantity]()

func (d *dumper) value(v reflect.Value, typed bool) {
	if v.Kind() == reflect.Pointer {
		d.pointer(v, typed)
		return
	}
	if typed {
		d.write("(", v.Type().String(), ")")
	}
	switch v.Kind() {
	case reflect.Bool:
		d.write(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.write(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.write(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		d.write(v.String())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			d.write("<nil>")
			return
		}
		d.list("[", "]", v.Len(), func(i int) { d.value(v.Index(i), false) })
	case reflect.Map:
		d.mapping(v)
	case reflect.Struct:
		d.fields(v)
	}
}

func (d *dumper) pointer(v reflect.Value, typed bool) {
	depth, end := 0, v
	for end.Kind() == reflect.Pointer && !end.IsNil() {
		depth, end = depth+1, end.Elem()
	}
	if typed {
		d.write("(", strings.Repeat("*", depth), end.Type().String(), ")")
	} else {
		d.write("<", strings.Repeat("*", depth), ">")
	}
	if end.Kind() == reflect.Pointer {
		d.write("<nil>")
		return
	}
	d.value(end, false)
}

func (d *dumper) mapping(v reflect.Value) {
	if v.IsNil() {
		d.write("<nil>")
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	d.list("map[", "]", len(keys), func(i int) {
		d.value(keys[i], false)
		d.write(":")
		d.value(v.MapIndex(keys[i]), false)
	})
}

func (d *dumper) fields(v reflect.Value) {
	t := v.Type()
	added := strings.Fields(d.newer[t.String()])
	var shown []int
	for i := range t.NumField() {
		if !v.Field(i).IsZero() || !slices.Contains(added, t.Field(i).Name) {
			shown = append(shown, i)
		}
	}
	d.list("{", "}", len(shown), func(i int) {
		f := t.Field(shown[i])
		d.write(f.Name, ":")
		if t == quantity && f.Name == "s" {
			q, _ := v.Interface().(resource.Quantity)
			d.write("(string)", q.String())
			return
		}
		d.value(v.Field(shown[i]), true)
	})
}

func (d *dumper) list(open, end string, n int, item func(int)) {
	d.write(open)
	for i := range n {
		if i > 0 {
			d.write(" ")
		}
		item(i)
	}
	d.write(end)
}

func (d *dumper) write(parts ...string) {
	for _, p := range parts {
		d.WriteString(p)
	}
}

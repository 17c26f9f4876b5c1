// SPDX-License-Identifier: Apache-2.0

package valid

import (
	"fmt"
	"path"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumes checks the claim templates and the volumes of the template, and returns the volumes
// that containers may mount. A claim template is a volume of its name, and comes first: a
// volume of the same name is the duplicate.
func volumes(list []corev1.Volume, claims []corev1.PersistentVolumeClaim, path, claimPath *field.Path) (map[string]corev1.VolumeSource, field.ErrorList) {
	var errs field.ErrorList
	vols := map[string]corev1.VolumeSource{}
	name := func(n string, at *field.Path) {
		switch _, seen := vols[n]; {
		case n == "":
			errs = append(errs, field.Required(at, "give every volume a name"))
		case seen:
			errs = append(errs, field.Duplicate(at, n))
		default:
			errs = append(errs, messages(at, n, validation.IsDNS1123Label(n))...)
		}
	}
	for i := range claims {
		at := claimPath.Index(i)
		name(claims[i].Name, at.Child("metadata", "name"))
		vols[claims[i].Name] = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[i].Name}}
		errs = append(errs, metavalidation.ValidateLabels(claims[i].Labels, at.Child("metadata", "labels"))...)
		errs = append(errs, claim(&claims[i].Spec, at.Child("spec"))...)
	}
	for i := range list {
		at := path.Index(i)
		name(list[i].Name, at.Child("name"))
		vols[list[i].Name] = list[i].VolumeSource
		errs = append(errs, source(&list[i].VolumeSource, at)...)
	}
	return vols, errs
}

func claim(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "set at least one, such as ReadWriteOnce"))
	}
	storage, ok := s.Resources.Requests[corev1.ResourceStorage]
	at := path.Child("resources", "requests").Key(string(corev1.ResourceStorage))
	switch {
	case !ok:
		errs = append(errs, field.Required(at, "say how much storage is needed, such as 1Gi"))
	case storage.Sign() <= 0:
		errs = append(errs, field.Invalid(at, storage.String(), "must be greater than 0"))
	}
	return errs
}

// source wants at most one source (the API server makes none an emptyDir), and checks those
// that are in every day's use.
func source(v *corev1.VolumeSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := sources(v); n > 1 {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("may have only one source, has %d", n)))
	}
	if s := v.EmptyDir; s != nil && s.SizeLimit != nil {
		errs = append(errs, quantity(*s.SizeLimit, path.Child("emptyDir", "sizeLimit"))...)
	}
	if s := v.HostPath; s != nil {
		at := path.Child("hostPath", "path")
		if s.Path == "" {
			errs = append(errs, field.Required(at, "set a path of the node"))
		}
		errs = append(errs, noBackSteps(s.Path, at)...)
	}
	if s := v.Secret; s != nil {
		at := path.Child("secret")
		errs = append(errs, required(s.SecretName, at.Child("secretName"), "name a Secret of the namespace")...)
		errs = append(errs, mode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, items(s.Items, at.Child("items"))...)
	}
	if s := v.ConfigMap; s != nil {
		at := path.Child("configMap")
		errs = append(errs, required(s.Name, at.Child("name"), "name a ConfigMap of the namespace")...)
		errs = append(errs, mode(s.DefaultMode, at.Child("defaultMode"))...)
		errs = append(errs, items(s.Items, at.Child("items"))...)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		errs = append(errs, required(s.ClaimName, path.Child("persistentVolumeClaim", "claimName"), "name a PersistentVolumeClaim of the namespace")...)
	}
	if s := v.NFS; s != nil {
		at := path.Child("nfs")
		errs = append(errs, required(s.Server, at.Child("server"), "name the NFS server")...)
		errs = append(errs, required(s.Path, at.Child("path"), "set the path that the server exports")...)
	}
	if s := v.CSI; s != nil {
		errs = append(errs, required(s.Driver, path.Child("csi", "driver"), "name the CSI driver")...)
	}
	if s := v.Ephemeral; s != nil {
		at := path.Child("ephemeral", "volumeClaimTemplate")
		if s.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(at, "describe the claim"))
		} else {
			errs = append(errs, claim(&s.VolumeClaimTemplate.Spec, at.Child("spec"))...)
		}
	}
	if s := v.Projected; s != nil {
		for i := range s.Sources {
			if n := set(reflect.ValueOf(s.Sources[i])); n > 1 {
				errs = append(errs, field.Forbidden(path.Child("projected", "sources").Index(i), fmt.Sprintf("may have only one source, has %d", n)))
			}
		}
		errs = append(errs, mode(s.DefaultMode, path.Child("projected", "defaultMode"))...)
	}
	return errs
}

// sources counts the sources that are set.
func sources(v *corev1.VolumeSource) int { return set(reflect.ValueOf(*v)) }

// set counts the pointers of a struct that are not nil.
func set(v reflect.Value) int {
	n := 0
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}

func required(value string, path *field.Path, what string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, what)}
	}
	return nil
}

func mode(m *int32, path *field.Path) field.ErrorList {
	if m != nil && (*m < 0 || *m > 0o777) {
		return field.ErrorList{field.Invalid(path, *m, "must be between 0 and 0777 (octal), which is 511 in decimal")}
	}
	return nil
}

func items(list []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range list {
		errs = append(errs, required(item.Key, at.Index(i).Child("key"), "name a key")...)
		errs = append(errs, required(item.Path, at.Index(i).Child("path"), "set the path of the file in the volume")...)
		if path.IsAbs(item.Path) {
			errs = append(errs, field.Invalid(at.Index(i).Child("path"), item.Path, "must be a relative path"))
		}
		errs = append(errs, noBackSteps(item.Path, at.Index(i).Child("path"))...)
		errs = append(errs, mode(item.Mode, at.Index(i).Child("mode"))...)
	}
	return errs
}

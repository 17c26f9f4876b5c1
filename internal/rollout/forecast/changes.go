// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/internal/inplace"
)

func restarts(u *inplace.UpdateSpec) []string {
	names := map[string]bool{}
	for n := range u.ContainerImages {
		names[n] = true
	}
	for n := range u.ContainerRefMetadata {
		names[n] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// changes lists what differs between the templates, each with what it does to a Pod.
func changes(was, now *corev1.PodTemplateSpec, cmp inplace.Comparison) []Change {
	list := []Change{}
	reads := map[string][]string{}
	if cmp.InPlace != nil {
		for name, ref := range cmp.InPlace.ContainerRefMetadata {
			for k := range ref.Labels {
				reads["labels/"+k] = append(reads["labels/"+k], name)
			}
			for k := range ref.Annotations {
				reads["annotations/"+k] = append(reads["annotations/"+k], name)
			}
		}
	}
	for _, c := range now.Spec.Containers {
		for _, o := range was.Spec.Containers {
			if o.Name == c.Name && o.Image != c.Image {
				list = append(list, Change{
					Path: "spec.template.spec.containers[" + c.Name + "].image", Op: o.Image + " -> " + c.Image,
					Effect: fmt.Sprintf("in place: container %q restarts", c.Name),
				})
			}
		}
	}
	list = append(list, metadata("labels", was.Labels, now.Labels, reads)...)
	list = append(list, metadata("annotations", was.Annotations, now.Annotations, reads)...)
	if cmp.InPlace != nil {
		for _, name := range slices.Sorted(maps.Keys(cmp.InPlace.ContainerResources)) {
			list = append(list, Change{Path: "spec.template.spec.containers[" + name + "].resources", Op: "replace", Effect: "in place: resized"})
		}
	}
	for _, r := range cmp.Recreate {
		if r.Code != inplace.MissingRevision {
			list = append(list, Change{Path: r.Path, Op: "", Effect: "recreate: " + r.Message})
		}
	}
	return list
}

func metadata(field string, was, now map[string]string, reads map[string][]string) []Change {
	var list []Change
	keys := map[string]bool{}
	for k := range was {
		keys[k] = true
	}
	for k := range now {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, had := was[k]
		b, has := now[k]
		op := "replace"
		switch {
		case had && has && a == b:
			continue
		case !had:
			op = "add"
		case !has:
			op = "remove"
		}
		effect := "in place: no restart"
		if names := reads[field+"/"+k]; len(names) > 0 {
			slices.Sort(names)
			effect = fmt.Sprintf("in place: %s restart, env reads it", strings.Join(names, ", "))
		}
		list = append(list, Change{Path: "spec.template.metadata." + field + "[" + k + "]", Op: op, Effect: effect})
	}
	return list
}

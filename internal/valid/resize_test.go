// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/valid"
)

// claim is a claim template; class "" names none.
func claim(name, class, size string, change ...func(*setClaim)) setClaim {
	c := setClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": *quantity(size)}},
	}}
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func claims(strategy v1beta1.VolumeClaimUpdateStrategyType, list ...setClaim) *set {
	return db(func(s *set) {
		s.Spec.VolumeClaimUpdateStrategy.Type, s.Spec.VolumeClaimTemplates = strategy, list
	})
}

func class(name string, expand *bool, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: expand}
	for _, f := range change {
		f(c)
	}
	return c
}

func isDefault(day int) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		c.CreationTimestamp = metav1.Date(2026, time.January, day, 0, 0, 0, 0, time.UTC)
	}
}

func byName(list ...*storagev1.StorageClass) map[string]*storagev1.StorageClass {
	out := map[string]*storagev1.StorageClass{}
	for _, c := range list {
		out[c.Name] = c
	}
	return out
}

func TestResizeOfClaims(t *testing.T) {
	const along, onDelete = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType, v1beta1.OnDeleteVolumeClaimUpdateStrategyType
	const at = "spec.volumeClaimTemplates"
	classes := byName(class("grows", new(true)), class("fixed", new(false)), class("silent", nil))
	two := func(c *setClaim) { c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadOnlyMany) }
	limited := func(c *setClaim) { c.Spec.Resources.Limits = corev1.ResourceList{"storage": *quantity("9Gi")} }
	for name, c := range map[string]struct {
		old, obj *set
		classes  map[string]*storagev1.StorageClass
		path     string // empty: accepted
	}{
		"growing in a class that grows":           {claims(along, claim("a", "grows", "1Gi")), claims(along, claim("a", "grows", "2Gi")), classes, ""},
		"growing in a class that does not":        {claims(along, claim("a", "fixed", "1Gi")), claims(along, claim("a", "fixed", "2Gi")), classes, at + "[0].spec.resources"},
		"growing in a class that does not say":    {claims(along, claim("a", "silent", "1Gi")), claims(along, claim("a", "silent", "2Gi")), classes, at + "[0].spec.resources"},
		"growing in a class that is gone":         {claims(along, claim("a", "gone", "1Gi")), claims(along, claim("a", "gone", "2Gi")), classes, at + "[0].spec.storageClassName"},
		"growing without knowledge of classes":    {claims(along, claim("a", "fixed", "1Gi")), claims(along, claim("a", "fixed", "2Gi")), nil, ""},
		"shrinking in a class that does not grow": {claims(along, claim("a", "fixed", "2Gi")), claims(along, claim("a", "fixed", "1Gi")), classes, at + "[0].spec.resources"},
		"the same size, written otherwise":        {claims(along, claim("a", "fixed", "1Gi")), claims(along, claim("a", "fixed", "1024Mi")), classes, ""},
		"another limit in a class that is fixed":  {claims(along, claim("a", "fixed", "1Gi")), claims(along, claim("a", "fixed", "1Gi", limited)), classes, at + "[0].spec.resources"},
		"one of two, the one that grows":          {claims(along, claim("a", "grows", "1Gi"), claim("b", "fixed", "1Gi")), claims(along, claim("a", "grows", "2Gi"), claim("b", "fixed", "1Gi")), classes, ""},
		"both, of which one grows":                {claims(along, claim("a", "grows", "1Gi"), claim("b", "fixed", "1Gi")), claims(along, claim("a", "grows", "2Gi"), claim("b", "fixed", "2Gi")), classes, at + "[1].spec.resources"},
		"another order":                           {claims(along, claim("a", "grows", "1Gi"), claim("b", "fixed", "2Gi")), claims(along, claim("b", "fixed", "2Gi"), claim("a", "grows", "1Gi")), classes, ""},
		"a template more":                         {claims(along, claim("a", "grows", "1Gi")), claims(along, claim("a", "grows", "1Gi"), claim("b", "grows", "1Gi")), classes, at},
		"a template less":                         {claims(along, claim("a", "grows", "1Gi")), claims(along), classes, at},
		"a template renamed":                      {claims(along, claim("a", "grows", "1Gi")), claims(along, claim("b", "grows", "1Gi")), classes, at + "[0].metadata.name"},
		"another class":                           {claims(along, claim("a", "grows", "1Gi")), claims(along, claim("a", "other", "1Gi")), classes, at + "[0].spec.storageClassName"},
		"a class where none was named":            {claims(along, claim("a", "", "1Gi")), claims(along, claim("a", "grows", "2Gi")), classes, ""},
		"another access mode":                     {claims(along, claim("a", "grows", "1Gi")), claims(along, claim("a", "grows", "1Gi", two)), classes, at + "[0].spec.accessModes"},
		"the strategy OnDelete":                   {claims(onDelete, claim("a", "fixed", "1Gi")), claims(onDelete, claim("a", "fixed", "2Gi")), classes, ""},
		"no strategy":                             {claims("", claim("a", "fixed", "1Gi")), claims("", claim("b", "fixed", "2Gi")), classes, ""},
		"along from now on":                       {claims(onDelete, claim("a", "fixed", "1Gi")), claims(along, claim("a", "fixed", "2Gi")), classes, at + "[0].spec.resources"},
		"no longer along":                         {claims(along, claim("a", "fixed", "1Gi")), claims(onDelete, claim("a", "fixed", "2Gi")), classes, ""},
		"no class named and no default":           {claims(along, claim("a", "", "1Gi")), claims(along, claim("a", "", "2Gi")), classes, ""},
		"the newest default class counts, which is fixed": {claims(along, claim("a", "", "1Gi")), claims(along, claim("a", "", "2Gi")),
			byName(class("older", new(true), isDefault(1)), class("newer", new(false), isDefault(2))), at + "[0].spec.resources"},
		"the newest default class counts, which grows": {claims(along, claim("a", "", "1Gi")), claims(along, claim("a", "", "2Gi")),
			byName(class("older", new(false), isDefault(1)), class("newer", new(true), isDefault(2))), ""},
		"of two equally new the first by name counts": {claims(along, claim("a", "", "1Gi")), claims(along, claim("a", "", "2Gi")),
			byName(class("b", new(false), isDefault(1)), class("a", new(true), isDefault(1))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.StatefulSetUpdate(c.old, c.obj, valid.Options{ResizeClaims: true, StorageClasses: c.classes})
			if c.path == "" {
				require.Empty(t, errs)
			} else {
				require.Equal(t, []string{c.path}, paths(errs), "%v", errs)
			}
			require.Empty(t, valid.StatefulSetUpdate(c.old, c.obj, valid.Options{StorageClasses: c.classes}), "with the gate off nothing is compared")
		})
	}
}

func TestClassesAreAskedForOnlyWhenASizeChanges(t *testing.T) {
	const along = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
	one, two := claims(along, claim("a", "x", "1Gi")), claims(along, claim("a", "x", "2Gi"))
	require.True(t, valid.StatefulSetResizes(one, two, valid.Options{ResizeClaims: true}))
	require.False(t, valid.StatefulSetResizes(one, two, valid.Options{}))
	require.False(t, valid.StatefulSetResizes(one, one, valid.Options{ResizeClaims: true}))
	require.False(t, valid.StatefulSetResizes(one, claims("OnDelete", claim("a", "x", "2Gi")), valid.Options{ResizeClaims: true}))
}

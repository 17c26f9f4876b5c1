// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that the driver is known by.
const (
	DriverName  = "volumes.kruisectl.test"
	TopologyKey = DriverName + "/node" // of Nodes and volumes; its value is the name of the node
)

// Names of the StorageClasses of a cluster with volumes.
const (
	ClassDefault     = "standard" // for claims that name none; not expandable, as on most local clusters
	ClassExpandable  = "allow-volume-expansion"
	ClassFixed       = "disallow-volume-expansion"
	defaultClassMark = "storageclass.kubernetes.io/is-default-class"
)

// Driver is what the cluster must know of the driver: no volume is attached, Pods get mounts at once.
func Driver() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: DriverName},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       new(false),
			PodInfoOnMount:       new(false),
			FSGroupPolicy:        new(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
}

// Classes are the StorageClasses of a cluster with volumes. A volume is made on the node that the scheduler chose for the
// first Pod, and dies with its claim.
func Classes() []*storagev1.StorageClass {
	class := func(name string, expandable bool) *storagev1.StorageClass {
		return &storagev1.StorageClass{
			ObjectMeta:           metav1.ObjectMeta{Name: name},
			Provisioner:          DriverName,
			AllowVolumeExpansion: &expandable,
			VolumeBindingMode:    new(storagev1.VolumeBindingWaitForFirstConsumer),
			ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
		}
	}
	standard := class(ClassDefault, false)
	standard.Annotations = map[string]string{defaultClassMark: "true"}
	return []*storagev1.StorageClass{standard, class(ClassExpandable, true), class(ClassFixed, false)}
}

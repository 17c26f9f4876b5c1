// SPDX-License-Identifier: Apache-2.0

package poddefaults

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// volume fills in what a volume source leaves open; a volume without source is an emptyDir.
func volume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if s := v.HostPath; s != nil {
		set(&s.Type, corev1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		set(&s.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if s := v.ConfigMap; s != nil {
		set(&s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if s := v.DownwardAPI; s != nil {
		set(&s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		for i := range s.Items {
			fieldRef(s.Items[i].FieldRef)
		}
	}
	if s := v.Projected; s != nil {
		projected(s)
	}
	if s := v.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		claimSpec(&s.VolumeClaimTemplate.Spec)
	}
	vendor(v)
}

func projected(s *corev1.ProjectedVolumeSource) {
	set(&s.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range s.Sources {
		if d := s.Sources[i].DownwardAPI; d != nil {
			for j := range d.Items {
				fieldRef(d.Items[j].FieldRef)
			}
		}
		if t := s.Sources[i].ServiceAccountToken; t != nil {
			set(&t.ExpirationSeconds, int64(time.Hour/time.Second))
		}
	}
}

// vendor knows the volume sources of single storage systems.
func vendor(v *corev1.VolumeSource) {
	if s := v.ISCSI; s != nil {
		setString(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		setString(&s.RBDPool, "rbd")
		setString(&s.RadosUser, "admin")
		setString(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.AzureDisk; s != nil {
		set(&s.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		set(&s.FSType, "ext4")
		set(&s.ReadOnly, false)
		set(&s.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := v.ScaleIO; s != nil {
		setString(&s.StorageMode, "ThinProvisioned")
		setString(&s.FSType, "xfs")
	}
}

// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestDefaultsOfCloneSet(t *testing.T) {
	rolling := func(policy v1beta1.PodUpdatePolicyType, inPlace *v1beta1.InPlaceUpdateStrategy) v1beta1.CloneSetUpdateStrategy {
		return v1beta1.CloneSetUpdateStrategy{Type: "RollingUpdate", RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
			PodUpdatePolicy: policy, InPlaceUpdateStrategy: inPlace,
			Partition: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromString("20%")), MaxSurge: new(intstr.FromInt32(0)),
		}}
	}
	for name, c := range map[string]struct {
		in, want v1beta1.CloneSetUpdateStrategy
	}{
		"nothing": {want: rolling("ReCreate", nil)},
		"an in-place policy gets its options": {
			in:   v1beta1.CloneSetUpdateStrategy{RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: "InPlaceOnly"}},
			want: rolling("InPlaceOnly", &v1beta1.InPlaceUpdateStrategy{}),
		},
		"OnDelete stays as it is": {
			in:   v1beta1.CloneSetUpdateStrategy{Type: "OnDelete"},
			want: v1beta1.CloneSetUpdateStrategy{Type: "OnDelete"},
		},
		"an unknown type is left to validation": {
			in:   v1beta1.CloneSetUpdateStrategy{Type: "Odd"},
			want: v1beta1.CloneSetUpdateStrategy{Type: "Odd"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cs := &v1beta1.CloneSet{Spec: v1beta1.CloneSetSpec{UpdateStrategy: c.in}}
			v1beta1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{})
			require.Equal(t, c.want, cs.Spec.UpdateStrategy)
			require.Equal(t, [2]int32{1, 10}, [2]int32{*cs.Spec.Replicas, *cs.Spec.RevisionHistoryLimit})
			again := cs.DeepCopy()
			v1beta1.SetDefaultsCloneSet(again, v1beta1.DefaultOptions{})
			require.Equal(t, cs, again, "defaults are final")
		})
	}
}

// An ImagePullJob that is part of a list leaves the pull policy to the job.
func TestDefaultsOfTheJobTemplate(t *testing.T) {
	var template v1beta1.ImagePullJobTemplate
	v1beta1.SetDefaultsImagePullJobTemplate(&template)
	require.Empty(t, template.ImagePullPolicy)
	require.Equal(t, v1beta1.Always, template.CompletionPolicy.Type)
}

func TestDefaultsOfImageListPullJob(t *testing.T) {
	job := &v1beta1.ImageListPullJob{}
	v1beta1.SetDefaultsImageListPullJob(job)
	require.Empty(t, job.Spec.ImagePullPolicy, "each child gets its own")
	require.Equal(t, v1beta1.Always, job.Spec.CompletionPolicy.Type)
	require.Equal(t, [2]int32{600, 3}, [2]int32{*job.Spec.PullPolicy.TimeoutSeconds, *job.Spec.PullPolicy.BackoffLimit})
}

func TestDefaultsOfContainerRecreateRequest(t *testing.T) {
	crr := &v1beta1.ContainerRecreateRequest{}
	v1beta1.SetDefaultsContainerRecreateRequest(crr)
	require.Equal(t, &v1beta1.RecreateStrategy{FailurePolicy: "Fail"}, crr.Spec.Strategy)
	crr.Spec.Strategy = &v1beta1.RecreateStrategy{FailurePolicy: "Ignore", ForceRecreate: true}
	v1beta1.SetDefaultsContainerRecreateRequest(crr)
	require.Equal(t, &v1beta1.RecreateStrategy{FailurePolicy: "Ignore", ForceRecreate: true}, crr.Spec.Strategy)
	require.Nil(t, crr.Spec.ActiveDeadlineSeconds)
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package statefulset_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// retention is a policy; an empty value is left out of the request.
func retention(whenScaled, whenDeleted appsv1.PersistentVolumeClaimRetentionPolicyType) func(*v1beta1.StatefulSet) {
	return func(set *v1beta1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &v1beta1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: whenScaled, WhenDeleted: whenDeleted,
		}
	}
}

// waitOnlyClaims waits until the claims of exactly these ordinals exist.
func (s suite) waitOnlyClaims(ordinals ...int) {
	s.T.Helper()
	var want []string
	for _, o := range ordinals {
		want = append(want, "data-"+name(o))
	}
	s.Eventually(fmt.Sprintf("claims %v", want), harness.Long, func() string {
		list := &corev1.PersistentVolumeClaimList{}
		if err := s.Client.List(s.Ctx(), list, client.InNamespace(s.Namespace)); err != nil {
			return err.Error()
		}
		var got []string
		for _, c := range list.Items {
			got = append(got, c.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("claims %v", got)
		}
		return ""
	})
}

// ownedBySet says what keeps the claim from being owned by the set and not by its Pod, "" for nothing.
func ownedBySet(c corev1.PersistentVolumeClaim, set types.UID) string {
	owned := false
	for _, ref := range c.OwnerReferences {
		if ref.Kind == "Pod" {
			return fmt.Sprintf("claim %s is owned by Pod %s", c.Name, ref.Name)
		}
		owned = owned || ref.Kind == "StatefulSet" && ref.UID == set
	}
	if !owned {
		return fmt.Sprintf("claim %s is not owned by the set: %+v", c.Name, c.OwnerReferences)
	}
	return ""
}

// noChange is a patch that names owners in the wrong place: it needs the Pod to exist, and changes nothing.
var noChange = client.RawPatch(types.MergePatchType, []byte(`{"ownerReferences":null}`))

func (s suite) touch(ordinal int) {
	s.T.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name(ordinal)}}
	require.NoError(s.T, s.Client.Patch(s.Ctx(), p, noChange), "Pod %s must exist by now", p.Name)
}

// S16, S19: claims go with the set, which owns them once their Pods exist.
func TestClaimsGoWithTheSet(t *testing.T) {
	t.Parallel()
	for label, touched := range map[string]bool{"S16": false, "S19": true} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			s.Create(web(3, withClaim, retention("", appsv1.DeletePersistentVolumeClaimRetentionPolicyType)))
			set := s.set()
			s.Eventually("the set owns three claims", harness.Long, func() string {
				claims := s.claims()
				for _, c := range claims {
					if missing := ownedBySet(c, set.UID); missing != "" {
						return missing
					}
				}
				if len(claims) != 3 {
					return fmt.Sprintf("%d claims", len(claims))
				}
				return ""
			})
			if touched {
				s.touch(2)
			}
			s.waitOnlyClaims(0, 1, 2)
			require.NoError(t, s.Client.Delete(s.Ctx(), set))
			s.waitOnlyClaims()
		})
	}
}

// S17, S18, S19: claims go with Pods that are scaled away, reserved ordinals or not.
func TestClaimsGoWithPodsThatAreScaledAway(t *testing.T) {
	t.Parallel()
	for label, c := range map[string]struct {
		reserved []intstr.IntOrString
		ordinals []int
		touched  bool
	}{
		"S17": {ordinals: []int{0, 1, 2}},
		"S18": {reserved: []intstr.IntOrString{intstr.FromInt32(0), intstr.FromString("2-5")}, ordinals: []int{1, 6, 7}},
		"S19": {ordinals: []int{0, 1, 2}, touched: true},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			s := newSuite(t)
			s.Create(web(3, withClaim, retention(appsv1.DeletePersistentVolumeClaimRetentionPolicyType, ""), func(set *v1beta1.StatefulSet) {
				set.Spec.ReserveOrdinals = c.reserved
			}))
			s.waitOnlyClaims(c.ordinals...)
			if c.touched {
				s.touch(1)
			}
			s.scale(1)
			s.waitOnlyClaims(c.ordinals[0])
			s.waitReady(1)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

func withoutRolling(s *v1beta1.StatefulSet) {
	s.Spec.UpdateStrategy.RollingUpdate = nil
	s.Status.CurrentReplicas = 2
}

func TestLimits(t *testing.T) {
	cases := map[string]struct {
		set  fixture.StatefulSetBuilder
		want Limits
	}{
		"defaults":                                 {ordered(3), Limits{Replicas: 3, MaxUnavailable: 1}},
		"a percentage is rounded down":             {parallel(10).MaxUnavailable("25%"), Limits{Replicas: 10, MaxUnavailable: 2}},
		"and raised to one":                        {parallel(3).MaxUnavailable("10%"), Limits{Replicas: 3, MaxUnavailable: 1}},
		"so is the limit of scaling":               {parallel(3).ScaleMaxUnavailable("1%"), Limits{Replicas: 3, MaxUnavailable: 1, ScaleMaxUnavailable: new(1)}},
		"a partition beyond the replicas is all":   {ordered(3).Partition(7), Limits{Replicas: 3, Partition: 3, MaxUnavailable: 1}},
		"OnDelete has no partition":                {ordered(3).OnDelete(), Limits{Replicas: 3, MaxUnavailable: 1}},
		"nothing set: one replica, one at a time":  {ordered(3).With(func(s *v1beta1.StatefulSet) { s.Spec = v1beta1.StatefulSetSpec{} }), Limits{Replicas: 1, MaxUnavailable: 1}},
		"text that is no percentage counts as one": {parallel(9).MaxUnavailable("many"), Limits{Replicas: 9, MaxUnavailable: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, LimitsOf(tc.set.Obj())) })
	}
	assert.Equal(t, int32(0), MinReadySeconds(ordered(1).MinReadySeconds(30).OnDelete().Obj()), "OnDelete waits for nothing")
}

func TestNames(t *testing.T) {
	assert.Equal(t, "db-12", PodName("db", 12))
	assert.Equal(t, "data-db-12", ClaimName("data", "db", 12))
	for name, want := range map[string]int{"db-0": 0, "db-12": 12, "db-2147483648": 2147483648, "db-012": -1, "db-": -1, "db-1a": -1, "other-1": -1, "db-1-2": -1, "db": -1, "db-9999999999999999999": -1} {
		n, ok := OrdinalOf("db", name)
		assert.Equal(t, want >= 0, ok, name)
		assert.Equal(t, max(want, 0), n*map[bool]int{true: 1}[ok], name)
	}
	n, ok := OrdinalOf("db-1", "db-1-2")
	assert.True(t, ok && n == 2, "the name of a set may end like a Pod's")
}

func TestNewClaim(t *testing.T) {
	set := ordered(1).Claim("data", "1Gi").Obj()
	set.Spec.VolumeClaimTemplates[0].Labels = map[string]string{"tier": "gold", "app": "other"}
	set.Spec.VolumeClaimTemplates[0].Annotations = map[string]string{"note": "kept"}
	claim := NewClaim(set, &set.Spec.VolumeClaimTemplates[0], 3)
	assert.Equal(t, metav1.ObjectMeta{
		Name: "data-web-3", Namespace: fixture.Namespace,
		Labels: map[string]string{"tier": "gold", "app": "web"}, Annotations: map[string]string{"note": "kept"},
	}, claim.ObjectMeta)
	assert.Equal(t, "1Gi", claim.Spec.Resources.Requests.Storage().String())
	assert.Equal(t, "other", set.Spec.VolumeClaimTemplates[0].Labels["app"], "the template is only read")
}

func TestIdentity(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-7"}}
	Identity(p, 7, Gates{})
	assert.Equal(t, map[string]string{"statefulset.kubernetes.io/pod-name": "web-7"}, p.Labels)
	Identity(p, 7, Gates{PodIndexLabel: true})
	assert.Equal(t, "7", p.Labels["apps.kubernetes.io/pod-index"])
}

// SPDX-License-Identifier: Apache-2.0

package nodestate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/internal/nodestate"
)

func TestReady(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, LastTransitionTime: at}
	}
	cases := map[string]struct {
		conditions []corev1.NodeCondition
		want       bool
	}{
		"a ready node":                 {[]corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionFalse), condition(corev1.NodeReady, corev1.ConditionTrue)}, true},
		"a node that is not ready":     {[]corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse)}, false},
		"a node that nobody hears of":  {[]corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown)}, false},
		"another condition that holds": {[]corev1.NodeCondition{condition(corev1.NodeDiskPressure, corev1.ConditionTrue)}, false},
		"a node that has just joined":  {nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{Status: corev1.NodeStatus{Conditions: tc.conditions}}
			require.Equal(t, tc.want, nodestate.Ready(n))
			since, ready := nodestate.ReadySince(n)
			require.Equal(t, tc.want, ready)
			if ready {
				require.Equal(t, at.Time, since)
			}
		})
	}
}

func TestIsVirtual(t *testing.T) {
	for kind, want := range map[string]bool{"virtual-kubelet": true, "simulated": false, "": false} {
		require.Equal(t, want, nodestate.IsVirtual(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"type": kind}}}), kind)
	}
	require.False(t, nodestate.IsVirtual(&corev1.Node{}))
}

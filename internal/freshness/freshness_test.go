// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWrites(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	pod := func(uid, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: types.UID(uid), ResourceVersion: version}}
	}
	var w Writes
	wrote := func() { w.Wrote(pod("u1", "100"), now) }
	require.False(t, w.Behind(pod("u1", "1"), now), "nothing was written")
	cases := map[string]struct {
		seen *corev1.Pod
		at   time.Time
		want bool
	}{
		"an older version":                     {pod("u1", "99"), now, true},
		"an older version by number":           {pod("u1", "9"), now, true},
		"our version":                          {pod("u1", "100"), now, false},
		"a newer version":                      {pod("u1", "1000"), now, false},
		"another object":                       {pod("u2", "99"), now, false},
		"a version that cannot be compared":    {pod("u1", "x"), now, false},
		"an older version after half a minute": {pod("u1", "99"), now.Add(31 * time.Second), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wrote()
			require.Equal(t, tc.want, w.Behind(tc.seen, tc.at))
		})
	}
	wrote()
	w.Forget(types.NamespacedName{Namespace: "shop", Name: "web-0"})
	require.False(t, w.Behind(pod("u1", "1"), now))
}

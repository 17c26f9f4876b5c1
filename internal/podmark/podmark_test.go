// SPDX-License-Identifier: Apache-2.0

package podmark_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/internal/freshness"
	"github.com/kruisectl/kruisectl/internal/podmark"
	"github.com/kruisectl/kruisectl/internal/podprobe"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

func labelled(name string) podprobe.Marking {
	return podprobe.Marking{Pod: pod(name), Marks: podprobe.Marks{Labels: map[string]*string{"healthy": new("yes")}}}
}

func conditioned(name string) podprobe.Marking {
	m := labelled(name)
	m.Marks.Conditions = []corev1.PodCondition{{Type: "x.io/a", Status: corev1.ConditionTrue}}
	return m
}

// cluster has the Pods a, b and c, refuses writes to b, and notes where the others go.
func cluster() (client.Client, func() []string) {
	var mu sync.Mutex
	var seen []string
	note := func(path string, obj client.Object) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, path+" "+obj.GetName())
		if obj.GetName() == "b" {
			return errors.New("refused")
		}
		return nil
	}
	c := fake.NewClientBuilder().WithObjects(pod("a"), pod("b"), pod("c")).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			if err := note("pods", obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, p, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if err := note("pods/"+sub, obj); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, p, o...)
		},
	}).Build()
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(seen))
	}
}

func TestEach(t *testing.T) {
	empty := podprobe.Marking{Pod: pod("c")}
	cases := map[string]struct {
		throughStatus bool
		markings      []podprobe.Marking
		writes        []string
		err           string
	}{
		"a label alone goes to the Pod":                  {false, []podprobe.Marking{labelled("a")}, []string{"pods a"}, ""},
		"a label alone goes through the status if asked": {true, []podprobe.Marking{labelled("a")}, []string{"pods/status a"}, ""},
		"a label goes with its condition":                {false, []podprobe.Marking{conditioned("a")}, []string{"pods/status a"}, ""},
		"nothing to write":                               {true, []podprobe.Marking{empty}, nil, ""},
		"one failure does not stop the others":           {false, []podprobe.Marking{labelled("b"), labelled("a"), labelled("c")}, []string{"pods a", "pods b", "pods c"}, "patching Pod shop/b: refused"},
		"a Pod that is gone needs nothing":               {false, []podprobe.Marking{labelled("gone")}, []string{"pods gone"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, writes := cluster()
			w := podmark.Writer{Client: c, Clock: clock.RealClock{}, Marked: &freshness.Writes{}, Limit: 2, ThroughStatus: tc.throughStatus}
			err := w.Each(t.Context(), tc.markings)
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tc.err)
			}
			require.Equal(t, tc.writes, writes())
		})
	}
}

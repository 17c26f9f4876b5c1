// SPDX-License-Identifier: Apache-2.0

package podreadiness

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var t0 = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "KruisePodReady"}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestReconcile(t *testing.T) {
	cases := map[string]struct {
		pod     *corev1.Pod // nil: there is none
		fail    error       // of the write
		writes  int
		want    corev1.ConditionStatus // empty: no condition
		wantErr bool
	}{
		"a Pod with the gate gets the condition, in one write": {pod: pod(), writes: 1, want: "True"},
		"a Pod without the gate is left alone":                 {pod: pod(func(p *corev1.Pod) { p.Spec.ReadinessGates = nil })},
		"a condition that is there is left alone": {
			pod: pod(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: "KruisePodReady", Status: "False"}}
			}), want: "False",
		},
		"a Pod that goes is left alone": {
			pod: pod(func(p *corev1.Pod) { p.Finalizers, p.DeletionTimestamp = []string{"a/b"}, &metav1.Time{Time: t0} }),
		},
		"a Pod that is gone is nothing to do": {},
		"one that goes at the last moment too": {
			pod: pod(), writes: 1, fail: apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web"),
		},
		"nor is another Pod of the name touched": {
			pod: pod(), writes: 1, fail: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", errors.New("the UID differs")),
		},
		"another failure is tried again": {pod: pod(), writes: 1, fail: errors.New("timeout"), wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Pod{})
			if tc.pod != nil {
				b = b.WithObjects(tc.pod)
			}
			writes := 0
			c := b.WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					writes++
					raw, err := patch.Data(obj)
					if err != nil {
						return err
					}
					var sent struct {
						Metadata struct{ UID string }
					}
					if err := json.Unmarshal(raw, &sent); err != nil || sent.Metadata.UID != "u1" || sub != "status" || patch.Type() != types.StrategicMergePatchType {
						t.Errorf("patch of %s with %s: %s, %v", sub, patch.Type(), raw, err)
					}
					if tc.fail != nil {
						return tc.fail
					}
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				},
			}).Build()
			r := &Reconciler{Client: c, Clock: testclock.NewFakePassiveClock(t0)}
			req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
			for range 2 { // the second time there is nothing left to do
				_, err := r.Reconcile(t.Context(), req)
				if (err != nil) != tc.wantErr {
					t.Fatalf("error = %v", err)
				}
				if tc.fail != nil {
					break
				}
			}
			if writes != tc.writes {
				t.Errorf("%d writes, want %d", writes, tc.writes)
			}
			if tc.want == "" {
				return
			}
			got := &corev1.Pod{}
			if err := c.Get(t.Context(), req.NamespacedName, got); err != nil {
				t.Fatal(err)
			}
			want := corev1.PodCondition{Type: "KruisePodReady", Status: tc.want}
			if tc.writes > 0 {
				want.LastTransitionTime = metav1.NewTime(t0)
			}
			if diff := cmp.Diff([]corev1.PodCondition{want}, got.Status.Conditions); diff != "" {
				t.Errorf("conditions differ (-want +got):\n%s", diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// One object that cannot be deleted does not keep the others, and the exit code tells both.
func TestCancelGoesOnAfterAFailure(t *testing.T) {
	cases := map[string]struct {
		objects []client.Object
		command string
	}{
		"image jobs": {
			[]client.Object{imageJob("first", completed(allGood)), imageJob("second", completed(allGood)), imageJob("third", completed(allGood))},
			"image cancel first second third",
		},
		"restart requests": {
			[]client.Object{crr("first", v1beta1.RecreatePending, ""), crr("second", v1beta1.RecreatePending, ""), crr("third", v1beta1.RecreatePending, "")},
			"container cancel first second third",
		},
	}
	for name, tc := range cases {
		for failing, code := range map[string]int{"first": 8, "third": 8, "all": 1} {
			t.Run(name+", failing: "+failing, func(t *testing.T) {
				w := newWorld(t, tc.objects...)
				w.client = interceptor.NewClient(w.client, interceptor.Funcs{
					Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
						if failing == "all" || obj.GetName() == failing {
							return errors.New("refused")
						}
						return c.Delete(ctx, obj, opts...)
					},
				})
				r := w.run(strings.Fields(tc.command)...)
				require.Equal(t, code, r.code, r.String())
				for _, n := range []string{"first", "second", "third"} {
					if failing == "all" || n == failing {
						require.Contains(t, r.err, "shop/"+n+"\n  cause: refused\n")
					} else {
						require.Contains(t, r.out, n+" cancelled")
					}
				}
			})
		}
	}
}

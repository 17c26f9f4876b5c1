// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

func TestCompletionOfJobsAndContainers(t *testing.T) {
	w := newWorld(t, join(newShop(10).objects(), underWay(), listJob(), []client.Object{runningPod(), crr("r", v1beta1.RecreatePending, "")})...)
	cases := map[string][]string{
		"image status ":                            {"pull-web\n", "ilpj/pull-both\n"},
		"image nodes ":                             {"repo/web:2\n"},
		"image pull a:1 --node=":                   {"node-4\n"},
		"image pull a:1 --policy=":                 {"IfNotPresent\n", "Always\n"},
		"image predownload cloneset/":              {"cloneset/web\n"},
		"image predownload x --nodes=":             {"current\n", "eligible\n"},
		"container restart ":                       {"web-a\n"},
		"container restart cloneset/":              {"cloneset/web\n"},
		"container restart p -c ":                  {"a\ta:1\n", "b\tb:1\n"},
		"container restart cloneset/web -c ":       {"app\t"},
		"container wait ":                          {"r\n"},
		"create containerrecreaterequest r --pod=": {"web-j\n"},
		"probe ":                        {"web-a\n"},
		"why containerrecreaterequest/": {"containerrecreaterequest/r\n"},
	}
	for line, want := range cases {
		r := w.runBare(append([]string{"__complete"}, strings.Split(line, " ")...)...)
		for _, word := range want {
			if !strings.Contains(r.out, word) {
				t.Errorf("%q completes without %q to\n%s", line, word, r.out)
			}
		}
	}
}

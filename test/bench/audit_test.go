// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCountWrites(t *testing.T) {
	log := strings.Join([]string{
		`{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"pods","subresource":"status"},"responseStatus":{"code":200}}`,
		`{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"pods"},"responseStatus":{"code":409}}`,
		`{"stage":"ResponseComplete","verb":"create","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"events"},"responseStatus":{"code":201}}`,
		`{"stage":"ResponseComplete","verb":"update","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"clonesets","subresource":"status"},"responseStatus":{"code":422}}`,
		`{"stage":"ResponseComplete","verb":"get","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}`,
		`{"stage":"ResponseComplete","verb":"patch","user":{"username":"kubelet"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}`,
		`{"stage":"RequestReceived","verb":"patch","user":{"username":"system:serviceaccount:kruise-system:kruise-manager"},"objectRef":{"resource":"pods"}}`,
	}, "\n")
	got, err := countWrites(strings.NewReader(log), byManager)
	if err != nil {
		t.Fatal(err)
	}
	want := writes{Succeeded: map[string]int{"patch pods/status": 1, "create events": 1}, Conflicts: 1, Failed: 1, Total: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("countWrites differs (-want +got):\n%s", diff)
	}
}

func TestCountWritesNamesTheBrokenLine(t *testing.T) {
	_, err := countWrites(strings.NewReader("{}\nnot json\n"), byManager)
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v, want one that names line 2", err)
	}
}

func TestParseParallelism(t *testing.T) {
	got, err := parseParallelism("50, 1000")
	if diff := cmp.Diff([]int{50, 1000}, got); err != nil || diff != "" {
		t.Errorf("error %v, differs (-want +got):\n%s", err, diff)
	}
	for _, list := range []string{"", "0", "many", "1,,2"} {
		if _, err := parseParallelism(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
}

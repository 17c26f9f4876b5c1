// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDenialsAreAppendedAndCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	for range 2 { // a restart appends
		r, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Deletion("CloneSet", "shop", "web", "alice"); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(r.workloads.WithLabelValues("CloneSet_shop_web", "alice")); got != 1 {
			t.Errorf("counted %v", got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "protection.log"))
	if err != nil {
		t.Fatal(err)
	}
	line := `{"Event":"DeletionProtection","Kind":"CloneSet","Namespace":"shop","Name":"web","UserAgent":"alice"}` + "\n"
	if string(got) != line+line {
		t.Errorf("log = %q", got)
	}
}

func TestNoRecorderRecordsNothing(t *testing.T) {
	var r *Recorder
	if err := r.Deletion("CloneSet", "shop", "web", "alice"); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenNeedsADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil {
		t.Error("no error")
	}
}

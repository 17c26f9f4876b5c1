// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWriteAtomically(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	write := func(want bool, files map[string][]byte) {
		t.Helper()
		changed, err := writeAtomically(dir, "26_01_02", files)
		if err != nil {
			t.Fatal(err)
		}
		if changed != want {
			t.Errorf("changed = %t, want %t", changed, want)
		}
		for name, content := range files {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(got) != string(content) {
				t.Errorf("%s = %q, %v", name, got, err)
			}
		}
	}
	first := map[string][]byte{"tls.key": []byte("k1"), "tls.crt": []byte("c1")}
	write(true, first)
	write(false, first)
	write(true, map[string][]byte{"tls.key": []byte("k2"), "tls.crt": []byte("c2")})

	info, err := os.Stat(filepath.Join(dir, "tls.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key = %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	dirs := 0
	for _, e := range entries {
		if e.IsDir() {
			dirs++
		}
	}
	if dirs != 1 || len(entries) != 4 { // the files' directory, ..data and two links
		t.Errorf("%d entries with %d directories", len(entries), dirs)
	}
}

func TestRegularFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tls.key", "tls.crt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writeAtomically(dir, "26", map[string][]byte{"tls.key": []byte("old"), "tls.crt": []byte("old")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.key", "tls.crt"} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link: %v, %v", name, info.Mode(), err)
		}
	}
}

// A reader that follows the swapped link never sees files of two writes together.
func TestReadersSeeOneWrite(t *testing.T) {
	dir := t.TempDir()
	generation := func(n byte) map[string][]byte {
		return map[string][]byte{"a": slices.Repeat([]byte{n}, 4096), "b": slices.Repeat([]byte{n}, 4096)}
	}
	if _, err := writeAtomically(dir, "26", generation(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for n := byte(1); n < 100; n++ {
			if _, err := writeAtomically(dir, "26", generation(n)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		data, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := os.ReadFile(filepath.Join(dir, data, "a"))
		b, errB := os.ReadFile(filepath.Join(dir, data, "b"))
		if errA == nil && errB == nil && (len(a) != 4096 || a[0] != b[0]) { // else it has been swept
			t.Fatalf("a is of write %d, b of write %d", a[0], b[0])
		}
	}
}

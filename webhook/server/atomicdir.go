// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	dataLink    = "..data"     // points at the directory of the current files
	dataLinkNew = "..data_tmp" // becomes dataLink by rename
	dataPrefix  = "..20"       // directories of files are named by their time
)

// writeAtomically makes dir hold exactly the given content under the given names, the way
// kubelet fills volumes: the files are links through one link to a directory, and swapping
// that link changes all of them at once. A reader never sees a key without its certificate.
// stamp names the new directory. Regular files with these names are replaced. It reports
// whether anything changed.
func writeAtomically(dir, stamp string, files map[string][]byte) (bool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("making %s: %w", dir, err)
	}
	if upToDate(dir, files) {
		return false, nil
	}
	fresh, err := os.MkdirTemp(dir, dataPrefix+stamp+".")
	if err != nil {
		return false, fmt.Errorf("making a directory in %s: %w", dir, err)
	}
	if err := fill(fresh, files); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	if err := swap(dir, filepath.Base(fresh)); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	for name := range files {
		if err := link(filepath.Join(dir, name), filepath.Join(dataLink, name)); err != nil {
			return true, err
		}
	}
	return true, sweep(dir, filepath.Base(fresh))
}

// upToDate reports whether dir holds files, and holds them as links.
func upToDate(dir string, files map[string][]byte) bool {
	for name, want := range files {
		path := filepath.Join(dir, name)
		if target, err := os.Readlink(path); err != nil || target != filepath.Join(dataLink, name) {
			return false
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// fill writes files into dir; keys can be read by their owner alone.
func fill(dir string, files map[string][]byte) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("opening %s to readers: %w", dir, err)
	}
	for name, data := range files {
		mode := fs.FileMode(0o644)
		if strings.Contains(name, "key") {
			mode = 0o600
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, mode); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// swap points dataLink of dir at target.
func swap(dir, target string) error {
	tmp := filepath.Join(dir, dataLinkNew)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", tmp, err)
	}
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("linking %s: %w", tmp, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, dataLink)); err != nil {
		return fmt.Errorf("swapping the files of %s: %w", dir, err)
	}
	return nil
}

// link makes path a link to target. What lies there before, such as a regular file of an
// earlier release, is removed.
func link(path, target string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("linking %s: %w", path, err)
	}
	return nil
}

// sweep removes the directories of earlier writes.
func sweep(dir, current string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), dataPrefix) && e.Name() != current {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				errs = append(errs, fmt.Errorf("removing old certificates: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

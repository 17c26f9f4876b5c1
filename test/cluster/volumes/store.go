// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// errNoVolume says that there is no volume of an id.
var errNoVolume = errors.New("no such volume")

// volume is the record of one volume.
type volume struct {
	ID       string `json:"id"`
	Name     string `json:"name"`     // what the provisioner calls it
	Node     string `json:"node"`     // where it is
	Capacity int64  `json:"capacity"` // bytes; nothing enforces it
}

// store keeps volumes below a directory of the machine: the record of each in records, its files in files/NODE. Only the
// controller writes; nodes read at the same time. Methods that write are not safe for concurrent use.
type store struct{ dir string }

func (s store) record(id string) string      { return filepath.Join(s.dir, "records", id+".json") }
func (s store) files(node, id string) string { return filepath.Join(s.dir, "files", node, id) }

// plainName is a name that is its own id.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$`)

// idOf is the id of the volume of a name: the same name always has the same id, which is a safe file name.
func idOf(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "volume-" + hex.EncodeToString(sum[:16])
}

// get returns the volume of an id, errNoVolume if there is none.
func (s store) get(id string) (volume, error) {
	if !plainName.MatchString(id) { // not one of ours, and perhaps a path to elsewhere
		return volume{}, fmt.Errorf("volume %q: %w", id, errNoVolume)
	}
	data, err := os.ReadFile(s.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return volume{}, fmt.Errorf("volume %s: %w", id, errNoVolume)
	}
	if err != nil {
		return volume{}, fmt.Errorf("reading volume %s: %w", id, err)
	}
	var v volume
	if err := json.Unmarshal(data, &v); err != nil {
		return volume{}, fmt.Errorf("reading volume %s: %w", id, err)
	}
	return v, nil
}

// put makes the files of a volume if they are missing and writes its record, so that a reader sees the old or the new one.
func (s store) put(v volume) error {
	files := s.files(v.Node, v.ID)
	if err := os.MkdirAll(files, 0o777); err != nil {
		return fmt.Errorf("creating volume %s: %w", v.ID, err)
	}
	// Containers of any user may write; the mask of this process does not count.
	if err := os.Chmod(files, 0o777); err != nil {
		return fmt.Errorf("creating volume %s: %w", v.ID, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("recording volume %s: %w", v.ID, err)
	}
	path := s.record(v.ID)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("recording volume %s: %w", v.ID, err)
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return fmt.Errorf("recording volume %s: %w", v.ID, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("recording volume %s: %w", v.ID, err)
	}
	return nil
}

// remove deletes a volume with its files. It is no error if there is none.
func (s store) remove(id string) error {
	v, err := s.get(id)
	if errors.Is(err, errNoVolume) {
		return nil
	}
	if err != nil {
		return err
	}
	// The record goes last: until then the deletion can be tried again.
	if err := os.RemoveAll(s.files(v.Node, v.ID)); err != nil {
		return fmt.Errorf("removing the files of volume %s: %w", id, err)
	}
	if err := os.Remove(s.record(id)); err != nil {
		return fmt.Errorf("removing the record of volume %s: %w", id, err)
	}
	return nil
}

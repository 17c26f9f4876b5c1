// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

// DefaultName is the name of the cluster when nobody gives one.
const DefaultName = "default"

// maxNodes is bound by the addresses of the bridge; the machine gives out long before.
const maxNodes = 50

// Shape is what makes two clusters interchangeable.
type Shape struct {
	Nodes     int    `json:"nodes"`     // real nodes
	Simulated int    `json:"simulated"` // simulated nodes
	Rootless  bool   `json:"rootless"`  // everything on 127.0.0.1, no real nodes
	Audit     bool   `json:"audit"`     // whether the API server writes an audit log
	Volumes   bool   `json:"volumes"`   // whether claims get volumes
	Programs  string `json:"programs"`  // versions of the programs

	VolumePrograms string `json:"volumePrograms,omitempty"` // versions of the programs that make volumes
}

// String describes the shape for people.
func (s Shape) String() string {
	text := fmt.Sprintf("%d real and %d simulated nodes", s.Nodes, s.Simulated)
	if s.Rootless {
		text += ", rootless"
	}
	if s.Audit {
		text += ", with audit log"
	}
	if s.Volumes {
		text += ", with volumes"
	}
	return text
}

// programs are the versions of everything that a cluster of this shape runs.
func (s Shape) programs() string { return strings.TrimSpace(s.Programs + " " + s.VolumePrograms) }

// serves says whether a cluster of this shape does for one of the shape wanted: an audit log or volumes more do no harm.
func (s Shape) serves(wanted Shape) bool {
	s.Audit = s.Audit && wanted.Audit
	if s.Volumes && !wanted.Volumes {
		s.Volumes, s.VolumePrograms = false, ""
	}
	return s == wanted
}

// Options say which cluster Up is to start.
type Options struct {
	Name      string // DefaultName if empty
	Nodes     int    // real nodes; they need root
	Simulated int    // simulated nodes
	Rootless  bool   // bind to 127.0.0.1 only and need no root; excludes real nodes
	Audit     bool   // write an audit log of all requests (Metadata level)
	NoVolumes bool   // leave out what makes volumes for claims; a cluster with simulated nodes never has them
	// Program is the cluster program, which plays the registry, the simulated nodes and the supervisor.
	// Empty means the calling program, which then must be the cluster program.
	Program  string
	Progress toolchain.Progress // nil for none
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// shape is the shape that the options ask for, or what is wrong with them.
func (o *Options) shape() (Shape, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	switch {
	case !validName.MatchString(o.Name):
		return Shape{}, fmt.Errorf("the name %q must be lower case letters, digits and dashes, at most 40", o.Name)
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return Shape{}, fmt.Errorf("nodes: %d is not between 0 and %d", o.Nodes, maxNodes)
	case o.Simulated < 0:
		return Shape{}, fmt.Errorf("simulated: %d must be 0 or more", o.Simulated)
	case o.Rootless && o.Nodes > 0:
		return Shape{}, fmt.Errorf("a rootless cluster has no real nodes, but %d are asked for", o.Nodes)
	case o.Nodes > 0 && os.Geteuid() != 0:
		return Shape{}, fmt.Errorf("%d real nodes need root; without it use --rootless-simulated", o.Nodes)
	}
	shape := Shape{
		Nodes: o.Nodes, Simulated: o.Simulated, Rootless: o.Rootless || o.Nodes == 0, Audit: o.Audit,
		Volumes: o.Nodes > 0 && o.Simulated == 0 && !o.NoVolumes, Programs: toolchain.Core().Key(),
	}
	if shape.Volumes {
		shape.VolumePrograms = toolchain.Volumes().Key()
	}
	return shape, nil
}

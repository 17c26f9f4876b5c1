// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// ServerVersions are the versions of what runs; empty for what does not.
type ServerVersions struct {
	Kubernetes string `json:"kubernetes"`
	// Installed is the version of the manifests in the inventory.
	Installed string `json:"installed"`
	// Manager and Daemon are the tags of their images.
	Manager string `json:"manager"`
	Daemon  string `json:"daemon"`
	CRDs    string `json:"crds"`
}

// Versions reads them. Only a server that does not answer is an error.
func (c *Cluster) Versions(ctx context.Context, namespace string) (ServerVersions, error) {
	info, err := c.Version.ServerVersion()
	if err != nil {
		return ServerVersions{}, err
	}
	v := ServerVersions{Kubernetes: info.GitVersion}
	e, err := c.Detect(ctx, namespace)
	if err != nil {
		return v, nil //nolint:nilerr // without permission the rest stays unknown
	}
	if e.Inventory != nil {
		v.Installed = e.Inventory.Version
	}
	if e.Manager != nil {
		v.Manager = versionOf(containerImage(e.Manager))
	}
	if e.Daemon != nil {
		v.Daemon = versionOf(containerImage(e.Daemon))
	}
	if crds, err := c.kruiseCRDs(ctx); err == nil && len(crds) > 0 {
		v.CRDs = crds[0].GetLabels()["app.kubernetes.io/version"]
	}
	return v, nil
}

// Skew lists what does not fit together, seen from a tool with manifests of version tool.
func (v ServerVersions) Skew(tool string) []string {
	var warnings []string
	if f := judgeVersion(v.Kubernetes); f.state != CheckOK {
		warnings = append(warnings, f.message)
	}
	if v.Manager != "" && v.Daemon != "" && v.Manager != v.Daemon {
		warnings = append(warnings, fmt.Sprintf("manager %s and daemon %s are of different versions", v.Manager, v.Daemon))
	}
	if v.Installed != "" && newer(v.Installed, tool) {
		warnings = append(warnings, fmt.Sprintf("version %s is installed, newer than this tool (%s): fields that it does not know are not shown", v.Installed, tool))
	}
	return warnings
}

// VersionSkew is the way from one version to another.
type VersionSkew struct {
	// Downgrade: the target is older.
	Downgrade bool
	// SkippedMinors are minor versions in between.
	SkippedMinors int
}

// CompareVersions judges going from one version to another. Versions that cannot be read,
// such as those of development builds, are no skew.
func CompareVersions(from, to string) VersionSkew {
	a, errA := version.ParseGeneric(from)
	b, errB := version.ParseGeneric(to)
	if errA != nil || errB != nil {
		return VersionSkew{}
	}
	s := VersionSkew{Downgrade: b.LessThan(a)}
	if a.Major() == b.Major() && b.Minor() > a.Minor()+1 {
		s.SkippedMinors = int(b.Minor() - a.Minor() - 1)
	}
	return s
}

// Rebase returns the values of an installation of version old for a rendering by this
// version: an image tag that followed the version follows it again, one that somebody
// chose stays.
func Rebase(v Values, old string) Values {
	if v.Manager.Image.Tag == old && v.Manager.Image.Digest == "" {
		v.Manager.Image.Tag = ManifestsVersion()
	}
	return v
}

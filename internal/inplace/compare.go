// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// Comparison is the answer of Compare: either an update in place or the reasons against
// it, never both and never none.
type Comparison struct {
	// InPlace is what to change; nil if the Pod has to be recreated.
	InPlace *UpdateSpec
	// Recreate has every reason, in the order of the fields.
	Recreate []Reason
}

// Compare tells whether a Pod at revision old can be brought to revision new without
// deleting it (inplace-update.md 4 and 8). A nil revision, such as one that the history
// no longer has, cannot be compared. Container names and indexes are those of the
// template, not of a Pod, which may have injected containers in front.
func Compare(old, new *appsv1.ControllerRevision, o Options) Comparison {
	if old == nil || new == nil {
		which := "the revision the Pod is at"
		if new == nil {
			which = "the revision to update to"
		}
		return recreate(reason(MissingRevision, "", "%s is no longer stored, so the difference is not known", which))
	}
	from, err := decode(old)
	if err != nil {
		return recreate(reason(UnreadableRevision, "", "%v", err))
	}
	to, err := decode(new)
	if err != nil {
		return recreate(reason(UnreadableRevision, "", "%v", err))
	}

	c := &comparer{o: o, from: from, to: to, spec: &UpdateSpec{Revision: o.revisionKey(new), GraceSeconds: o.GracePeriodSeconds}}
	c.volumeClaimTemplates(old, new)
	c.template()
	c.qosClass()
	if len(c.reasons) > 0 {
		return Comparison{Recreate: c.reasons}
	}
	if err := c.metadata(); err != nil {
		return recreate(reason(UnreadableRevision, "spec.template.metadata", "%v", err))
	}
	return Comparison{InPlace: c.spec}
}

func recreate(r Reason) Comparison { return Comparison{Recreate: []Reason{r}} }

// comparer collects the outcome of one comparison.
type comparer struct {
	o        Options
	from, to document
	spec     *UpdateSpec
	reasons  []Reason
}

func (c *comparer) forbid(code, path, format string, args ...any) {
	c.reasons = append(c.reasons, reason(code, path, format, args...))
}

// volumeClaimTemplates compares the hashes on the revisions. A revision without the
// annotation is from before an upgrade and counts as equal.
func (c *comparer) volumeClaimTemplates(old, new *appsv1.ControllerRevision) {
	if !c.o.RecreateOnVolumeClaimTemplateChange || c.o.IgnoreVolumeClaimTemplates {
		return
	}
	a, inOld := old.Annotations[v1beta1.VolumeClaimTemplateHashAnnotation]
	b, inNew := new.Annotations[v1beta1.VolumeClaimTemplateHashAnnotation]
	if inOld && inNew && a != b {
		c.forbid(VolumeClaimTemplatesChanged, "spec.volumeClaimTemplates", "changed, and existing PVCs cannot follow; only a new Pod gets new ones")
	}
}

// template judges every change of the data but those of the metadata.
func (c *comparer) template() {
	sameContainers := c.sameNames()
	for _, ch := range diff(c.from.tree, c.to.tree) {
		if len(ch.path) < 3 || ch.path[0] != "spec" || ch.path[1] != "template" {
			c.forbid(OutsideTemplate, c.from.fieldPath(ch.path), "is outside of the Pod template")
			continue
		}
		switch path := ch.path[2:]; {
		case path[0] == "metadata":
		case path[0] != "spec":
			c.forbid(OutsideTemplate, c.from.fieldPath(ch.path), "is neither metadata nor spec of the Pod template")
		case len(path) > 1 && path[1] == "containers":
			if sameContainers { // else sameNames has said it all
				c.container(ch)
			}
		case len(path) > 1 && path[1] == "initContainers":
			c.forbid(InitContainersChanged, c.from.fieldPath(ch.path), "%s; init containers do not change in place", ch.verb())
		default:
			c.forbid(FieldNotUpdatable, c.from.fieldPath(ch.path), "%s; only images, labels, annotations and resources change in place", ch.verb())
		}
	}
}

// sameNames compares the containers' names in order. If they differ an index of the old
// template means another container in the new one, and nothing else can be said.
func (c *comparer) sameNames() bool {
	old, new := names(c.from.template), names(c.to.template)
	if slices.Equal(old, new) {
		return true
	}
	const path = "spec.template.spec.containers"
	before := len(c.reasons)
	for _, name := range old {
		if !slices.Contains(new, name) {
			c.forbid(ContainersChanged, path+"["+name+"]", "removed; a running Pod keeps its containers")
		}
	}
	for _, name := range new {
		if !slices.Contains(old, name) {
			c.forbid(ContainersChanged, path+"["+name+"]", "added; a running Pod gets no new containers")
		}
	}
	if len(c.reasons) == before {
		c.forbid(ContainersChanged, path, "the order changed from %s to %s", strings.Join(old, ", "), strings.Join(new, ", "))
	}
	return false
}

func names(t *corev1.PodTemplateSpec) []string {
	var list []string
	for i := range t.Spec.Containers {
		list = append(list, t.Spec.Containers[i].Name)
	}
	return list
}

// container judges a change below spec.template.spec.containers.
func (c *comparer) container(ch change) {
	path := c.from.fieldPath(ch.path)
	tail := ch.path[4:] // after spec, template, spec, containers
	index := -1
	if len(tail) > 0 {
		if i, err := strconv.Atoi(tail[0]); err == nil && i < len(c.from.template.Spec.Containers) {
			index = i
		}
	}
	if index < 0 || len(tail) < 2 {
		c.forbid(FieldNotUpdatable, path, "%s", ch.verb())
		return
	}
	name := c.from.template.Spec.Containers[index].Name
	switch image, isText := ch.new.(string); {
	case len(tail) == 2 && tail[1] == "image" && ch.op == opReplace && isText:
		if c.spec.ContainerImages == nil {
			c.spec.ContainerImages = map[string]string{}
		}
		c.spec.ContainerImages[name] = image
	case tail[1] == "resources":
		c.resource(ch, path, name, tail[2:])
	default:
		c.forbid(FieldNotUpdatable, path, "%s; of a container only the image and resources change in place", ch.verb())
	}
}

// verb is what happened to the field.
func (ch change) verb() string {
	switch ch.op {
	case opAdd:
		return "added"
	case opRemove:
		return "removed"
	default:
		return "changed"
	}
}

// metadata splits the changed labels and annotations: what containers read in their
// environment goes to them, the rest into the metadata patch.
func (c *comparer) metadata() error {
	old, new := metadataOf(c.from.template), metadataOf(c.to.template)
	if c.o.EnvFromMetadata {
		c.refMetadata(&old, &new)
	}
	patch, err := old.patchTo(new)
	if err != nil {
		return err
	}
	c.spec.MetaDataPatch = patch
	return nil
}

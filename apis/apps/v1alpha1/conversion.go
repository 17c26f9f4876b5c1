// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

// The functions below have the shape that conversion.NewSpokeConverter of controller-runtime
// asks for; ToHub and FromHub do the same without a context. None of them fails, because an object that does not convert can be neither read
// nor mended; none shares memory between its arguments; none touches the TypeMeta of dst.

// ToHub returns the hub version of the object, without TypeMeta.
func (src *CloneSet) ToHub() *v1beta1.CloneSet {
	dst := &v1beta1.CloneSet{}
	src.intoHub(dst)
	return dst
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *ImagePullJob) ToHub() *v1beta1.ImagePullJob {
	dst := &v1beta1.ImagePullJob{}
	src.intoHub(dst)
	return dst
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *NodeImage) ToHub() *v1beta1.NodeImage {
	dst := &v1beta1.NodeImage{}
	src.intoHub(dst)
	return dst
}

// ImagePullJobToHub converts src to the hub version. The versions do not differ.
func ImagePullJobToHub(_ context.Context, src *ImagePullJob, dst *v1beta1.ImagePullJob) error {
	src.intoHub(dst)
	return nil
}

func (src *ImagePullJob) intoHub(dst *v1beta1.ImagePullJob) {
	in := src.DeepCopy()
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// ImagePullJobFromHub converts src from the hub version. The versions do not differ.
func ImagePullJobFromHub(_ context.Context, src *v1beta1.ImagePullJob, dst *ImagePullJob) error {
	dst.FromHub(src)
	return nil
}

// FromHub is ImagePullJobFromHub for callers that have no context.
func (dst *ImagePullJob) FromHub(src *v1beta1.ImagePullJob) {
	in := src.DeepCopy()
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// ToHub returns the hub version of the object, without TypeMeta.
func (src *ImageListPullJob) ToHub() *v1beta1.ImageListPullJob {
	dst := &v1beta1.ImageListPullJob{}
	src.intoHub(dst)
	return dst
}

// ImageListPullJobToHub converts src to the hub version. The versions do not differ.
func ImageListPullJobToHub(_ context.Context, src *ImageListPullJob, dst *v1beta1.ImageListPullJob) error {
	src.intoHub(dst)
	return nil
}

func (src *ImageListPullJob) intoHub(dst *v1beta1.ImageListPullJob) {
	in := src.DeepCopy()
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// ImageListPullJobFromHub converts src from the hub version. The versions do not differ.
func ImageListPullJobFromHub(_ context.Context, src *v1beta1.ImageListPullJob, dst *ImageListPullJob) error {
	dst.FromHub(src)
	return nil
}

// FromHub is ImageListPullJobFromHub for callers that have no context.
func (dst *ImageListPullJob) FromHub(src *v1beta1.ImageListPullJob) {
	in := src.DeepCopy()
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// nodeImageHubFields is the value of v1beta1.V1beta1FieldsAnnotation on a NodeImage.
type nodeImageHubFields struct {
	// PullSecretModes holds, by image and by namespace/name of the Secret, the modes that
	// all references of that image to that Secret have in common.
	PullSecretModes map[string]map[string]string `json:"pullSecretModes,omitempty"`
}

// NodeImageToHub converts src to the hub version. A pull secret without mode gets the one
// that the annotation remembers: clients that know the original v1alpha1 type drop the field.
func NodeImageToHub(_ context.Context, src *NodeImage, dst *v1beta1.NodeImage) error {
	src.intoHub(dst)
	return nil
}

func (src *NodeImage) intoHub(dst *v1beta1.NodeImage) {
	in := src.DeepCopy()
	var kept nodeImageHubFields
	takeAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, &kept)
	for name, image := range in.Spec.Images {
		for i, ref := range image.PullSecrets {
			if ref.Mode == "" {
				image.PullSecrets[i].Mode = kept.PullSecretModes[name][ref.Namespace+"/"+ref.Name]
			}
		}
	}
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// NodeImageFromHub converts src from the hub version and remembers the modes of its pull
// secrets in v1beta1.V1beta1FieldsAnnotation (images.md 0, "Served versions").
func NodeImageFromHub(_ context.Context, src *v1beta1.NodeImage, dst *NodeImage) error {
	dst.FromHub(src)
	return nil
}

// FromHub is NodeImageFromHub for callers that have no context.
func (dst *NodeImage) FromHub(src *v1beta1.NodeImage) {
	in := src.DeepCopy()
	delete(in.Annotations, v1beta1.V1beta1FieldsAnnotation)
	var kept nodeImageHubFields
	for name, image := range in.Spec.Images {
		if modes := commonModes(image.PullSecrets); len(modes) > 0 {
			if kept.PullSecretModes == nil {
				kept.PullSecretModes = map[string]map[string]string{}
			}
			kept.PullSecretModes[name] = modes
		}
	}
	putAnnotation(&in.ObjectMeta, v1beta1.V1beta1FieldsAnnotation, kept)
	dst.ObjectMeta, dst.Spec, dst.Status = in.ObjectMeta, in.Spec, in.Status
}

// commonModes maps namespace/name to the mode that all references to that Secret have,
// leaving out empty modes and Secrets whose references disagree.
func commonModes(refs []v1beta1.ReferenceObject) map[string]string {
	modes := map[string]string{}
	for _, ref := range refs {
		key := ref.Namespace + "/" + ref.Name
		if seen, ok := modes[key]; ok && seen != ref.Mode {
			modes[key] = ""
			continue
		}
		modes[key] = ref.Mode
	}
	for key, mode := range modes {
		if mode == "" {
			delete(modes, key)
		}
	}
	return modes
}

// takeAnnotation removes the annotation from m and decodes it into v, a pointer to a zero
// struct. A value that is absent or unreadable leaves v as it is: users can write anything.
func takeAnnotation[T any](m *metav1.ObjectMeta, key string, v *T) {
	text, ok := m.Annotations[key]
	if !ok {
		return
	}
	setOrDelete(&m.Annotations, key, nil)
	var read T
	if json.Unmarshal([]byte(text), &read) == nil {
		*v = read
	}
}

// putAnnotation writes v as JSON, or removes the annotation when v is the zero value.
func putAnnotation[T any](m *metav1.ObjectMeta, key string, v T) {
	if reflect.ValueOf(v).IsZero() {
		setOrDelete(&m.Annotations, key, nil)
		return
	}
	text, err := json.Marshal(v)
	if err != nil { // only strings, numbers, maps and API types go in
		return
	}
	setOrDelete(&m.Annotations, key, new(string(text)))
}

// setOrDelete sets the key, or removes it when value is nil; a map that becomes empty becomes nil.
func setOrDelete(m *map[string]string, key string, value *string) {
	if value == nil {
		delete(*m, key)
		if len(*m) == 0 {
			*m = nil
		}
		return
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = *value
}

// lookup is the inverse of setOrDelete: nil when the key is absent.
func lookup(m map[string]string, key string) *string {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

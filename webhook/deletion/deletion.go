// SPDX-License-Identifier: Apache-2.0

// Package deletion keeps labelled built-in objects from being deleted by mistake: always, or
// while they still own something (deletion-protection.md). Workloads of our own API have the
// same rule in their own packages.
//
// A decision is made from the object in the request; what a Namespace or a
// CustomResourceDefinition still owns is counted live, so that it is true at that moment.
package deletion

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/protection"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Values of the label. Any other protects nothing.
const (
	always    = "Always"
	cascading = "Cascading"
)

// Counter counts, live, what an object still owns.
type Counter interface {
	// ActivePods is the number of Pods in a namespace that neither end nor have ended.
	ActivePods(ctx context.Context, namespace string) (int, error)
	// BoundClaims is the number of bound PersistentVolumeClaims in a namespace that are not
	// being deleted.
	BoundClaims(ctx context.Context, namespace string) (int, error)
	// CustomResources is at least the number of objects of a kind that are not being
	// deleted, or 1 when there are any.
	CustomResources(ctx context.Context, crd CRD) (int, error)
}

// Options are what the handlers need.
type Options struct {
	Features *features.Set
	Counter  Counter
	Denials  *protection.Recorder // nil records nothing
}

// Register serves the paths of platform.md 3.5. Those of Services and Ingresses exist only
// while the feature is on; the others allow everything while it is off.
func Register(hs admit.Handlers, o Options) {
	hs.Add(o.handler("Deployment", replicas), "/validate-apps-deployment")
	hs.Add(o.handler("ReplicaSet", replicas), "/validate-apps-replicaset")
	hs.Add(o.handler("StatefulSet", replicas), "/validate-apps-statefulset")
	hs.Add(o.handler("Namespace", o.namespace), "/validate-namespace")
	hs.Add(o.handler("CustomResourceDefinition", o.definition), "/validate-customresourcedefinition")
	if o.Features.Enabled(features.ResourcesDeletionProtection) {
		hs.Add(o.handler("Service", nil), "/validate-service")
		hs.Add(o.handler("Ingress", nil), "/validate-ingress")
	}
}

// object is what the rules read of any kind.
type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
}

// cascade returns why obj must not go while it owns something: the text behind the label,
// or a whole message of its own when full is set. An empty text lets it go.
type cascade func(ctx context.Context, obj object) (text string, full bool)

func (o Options) handler(kind string, owned cascade) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if req.Operation != admissionv1.Delete || req.SubResource != "" || len(req.OldObject.Raw) == 0 || !o.Features.Enabled(features.ResourcesDeletionProtection) {
			return admission.Allowed("")
		}
		var obj object
		if err := json.Unmarshal(req.OldObject.Raw, &obj); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the %s: %w", kind, err))
		}
		denial := message(ctx, obj, owned)
		if denial == "" {
			return admission.Allowed("")
		}
		if err := o.Denials.Deletion(kind, obj.Metadata.Namespace, obj.Metadata.Name, req.UserInfo.Username); err != nil {
			log.FromContext(ctx).Error(err, "A denied deletion is missing in the protection log")
		}
		return admission.Denied(denial)
	})
}

// message is why obj must not be deleted, empty when it may.
func message(ctx context.Context, obj object, owned cascade) string {
	value := obj.Metadata.Labels[v1beta1.DeleteProtectionLabel]
	if obj.Metadata.DeletionTimestamp != nil {
		return ""
	}
	text := "forbidden by ResourcesProtectionDeletion for " + v1beta1.DeleteProtectionLabel + "=" + value
	switch {
	case value == always:
		return text
	case value == cascading && owned != nil:
		switch suffix, full := owned(ctx, obj); {
		case full:
			return suffix
		case suffix != "":
			return text + " " + suffix
		}
	}
	return ""
}

// replicas is the rule of workloads: those that want Pods stay.
func replicas(_ context.Context, obj object) (string, bool) {
	var spec struct {
		Replicas *int32 `json:"replicas"`
	}
	if err := json.Unmarshal(obj.Spec, &spec); err != nil || spec.Replicas == nil || *spec.Replicas <= 0 {
		return "", false
	}
	return fmt.Sprintf("and replicas %d>0", *spec.Replicas), false
}

// namespace looks at Pods first, then at claims. A count that fails denies.
func (o Options) namespace(ctx context.Context, obj object) (string, bool) {
	n, err := o.Counter.ActivePods(ctx, obj.Metadata.Name)
	switch {
	case err != nil:
		return fmt.Sprintf("for list pods error: %v", err), false
	case n > 0:
		return fmt.Sprintf("and active pods %d>0", n), false
	}
	n, err = o.Counter.BoundClaims(ctx, obj.Metadata.Name)
	switch {
	case err != nil:
		return fmt.Sprintf("for list pvc error: %v", err), false
	case n > 0:
		return fmt.Sprintf(`and "Bound" status pvc %d>0`, n), false
	}
	return "", false
}

// definition keeps a CRD while there are custom resources, if its own gate is on.
func (o Options) definition(ctx context.Context, obj object) (string, bool) {
	if !o.Features.Enabled(features.DeletionProtectionForCRDCascadingGate) {
		return fmt.Sprintf("feature-gate %s is not enabled", features.DeletionProtectionForCRDCascadingGate), true
	}
	crd, err := parseCRD(obj.Spec)
	if err != nil {
		return fmt.Sprintf("failed to list CRs of %s: %v", obj.Metadata.Name, err), true
	}
	n, err := o.Counter.CustomResources(ctx, crd)
	switch {
	case err != nil:
		return fmt.Sprintf("failed to list CRs of %s: %v", obj.Metadata.Name, err), true
	case n > 0:
		return fmt.Sprintf("and active CRs %d>0", n), false
	}
	return "", false
}

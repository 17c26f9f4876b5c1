// SPDX-License-Identifier: Apache-2.0

// Package containerrecreaterequest registers admission and conversion of
// ContainerRecreateRequests. One mutating webhook validates a request and fills it in with what
// its Pod says (container-recreate.md 3); the rules are in internal/valid. It only reads, so that
// a dry run needs no care.
package containerrecreaterequest

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/recreatelabel"
	"github.com/kruisectl/kruisectl/internal/valid"
	"github.com/kruisectl/kruisectl/webhook/admit"
)

// Options are what admission of ContainerRecreateRequests needs.
type Options struct {
	Features *features.Set
	// Live reads the Pod: which run of a container is meant must not be a matter of a cache.
	Live client.Reader
	// Cached reads Nodes, of which nothing that matters changes, and other requests for the Pod,
	// to warn of those that this one has to wait for.
	Cached client.Reader
}

// Register serves admission of ContainerRecreateRequests under the paths that platform.md 3.5
// fixes.
func Register(hs admit.Handlers, o Options) {
	rules := admit.Rules[*v1beta1.ContainerRecreateRequest]{
		Kind: v1beta1.GroupVersion.WithKind("ContainerRecreateRequest"),
		Versions: []admit.Version[*v1beta1.ContainerRecreateRequest]{
			admit.TwoWay[*v1beta1.ContainerRecreateRequest, *v1beta1.ContainerRecreateRequest]("v1beta1", nil, nil),
			admit.TwoWay("v1alpha1", v1alpha1.ContainerRecreateRequestToHub, v1alpha1.ContainerRecreateRequestFromHub),
		},
		Gates:    []features.Gate{features.KruiseDaemon},
		Features: o.Features,
		Code:     http.StatusBadRequest,
	}
	hs.Add(rules.Resolver(o.resolve), "/mutate-apps-kruise-io-containerrecreaterequest", "/mutate-apps-kruise-io-v1alpha1-containerrecreaterequest")
}

// Converter converts ContainerRecreateRequests of all versions for /convert.
func Converter() (*v1beta1.ContainerRecreateRequest, conversion.SpokeConverter[*v1beta1.ContainerRecreateRequest]) {
	return &v1beta1.ContainerRecreateRequest{}, conversion.NewSpokeConverter(&v1alpha1.ContainerRecreateRequest{},
		v1alpha1.ContainerRecreateRequestFromHub, v1alpha1.ContainerRecreateRequestToHub)
}

type request = admit.Request[*v1beta1.ContainerRecreateRequest]

func (o Options) resolve(ctx context.Context, r request) ([]string, field.ErrorList, error) {
	if r.Old != nil {
		return nil, nil, update(r)
	}
	crr := r.New
	if errs := valid.ContainerRecreateRequest(crr, valid.Options{V1alpha1: r.Version == "v1alpha1"}); len(errs) > 0 {
		return nil, errs, nil
	}
	pod, node, err := o.target(ctx, crr)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	if errs := valid.ContainerRecreateRequestTarget(crr, pod, node); len(errs) > 0 {
		return nil, errs, nil
	}
	fill(crr, pod, node)
	return append(valid.ContainerRecreateRequestWarnings(crr, pod), o.queue(ctx, crr)...), nil, nil
}

// queue warns of requests for the same Pod that are not done: the agent takes one after the other.
func (o Options) queue(ctx context.Context, crr *v1beta1.ContainerRecreateRequest) []string {
	list := &v1beta1.ContainerRecreateRequestList{}
	same := client.MatchingLabels{v1beta1.RecreatePodUIDLabel: crr.Labels[v1beta1.RecreatePodUIDLabel], v1beta1.RecreateActiveLabel: "true"}
	if err := o.Cached.List(ctx, list, client.InNamespace(crr.Namespace), same); err != nil {
		log.FromContext(ctx).Error(err, "Other ContainerRecreateRequests are not looked at", "pod", crr.Spec.PodName)
		return nil
	}
	return valid.ContainerRecreateRequestQueue(crr, list.Items)
}

// update lets nothing of the request change. The annotation of v1alpha1 is a part of the status,
// and a client of that version would write it there.
func update(r request) error {
	valid.KeepRecreateFields(r.Old, r.New)
	if err := valid.ContainerRecreateRequestUpdate(r.Old, r.New); err != nil {
		return admit.Deny("%s", err.Error())
	}
	const key = v1beta1.RecreateUnreadyAcquiredAnnotation
	if r.Version == "v1alpha1" {
		if was := r.OldWritten.GetAnnotations()[key]; was != "" && was != r.Written.GetAnnotations()[key] {
			return admit.Deny("not allowed to update immutable annotation %s", key)
		}
		keepStatus(r.Old, r.New)
	}
	return nil
}

// keepStatus gives back what v1alpha1 has of the status in annotations: a client that replaces
// the request without them would otherwise wipe it out.
func keepStatus(old, crr *v1beta1.ContainerRecreateRequest) {
	was := old.DeepCopy().Status
	if len(crr.Status.ContainerStatusSnapshot) == 0 {
		crr.Status.ContainerStatusSnapshot = was.ContainerStatusSnapshot
	}
	for _, c := range was.Conditions {
		if meta.FindStatusCondition(crr.Status.Conditions, c.Type) == nil {
			crr.Status.Conditions = append(crr.Status.Conditions, c)
		}
	}
}

// target reads the Pod of the request and its Node; either is nil when there is none.
func (o Options) target(ctx context.Context, crr *v1beta1.ContainerRecreateRequest) (*corev1.Pod, *corev1.Node, error) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	switch err := o.Live.Get(ctx, types.NamespacedName{Namespace: crr.Namespace, Name: crr.Spec.PodName}, pod); {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("getting Pod %s: %w", crr.Spec.PodName, err)
	case pod.Spec.NodeName == "":
		return pod, nil, nil
	}
	err := o.Cached.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	if apierrors.IsNotFound(err) { // it may be younger than a cache
		err = o.Live.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	}
	switch {
	case apierrors.IsNotFound(err):
		return pod, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("getting Node %s: %w", pod.Spec.NodeName, err)
	}
	return pod, node, nil
}

// fill writes into a valid request what manager and node agent need to know of its Pod.
func fill(crr *v1beta1.ContainerRecreateRequest, pod *corev1.Pod, node *corev1.Node) {
	v1beta1.SetDefaultsContainerRecreateRequest(crr)
	if s := crr.Spec.Strategy; s.TerminationGracePeriodSeconds == nil && pod.Spec.TerminationGracePeriodSeconds != nil {
		s.TerminationGracePeriodSeconds = new(*pod.Spec.TerminationGracePeriodSeconds)
	}
	for i := range crr.Spec.Containers {
		if c, ok := valid.RecreatedContainer(pod, crr.Spec.Containers[i].Name); ok {
			crr.Spec.Containers[i] = c
		}
	}
	put(&crr.Labels, v1beta1.RecreateActiveLabel, "true")
	put(&crr.Labels, v1beta1.RecreatePodUIDLabel, string(pod.UID))
	put(&crr.Labels, v1beta1.RecreateNodeNameLabel, recreatelabel.Node(node.Name))
	delete(crr.Annotations, v1beta1.RecreateNodeNameAnnotation)
	if full := recreatelabel.Annotation(node.Name); full != "" {
		put(&crr.Annotations, v1beta1.RecreateNodeNameAnnotation, full)
	}
	if node.Labels[v1beta1.VirtualKubeletLabel] == v1beta1.VirtualKubelet {
		put(&crr.Labels, v1beta1.VirtualKubeletLabel, v1beta1.VirtualKubelet)
	}
}

func put(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

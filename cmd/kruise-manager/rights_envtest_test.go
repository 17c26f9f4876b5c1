// SPDX-License-Identifier: Apache-2.0

//go:build envtest

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

var errNotYet = errors.New("not yet")

// The roles of the manifests are enough for whole lives of what concerns nodes: the manager runs
// with them alone, and in the end not one of its requests was forbidden.
func TestTheRolesAreEnough(t *testing.T) {
	_, before := requests(t) // those of other tests
	c := newCluster(t)
	c.startReady()
	testNodeImage(t, c) // makes node n1
	t.Run("a list of images with a pull secret", func(*testing.T) { testImageList(c) })
	pod := c.runningPod("probed")
	t.Run("probes", func(t *testing.T) { testProbes(t, c, pod) })
	t.Run("a request to recreate", func(t *testing.T) { testRecreate(t, c, pod) })

	if sent, forbidden := requests(t); sent == 0 || forbidden != before {
		t.Errorf("%v of %v requests were forbidden", forbidden-before, sent)
	}
}

// requests counts what this process has sent to API servers, and what of that was forbidden.
func requests(t *testing.T) (sent, forbidden float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "rest_client_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			sent += m.GetCounter().GetValue()
			for _, label := range m.GetLabel() {
				if label.GetName() == "code" && label.GetValue() == "403" {
					forbidden += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sent, forbidden
}

// gone waits until obj does not exist any more.
func (c *cluster) gone(obj client.Object) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%T %s is gone", obj, obj.GetName()), func(ctx context.Context) error {
		switch err := c.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errNotYet
	})
}

// change writes the status of obj until nobody interferes.
func (c *cluster) change(obj client.Object, apply func() error) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the status of %T %s is written", obj, obj.GetName()), func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		if err := apply(); err != nil {
			return err
		}
		return c.client.Status().Update(ctx, obj)
	})
}

func (c *cluster) runningPod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: template().Spec.Containers,
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1beta1.KruisePodReady}},
		},
	}
	c.create(pod)
	c.change(pod, func() error {
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
		for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue})
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", ContainerID: "containerd://1", Image: "busybox:1.36", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		return nil
	})
	return pod
}

func testImageList(c *cluster) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}}
	c.create(secret)
	list := &v1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "images"}}
	list.Spec.Images, list.Spec.PullSecrets = []string{"nginx:1"}, []string{"login"}
	list.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(1))
	c.create(list)
	image := &v1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	c.change(image, func() error {
		tags := image.Spec.Images["nginx"].Tags
		if len(tags) == 0 {
			return errNotYet
		}
		image.Status.ImageStatuses = map[string]v1beta1.ImageStatus{"nginx": {Tags: []v1beta1.ImageTagStatus{{
			Tag: "1", Version: tags[0].Version, Phase: v1beta1.ImagePhaseSucceeded, CompletionTime: new(metav1.Now()),
		}}}}
		return nil
	})
	c.gone(list)
	c.eventually("the copies of the Secret are gone", func(ctx context.Context) error {
		var copies corev1.SecretList
		if err := c.client.List(ctx, &copies, client.InNamespace("kruise-daemon-config")); err != nil {
			return err
		}
		if len(copies.Items) > 0 {
			return errNotYet
		}
		return nil
	})
}

func testProbes(t *testing.T, c *cluster, pod *corev1.Pod) {
	marker := &v1alpha1.PodProbeMarker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "idle"},
		Spec: v1alpha1.PodProbeMarkerSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Probes: []v1alpha1.PodContainerProbe{{
				Name: "p", ContainerName: "main", PodConditionType: "example.com/idle",
				Probe:        v1alpha1.ContainerProbeSpec{Probe: corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}},
				MarkerPolicy: []v1alpha1.ProbeMarkerPolicy{{State: v1alpha1.ProbeSucceeded, Labels: map[string]string{"idle": "true"}}},
			}},
		},
	}
	c.create(marker)
	npp := &v1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	c.change(npp, func() error {
		if len(npp.Spec.PodProbes) == 0 {
			return errNotYet
		}
		npp.Status.PodProbeStatuses = []v1alpha1.PodProbeStatus{{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ProbeStates: []v1alpha1.ContainerProbeState{{
			Name: "idle#p", State: v1alpha1.ProbeSucceeded, LastProbeTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}}}
		return nil
	})
	c.eventually("the Pod is marked", func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Labels["idle"] != "true" {
			return errNotYet
		}
		return nil
	})
	if err := c.client.Delete(t.Context(), marker); err != nil {
		t.Fatal(err)
	}
	c.gone(marker)
}

func testRecreate(t *testing.T, c *cluster, pod *corev1.Pod) {
	crr := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "again"},
		Spec: v1beta1.ContainerRecreateRequestSpec{
			PodName: pod.Name, Containers: []v1beta1.RecreateContainer{{Name: "main"}}, TTLSecondsAfterFinished: new(int32(1)),
			Strategy: &v1beta1.RecreateStrategy{UnreadyGracePeriodSeconds: new(int64(0))},
		},
	}
	c.create(crr)
	if crr.Labels[v1beta1.RecreatePodUIDLabel] != string(pod.UID) || crr.Spec.Containers[0].StatusContext == nil {
		t.Fatalf("admission did not fill the request in: %+v", crr)
	}
	c.change(crr, func() error {
		crr.Status.Phase = v1beta1.RecreateRecreating
		return nil
	})
	held := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	c.eventually("the Pod is held not ready", func(ctx context.Context) error {
		if err := c.client.Get(ctx, held, pod); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1beta1.KruisePodReady && condition.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return errNotYet
	})
	c.change(crr, func() error {
		crr.Status.Phase, crr.Status.CompletionTime = v1beta1.RecreateCompleted, new(metav1.Now())
		return nil
	})
	c.gone(crr)
}

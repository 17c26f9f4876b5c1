// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// LabelSimulated is the key of a label of every simulated node, and of its taint; the value is true.
	LabelSimulated = "kruisectl.test/simulated"
	// AnnotationDown on a Node makes it go silent: no heartbeats, and its Pods stay as they are.
	AnnotationDown = "kruisectl.test/down"
)

func nodeName(prefix string, number int) string { return fmt.Sprintf("%s%04d", prefix, number) }

// hostIP is the address of the node with the given number, from 1.
func hostIP(number int) netip.Addr {
	n := number - 1
	return netip.AddrFrom4([4]byte{10, byte(128 + n/62500), byte(n / 250 % 250), byte(1 + n%250)})
}

// node is the Node object as its kubelet would register it.
func (s *simulation) node(number int, now time.Time) *corev1.Node {
	name := nodeName(s.options.Prefix, number)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"type": "simulated", LabelSimulated: "true",
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelTopologyZone: "zone-" + string(rune('a'+(number-1)%3)), corev1.LabelTopologyRegion: "local",
			},
		},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: hostIP(number).String()}, {Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "hollow", ContainerRuntimeVersion: "containerd://hollow",
			},
			Conditions: conditions(now),
		},
	}
	if s.options.Taint {
		n.Spec.Taints = []corev1.Taint{{Key: LabelSimulated, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

func conditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: at, LastTransitionTime: at}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// register creates the nodes and leases that do not exist, several at a time.
func (s *simulation) register(ctx context.Context) error {
	numbers := make(chan int)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for range workers {
		wg.Go(func() {
			for n := range numbers {
				if err := s.registerNode(ctx, n); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for n := 1; n <= s.options.Nodes; n++ {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
	return errors.Join(errs...)
}

func (s *simulation) registerNode(ctx context.Context, number int) error {
	name := nodeName(s.options.Prefix, number)
	if err := s.renew(ctx, name); err != nil {
		return err
	}
	if _, err := s.nodeAPI.Get(name); err == nil {
		return nil
	}
	_, err := s.client.CoreV1().Nodes().Create(ctx, s.node(number, time.Now()), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}

// nodeHandler notices nodes that somebody else declared not Ready, and those that are told to play dead.
func (s *simulation) nodeHandler(queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandler {
	look := func(obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok || s.nodes[node.Name] == 0 {
			return
		}
		if node.Annotations[AnnotationDown] != "" {
			s.down.Store(node.Name, true)
			return
		}
		if _, was := s.down.LoadAndDelete(node.Name); was {
			s.enqueuePodsOf(node.Name)
		}
		queue.Add(node.Name)
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }}
}

// enqueuePodsOf looks again at what happened to the Pods of a node while it was silent.
func (s *simulation) enqueuePodsOf(node string) {
	if s.pods == nil {
		return
	}
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	for _, p := range pods {
		if p.Spec.NodeName == node {
			s.podWork.Add(p.Namespace + "/" + p.Name)
		}
	}
}

// syncNode makes a node Ready again that was taken for dead.
func (s *simulation) syncNode(ctx context.Context, name string) error {
	node, err := s.nodeAPI.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, down := s.down.Load(name); down || ready(node) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions(time.Now())}})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patching the status of Node %s: %w", name, err)
	}
	return nil
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// renewLeases renews all leases once per interval, evenly spread over it.
func (s *simulation) renewLeases(ctx context.Context) {
	if s.options.Nodes == 0 {
		return
	}
	tick := time.NewTicker(max(s.options.LeaseInterval/time.Duration(s.options.Nodes), time.Millisecond))
	defer tick.Stop()
	slots := make(chan struct{}, workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 1; ; n = n%s.options.Nodes + 1 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		name := nodeName(s.options.Prefix, n)
		if _, down := s.down.Load(name); down {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_ = s.renew(ctx, name) // the next one comes long before the lease ends
		})
	}
}

// renew prolongs the lease of a node, and makes it if there is none.
func (s *simulation) renew(ctx context.Context, name string) error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, RenewTime: &now, LeaseDurationSeconds: new(int32(4 * s.options.LeaseInterval / time.Second)),
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Lease of Node %s: %w", name, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
)

const (
	namespace = "kruisectl-demo"
	name      = "web"
	replicas  = 6
	oldImage  = "nginx:1.16"
	newImage  = "nginx:1.17"
	// patience bounds every wait; a demo that goes well never gets near it.
	patience = 5 * time.Minute
	// simulatedLabel is on nodes that the local cluster plays.
	simulatedLabel = "kruisectl.test/simulated"
)

// demo is one run: a client, the kruisectl to call and where to print.
type demo struct {
	client    client.Client
	kruisectl string
	out       io.Writer
}

func run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	d := &demo{client: c, kruisectl: os.Getenv("KRUISECTL"), out: os.Stdout}
	return d.run(ctx)
}

func (d *demo) run(ctx context.Context) error {
	simulated, err := d.simulated(ctx)
	if err != nil {
		return err
	}
	if simulated {
		d.say("The nodes are simulated: no container runs. The manager runs as a process of this machine")
	}
	d.say("A CloneSet of %d Pods with image %s", replicas, oldImage)
	if err := d.createCloneSet(ctx); err != nil {
		return err
	}
	before, err := d.pods(ctx)
	if err != nil {
		return err
	}

	if err := d.nodesTakeImages(ctx); err != nil {
		return err
	}
	d.say("The new image is pulled on every node before any Pod is touched: partition 100%% holds the Pods")
	if err := d.call(ctx, "set", "image", "cloneset/"+name, "app="+newImage); err != nil {
		return err
	}
	job, err := d.preDownloadJob(ctx)
	if err != nil {
		return err
	}
	if err := d.call(ctx, "image", "wait", job, "--timeout", patience.String()); err != nil {
		return err
	}

	// Read now: when the rollout is complete the job is deleted, and its record on the nodes with it.
	nodeImages := &v1beta1.NodeImageList{}
	if err := d.client.List(ctx, nodeImages); err != nil {
		return fmt.Errorf("listing NodeImages: %w", err)
	}

	d.say("What will the rollout do?")
	manifest, err := released()
	if err != nil {
		return err
	}
	if err := d.callWith(ctx, manifest, "rollout", "preview", "-f", "-"); err != nil {
		return err
	}

	d.say("The rollout, two Pods at a time")
	if err := d.call(ctx, "rollout", "partition", "cloneset/"+name, "0"); err != nil {
		return err
	}
	if err := d.call(ctx, "rollout", "watch", "cloneset/"+name, "--exit-on-done", "--timeout", patience.String()); err != nil {
		return err
	}
	if err := d.settled(ctx, newImage); err != nil {
		return err
	}
	after, err := d.pods(ctx)
	if err != nil {
		return err
	}
	rows := compare(before, after, nodeImages.Items)
	fmt.Fprintln(d.out)
	printTable(d.out, rows)
	if err := verdict(d.out, rows); err != nil {
		return err
	}
	if simulated {
		fmt.Fprintln(d.out, "Simulated nodes: restarts and pulls are what a node would report, no container ran and no image was pulled.")
	}
	return nil
}

// simulated reports whether no node of the cluster runs containers.
func (d *demo) simulated(ctx context.Context) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := d.client.List(ctx, nodes); err != nil {
		return false, fmt.Errorf("listing Nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if n.Labels[simulatedLabel] != "true" {
			return false, nil
		}
	}
	return len(nodes.Items) > 0, nil
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== "+format+"\n", args...)
}

// call runs kruisectl where the reader can see the command and what it prints.
func (d *demo) call(ctx context.Context, args ...string) error {
	return d.callWith(ctx, os.Stdin, args...)
}

// callWith is call with something else on standard input.
func (d *demo) callWith(ctx context.Context, in io.Reader, args ...string) error {
	fmt.Fprintf(d.out, "$ kruisectl -n %s %s\n", namespace, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, d.kruisectl, append([]string{"-n", namespace}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, d.out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kruisectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// createCloneSet starts from nothing: what an earlier run left is removed first.
func (d *demo) createCloneSet(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := d.client.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing Namespace %s of an earlier run: %w", namespace, err)
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second/4, patience, true, func(ctx context.Context) (bool, error) {
		err := d.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		if apierrors.IsAlreadyExists(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("creating Namespace %s: %w", namespace, err)
	}
	if err := d.client.Create(ctx, webSet()); err != nil {
		return fmt.Errorf("creating the CloneSet: %w", err)
	}
	return d.settled(ctx, oldImage)
}

// settled waits until every Pod has the image and is available.
func (d *demo) settled(ctx context.Context, image string) error {
	cs := &v1beta1.CloneSet{}
	err := wait.PollUntilContextTimeout(ctx, time.Second/4, patience, true, func(ctx context.Context) (bool, error) {
		if err := d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cs); err != nil {
			return false, err
		}
		s := cs.Status
		return cs.Spec.Template.Spec.Containers[0].Image == image && s.ObservedGeneration == cs.Generation &&
			s.Replicas == replicas && s.AvailableReplicas == replicas && s.UpdatedAvailableReplicas == replicas, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d available Pods with image %s (status: %+v): %w", replicas, image, cs.Status, err)
	}
	return nil
}

// nodesTakeImages waits until every node has its NodeImage, which comes some time after the node:
// a node without one is not pulled on, and the rollout would not wait for it.
func (d *demo) nodesTakeImages(ctx context.Context) error {
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second/4, patience, true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		if err := d.client.List(ctx, nodes); err != nil {
			return false, err
		}
		for _, n := range nodes.Items {
			if err := d.client.Get(ctx, client.ObjectKey{Name: n.Name}, &v1beta1.NodeImage{}); err != nil {
				missing = n.Name
				return false, client.IgnoreNotFound(err)
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the NodeImage of node %s: %w", missing, err)
	}
	return nil
}

// preDownloadJob waits for the ImagePullJob that the manager makes for the new revision.
func (d *demo) preDownloadJob(ctx context.Context) (string, error) {
	var job string
	err := wait.PollUntilContextTimeout(ctx, time.Second/4, patience, true, func(ctx context.Context) (bool, error) {
		jobs := &v1beta1.ImagePullJobList{}
		if err := d.client.List(ctx, jobs, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for _, j := range jobs.Items {
			if j.Spec.Image == newImage {
				job = j.Name
			}
		}
		return job != "", nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the ImagePullJob of %s: %w", newImage, err)
	}
	return job, nil
}

func (d *demo) pods(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := d.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// released is the manifest of the CloneSet as it will be: new image, no partition.
func released() (io.Reader, error) {
	cs := webSet()
	cs.APIVersion, cs.Kind = v1beta1.GroupVersion.String(), "CloneSet"
	cs.Spec.Template.Spec.Containers[0].Image = newImage
	cs.Spec.UpdateStrategy.RollingUpdate.Partition = nil
	raw, err := yaml.Marshal(cs)
	return bytes.NewReader(raw), err
}

// webSet is the CloneSet of the demo: two containers of which one will change, spread over
// the nodes, held by partition 100% at first.
func webSet() *v1beta1.CloneSet {
	labels := map[string]string{"app": name}
	return &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.CloneSetSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers: []corev1.Container{
						{Name: "app", Image: oldImage, ImagePullPolicy: corev1.PullIfNotPresent},
						{Name: "sidecar", Image: "busybox:1.32", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "1000000"}},
					},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
				},
			},
			UpdateStrategy: v1beta1.CloneSetUpdateStrategy{
				Type: v1beta1.RollingUpdateCloneSetUpdateStrategyType,
				RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{
					PodUpdatePolicy: v1beta1.InPlaceIfPossiblePodUpdatePolicyType,
					Partition:       new(intstr.FromString("100%")),
					MaxUnavailable:  new(intstr.FromInt32(2)),
					InPlaceUpdateStrategy: &v1beta1.InPlaceUpdateStrategy{
						ImagePreDownloadParallelism: new(intstr.FromInt32(3)),
					},
				},
			},
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
	"github.com/kruisectl/kruisectl/test/cluster/volumes"
)

// Names of the processes that make volumes, for Cluster.Do. Those that mount them are named NODE.volumes.
const (
	VolumeController = "volume-controller"
	Provisioner      = "csi-provisioner"
	Resizer          = "csi-resizer"
)

// volumesDir holds all volumes. Nodes see it at the same path.
func (s *State) volumesDir() string { return filepath.Join(s.DataDir, "volumes") }

// volumeSocket is where the provisioner and the resizer find the driver.
func (s *State) volumeSocket() string { return filepath.Join(s.DataDir, "volumes.sock") }

func (s *State) volumeControllerSpec() supervisor.Spec {
	return s.process(VolumeController, s.self(), "serve-volumes", "--dir="+s.volumesDir(), "--socket="+s.volumeSocket())
}

// sidecarSpec is one of the programs that call the driver for claims.
func (s *State) sidecarSpec(name string, args ...string) supervisor.Spec {
	return s.process(name, append([]string{
		filepath.Join(s.VolumesBinDir, name),
		"--csi-address=" + s.volumeSocket(), "--kubeconfig=" + s.pki(name+".kubeconfig"),
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--retry-interval-max=10s", // tests wait for it
	}, args...)...)
}

// volumeSpecs are the processes of the machine that make volumes. They need an API server.
func (s *State) volumeSpecs() []supervisor.Spec {
	return []supervisor.Spec{
		s.volumeControllerSpec(),
		s.sidecarSpec(Provisioner, "--strict-topology"),
		s.sidecarSpec(Resizer, "--handle-volume-inuse-error=false"), // volumes grow while Pods use them
	}
}

// nodeVolumesSpec mounts volumes in the node held by holder.
func (s *State) nodeVolumesSpec(n NodeState, holder int) supervisor.Spec {
	return s.inNode(n, kindVolumes, holder, s.self(), "serve-volumes", "--dir="+s.volumesDir(), "--node="+n.Name)
}

// startVolumes starts what makes volumes and tells the API server of it.
func (c *Cluster) startVolumes(ctx context.Context, kube kubernetes.Interface, progress toolchain.Progress) error {
	if !c.State.Shape.Volumes {
		return nil
	}
	progress("starting the volumes")
	if _, err := kube.StorageV1().CSIDrivers().Create(ctx, volumes.Driver(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating CSIDriver %s: %w", volumes.DriverName, err)
	}
	for _, class := range volumes.Classes() {
		if _, err := kube.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating StorageClass %s: %w", class.Name, err)
		}
	}
	for _, spec := range c.State.volumeSpecs() {
		if err := c.supervisor.Put(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

// waitVolumes returns when every node can mount volumes: until then the scheduler finds no node for a new claim.
func (c *Cluster) waitVolumes(ctx context.Context, kube kubernetes.Interface) error {
	if !c.State.Shape.Volumes {
		return nil
	}
	for _, n := range c.State.Nodes {
		if err := c.wait(ctx, nodeLimit, processName(n.Name, kindVolumes), func(ctx context.Context) error {
			node, err := kube.StorageV1().CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, d := range node.Spec.Drivers {
				if d.Name == volumes.DriverName {
					return nil
				}
			}
			return fmt.Errorf("CSINode %s does not have the driver %s", n.Name, volumes.DriverName)
		}); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kruisectl/kruisectl/test/cluster/images"
	"github.com/kruisectl/kruisectl/test/cluster/registry"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
)

// Cluster is a running cluster. State is read-only; methods are safe for concurrent use.
type Cluster struct {
	State      *State
	supervisor *supervisor.Client
}

func newCluster(s *State) *Cluster {
	return &Cluster{State: s, supervisor: supervisor.NewClient(socketPath(s.Name))}
}

// Load returns the named cluster, whether it is healthy or not; DefaultName if name is empty. ErrAbsent if there is none.
func Load(name string) (*Cluster, error) {
	if name == "" {
		name = DefaultName
	}
	s, err := loadState(name)
	if err != nil {
		return nil, err
	}
	return newCluster(s), nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.State.Kubeconfig }

// AuditLog is the path of the API server's audit log, one JSON event a line; "" unless the cluster has one.
func (c *Cluster) AuditLog() string { return c.State.AuditLog }

// Registry is the address (host:port) of the registry that stands in for all others. Below it images have their full
// names, such as docker.io/library/nginx:1.20. "" without real nodes.
func (c *Cluster) Registry() string { return c.State.Registry }

// RESTConfig is the administrator's client configuration, without a rate limit of the client.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.State.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig of cluster %s: %w", c.State.Name, err)
	}
	config.QPS = -1
	return config, nil
}

func (c *Cluster) clientset() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = 30 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of cluster %s: %w", c.State.Name, err)
	}
	return client, nil
}

func (c *Cluster) node(name string) (NodeState, error) {
	i := slices.IndexFunc(c.State.Nodes, func(n NodeState) bool { return n.Name == name })
	if i < 0 {
		return NodeState{}, fmt.Errorf("cluster %s has no real node %s", c.State.Name, name)
	}
	return c.State.Nodes[i], nil
}

// pid is the process id of a process that must be running.
func (c *Cluster) pid(ctx context.Context, process string) (int, error) {
	list, err := c.supervisor.List(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range list {
		if p.Name == process && p.PID != 0 {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("%s is not running", process)
}

// Processes lists all processes of the cluster.
func (c *Cluster) Processes(ctx context.Context) ([]supervisor.Status, error) {
	return c.supervisor.List(ctx)
}

// Do disturbs or repairs one process by its name: a constant of this package, or NODE.containerd, NODE.kubelet and
// NODE.kube-proxy. Stopped processes stay down until started; killed ones come back after supervisor.RestartDelay.
func (c *Cluster) Do(ctx context.Context, process string, action supervisor.Action) error {
	return c.supervisor.Do(ctx, process, action)
}

// KillContainerd crashes the container runtime of a node; its containers keep running and it comes back.
func (c *Cluster) KillContainerd(ctx context.Context, node string) error {
	return c.Do(ctx, processName(node, kindContainerd), supervisor.Kill)
}

// StopContainerd keeps the container runtime of a node down until StartContainerd.
func (c *Cluster) StopContainerd(ctx context.Context, node string) error {
	return c.Do(ctx, processName(node, kindContainerd), supervisor.Stop)
}

// StartContainerd undoes StopContainerd.
func (c *Cluster) StartContainerd(ctx context.Context, node string) error {
	return c.Do(ctx, processName(node, kindContainerd), supervisor.Start)
}

// StopKubelet keeps the kubelet of a node down until StartKubelet; its containers keep running.
func (c *Cluster) StopKubelet(ctx context.Context, node string) error {
	return c.Do(ctx, processName(node, kindKubelet), supervisor.Stop)
}

// StartKubelet undoes StopKubelet.
func (c *Cluster) StartKubelet(ctx context.Context, node string) error {
	return c.Do(ctx, processName(node, kindKubelet), supervisor.Start)
}

// RestartAPIServer stops and starts the API server and returns when it answers again.
func (c *Cluster) RestartAPIServer(ctx context.Context) error { return c.restart(ctx, APIServer) }

// RestartEtcd stops and starts etcd and returns when the API server answers again. No data is lost.
func (c *Cluster) RestartEtcd(ctx context.Context) error { return c.restart(ctx, Etcd) }

func (c *Cluster) restart(ctx context.Context, process string) error {
	if err := c.Do(ctx, process, supervisor.Restart); err != nil {
		return err
	}
	kube, err := c.clientset()
	if err != nil {
		return err
	}
	return c.waitAPIServer(ctx, kube)
}

// SetRegistryDelay makes every later download of an image layer wait for d first; 0 for none.
func (c *Cluster) SetRegistryDelay(ctx context.Context, d time.Duration) error {
	target := url.URL{Scheme: "http", Host: c.State.Registry, Path: "/test/delay", RawQuery: url.Values{"blob": {d.String()}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target.String(), nil)
	if err != nil {
		return fmt.Errorf("changing the speed of the registry: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("changing the speed of the registry: %w", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("changing the speed of the registry: %s", resp.Status)
	}
	return nil
}

// Push stores an image in the registry under its full name (docker.io/library/nginx:1.20; short names such as nginx:1.20
// work too). Names below images.PrivateHost go to the private registry.
func (c *Cluster) Push(ctx context.Context, ref string, image v1.Image) error {
	if c.State.Registry == "" {
		return fmt.Errorf("cluster %s has no real nodes and so no registry", c.State.Name)
	}
	target, auth, err := c.target(ref)
	if err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	if err := remote.Write(target, image, remote.WithContext(ctx), remote.WithAuth(auth)); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	return nil
}

// target is the place of an image in our registry, and what it takes to write there.
func (c *Cluster) target(ref string) (name.Tag, authn.Authenticator, error) {
	if rest, ok := strings.CutPrefix(ref, images.PrivateHost+"/"); ok {
		tag, err := name.NewTag(c.State.PrivateRegistry+"/"+rest, name.Insecure)
		return tag, &authn.Basic{Username: registry.User, Password: registry.Password}, err
	}
	full, err := fullName(ref)
	if err != nil {
		return name.Tag{}, nil, err
	}
	tag, err := name.NewTag(c.State.Registry+"/"+full, name.Insecure)
	return tag, authn.Anonymous, err
}

// fullName adds what a short image name leaves out.
func fullName(ref string) (string, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", err
	}
	host := tag.RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	return host + "/" + tag.RepositoryStr() + ":" + tag.TagStr(), nil
}

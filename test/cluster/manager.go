// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

// The product as it is installed.
const (
	SystemNamespace   = "kruise-system"
	managerDeployment = "kruise-controller-manager"
	managerContainer  = "manager"
	managerAccount    = "kruise-manager"
)

// managerTokenLife is longer than any cluster of this kind lives: nothing renews the token.
const managerTokenLife = 30 * 24 * time.Hour

// ManagerOptions say which manager RunManager is to run.
type ManagerOptions struct {
	Program  string   // path of kruise-manager; the cluster keeps a copy
	Args     []string // flags that go before those of the Deployment
	Progress toolchain.Progress
}

// managerPorts are the TCP ports of a manager that runs on this machine.
type managerPorts struct{ webhook, health, metrics int }

// RunManager runs the product's manager as a process of this machine, in place of the Pods of its Deployment, which
// no simulated node runs: with the flags of the Deployment, as the ServiceAccount of its Pods, and with webhooks that the
// API server calls at 127.0.0.1. The product must be installed. It returns when the manager is ready; one that runs
// already is replaced. Down ends it.
func (c *Cluster) RunManager(ctx context.Context, o ManagerOptions) error {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	s := c.State
	if s.Shape.Nodes > 0 {
		return fmt.Errorf("cluster %s has real nodes: they run the manager's Pods, and two managers would fight over the webhooks", s.Name)
	}
	kube, err := c.clientset()
	if err != nil {
		return err
	}
	container, err := installedManager(ctx, kube)
	if err != nil {
		return err
	}
	if err := c.writeManagerKubeconfig(ctx, kube); err != nil {
		return err
	}
	for _, dir := range []string{s.managerCertDir(), s.managerLogDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the directories of the manager: %w", err)
		}
	}
	// A program that runs cannot be written to, but replaced.
	if err := copyProgram(o.Program, s.managerProgram()+".new"); err != nil {
		return err
	}
	if err := os.Rename(s.managerProgram()+".new", s.managerProgram()); err != nil {
		return fmt.Errorf("replacing the manager: %w", err)
	}
	free, err := freeNumbers(3)
	if err != nil {
		return err
	}
	ports := managerPorts{webhook: free[0], health: free[1], metrics: free[2]}
	o.Progress("starting the manager as a process of this machine")
	if err := c.supervisor.Put(ctx, s.managerSpec(container, ports, o.Args)); err != nil {
		return err
	}
	ready := fmt.Sprintf("http://127.0.0.1:%d/readyz", ports.health)
	if err := c.wait(ctx, controlPlaneLimit, Manager, func(ctx context.Context) error { return answers(ctx, ready) }); err != nil {
		return err
	}
	o.Progress("the manager is ready: webhooks on 127.0.0.1:%d, metrics at http://127.0.0.1:%d/metrics, log %s",
		ports.webhook, ports.metrics, s.logFile(Manager))
	return nil
}

// installedManager is the container that the Deployment of the manager asks for.
func installedManager(ctx context.Context, kube kubernetes.Interface) (corev1.Container, error) {
	d, err := kube.AppsV1().Deployments(SystemNamespace).Get(ctx, managerDeployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return corev1.Container{}, fmt.Errorf("the product is not installed: run kruisectl install --wait=false first (%w)", err)
	}
	if err != nil {
		return corev1.Container{}, fmt.Errorf("reading the Deployment of the manager: %w", err)
	}
	containers := d.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == managerContainer })
	if i < 0 {
		return corev1.Container{}, fmt.Errorf("Deployment %s/%s has no container %s", SystemNamespace, managerDeployment, managerContainer)
	}
	return containers[i], nil
}

// writeManagerKubeconfig lets the manager act as the ServiceAccount of its Pods, so that it may do what they may and
// no more.
func (c *Cluster) writeManagerKubeconfig(ctx context.Context, kube kubernetes.Interface) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(managerTokenLife / time.Second)),
	}}
	got, err := kube.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, managerAccount, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a token of ServiceAccount %s/%s: %w", SystemNamespace, managerAccount, err)
	}
	config, err := clientcmd.LoadFromFile(c.State.Kubeconfig)
	if err != nil {
		return fmt.Errorf("loading the kubeconfig of cluster %s: %w", c.State.Name, err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: got.Status.Token}
	}
	if err := clientcmd.WriteToFile(*config, c.State.managerKubeconfig()); err != nil {
		return fmt.Errorf("writing the kubeconfig of the manager: %w", err)
	}
	return nil
}

func (s *State) managerProgram() string    { return filepath.Join(s.DataDir, "kruise-manager") }
func (s *State) managerKubeconfig() string { return s.pki("kruise-manager.kubeconfig") }
func (s *State) managerCertDir() string    { return filepath.Join(s.DataDir, "manager", "webhook-certs") }
func (s *State) managerLogDir() string     { return filepath.Join(s.DataDir, "manager", "log") }

// managerSpec is the process that stands in for the container. Of a flag that is given twice the last one counts, so
// those that depend on this machine come last.
func (s *State) managerSpec(container corev1.Container, ports managerPorts, extra []string) supervisor.Spec {
	args := slices.Concat([]string{s.managerProgram()}, extra, container.Args, []string{
		"--kubeconfig=" + s.managerKubeconfig(),
		"--metrics-addr=127.0.0.1:" + strconv.Itoa(ports.metrics),
		"--health-probe-addr=127.0.0.1:" + strconv.Itoa(ports.health),
		"--enable-pprof=false",
		"--protection-log-path=" + s.managerLogDir(),
		"--leader-election-release-on-exit", // the next one need not wait
	})
	spec := s.process(Manager, args...)
	for _, v := range container.Env {
		if v.ValueFrom == nil {
			spec.Env = append(spec.Env, v.Name+"="+v.Value)
		}
	}
	spec.Env = append(spec.Env,
		"POD_NAMESPACE="+SystemNamespace,
		"WEBHOOK_HOST=127.0.0.1",
		"WEBHOOK_PORT="+strconv.Itoa(ports.webhook),
		"WEBHOOK_CERT_DIR="+s.managerCertDir(),
	)
	return spec
}

// answers returns nil when a GET of url is answered with 200.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
}

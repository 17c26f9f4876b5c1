// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/kruisectl/kruisectl/test/cluster/machine"
	"github.com/kruisectl/kruisectl/test/cluster/registry"
	"github.com/kruisectl/kruisectl/test/cluster/supervisor"
	"github.com/kruisectl/kruisectl/test/cluster/toolchain"
)

// Time limits of the phases of Up. They are generous: a busy machine is slow, not broken.
const (
	controlPlaneLimit = 3 * time.Minute
	nodeLimit         = 4 * time.Minute
	simulatedLimit    = 10 * time.Minute
)

// Up starts a cluster and returns it when all its nodes are Ready. What a crashed run left is removed first.
// If a healthy cluster of the same name and shape is there, it is returned; one of another shape is an error.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	shape, err := o.shape()
	if err != nil {
		return nil, err
	}
	unlock, err := lockRun(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if running, err := reuse(ctx, o, shape); running != nil || err != nil {
		return running, err
	}
	if err := clean(ctx, o.Name, o.Progress); err != nil {
		return nil, err
	}
	programs := toolchain.ControlPlanePrograms()
	if shape.Nodes > 0 {
		programs = toolchain.Core().Programs()
		if err := machine.InstallPackages(ctx, o.Progress); err != nil {
			return nil, err
		}
	}
	binDir, err := toolchain.Core().Build(ctx, programs, o.Progress)
	if err != nil {
		return nil, err
	}
	volumesBinDir := ""
	if shape.Volumes {
		if volumesBinDir, err = toolchain.Volumes().Build(ctx, toolchain.Volumes().Programs(), o.Progress); err != nil {
			return nil, err
		}
	}
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding the cluster program: %w", err)
		}
	}
	s, err := plan(o, shape, binDir, ports, time.Now())
	if err != nil {
		return nil, err
	}
	s.VolumesBinDir = volumesBinDir
	c := newCluster(s)
	if err := c.start(ctx, o); err != nil {
		return nil, fmt.Errorf("starting cluster %s: %w", o.Name, err)
	}
	s.Complete = true
	if err := s.save(); err != nil {
		return nil, err
	}
	o.Progress("cluster %s is up: %s; kubeconfig %s", s.Name, s.Shape, s.Kubeconfig)
	return c, nil
}

// lockRun lets one Up or Down at a time change clusters of this user. The lock is next to the run directory: it must
// survive its removal.
func lockRun(ctx context.Context, progress toolchain.Progress) (func(), error) {
	if err := os.MkdirAll(runRoot(), 0o755); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	for said := false; ; said = true {
		f, err := tryLock(lockPath())
		if err != nil {
			return nil, fmt.Errorf("locking: %w", err)
		}
		if f != nil {
			return func() { _ = f.Close() }, nil
		}
		if !said {
			progress("waiting for another cluster command to end")
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// tryLock returns the locked file, or nil if somebody else holds the lock or has just removed it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, nil //nolint:nilerr // held by somebody else
	}
	if current(f, path) {
		return f, nil
	}
	_ = f.Close()
	return nil, nil
}

// current says whether f is still what path names. The last Down removes the file: then a lock of it keeps nobody out.
func current(f *os.File, path string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(ours, there)
}

// reuse returns a running cluster that is as good as the one asked for, nil if there is none.
func reuse(ctx context.Context, o Options, shape Shape) (*Cluster, error) {
	if shape.Nodes > 0 {
		if other := realCluster(o.Name); other != "" {
			return nil, fmt.Errorf("cluster %s uses the network of this machine, and there is only one: take it down first", other)
		}
	}
	c, err := Load(o.Name)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	if err != nil {
		o.Progress("the record of cluster %s is unreadable, starting afresh: %v", o.Name, err)
		return nil, nil
	}
	status := c.Status(ctx)
	if !status.Healthy() {
		o.Progress("cluster %s is %s (%s), starting afresh", o.Name, status.Phase, status.Problem)
		return nil, nil
	}
	if !c.State.Shape.serves(shape) {
		return nil, fmt.Errorf("cluster %s is up with another shape (%s, programs %s; wanted: %s, programs %s): take it down first",
			o.Name, c.State.Shape, c.State.Shape.programs(), shape, shape.programs())
	}
	o.Progress("cluster %s is up already: %s; kubeconfig %s", o.Name, c.State.Shape, c.State.Kubeconfig)
	return c, nil
}

// realCluster names another cluster with real nodes on this machine, "" if there is none.
func realCluster(except string) string {
	entries, err := os.ReadDir(runRoot())
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if s, err := loadState(e.Name()); err == nil && s.Name != except && s.Shape.Nodes > 0 {
			return s.Name
		}
	}
	return ""
}

// start creates everything that the record describes.
func (c *Cluster) start(ctx context.Context, o Options) error {
	s := c.State
	if s.Shape.Nodes > 0 {
		s.Sysctls = machine.SaveSysctls()
		var err error
		if s.MountPoints, err = machine.CreateMountPoints(); err != nil {
			return err
		}
	}
	if err := s.save(); err != nil { // before anything that Down must undo
		return err
	}
	if err := s.writeFiles(o.Program); err != nil {
		return err
	}
	if err := c.startSupervisor(ctx); err != nil {
		return err
	}
	if s.Shape.Nodes > 0 {
		if err := machine.CreateBridge(ctx); err != nil {
			return err
		}
	}
	o.Progress("starting the control plane")
	for _, spec := range c.firstProcesses() {
		if err := c.supervisor.Put(ctx, spec); err != nil {
			return err
		}
	}
	holders, err := c.prepareNodes(ctx, o.Progress) // while the API server starts
	if err != nil {
		return err
	}
	kube, err := c.clientset()
	if err != nil {
		return err
	}
	if err := c.waitAPIServer(ctx, kube); err != nil {
		return err
	}
	o.Progress("the API server answers at %s", s.APIServer)
	// Not earlier: the controller manager exits while its role is missing.
	for _, spec := range []supervisor.Spec{s.controllerManagerSpec(), s.schedulerSpec()} {
		if err := c.supervisor.Put(ctx, spec); err != nil {
			return err
		}
	}
	if err := c.startVolumes(ctx, kube, o.Progress); err != nil {
		return err
	}
	if err := c.startNodes(ctx, kube, holders, o.Progress); err != nil {
		return err
	}
	return c.startSimulated(ctx, kube, o.Progress)
}

// firstProcesses need nothing but their files.
func (c *Cluster) firstProcesses() []supervisor.Spec {
	specs := []supervisor.Spec{c.State.etcdSpec(), c.State.apiServerSpec()}
	if c.State.Shape.Nodes > 0 {
		specs = append(specs, c.State.registrySpec())
	}
	return specs
}

// startSupervisor runs the supervisor as a process of its own session and waits until it answers.
func (c *Cluster) startSupervisor(ctx context.Context) error {
	logPath := c.State.logFile("supervisor")
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of the supervisor: %w", err)
	}
	defer logFile.Close()
	cmd := exec.Command(c.State.self(), "supervise", "--socket="+socketPath(c.State.Name))
	cmd.Env = append(os.Environ(), machine.Mark(c.State.Name))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir = c.State.DataDir
	machine.Detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := c.supervisor.List(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the supervisor ended: %w (log: %s)\n%s", err, logPath, toolchain.Tail(logPath, 10))
		default:
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the supervisor: %w (log: %s)", err, logPath)
		}
	}
}

// waitAPIServer returns when the API server is ready, etcd and its bootstrap roles included.
func (c *Cluster) waitAPIServer(ctx context.Context, kube kubernetes.Interface) error {
	return c.wait(ctx, controlPlaneLimit, APIServer, func(ctx context.Context) error {
		_, err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// wait calls check until it succeeds. When that takes longer than limit, or the process exits again and again, the
// error ends with the last lines of the process's log.
func (c *Cluster) wait(ctx context.Context, limit time.Duration, process string, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(limited)
		if err == nil {
			return nil
		}
		if exits := c.crashes(limited, process); exits > 5 {
			err = fmt.Errorf("%s exited %d times: %w", process, exits, err)
		} else if pause(limited, 100*time.Millisecond) == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		path := c.State.logFile(process)
		return fmt.Errorf("waiting for %s: %w (log: %s)\n%s", process, err, path, toolchain.Tail(path, 10))
	}
}

// crashes counts how often a process was started again.
func (c *Cluster) crashes(ctx context.Context, process string) int {
	list, err := c.supervisor.List(ctx)
	if err != nil {
		return 0
	}
	for _, p := range list {
		if p.Name == process {
			return p.Restarts
		}
	}
	return 0
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// waitRegistry returns when nodes can pull images.
func (c *Cluster) waitRegistry(ctx context.Context) error {
	return c.wait(ctx, controlPlaneLimit, RegistryProcess, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return registry.Wait(ctx, c.State.Registry)
	})
}

// logsDir holds one log file per process.
func (s *State) logsDir() string { return filepath.Join(s.DataDir, "logs") }

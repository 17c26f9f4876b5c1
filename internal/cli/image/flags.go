// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/percent"
	"github.com/kruisectl/kruisectl/internal/rollout/fetch"
	"github.com/kruisectl/kruisectl/internal/rollout/pull"
	"github.com/kruisectl/kruisectl/internal/rollout/target"
)

// jobFlags are the flags that become fields of a job.
type jobFlags struct {
	parallelism string
	secrets     []string
	pullTimeout time.Duration
	backoff     int32
	deadline    time.Duration
	ttl         time.Duration
	policy      string
	alwaysRun   bool
	keep        bool
	sandbox     [2][]string
}

// AddTo registers the flags; parallelism is the default of --parallelism.
func (o *jobFlags) AddTo(fs *pflag.FlagSet, parallelism string) {
	fs.StringVar(&o.parallelism, "parallelism", parallelism, "nodes that pull at once: N or P% of those selected; 0 pauses")
	fs.StringSliceVar(&o.secrets, "pull-secret", nil, "secret of the namespace to pull with (repeat)")
	fs.DurationVar(&o.pullTimeout, "pull-timeout", 10*time.Minute, "longest time of one attempt on one node")
	fs.Int32Var(&o.backoff, "backoff", 3, "further attempts on one node")
	fs.DurationVar(&o.deadline, "deadline", 0, "longest time of the whole job; 0 is without limit")
	fs.DurationVar(&o.ttl, "ttl", 24*time.Hour, "time after which the finished job is removed")
	fs.StringVar(&o.policy, "policy", string(v1beta1.PullIfNotPresent), "IfNotPresent or Always")
	fs.BoolVar(&o.alwaysRun, "always-run", false, "never end: pull again about once a day")
	fs.BoolVar(&o.keep, "keep", false, "keep the finished job")
	fs.StringSliceVar(&o.sandbox[0], "sandbox-label", nil, "label handed to the runtime, KEY=VALUE (repeat)")
	fs.StringSliceVar(&o.sandbox[1], "sandbox-annotation", nil, "annotation handed to the runtime, KEY=VALUE (repeat)")
	out.Group(fs, "Change", "parallelism", "pull-secret", "pull-timeout", "backoff", "deadline", "ttl", "policy", "always-run", "keep", "sandbox-label", "sandbox-annotation")
}

// defaultJobFlags are those of a command that has only --parallelism of them.
func defaultJobFlags(parallelism string) jobFlags {
	return jobFlags{parallelism: parallelism, pullTimeout: 10 * time.Minute, backoff: 3, ttl: 24 * time.Hour, policy: string(v1beta1.PullIfNotPresent)}
}

// template reads the flags. Every error is the user's. A parallelism in percent is left as
// it is: it needs the nodes.
func (o *jobFlags) template() (v1beta1.ImagePullJobTemplate, error) {
	var t v1beta1.ImagePullJobTemplate
	par := intstr.Parse(o.parallelism)
	if err := percent.Check(par); err != nil {
		return t, fmt.Errorf("--parallelism: %w", err)
	}
	switch {
	case o.policy != string(v1beta1.PullAlways) && o.policy != string(v1beta1.PullIfNotPresent):
		return t, fmt.Errorf("--policy is %q: use IfNotPresent or Always", o.policy)
	case o.pullTimeout < time.Second:
		return t, fmt.Errorf("--pull-timeout %s is less than a second", o.pullTimeout)
	case o.backoff < 0:
		return t, fmt.Errorf("--backoff %d is negative", o.backoff)
	case o.deadline < 0 || o.ttl < 0:
		return t, errors.New("--deadline and --ttl must not be negative")
	case o.alwaysRun && o.deadline > 0:
		return t, errors.New("--always-run never ends: it takes no --deadline")
	}
	t.Parallelism, t.PullSecrets, t.ImagePullPolicy = &par, o.secrets, v1beta1.ImagePullPolicy(o.policy)
	t.PullPolicy = &v1beta1.PullPolicy{TimeoutSeconds: new(int32(o.attempt() / time.Second)), BackoffLimit: &o.backoff}
	t.CompletionPolicy.Type = v1beta1.Always
	if o.alwaysRun {
		t.CompletionPolicy.Type = v1beta1.Never
	} else {
		if o.deadline > 0 {
			t.CompletionPolicy.ActiveDeadlineSeconds = new(int64(o.deadline / time.Second))
		}
		if !o.keep {
			t.CompletionPolicy.TTLSecondsAfterFinished = new(int32(o.ttl / time.Second))
		}
	}
	return t, o.sandboxes(&t)
}

// attempt is the timeout of one attempt: the API takes none that is longer than the deadline.
func (o *jobFlags) attempt() time.Duration {
	if o.deadline > 0 {
		return min(o.pullTimeout, o.deadline)
	}
	return o.pullTimeout
}

// note says what of the flags was changed.
func (o *jobFlags) note(f *factory.Factory) {
	if o.attempt() != o.pullTimeout {
		f.Note("--deadline %s is shorter than --pull-timeout %s: an attempt may take no longer than the deadline", o.deadline, o.pullTimeout)
	}
}

func (o *jobFlags) sandboxes(t *v1beta1.ImagePullJobTemplate) error {
	labels, err := pairs("--sandbox-label", o.sandbox[0])
	if err != nil {
		return err
	}
	annotations, err := pairs("--sandbox-annotation", o.sandbox[1])
	if err != nil {
		return err
	}
	if len(labels)+len(annotations) > 0 {
		t.SandboxConfig = &v1beta1.SandboxConfig{Labels: labels, Annotations: annotations}
	}
	return nil
}

func pairs(flag string, words []string) (map[string]string, error) {
	var m map[string]string
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%s %q is not KEY=VALUE", flag, w)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = v
	}
	return m, nil
}

// selectFlags choose the nodes.
type selectFlags struct {
	nodes        []string
	nodeSelector string
	podSelector  string
}

// AddTo registers the flags.
func (o *selectFlags) AddTo(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.nodes, "node", nil, "node to pull on (repeat)")
	fs.StringVar(&o.nodeSelector, "node-selector", "", "nodes to pull on, as a label selector")
	fs.StringVar(&o.podSelector, "pod-selector", "", "nodes of the pods that this label selector selects")
	out.Group(fs, "Target", "node", "node-selector", "pod-selector")
}

// apply sets the selectors. Without a flag none is set, which means every node; an empty
// selector is never sent.
func (o *selectFlags) apply(t *v1beta1.ImagePullJobTemplate) error {
	given := 0
	for _, b := range []bool{len(o.nodes) > 0, o.nodeSelector != "", o.podSelector != ""} {
		if b {
			given++
		}
	}
	if given > 1 {
		return errors.New("use one of --node, --node-selector and --pod-selector")
	}
	switch {
	case len(o.nodes) > 0:
		seen := map[string]bool{}
		for _, n := range o.nodes {
			if seen[n] {
				return fmt.Errorf("--node %s is given twice", n)
			}
			seen[n] = true
		}
		t.Selector = &v1beta1.ImagePullJobNodeSelector{Names: o.nodes}
	case o.nodeSelector != "":
		sel, err := metav1.ParseToLabelSelector(o.nodeSelector)
		if err != nil {
			return fmt.Errorf("--node-selector: %w", err)
		}
		t.Selector = &v1beta1.ImagePullJobNodeSelector{LabelSelector: *sel}
	case o.podSelector != "":
		sel, err := metav1.ParseToLabelSelector(o.podSelector)
		if err != nil {
			return fmt.Errorf("--pod-selector: %w", err)
		}
		t.PodSelector = &v1beta1.ImagePullJobPodSelector{LabelSelector: *sel}
	}
	return nil
}

// key stands for the selection in the name of a job.
func (o *selectFlags) key() string {
	return o.nodeSelector + "|" + o.podSelector + "|" + strings.Join(o.nodes, ",")
}

// inNodes turns a parallelism in percent into nodes, which is what the API takes: at least
// one, rounded up.
func inNodes(ctx context.Context, f *factory.Factory, c client.Client, ns string, t *v1beta1.ImagePullJobTemplate) error {
	if t.Parallelism == nil || t.Parallelism.Type == intstr.Int {
		return nil
	}
	total, err := count(ctx, c, ns, t)
	if err != nil {
		return fmt.Errorf("--parallelism %s needs the number of nodes: %w; a plain number does not", t.Parallelism, err)
	}
	n, err := percent.Of(*t.Parallelism, int32(total), percent.Up)
	if err != nil {
		return err
	}
	n = max(n, 1)
	f.Note("parallelism %s of %s is %d", t.Parallelism, out.Plural(total, "node"), n)
	t.Parallelism = new(intstr.FromInt32(n))
	return nil
}

func count(ctx context.Context, c client.Client, ns string, t *v1beta1.ImagePullJobTemplate) (int, error) {
	if t.PodSelector != nil {
		nodes, err := nodesOfPods(ctx, c, ns, &t.PodSelector.LabelSelector)
		return len(nodes), err
	}
	if t.Selector != nil && t.Selector.Names != nil {
		return len(t.Selector.Names), nil
	}
	all, err := fetch.List[v1beta1.NodeImage](ctx, c, target.NodeImage)
	if err != nil {
		return 0, fmt.Errorf("listing nodeimages: %w", err)
	}
	n, selected := 0, pull.Selected(*t)
	for i := range all {
		if selected(&all[i]) {
			n++
		}
	}
	return n, nil
}

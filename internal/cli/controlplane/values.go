// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kruisectl/kruisectl/internal/cli/factory"
	"github.com/kruisectl/kruisectl/internal/cli/out"
	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/internal/install"
)

// valueFlags are the flags that shape the manifests (cli.md 4.2). The order of strength
// is: defaults of profile and platform, --values, --set, then single flags.
type valueFlags struct {
	files []string
	sets  []string
	flags *pflag.FlagSet

	profile, platform string
	enableDaemon      bool
	enablePodWebhook  bool
	crds              string
	registry          string
	pullSecrets       []string
	managerArgs       []string
	nodeSelector      map[string]string
}

// plainFlags are flags that are one key each.
var plainFlags = []struct{ flag, key, usage string }{
	{"namespace-name", "installation.namespace", "`NAME` of the namespace of the installation (default kruise-system)"},
	{"create-namespace", "installation.createNamespace", "create that namespace"},
	{"replicas", "manager.replicas", "`N` managers"},
	{"image", "manager.image.repository", "`IMAGE` of manager and daemon, without tag"},
	{"image-tag", "manager.image.tag", "`TAG` of the image (default the version)"},
	{"image-digest", "manager.image.digest", "`DIGEST` of the image; wins over the tag"},
	{"image-pull-policy", "manager.image.pullPolicy", "`POLICY`: Always, IfNotPresent or Never"},
	{"feature-gates", "featureGates", "`GATES` of manager and daemon, as Name=true,Name=false"},
	{"webhook-failure-policy-pods", "webhookConfiguration.failurePolicy.pods", "`POLICY` Fail: without a manager no Pod of a Kruise workload is created; Ignore: it is, but may take traffic while it is updated"},
	{"webhook-timeout", "webhookConfiguration.timeoutSeconds", "`SECONDS` that the API server waits for a webhook"},
	{"host-network", "manager.hostNetwork", "let the manager listen on its node"},
	{"webhook-port", "manager.webhook.port", "`PORT` of the webhooks"},
	{"metrics-port", "manager.metrics.port", "`PORT` of the metrics"},
	{"health-port", "manager.healthProbe.port", "`PORT` of the health probes"},
	{"daemon-socket-location", "daemon.socketLocation", "`DIR` of the container runtime's socket on nodes"},
	{"daemon-socket-file", "daemon.socketFile", "`NAME` of the socket in that directory"},
	{"daemon-port", "daemon.port", "`PORT` of the daemon on nodes"},
	{"external-certs", "externalCerts.mode", "`WHO` makes the webhook certificates: none, cert-manager or manual"},
	{"priority-class", "manager.priorityClassName", "`CLASS` of priority of the manager"},
	{"pdb", "manager.podDisruptionBudget", "add a PodDisruptionBudget for the manager"},
	{"network-policy", "manager.networkPolicy", "add a NetworkPolicy for the manager"},
	{"metrics-service", "manager.metrics.service", "add a Service for the metrics of the manager"},
	{"service-monitor", "manager.metrics.serviceMonitor", "add a ServiceMonitor, and the Service it needs"},
}

// boolFlags are those of plainFlags that are true or false, with the value that stands
// for "not given"; the profile decides then.
var boolFlags = map[string]bool{"create-namespace": true, "host-network": false, "pdb": false, "network-policy": false, "metrics-service": false, "service-monitor": false}

func (v *valueFlags) addTo(fs *pflag.FlagSet) {
	v.flags = fs
	fs.StringArrayVar(&v.files, "values", nil, "`FILE` with values, as for the Helm chart; - is stdin; may be repeated")
	fs.StringArrayVar(&v.sets, "set", nil, "one value, `KEY=VALUE`; may be repeated")
	fs.StringVar(&v.profile, "profile", "", "`PROFILE`, the defaults to start from: "+strings.Join(install.Profiles(), ", "))
	fs.StringVar(&v.platform, "platform", "", "`PLATFORM`, the kind of cluster: auto, "+strings.Join(install.Platforms(), ", "))
	names := []string{"values", "set", "profile", "platform"}
	for _, p := range plainFlags {
		if def, ok := boolFlags[p.flag]; ok {
			fs.Bool(p.flag, def, p.usage)
		} else {
			fs.String(p.flag, "", p.usage)
		}
		names = append(names, p.flag)
	}
	fs.String("tag", "", "`TAG`, same as --image-tag")
	fs.BoolVar(&v.enableDaemon, "enable-daemon", true, "run the node daemon; without it there are no image jobs")
	fs.BoolVar(&v.enablePodWebhook, "enable-pod-webhook", true, "let Pods pass the manager when they are created")
	fs.StringVar(&v.crds, "crds", "managed", "`HOW` to treat CRDs: managed, skip or only")
	fs.StringVar(&v.registry, "registry", "", "`HOST` of the registry to take the image from, in place of docker.io")
	fs.StringArrayVar(&v.pullSecrets, "image-pull-secret", nil, "`NAME` of a pull secret in the system namespace; may be repeated")
	fs.StringArrayVar(&v.managerArgs, "extra-arg", nil, "argument for a program, `manager=--flag=value` or daemon=…; may be repeated")
	fs.StringToStringVar(&v.nodeSelector, "node-selector", nil, "labels of the nodes for the manager, `KEY=VALUE`")
	fs.StringArray("webhook-exclude-namespace", nil, "`NAMESPACE` whose Pods do not pass the manager; may be repeated")
	names = append(names, "tag", "enable-daemon", "enable-pod-webhook", "crds", "registry", "image-pull-secret", "extra-arg", "node-selector", "webhook-exclude-namespace")
	out.Group(fs, "Change", names...)
}

func (v *valueFlags) changed(name string) bool { return v.flags.Changed(name) }

// values returns what the flags say, on top of the profile's defaults.
func (v *valueFlags) values(f *factory.Factory, platform string) (install.Values, error) {
	trees, err := v.trees(f)
	if err != nil {
		return install.Values{}, err
	}
	profile := install.ProfileDefault
	for _, tree := range trees { // a file may choose the profile as well
		if p, ok := tree["profile"].(string); ok {
			profile = install.Profile(p)
		}
		if p, ok := tree["platform"].(string); ok && p != "" {
			platform = p
		}
	}
	if v.profile != "" {
		profile = install.Profile(v.profile)
	}
	if v.platform != "" && v.platform != "auto" {
		platform = v.platform
	}
	base, err := install.Defaults(profile, platform)
	if err != nil {
		return install.Values{}, out.Usage(err)
	}
	return v.over(f, base, trees)
}

// onto returns what the flags say, on top of base.
func (v *valueFlags) onto(f *factory.Factory, base install.Values) (install.Values, error) {
	trees, err := v.trees(f)
	if err != nil {
		return install.Values{}, err
	}
	return v.over(f, base, trees)
}

func (v *valueFlags) over(f *factory.Factory, base install.Values, trees []map[string]any) (install.Values, error) {
	for _, tree := range trees {
		delete(tree, "profile")
		delete(tree, "platform")
		warnings, err := base.Merge(tree)
		if err != nil {
			return install.Values{}, out.Usage(err)
		}
		for _, w := range warnings {
			f.Note("%s", w)
		}
	}
	if err := v.single(&base); err != nil {
		return install.Values{}, out.Usage(err)
	}
	return base, nil
}

// trees reads --values, --set and the flags of one key, weakest first.
func (v *valueFlags) trees(f *factory.Factory) ([]map[string]any, error) {
	var trees []map[string]any
	for _, file := range v.files {
		data, err := readFile(f, file)
		if err != nil {
			return nil, out.Usagef("--values %s: %w", file, unwrapPath(err))
		}
		tree, err := install.ParseFile(data)
		if err != nil {
			return nil, out.Usagef("--values %s: %w", file, err)
		}
		trees = append(trees, tree)
	}
	for _, s := range v.sets {
		tree, err := install.ParseSet(s)
		if err != nil {
			return nil, out.Usagef("--set %s: %w", s, err)
		}
		trees = append(trees, tree)
	}
	for _, p := range plainFlags {
		if !v.changed(p.flag) {
			continue
		}
		value := v.flags.Lookup(p.flag).Value.String()
		tree, err := install.ParseSet(p.key + "=" + strings.ReplaceAll(value, ",", `\,`))
		if err != nil {
			return nil, out.Usagef("--%s: %w", p.flag, err)
		}
		trees = append(trees, tree)
	}
	if v.changed("tag") {
		trees = append(trees, map[string]any{"manager": map[string]any{"image": map[string]any{"tag": v.flags.Lookup("tag").Value.String()}}})
	}
	return trees, nil
}

// single applies flags that are more than one key.
func (v *valueFlags) single(values *install.Values) error {
	switch v.crds {
	case "managed":
		if v.changed("crds") {
			values.CRDs = install.CRDValues{Managed: true}
		}
	case "skip":
		values.CRDs = install.CRDValues{}
	case "only":
		values.CRDs = install.CRDValues{Managed: true, Only: true}
	default:
		return fmt.Errorf("--crds is %q: use managed, skip or only", v.crds)
	}
	for _, g := range []struct {
		flag string
		gate features.Gate
		on   bool
	}{
		{"enable-daemon", features.KruiseDaemon, v.enableDaemon},
		{"enable-pod-webhook", features.PodWebhook, v.enablePodWebhook},
	} {
		if v.changed(g.flag) {
			values.FeatureGates = install.WithGate(values.FeatureGates, g.gate, g.on)
		}
	}
	if values.ExternalCerts.Mode != "none" && v.changed("external-certs") {
		values.FeatureGates = install.WithGate(values.FeatureGates, features.EnableExternalCerts, true)
	}
	if v.registry != "" {
		_, rest, found := strings.Cut(values.Manager.Image.Repository, "/")
		if !found {
			rest = values.Manager.Image.Repository
		}
		values.Manager.Image.Repository = strings.TrimSuffix(v.registry, "/") + "/" + rest
	}
	if values.Manager.Metrics.ServiceMonitor && v.changed("service-monitor") {
		values.Manager.Metrics.Service = true
	}
	for _, name := range v.pullSecrets {
		values.AddPullSecret(name)
	}
	for k, s := range v.nodeSelector {
		if values.Manager.NodeSelector == nil {
			values.Manager.NodeSelector = map[string]string{}
		}
		values.Manager.NodeSelector[k] = s
	}
	excluded, _ := v.flags.GetStringArray("webhook-exclude-namespace")
	values.Webhooks.ExcludeNamespaces = append(values.Webhooks.ExcludeNamespaces, excluded...)
	for _, a := range v.managerArgs {
		program, arg, ok := strings.Cut(a, "=")
		if !ok || !strings.HasPrefix(arg, "-") {
			return fmt.Errorf("--extra-arg is %q: write manager=--flag=value or daemon=--flag=value", a)
		}
		switch program {
		case "manager":
			values.Manager.ExtraArgs = append(values.Manager.ExtraArgs, arg)
		case "daemon":
			values.Daemon.ExtraArgs = append(values.Daemon.ExtraArgs, arg)
		default:
			return fmt.Errorf("--extra-arg is for %q: use manager or daemon", program)
		}
	}
	return nil
}

// render renders the values; what is wrong with them is a usage error.
func render(f *factory.Factory, v install.Values) (*install.Manifests, error) {
	m, err := install.Render(v)
	if err != nil {
		var wrong *install.ValueError
		if errors.As(err, &wrong) {
			return nil, out.Usage(err)
		}
		return nil, err
	}
	for _, w := range m.Warnings {
		warning(f, w)
	}
	return m, nil
}

func readFile(f *factory.Factory, name string) ([]byte, error) {
	if name == "-" {
		return readAll(f.In)
	}
	return os.ReadFile(name)
}

// unwrapPath drops the path that an error of os repeats.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"io/fs"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/kruisectl/kruisectl/internal/features"
	"github.com/kruisectl/kruisectl/manifests"
)

// Manifests is one rendering.
type Manifests struct {
	// Objects are in the order in which they are applied (install.md 12, cli.md 4.1).
	Objects []*unstructured.Unstructured
	// Values are those that were rendered, complete.
	Values Values
	// Gates are the effective feature gates of Values.
	Gates *features.Set
	// Warnings are sentences about the values.
	Warnings []string
	// Version is that of the embedded manifests.
	Version string
}

// Render builds the objects of an installation. Equal values give equal objects in equal
// order; nothing is read but the embedded tree.
func Render(v Values) (*Manifests, error) {
	gates, warnings, err := v.Check()
	if err != nil {
		return nil, err
	}
	v.FeatureGates = gates.String()
	b := newBuild(v, gates)
	objs, err := b.run()
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	Sort(objs)
	return &Manifests{Objects: objs, Values: v, Gates: gates, Warnings: warnings, Version: ManifestsVersion()}, nil
}

// Build renders one kustomization of the embedded tree as it is, e.g. "overlays/ha".
func Build(dir string) ([]*unstructured.Unstructured, error) {
	objs, err := kustomize(embedded(), path.Join(root, dir))
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", dir, err)
	}
	Sort(objs)
	return objs, nil
}

// root is where the embedded tree lies in the memory that kustomize reads.
const root = "/manifests"

func embedded() filesys.FileSystem {
	mem := filesys.MakeFsInMemory()
	err := fs.WalkDir(manifests.Files, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := manifests.Files.ReadFile(p)
		if err != nil {
			return err
		}
		return mem.WriteFile(path.Join(root, p), data)
	})
	if err != nil {
		panic(err) // memory to memory
	}
	return mem
}

func kustomize(mem filesys.FileSystem, dir string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(mem, dir)
	if err != nil {
		return nil, err
	}
	var objs []*unstructured.Unstructured
	for _, r := range built.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", r.CurId(), err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", r.CurId(), err)
		}
		objs = append(objs, u)
	}
	return objs, nil
}

// build is one rendering: components chosen by values in a first pass, patches computed
// from its result in a second, and those of the namespace in between.
type build struct {
	values   Values
	gates    *features.Set
	baseline Values // what the first pass shows, apart from components
	mem      filesys.FileSystem
}

func newBuild(v Values, gates *features.Set) *build {
	profile := ProfileDefault
	if v.Profile == ProfileE2E {
		profile = ProfileE2E
	}
	baseline, err := Defaults(profile, "generic")
	if err != nil {
		panic(err) // constants
	}
	return &build{values: v, gates: gates, baseline: baseline, mem: embedded()}
}

func (b *build) run() ([]*unstructured.Unstructured, error) {
	chosen := types.Kustomization{Resources: []string{"../../base"}}
	if b.values.CRDs.Only {
		chosen.Resources = []string{"../../base/crds"}
	}
	for _, c := range b.components() {
		chosen.Components = append(chosen.Components, "../../components/"+c)
	}
	if err := b.write("chosen", chosen); err != nil {
		return nil, err
	}
	objs, err := kustomize(b.mem, root+"/render/chosen")
	if err != nil {
		return nil, err
	}
	patches := edit(objs, b.values, b.baseline)
	if len(patches) == 0 {
		return objs, nil
	}
	patched := types.Kustomization{Resources: []string{"../chosen"}, Patches: patches}
	if err := b.write("patched", patched); err != nil {
		return nil, err
	}
	return kustomize(b.mem, root+"/render/patched")
}

func (b *build) write(dir string, k types.Kustomization) error {
	k.APIVersion, k.Kind = types.KustomizationVersion, types.KustomizationKind
	data, err := yaml.Marshal(k)
	if err != nil {
		return fmt.Errorf("encoding kustomization %s: %w", dir, err)
	}
	return b.mem.WriteFile(path.Join(root, "render", dir, "kustomization.yaml"), data)
}

// components lists what the values switch on, in the order in which it is applied. The
// release comes last, as it labels what the others add.
func (b *build) components() []string {
	v := b.values
	if v.CRDs.Only {
		// cert-manager annotates CRDs too, but also adds objects; edit annotates instead.
		return []string{"release"}
	}
	var list []string
	add := func(name string, when bool) {
		if when {
			list = append(list, name)
		}
	}
	podWebhook := b.gates.Enabled(features.PodWebhook)
	add("e2e", v.Profile == ProfileE2E)
	add("aks", v.Webhooks.AKSIntegration)
	add("all-pods", podWebhook && (b.gates.Enabled(features.KruisePodReadinessGate) || b.gates.Enabled(features.EnablePodProbeMarkerOnServerless)))
	add("no-pod-webhook", !podWebhook)
	add("no-daemon", !b.gates.Enabled(features.KruiseDaemon))
	add("external-certs", b.gates.Enabled(features.EnableExternalCerts))
	add("cert-manager", v.ExternalCerts.Mode == "cert-manager")
	add("host-network", v.Manager.HostNetwork)
	add("metrics-service", v.Manager.Metrics.Service)
	add("service-monitor", v.Manager.Metrics.ServiceMonitor)
	add("pod-disruption-budget", v.Manager.PodDisruptionBudget)
	add("network-policy", v.Manager.NetworkPolicy)
	add("release", true)
	return list
}

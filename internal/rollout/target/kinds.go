// SPDX-License-Identifier: Apache-2.0

// Package target knows the kinds that users may name and reads what they type as TYPE
// NAME or TYPE/NAME (cli.md 1.4). It asks no server and prints nothing.
package target

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is one kind that users may name.
type Kind struct {
	// GroupKind identifies the kind whatever its version.
	schema.GroupKind
	// Plural and Singular are the names of the resource, lower case.
	Plural, Singular string
	// Aliases are further words for it.
	Aliases []string
	// Alone is the word for it that means no other kind, for sentences and hints; empty:
	// Singular, or where that is ambiguous the full spelling.
	Alone string
	// Versions this tool can speak, best first.
	Versions []string
	// ClusterScoped objects have no namespace.
	ClusterScoped bool
}

// Resource is "<singular>.<group>", the word in front of the slash in results.
func (k *Kind) Resource() string {
	if k.Group == "" {
		return k.Singular
	}
	return k.Singular + "." + k.Group
}

// Spelling is the word that names this kind and no other.
func (k *Kind) Spelling() string {
	if k.Group == "" {
		return k.Plural
	}
	return k.Plural + "." + k.Group
}

// Word is the shortest word that names this kind and no other: what sentences call it and
// what hints write before the slash.
func (k *Kind) Word() string {
	switch {
	case k.Alone != "":
		return k.Alone
	case len(Lookup(k.Singular)) > 1:
		return k.Spelling()
	}
	return k.Singular
}

const (
	kruise = "apps.kruise.io"
	policy = "policy.kruise.io"
)

var both = []string{"v1beta1", "v1alpha1"}

// The kinds that packages of this tool name.
var (
	CloneSet = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "CloneSet"}, Plural: "clonesets", Singular: "cloneset",
		Aliases: []string{"clone"}, Versions: both}
	// StatefulSet and DaemonSet are the Advanced ones, of this product.
	StatefulSet = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "StatefulSet"}, Plural: "statefulsets", Singular: "statefulset",
		Aliases: []string{"sts", "asts", "advancedstatefulset", "advancedstatefulsets"}, Alone: "asts", Versions: both}
	DaemonSet = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "DaemonSet"}, Plural: "daemonsets", Singular: "daemonset",
		Aliases: []string{"ds", "ads", "daemon", "advanceddaemonset", "advanceddaemonsets"}, Alone: "ads", Versions: both}
	Pod  = &Kind{GroupKind: schema.GroupKind{Kind: "Pod"}, Plural: "pods", Singular: "pod", Aliases: []string{"po"}, Versions: []string{"v1"}}
	Node = &Kind{GroupKind: schema.GroupKind{Kind: "Node"}, Plural: "nodes", Singular: "node", Aliases: []string{"no"}, Versions: []string{"v1"}, ClusterScoped: true}
	// ImagePullJob is the kind behind `kruisectl image`.
	ImagePullJob = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "ImagePullJob"}, Plural: "imagepulljobs", Singular: "imagepulljob",
		Aliases: []string{"ipj"}, Versions: both}
	ImageListPullJob = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "ImageListPullJob"}, Plural: "imagelistpulljobs", Singular: "imagelistpulljob",
		Aliases: []string{"ilpj"}, Versions: both}
	NodeImage = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "NodeImage"}, Plural: "nodeimages", Singular: "nodeimage", Versions: both, ClusterScoped: true}
	// ContainerRecreateRequest is the kind behind `kruisectl container`.
	ContainerRecreateRequest = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "ContainerRecreateRequest"}, Plural: "containerrecreaterequests",
		Singular: "containerrecreaterequest", Aliases: []string{"crr"}, Versions: both}
	// PodProbeMarker and NodePodProbe are the kinds behind `kruisectl probe`.
	PodProbeMarker = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "PodProbeMarker"}, Plural: "podprobemarkers", Singular: "podprobemarker",
		Aliases: []string{"ppm"}, Versions: both}
	NodePodProbe = &Kind{GroupKind: schema.GroupKind{Group: kruise, Kind: "NodePodProbe"}, Plural: "nodepodprobes", Singular: "nodepodprobe",
		Aliases: []string{"npp"}, Versions: both, ClusterScoped: true}
)

// kinds lists every kind of cli.md 1.4, also those that no command drives yet, so that
// the answer for them is "not this kind" and not "no such word".
var kinds = []*Kind{
	CloneSet, StatefulSet, DaemonSet,
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "SidecarSet"}, Plural: "sidecarsets", Singular: "sidecarset",
		Aliases: []string{"scs"}, Versions: both, ClusterScoped: true},
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "UnitedDeployment"}, Plural: "uniteddeployments", Singular: "uniteddeployment",
		Aliases: []string{"ud"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "WorkloadSpread"}, Plural: "workloadspreads", Singular: "workloadspread",
		Aliases: []string{"ws"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "BroadcastJob"}, Plural: "broadcastjobs", Singular: "broadcastjob",
		Aliases: []string{"bcj"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "AdvancedCronJob"}, Plural: "advancedcronjobs", Singular: "advancedcronjob",
		Aliases: []string{"acj"}, Versions: both},
	ContainerRecreateRequest,
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "EphemeralJob"}, Plural: "ephemeraljobs", Singular: "ephemeraljob",
		Aliases: []string{"ejob"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "ResourceDistribution"}, Plural: "resourcedistributions", Singular: "resourcedistribution",
		Aliases: []string{"distributor"}, Versions: both, ClusterScoped: true},
	ImagePullJob, ImageListPullJob, NodeImage, NodePodProbe, PodProbeMarker,
	{GroupKind: schema.GroupKind{Group: kruise, Kind: "PersistentPodState"}, Plural: "persistentpodstates", Singular: "persistentpodstate",
		Aliases: []string{"pps"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: policy, Kind: "PodUnavailableBudget"}, Plural: "podunavailablebudgets", Singular: "podunavailablebudget",
		Aliases: []string{"pub"}, Versions: both},
	{GroupKind: schema.GroupKind{Group: "rollouts.kruise.io", Kind: "Rollout"}, Plural: "rollouts", Singular: "rollout",
		Aliases: []string{"ro"}, Versions: both},
	native("apps", "Deployment", "deployments", "deploy"),
	native("apps", "StatefulSet", "statefulsets", "sts"),
	native("apps", "DaemonSet", "daemonsets", "ds"),
	native("apps", "ReplicaSet", "replicasets", "rs"),
	native("batch", "Job", "jobs"),
	native("batch", "CronJob", "cronjobs", "cj"),
	{GroupKind: schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, Plural: "horizontalpodautoscalers",
		Singular: "horizontalpodautoscaler", Aliases: []string{"hpa"}, Versions: []string{"v2", "v1"}},
	Pod, Node,
}

func native(group, kind, plural string, aliases ...string) *Kind {
	return &Kind{
		GroupKind: schema.GroupKind{Group: group, Kind: kind}, Plural: plural,
		Singular: strings.TrimSuffix(plural, "s"), Aliases: aliases, Versions: []string{"v1"},
	}
}

// Native reports a kind of Kubernetes itself.
func (k *Kind) Native() bool { return !strings.HasSuffix(k.Group, "kruise.io") }

// Lookup returns the kinds that word may mean, in any letter case: a resource, singular,
// kind, short name or alias, with or without ".group" or ".version.group". Two kinds
// mean that the word is ambiguous; none that it is unknown.
func Lookup(word string) []*Kind {
	name, group, _ := strings.Cut(strings.ToLower(word), ".")
	version := ""
	if v, rest, ok := strings.Cut(group, "."); ok && isVersion(v) {
		version, group = v, rest
	} else if isVersion(group) { // "pods.v1"
		version, group = group, ""
	}
	var found []*Kind
	for _, k := range kinds {
		if group != "" && k.Group != group {
			continue
		}
		if version != "" && !slices.Contains(k.Versions, version) {
			continue
		}
		if name == k.Plural || name == k.Singular || name == strings.ToLower(k.Kind) || slices.Contains(k.Aliases, name) {
			found = append(found, k)
		}
	}
	return found
}

func isVersion(s string) bool {
	return len(s) >= 2 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9'
}

// Words returns every word that Lookup knows, for suggestions.
func Words() []string {
	var words []string
	for _, k := range kinds {
		words = append(append(words, k.Singular, k.Plural), k.Aliases...)
	}
	slices.Sort(words)
	return slices.Compact(words)
}

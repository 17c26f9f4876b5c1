// SPDX-License-Identifier: Apache-2.0

package valid_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/poddefaults"
	"github.com/kruisectl/kruisectl/internal/valid"
)

// web returns a valid, defaulted CloneSet.
func web(change ...func(*v1beta1.CloneSet)) *v1beta1.CloneSet {
	cs := &v1beta1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "web-uid"},
		Spec: v1beta1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx:1.27"}}},
			},
		},
	}
	v1beta1.SetDefaultsCloneSet(cs, v1beta1.DefaultOptions{
		Template: func(t *corev1.PodTemplateSpec) { poddefaults.Template(t, poddefaults.Options{}) },
		Claim:    poddefaults.Claim,
	})
	for _, f := range change {
		f(cs)
	}
	return cs
}

func rolling(change func(*v1beta1.RollingUpdateCloneSetStrategy)) func(*v1beta1.CloneSet) {
	return func(cs *v1beta1.CloneSet) { change(cs.Spec.UpdateStrategy.RollingUpdate) }
}

// paths lists the fields that errs speak of, each once.
func paths(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		if !slices.Contains(out, e.Field) {
			out = append(out, e.Field)
		}
	}
	return out
}

func TestValidCloneSets(t *testing.T) {
	for name, cs := range map[string]*v1beta1.CloneSet{
		"the plain one":                web(),
		"a manifest without namespace": web(func(cs *v1beta1.CloneSet) { cs.Namespace = "" }),
		"a generated name":             web(func(cs *v1beta1.CloneSet) { cs.Name, cs.GenerateName = "", "web-" }),
		"no Pods":                      web(func(cs *v1beta1.CloneSet) { cs.Spec.Replicas = new(int32) }),
		"maxUnavailable 0 with a surge of 1 (a flaw of OpenKruise's v1beta1)": web(rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.MaxUnavailable, r.MaxSurge = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
		})),
		"both limits 0 without Pods": web(func(cs *v1beta1.CloneSet) {
			cs.Spec.Replicas = new(int32)
			cs.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromInt32(0))
		}),
		"fractions of a percent": web(rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Partition = new(intstr.FromString("12.5%")) })),
		"OnDelete with a rollingUpdate block that lacks the partition": web(func(cs *v1beta1.CloneSet) {
			cs.Spec.UpdateStrategy = v1beta1.CloneSetUpdateStrategy{
				Type: v1beta1.OnDeleteCloneSetUpdateStrategyType, RollingUpdate: &v1beta1.RollingUpdateCloneSetStrategy{},
			}
		}),
		"no progress deadline, spelt as the largest number": web(func(cs *v1beta1.CloneSet) {
			cs.Spec.MinReadySeconds, cs.Spec.ProgressDeadlineSeconds = math.MaxInt32, new(int32(math.MaxInt32))
		}),
		"weights of 0 and 100": web(rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			s := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{
				{Weight: 0, MatchSelector: s}, {Weight: 100, MatchSelector: s},
			}}
		})),
		"parallelism as text": web(rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromString("5"))}
		})),
		"a mount of a claim template": web(claimTemplate("data"), func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		}),
		"what the validation of templates tolerates": web(func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Annotations = map[string]string{"controller.kubernetes.io/pod-deletion-cost": "many"}
			cs.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"hugepages-2Mi": *quantity("3Mi"), "cpu": *quantity("1")}
			cs.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "no label value!"}},
			}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, valid.CloneSet(cs, valid.Options{}))
			require.Empty(t, valid.CloneSet(cs, valid.Options{V1alpha1: true}))
		})
	}
}

// wrong is one fault: what is changed about a valid CloneSet, and the field to blame.
type wrong struct {
	change func(*v1beta1.CloneSet)
	path   string
}

func (w wrong) check(t *testing.T) {
	t.Helper()
	errs := valid.CloneSet(web(w.change), valid.Options{})
	require.Equal(t, []string{w.path}, paths(errs), "%v", errs)
}

func TestInvalidCloneSets(t *testing.T) {
	const ru = "spec.updateStrategy.rollingUpdate"
	label := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	cases := map[string]wrong{
		"a name in upper case":      {func(cs *v1beta1.CloneSet) { cs.Name = "Web" }, "metadata.name"},
		"an annotation without key": {func(cs *v1beta1.CloneSet) { cs.Annotations = map[string]string{"": "x"} }, "metadata.annotations"},
		"replicas missing":          {func(cs *v1beta1.CloneSet) { cs.Spec.Replicas = nil }, "spec.replicas"},
		"replicas negative":         {func(cs *v1beta1.CloneSet) { cs.Spec.Replicas = new(int32(-1)) }, "spec.replicas"},
		"selector missing":          {func(cs *v1beta1.CloneSet) { cs.Spec.Selector = nil }, "spec.selector"},
		"selector empty":            {func(cs *v1beta1.CloneSet) { cs.Spec.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"selector with a value that no label can have": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Selector.MatchLabels["app"] = "a b"
		}, "spec.selector.matchLabels"},
		"selector with an unknown operator": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
		}, "spec.selector.matchExpressions[0].operator"},
		"selector that the template does not satisfy": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Labels = map[string]string{"app": "other"}
		}, "spec.template.metadata.labels"},
		"podsToDelete with a name twice": {func(cs *v1beta1.CloneSet) {
			cs.Spec.ScaleStrategy.PodsToDelete = []string{"web-a", "web-b", "web-a"}
		}, "spec.scaleStrategy.podsToDelete[2]"},
		"scale maxUnavailable that is no percentage": {func(cs *v1beta1.CloneSet) {
			cs.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromString("some"))
		}, "spec.scaleStrategy.maxUnavailable"},
		"scale maxUnavailable below 0": {func(cs *v1beta1.CloneSet) {
			cs.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(-1))
		}, "spec.scaleStrategy.maxUnavailable"},
		"an unknown type":                 {func(cs *v1beta1.CloneSet) { cs.Spec.UpdateStrategy.Type = "InPlaceOnly" }, "spec.updateStrategy.type"},
		"a rolling update without limits": {func(cs *v1beta1.CloneSet) { cs.Spec.UpdateStrategy.RollingUpdate = nil }, ru},
		"an unknown policy":               {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.PodUpdatePolicy = "Recreate" }), ru + ".podUpdatePolicy"},
		"partition missing":               {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Partition = nil }), ru + ".partition"},
		"partition negative":              {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Partition = new(intstr.FromInt32(-1)) }), ru + ".partition"},
		"partition as quoted number":      {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) { r.Partition = new(intstr.FromString("5")) }), ru + ".partition"},
		"maxUnavailable as quoted number": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.MaxUnavailable = new(intstr.FromString("5"))
		}), ru + ".maxUnavailable"},
		"maxUnavailable negative": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.MaxUnavailable = new(intstr.FromInt32(-2))
		}), ru + ".maxUnavailable"},
		"maxSurge with two percent signs": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.MaxSurge = new(intstr.FromString("5%%"))
		}), ru + ".maxSurge"},
		"a surge with InPlaceOnly": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PodUpdatePolicy, r.MaxSurge = v1beta1.InPlaceOnlyPodUpdatePolicyType, new(intstr.FromInt32(1))
		}), ru + ".maxSurge"},
		"no Pod may be unavailable or extra": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.MaxUnavailable = new(intstr.FromString("0%"))
		}), ru + ".maxUnavailable"},
		"weights and orders at once": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{
				OrderPriority:  []v1beta1.UpdatePriorityOrderTerm{{OrderedKey: "o"}},
				WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{Weight: 1, MatchSelector: label}},
			}
		}), ru + ".priorityStrategy"},
		"a weight above 100": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{Weight: 101, MatchSelector: label}}}
		}), ru + ".priorityStrategy.weightPriority[0].weight"},
		"a weight for every Pod": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{Weight: 1}}}
		}), ru + ".priorityStrategy.weightPriority[0].matchSelector"},
		"a weight with a bad selector": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{WeightPriority: []v1beta1.UpdatePriorityWeightTerm{{
				Weight: 1, MatchSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}}},
			}}}
		}), ru + ".priorityStrategy.weightPriority[0].matchSelector.matchExpressions[0].values"},
		"an order without key": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.PriorityStrategy = &v1beta1.UpdatePriorityStrategy{OrderPriority: []v1beta1.UpdatePriorityOrderTerm{{}}}
		}), ru + ".priorityStrategy.orderPriority[0].orderedKey"},
		"scatter without key": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.ScatterStrategy = v1beta1.CloneSetUpdateScatterStrategy{{Value: "x"}}
		}), ru + ".scatterStrategy[0].key"},
		"scatter twice the same": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.ScatterStrategy = v1beta1.CloneSetUpdateScatterStrategy{{Key: "a", Value: "x"}, {Key: "a", Value: "x"}}
		}), ru + ".scatterStrategy[1]"},
		"parallelism in percent": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromString("50%"))}
		}), ru + ".inPlaceUpdateStrategy.imagePreDownloadParallelism"},
		"parallelism negative": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromInt32(-1))}
		}), ru + ".inPlaceUpdateStrategy.imagePreDownloadParallelism"},
		"pre-download timeout negative": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadTimeoutSeconds: new(int32(-1))}
		}), ru + ".inPlaceUpdateStrategy.imagePreDownloadTimeoutSeconds"},
		"pre-download minimum negative": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadMinUpdatedReadyPods: new(int32(-1))}
		}), ru + ".inPlaceUpdateStrategy.imagePreDownloadMinUpdatedReadyPods"},
		"a negative grace period": {rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
			r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{GracePeriodSeconds: -1}
		}), ru + ".inPlaceUpdateStrategy.gracePeriodSeconds"},
		"minReadySeconds negative":      {func(cs *v1beta1.CloneSet) { cs.Spec.MinReadySeconds = -1 }, "spec.minReadySeconds"},
		"revisionHistoryLimit negative": {func(cs *v1beta1.CloneSet) { cs.Spec.RevisionHistoryLimit = new(int32(-1)) }, "spec.revisionHistoryLimit"},
		"progress deadline negative":    {func(cs *v1beta1.CloneSet) { cs.Spec.ProgressDeadlineSeconds = new(int32(-1)) }, "spec.progressDeadlineSeconds"},
		"progress deadline not above minReadySeconds": {func(cs *v1beta1.CloneSet) {
			cs.Spec.MinReadySeconds, cs.Spec.ProgressDeadlineSeconds = 10, new(int32(10))
		}, "spec.progressDeadlineSeconds"},
		"a hook with a label that cannot be": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Lifecycle = &v1beta1.Lifecycle{PreDelete: &v1beta1.LifecycleHook{LabelsHandler: map[string]string{"a": "not a value"}}}
		}, "spec.lifecycle.preDelete.labelsHandler"},
		"a hook with a finalizer that cannot be": {func(cs *v1beta1.CloneSet) {
			cs.Spec.Lifecycle = &v1beta1.Lifecycle{InPlaceUpdate: &v1beta1.LifecycleHook{FinalizersHandler: []string{"a b"}}}
		}, "spec.lifecycle.inPlaceUpdate.finalizersHandler"},
	}
	for name, c := range cases {
		t.Run(name, c.check)
	}
}

func TestFaultsOfV1alpha1HaveItsPaths(t *testing.T) {
	cs := web(rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
		r.PodUpdatePolicy, r.MaxSurge = v1beta1.InPlaceOnlyPodUpdatePolicyType, new(intstr.FromInt32(1))
		r.InPlaceUpdateStrategy = &v1beta1.InPlaceUpdateStrategy{ImagePreDownloadParallelism: new(intstr.FromString("50%"))}
	}))
	errs := valid.CloneSet(cs, valid.Options{V1alpha1: true})
	require.Len(t, errs, 1)
	require.Equal(t, "spec.updateStrategy.maxSurge", errs[0].Field)
	require.Contains(t, errs[0].Detail, "can not use maxSurge with strategy type InPlaceOnly")
	require.Contains(t, valid.CloneSet(cs, valid.Options{}).ToAggregate().Error(), "can not use maxSurge with podUpdatePolicy InPlaceOnly")
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	cs := web(func(cs *v1beta1.CloneSet) {
		cs.Spec.Replicas = new(int32(-1))
		cs.Spec.Template.Spec.Containers[0].Image = ""
		cs.Spec.UpdateStrategy.RollingUpdate.Partition = new(intstr.FromString("x"))
	})
	require.ElementsMatch(t, []string{
		"spec.replicas", "spec.template.spec.containers[0].image", "spec.updateStrategy.rollingUpdate.partition",
	}, paths(valid.CloneSet(cs, valid.Options{})))
}

func TestPodsToDelete(t *testing.T) {
	owned := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "web-uid", Controller: new(true)}}}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	o := valid.Options{Pods: map[string]*corev1.Pod{
		"mine":  owned(),
		"going": owned(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
		"other": owned(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another" }),
	}}
	old := web(func(cs *v1beta1.CloneSet) { cs.Spec.ScaleStrategy.PodsToDelete = []string{"long-gone"} })
	for name, c := range map[string]struct {
		names []string
		path  []string
	}{
		"a Pod of the CloneSet":              {[]string{"mine"}, nil},
		"a name that was there before":       {[]string{"long-gone"}, nil},
		"a name that no Pod has":             {[]string{"long-gone", "typo"}, []string{"spec.scaleStrategy.podsToDelete[1]"}},
		"a Pod that is terminating":          {[]string{"going"}, []string{"spec.scaleStrategy.podsToDelete[0]"}},
		"a Pod that belongs to someone else": {[]string{"other"}, []string{"spec.scaleStrategy.podsToDelete[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			cs := web(func(cs *v1beta1.CloneSet) { cs.Spec.ScaleStrategy.PodsToDelete = c.names })
			require.Equal(t, c.path, paths(valid.CloneSetUpdate(old, cs, o)))
		})
	}
	require.Len(t, valid.CloneSet(old, o), 1, "at CREATE every name is new")
	require.Empty(t, valid.CloneSet(old, valid.Options{}), "without Pods names are not looked at")
}

func TestUpdateOfCloneSet(t *testing.T) {
	inPlaceOnly := rolling(func(r *v1beta1.RollingUpdateCloneSetStrategy) {
		r.PodUpdatePolicy = v1beta1.InPlaceOnlyPodUpdatePolicyType
	})
	image := func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = "nginx:1.28" }
	limits := func(cs *v1beta1.CloneSet) {
		cs.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": *quantity("2")}
	}
	broken := func(cs *v1beta1.CloneSet) { cs.Spec.Template.Spec.Containers[0].Image = "" }
	const onlyImages = "only allowed to update images in spec for InPlaceOnly, but found "
	for name, c := range map[string]struct {
		old, obj *v1beta1.CloneSet
		o        valid.Options
		want     string // part of the message; empty: accepted
	}{
		"the selector": {web(), web(func(cs *v1beta1.CloneSet) {
			cs.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}}
		}), valid.Options{}, "updates to cloneset spec for fields other than"},
		"everything that may change": {web(), web(image, claimTemplate("data"), func(cs *v1beta1.CloneSet) {
			cs.Spec.Replicas, cs.Spec.MinReadySeconds, cs.Spec.RevisionHistoryLimit = new(int32(5)), 3, new(int32(2))
			cs.Spec.Lifecycle, cs.Spec.ProgressDeadlineSeconds = &v1beta1.Lifecycle{}, new(int32(60))
		}), valid.Options{}, ""},
		"InPlaceOnly and the image, from another policy": {web(), web(image, inPlaceOnly), valid.Options{}, ""},
		"InPlaceOnly, image, claims and metadata": {web(inPlaceOnly), web(image, inPlaceOnly, claimTemplate("data"), func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Annotations = map[string]string{"a": "b"}
		}), valid.Options{}, ""},
		"InPlaceOnly and a new variable": {web(inPlaceOnly), web(inPlaceOnly, func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}}
		}), valid.Options{}, onlyImages + "add /containers/0/env"},
		"InPlaceOnly and a container less": {web(inPlaceOnly, secondContainer), web(inPlaceOnly), valid.Options{}, onlyImages + "remove /containers/1"},
		"InPlaceOnly and another name": {web(inPlaceOnly), web(inPlaceOnly, func(cs *v1beta1.CloneSet) {
			cs.Spec.Template.Spec.Containers[0].Name = "x"
		}), valid.Options{}, onlyImages + "replace /containers/0/name"},
		"InPlaceOnly and resources, gate off":        {web(inPlaceOnly), web(inPlaceOnly, limits), valid.Options{}, onlyImages + "add /containers/0/resources/limits"},
		"InPlaceOnly and resources, gate on":         {web(inPlaceOnly), web(inPlaceOnly, limits), valid.Options{VerticalScaling: true}, ""},
		"InPlaceOnly and resources, as v1alpha1":     {web(inPlaceOnly), web(inPlaceOnly, limits), valid.Options{VerticalScaling: true, V1alpha1: true}, onlyImages},
		"a finalizer of an object that is not valid": {web(broken), web(broken, func(cs *v1beta1.CloneSet) { cs.Finalizers = nil }), valid.Options{}, ""},
		"another field of an object that is not valid": {web(broken), web(broken, func(cs *v1beta1.CloneSet) {
			cs.Spec.Replicas = new(int32)
		}), valid.Options{}, ""},
		"a new fault beside an old one": {web(broken), web(broken, func(cs *v1beta1.CloneSet) {
			cs.Spec.Replicas = new(int32(-1))
		}), valid.Options{}, "spec.replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := valid.CloneSetUpdate(c.old, c.obj, c.o)
			if c.want == "" {
				require.Empty(t, errs)
				return
			}
			require.Len(t, errs, 1)
			require.ErrorContains(t, errs[0], c.want)
		})
	}
	errs := valid.CloneSetUpdate(web(), web(func(cs *v1beta1.CloneSet) {
		cs.Spec.Selector.MatchLabels, cs.Spec.Template.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	}), valid.Options{})
	require.Regexp(t, `: updates to cloneset spec for fields other than .* are forbidden$`, errs.ToAggregate().Error())
}

// Conversion to the hub makes ReCreate of a type that it does not know.
func TestTypesOfV1alpha1CloneSets(t *testing.T) {
	for typ, want := range map[v1alpha1.CloneSetUpdateStrategyType][]string{
		"": nil, "ReCreate": nil, "InPlaceIfPossible": nil, "InPlaceOnly": nil, "OnDelete": nil,
		"RollingUpdate": {"spec.updateStrategy.type"}, "recreate": {"spec.updateStrategy.type"},
	} {
		cs := &v1alpha1.CloneSet{Spec: v1alpha1.CloneSetSpec{UpdateStrategy: v1alpha1.CloneSetUpdateStrategy{Type: typ}}}
		require.Equal(t, want, paths(valid.CloneSetV1alpha1(cs)), string(typ))
	}
}

func TestDeleteOfCloneSet(t *testing.T) {
	protected := func(value string, replicas int32) *v1beta1.CloneSet {
		return web(func(cs *v1beta1.CloneSet) {
			cs.Labels = map[string]string{v1beta1.DeleteProtectionLabel: value}
			cs.Spec.Replicas = &replicas
		})
	}
	const message = "forbidden by ResourcesProtectionDeletion for policy.kruise.io/delete-protection="
	require.NoError(t, valid.CloneSetDelete(web()))
	require.NoError(t, valid.CloneSetDelete(protected("Cascading", 0)))
	require.NoError(t, valid.CloneSetDelete(protected("always", 1)), "the value is case-sensitive")
	require.EqualError(t, valid.CloneSetDelete(protected("Always", 0)), message+"Always")
	require.EqualError(t, valid.CloneSetDelete(protected("Cascading", 3)), message+"Cascading and replicas 3>0")
	going := protected("Always", 1)
	going.DeletionTimestamp = &metav1.Time{}
	require.NoError(t, valid.CloneSetDelete(going), "a repeated DELETE passes")
}

func ExampleCloneSet() {
	cs := web(func(cs *v1beta1.CloneSet) {
		cs.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("5"))
	})
	fmt.Println(valid.CloneSet(cs, valid.Options{}).ToAggregate())
	// Output: spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "5": must be a number without quotes or a percentage such as "20%"
}

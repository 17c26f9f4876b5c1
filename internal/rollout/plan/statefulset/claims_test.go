// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// claim starts the claim data of an ordinal.
func claim(set fixture.StatefulSetBuilder, n int) fixture.ClaimBuilder {
	return fixture.ClaimOf(set, "data", n)
}

func owned(b fixture.ClaimBuilder, kind, name string, uid types.UID) fixture.ClaimBuilder {
	return b.With(func(c *corev1.PersistentVolumeClaim) {
		api := "v1"
		if kind == "StatefulSet" {
			api = v1beta1.GroupVersion.String()
		}
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: api, Kind: kind, Name: name, UID: uid})
	})
}

func bySet(b fixture.ClaimBuilder) fixture.ClaimBuilder {
	return owned(b, "StatefulSet", "web", "uid-web")
}

func byPod(b fixture.ClaimBuilder, name string) fixture.ClaimBuilder {
	return owned(b, "Pod", name, types.UID("uid-"+name))
}

// TestRetention is the table of statefulset.md 9.
func TestRetention(t *testing.T) {
	base := ordered(1).Claim("data", "1Gi")
	// One Pod in range, one out of it.
	two := func(scaled, deleted appsv1.PersistentVolumeClaimRetentionPolicyType, claims ...fixture.ClaimBuilder) situation {
		return web(base.Retention(scaled, deleted)).new(0, 1).claimed(claims...)
	}
	fresh := []fixture.ClaimBuilder{claim(base, 0), claim(base, 1)}
	runTable(t, map[string]row{
		"Retain, Retain: nobody owns claims": {two(retain, retain, fresh...), `
			delete web-1: OutOfRange`},
		"Retain, Delete: the set owns them": {two(retain, remove, fresh...), `
			own data-web-0 by set
			own data-web-1 by set
			held web-1: ClaimOwners`},
		"Delete, Retain: a Pod that is scaled in owns its own": {two(remove, retain, fresh...), `
			own data-web-1 by Pod
			held web-1: ClaimOwners`},
		"Delete, Delete: both": {two(remove, remove, fresh...), `
			own data-web-0 by set
			own data-web-1 by Pod
			held web-1: ClaimOwners`},
		"with the right owners the Pod is deleted": {two(remove, remove, bySet(claim(base, 0)), byPod(claim(base, 1), "web-1")), `
			delete web-1: OutOfRange`},
		"a policy changed to Retain takes them back": {two(retain, retain, bySet(claim(base, 0)), byPod(claim(base, 1), "web-1")), `
			own data-web-0 by none
			own data-web-1 by none
			held web-1: ClaimOwners`},
		"other owners stay": {two(retain, retain, owned(claim(base, 0), "ConfigMap", "x", "x"), claim(base, 1)), `
			delete web-1: OutOfRange`},
		"unknown values are Retain": {two("Keep", "Keep", fresh...), `
			delete web-1: OutOfRange`},
		"without its gate nothing is written": {two(remove, remove, fresh...).gate(func(g *Gates) { g.AutoDeletePVC = false }), `
			delete web-1: OutOfRange`},
		"a missing claim is fine": {two(remove, remove, bySet(claim(base, 0))), `
			delete web-1: OutOfRange`},
		"a reserved ordinal is out of range": {web(base.Replicas(2).Reserve("1").Retention(remove, retain)).new(0, 1, 2).claimed(fresh...), `
			own data-web-1 by Pod
			held web-1: ClaimOwners`},
		"claims of ordinals without a Pod are never touched": {web(base.Retention(remove, remove)).new(0).claimed(bySet(claim(base, 0)), claim(base, 3)), ``},
		"a Pod that is wanted again does not own its claim any more": {web(base.Replicas(2).Retention(remove, retain)).new(0, 1).claimed(claim(base, 0), byPod(claim(base, 1), "web-1")), `
			own data-web-1 by none`},
	})
}

func TestOwnersOnlyChangeTheirOwn(t *testing.T) {
	base := ordered(1).Claim("data", "1Gi")
	c := byPod(bySet(owned(claim(base, 0), "ConfigMap", "x", "x")), "web-0").Obj()
	p := pod(base, 0).Obj()
	ClaimStep{Do: OwnClaim, PodOwns: true}.Apply(c, base.Obj(), p)
	assert.Equal(t, []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}, {APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "uid-web-0"},
	}, normalise(c.OwnerReferences))
	ClaimStep{Do: OwnClaim, SetOwns: true}.Apply(c, base.Obj(), p)
	assert.Equal(t, metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: "uid-web"}, c.OwnerReferences[1])
	assert.Nil(t, c.OwnerReferences[1].Controller)
	ClaimStep{Do: OwnClaim}.Apply(c, base.Obj(), p)
	assert.Len(t, c.OwnerReferences, 1)
}

func normalise(refs []metav1.OwnerReference) []metav1.OwnerReference {
	for i := range refs {
		if refs[i].Kind == "ConfigMap" {
			refs[i].APIVersion = "v1"
		}
	}
	return refs
}

func TestClaimsOfNewPods(t *testing.T) {
	base := ordered(1).Claim("data", "1Gi").Retention(remove, retain)
	pending := pod(base, 0).With(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })
	runTable(t, map[string]row{
		"claims are made with the Pod": {web(base.Claim("logs", "1Gi")), `
			create web-0 new with data logs`},
		"those that exist are used again, whoever made them": {web(base).claimed(claim(base, 0)), `
			create web-0 new`},
		"a claim that goes with the Pod before holds the next up": {web(base).claimed(owned(claim(base, 0), "Pod", "web-0", "gone")), `
			held web-0: StaleClaim`},
		"OrderedReady waits for it": {web(base.Replicas(2)).claimed(owned(claim(base, 0), "Pod", "web-0", "gone")), `
			held web-0: StaleClaim
			held web-1: OrderedReady`},
		"Parallel goes on with the next": {web(base.Replicas(2).Parallel()).claimed(owned(claim(base, 0), "Pod", "web-0", "gone")), `
			create web-1 new with data
			held web-0: StaleClaim`},
		"with whenScaled Retain it is used": {web(base.Retention(retain, retain)).claimed(owned(claim(base, 0), "Pod", "web-0", "gone")), `
			create web-0 new`},
		"and then kept from going": {web(base.Retention(retain, retain)).new(0).claimed(owned(claim(base, 0), "Pod", "web-0", "gone")), `
			own data-web-0 by none`},
		"a claim that is being deleted is waited for": {web(base.Retention(retain, retain)).claimed(claim(base, 0).With(terminating)), `
			held web-0: ClaimTerminating`},
		"a pending Pod gets its claim back": {web(base).with(pending), `
			refresh web-0: Refresh
			create data-web-0`},
		"not while the one before is going": {web(base).with(pending).claimed(claim(base, 0).With(terminating)), `
			refresh web-0: Refresh`},
		"nor one that it has no volume for": {web(base.Claim("logs", "1Gi").Paused()).with(pending).claimed(claim(base, 0)), `
			refresh web-0: Refresh`},
		"a running Pod does not": {web(base).new(0), ``},
	})
}

func terminating(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }

// TestClaimTemplatesThatComeAndGo: volumes that do not cover the templates wedge the set
// in OpenKruise; here the Pod is made anew in its turn.
func TestClaimTemplatesThatComeAndGo(t *testing.T) {
	was := ordered(2).Claim("data", "1Gi")
	now := was.Claim("logs", "1Gi")
	claims := []fixture.ClaimBuilder{claim(was, 0), claim(was, 1)}
	both := func(set fixture.StatefulSetBuilder) situation {
		return web(set).with(pod(was, 0), pod(was, 1)).claimed(claims...)
	}
	runTable(t, map[string]row{
		"a template that was added recreates Pods, in their turn": {both(now), `
			delete web-1: ClaimTemplateAdded
			held web-0: OrderedReady`},
		"the new Pod gets its claim": {web(now).with(pod(was, 0)).claimed(claims...), `
			create web-1 new with logs
			held web-0: OrderedReady`},
		"within the partition": {both(now.Partition(1)), `
			delete web-1: ClaimTemplateAdded
			held web-0: Partition`},
		"within maxUnavailable": {both(now.Parallel()), `
			delete web-1: ClaimTemplateAdded
			held web-0: MaxUnavailable`},
		"not while paused": {both(now.Paused()), `
			held web-0: Paused
			held web-1: Paused`},
		"not in place": {both(inPlace(now)), `
			delete web-1: ClaimTemplateAdded
			held web-0: OrderedReady`},
		"never with InPlaceOnly": {both(now.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType)), `
			held web-1: InPlaceOnly
			held web-0: OrderedReady`},
		"which updates the image all the same": {func() situation {
			s := changed(was.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType), now.Policy(v1beta1.InPlaceOnlyPodUpdatePolicyType).Image("app:2"))
			return s.old(0, 1).claimed(claims...)
		}(), `
			updateinplace web-1 to Updating: OldRevision
			held web-0: OrderedReady`},
		"a template that was removed leaves running Pods alone": {web(was).with(pod(now, 0), pod(now, 1)).claimed(claims...), ``},
	})
}

// TestExpansion is statefulset.md 10.
func TestExpansion(t *testing.T) {
	class := func(b fixture.StatefulSetBuilder, name string) fixture.StatefulSetBuilder {
		return b.With(func(s *v1beta1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = &name })
	}
	was := class(parallel(3).Claim("data", "1Gi"), "grows")
	grown := was.Claim("data", "2Gi")
	all := func(s situation, states ...func(fixture.ClaimBuilder) fixture.ClaimBuilder) situation {
		for n := range 3 {
			c := claim(was, n)
			if n < len(states) {
				c = states[n](c)
			}
			s = s.claimed(c)
		}
		return s.resizes()
	}
	same := func(c fixture.ClaimBuilder) fixture.ClaimBuilder { return c }
	asks := func(c fixture.ClaimBuilder) fixture.ClaimBuilder { return c.Request("2Gi") }
	pendingFor := func(d time.Duration) func(fixture.ClaimBuilder) fixture.ClaimBuilder {
		return func(c fixture.ClaimBuilder) fixture.ClaimBuilder {
			return asks(c).With(func(c *corev1.PersistentVolumeClaim) {
				c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
					Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-d)),
				}}
			})
		}
	}
	done := func(c fixture.ClaimBuilder) fixture.ClaimBuilder {
		return asks(c).With(func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = c.Spec.Resources.Requests })
	}
	grownImage := changed(was, grown.Image("app:2"))
	runTable(t, map[string]row{
		"only sizes changed: claims grow one by one, Pods stay": {all(web(grown).new(0, 1, 2)), `
			expand data-web-2
			held web-2: ClaimExpanding
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"the next when the first has grown": {all(web(grown).new(0, 1, 2), same, same, done), `
			expand data-web-1
			held web-1: ClaimExpanding
			held web-0: MaxUnavailable`},
		"not while it grows": {all(web(grown).new(0, 1, 2), same, same, asks), `
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"all have grown": {all(web(grown).new(0, 1, 2), done, done, done), ``},
		"two at a time": {all(web(grown.MaxUnavailable("2")).new(0, 1, 2)), `
			expand data-web-2
			expand data-web-1
			held web-2: ClaimExpanding
			held web-1: ClaimExpanding
			held web-0: MaxUnavailable`},
		"an unavailable Pod uses the budget up": {all(web(grown).new(1, 2).with(unready(grown, 0))), `
			expand data-web-0
			held web-0: ClaimExpanding
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"with a new image claims grow first": {all(grownImage.old(0, 1, 2)), `
			expand data-web-2
			held web-2: ClaimExpanding
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"then the Pod is updated": {all(grownImage.old(0, 1, 2), same, same, done), `
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"also while the file system waits for that": {all(grownImage.old(0, 1, 2), same, same, pendingFor(time.Second)), `
			delete web-2: OldRevision
			held web-1: MaxUnavailable
			held web-0: MaxUnavailable`},
		"but not while another Pod is down: it serves": {all(grownImage.old(1, 2).with(unready(was.Image("app:2"), 0)), done, same, pendingFor(time.Second)), `
			held web-2: MaxUnavailable
			held web-1: MaxUnavailable`},
		"only sizes changed: a file system that waits for a restart gets one": {all(web(grown).new(0, 1, 2), done, done, pendingFor(time.Hour)), `
			delete web-2: FileSystemResizePending`},
		"one Pod at a time": {all(web(grown).new(0, 1, 2), done, pendingFor(time.Hour), pendingFor(time.Hour)), `
			delete web-2: FileSystemResizePending
			held web-1: MaxUnavailable`},
		"not before the kubelet has had its time": {all(web(grown).new(0, 1, 2), done, done, pendingFor(time.Minute)), `
			again in 2m0s`},
		"the partition keeps claims, too": {all(web(grown.Partition(3)).new(0, 1, 2)), ``},
		"a template that shrank":          {all(web(was).new(0, 1, 2), done, done, done), ``},
		"strategy OnDelete": {func() situation {
			s := all(web(grown).new(0, 1, 2))
			s.set = s.set.ClaimUpdates(v1beta1.OnDeleteVolumeClaimUpdateStrategyType)
			return s
		}(), ``},
		"the gate is off": {all(web(grown).new(0, 1, 2)).gate(func(g *Gates) { g.AutoResizePVC = false }), ``},
		"paused":          {all(web(grown.Paused()).new(0, 1, 2)), ``},
		"missing and terminating claims are ignored": {web(grown).new(0, 1, 2).claimed(claim(was, 0).With(terminating), done(claim(was, 2))).resizes(), ``},
		"a class that forbids expansion": {all(web(class(grown, "fixed")).new(0, 1, 2), onClass("fixed"), onClass("fixed"), onClass("fixed")), `
			held web-2: ClaimNotExpandable
			held web-1: ClaimNotExpandable
			held web-0: ClaimNotExpandable`},
		"a class that says nothing about it": {web(class(grown.Replicas(1), "silent")).new(0).claimed(onClass("silent")(claim(was, 0))).resizes(), `
			held web-0: ClaimNotExpandable`},
		"a class that is gone": {web(class(grown.Replicas(1), "gone")).new(0).claimed(onClass("gone")(claim(was, 0))).resizes(), `
			held web-0: ClaimNotExpandable`},
		"another class": {web(class(grown.Replicas(1), "fixed")).new(0).claimed(claim(was, 0)).resizes(), `
			held web-0: ClaimShapeDiffers`},
		"other access modes": {web(grown.Replicas(1)).new(0).claimed(claim(was, 0).With(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		})).resizes(), `
			held web-0: ClaimShapeDiffers`},
		"no class named: the API server decides": {web(grown.Replicas(1)).new(0).claimed(claim(was, 0).With(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })).resizes(), `
			expand data-web-0
			held web-0: ClaimExpanding`},
		"owners are written before it grows": {web(grown.Replicas(1).Retention(retain, remove)).new(0).claimed(claim(was, 0)).resizes(), `
			own data-web-0 by set
			held web-0: ClaimOwners`},
		"OrderedReady expands in order": {func() situation {
			s := all(web(grown).new(0, 1, 2))
			s.set = s.set.With(func(s *v1beta1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement })
			return s
		}(), `
			expand data-web-2
			held web-2: ClaimExpanding`},
	})
}

func onClass(name string) func(fixture.ClaimBuilder) fixture.ClaimBuilder {
	return func(c fixture.ClaimBuilder) fixture.ClaimBuilder {
		return c.With(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name })
	}
}

func TestExpandStep(t *testing.T) {
	base := parallel(1).Claim("data", "2Gi")
	c := claim(parallel(1).Claim("data", "1Gi"), 0).Obj()
	ClaimStep{Do: ExpandClaim, Resources: base.Obj().Spec.VolumeClaimTemplates[0].Spec.Resources}.Apply(c, base.Obj(), nil)
	assert.Equal(t, "2Gi", c.Spec.Resources.Requests.Storage().String())
	assert.Equal(t, "web", c.Annotations[v1beta1.OwnedByStatefulSetAnnotation])
}

//go:build e2e && full

// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/test/e2e/harness"
)

// twoClaims gives every Pod the volumes data-vol1 and data-vol2, of 1Gi each.
func twoClaims(f fields) {
	*f.Replicas, *f.Deadline = new(int32(4)), new(int32(600))
	f.OnlyPolicy(v1beta1.RecreatePodUpdatePolicyType)
	for _, name := range []string{"data-vol1", "data-vol2"} {
		*f.Claims = append(*f.Claims, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		})
		app := &f.Template.Spec.Containers[0]
		app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

// claimSize makes the claim templates ask for a size.
func claimSize(f fields, size string, templates ...int) {
	for _, i := range templates {
		(*f.Claims)[i].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

// claims lists the claims that are not being deleted, by name.
func claims(e *harness.Env) []corev1.PersistentVolumeClaim {
	e.T.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	require.NoError(e.T, e.Client.List(e.Ctx(), list, client.InNamespace(e.Namespace)))
	live := slices.DeleteFunc(list.Items, func(c corev1.PersistentVolumeClaim) bool { return c.DeletionTimestamp != nil })
	slices.SortFunc(live, func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return live
}

// ids returns the instance ids of objects, each once, sorted.
func ids[T any](list []T, labels func(*T) map[string]string) []string {
	var found []string
	for i := range list {
		found = append(found, labels(&list[i])[v1beta1.InstanceIDLabel])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func podIDs(pods []corev1.Pod) []string {
	return ids(pods, func(p *corev1.Pod) map[string]string { return p.Labels })
}

func claimIDs(claims []corev1.PersistentVolumeClaim) []string {
	return ids(claims, func(c *corev1.PersistentVolumeClaim) map[string]string { return c.Labels })
}

func claimNames(claims []corev1.PersistentVolumeClaim) []string {
	var names []string
	for _, c := range claims {
		names = append(names, c.Name)
	}
	return names
}

// requireClaims waits until four Pods are available, and fails unless each has its two claims, of the given sizes, and
// there are no others. It returns both.
func requireClaims(e *harness.Env, sizes ...string) ([]corev1.Pod, []corev1.PersistentVolumeClaim) {
	e.T.Helper()
	e.WaitAvailable("web", 4)
	waitCondition(e, "CloneSetAvailable")
	pods, all := e.Pods("web"), claims(e)
	require.Len(e.T, all, 8, "claims %q", claimNames(all))
	require.Equal(e.T, podIDs(pods), claimIDs(all), "instance ids of Pods and claims")
	for _, c := range all {
		owner := metav1.GetControllerOf(&c)
		require.NotNil(e.T, owner, "owner of claim %s", c.Name)
		require.Equal(e.T, "CloneSet", owner.Kind, "owner of claim %s", c.Name)
		template := 0
		if strings.HasPrefix(c.Name, "data-vol2-") {
			template = 1
		}
		asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
		require.Equal(e.T, sizes[template], asked.String(), "size of claim %s", c.Name)
	}
	return pods, all
}

// deletePods deletes Pods by the names of these, and waits until all four Pods are others.
func deletePods(e *harness.Env, pods []corev1.Pod) {
	e.T.Helper()
	before := harness.UIDs(e.Pods("web"))
	for _, p := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: p.Name}}
		require.NoError(e.T, e.Client.Delete(e.Ctx(), pod), "Pod %s must exist", p.Name)
	}
	e.Eventually("other Pods", harness.Long, func() string {
		now := harness.UIDs(e.Pods("web"))
		for _, uid := range now {
			if slices.Contains(before, uid) {
				return "an old one exists"
			}
		}
		if len(now) != 4 {
			return fmt.Sprintf("%d Pods", len(now))
		}
		return ""
	})
}

// U7: claims of Pods that somebody deletes wait for other Pods, which take over their names; or they go with them.
func TestClaimsOfDeletedPodsAreReusedOrGo(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 4, func(f fields) {
			twoClaims(f)
			f.ReuseClaims(true)
		})
		pods, before := requireClaims(e, "1Gi", "1Gi")

		deletePods(e, pods)
		again, kept := requireClaims(e, "1Gi", "1Gi")
		require.Equal(e.T, claimNames(before), claimNames(kept))
		require.Equal(e.T, podIDs(pods), podIDs(again))

		api.change(e, func(f fields) { f.ReuseClaims(false) })
		waitCondition(e, "CloneSetAvailable")
		deletePods(e, pods) // by the names of the first ones, which the others have
		_, fresh := requireClaims(e, "1Gi", "1Gi")
		for _, name := range claimNames(fresh) {
			require.NotContains(e.T, claimNames(before), name)
		}
	})
}

// U9: other claim templates recreate Pods only together with another Pod template, and never where all is to be in place.
func TestChangedClaimTemplatesAndPolicies(t *testing.T) {
	inBothVersions(t, func(e *harness.Env, api version) {
		api.create(e, 4, twoClaims)
		pods, had := requireClaims(e, "1Gi", "1Gi")

		// step changes web and says whether Pods and claims are others afterwards.
		step := func(what string, others bool, sizes [2]string, edit func(fields)) {
			e.T.Helper()
			e.T.Log(what)
			api.change(e, edit)
			nowPods, now := requireClaims(e, sizes[0], sizes[1])
			if !others {
				require.Equal(e.T, podIDs(pods), podIDs(nowPods), what)
				require.Equal(e.T, claimNames(had), claimNames(now), what)
				require.Equal(e.T, harness.UIDs(pods), harness.UIDs(nowPods), what)
			}
			for _, id := range podIDs(nowPods) {
				require.Equal(e.T, !others, slices.Contains(podIDs(pods), id), "%s: instance id %s", what, id)
			}
			pods, had = nowPods, now
		}
		image := func(f fields, image string) { f.Template.Spec.Containers[0].Image = image }

		step("image and first claim", true, [2]string{"2Gi", "1Gi"}, func(f fields) {
			f.OnlyPolicy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
			image(f, harness.Nginx2)
			claimSize(f, "2Gi", 0)
		})
		step("second claim alone", false, [2]string{"2Gi", "1Gi"}, func(f fields) {
			f.OnlyPolicy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
			claimSize(f, "2Gi", 1)
		})
		step("image alone, after the second claim", true, [2]string{"2Gi", "2Gi"}, func(f fields) {
			f.OnlyPolicy(v1beta1.InPlaceIfPossiblePodUpdatePolicyType)
			image(f, harness.Redis)
		})
		step("image in place only", false, [2]string{"2Gi", "2Gi"}, func(f fields) {
			f.OnlyPolicy(v1beta1.InPlaceOnlyPodUpdatePolicyType)
			image(f, harness.Nginx3)
		})
		step("image in place only, and both claims", false, [2]string{"2Gi", "2Gi"}, func(f fields) {
			f.OnlyPolicy(v1beta1.InPlaceOnlyPodUpdatePolicyType)
			image(f, harness.Redis)
			claimSize(f, "3Gi", 0, 1)
		})
	})
}

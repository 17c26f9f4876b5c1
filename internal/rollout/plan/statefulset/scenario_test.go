// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kruisectl/kruisectl/apis/apps/v1beta1"
	"github.com/kruisectl/kruisectl/internal/fixture"
)

// play is a scenario of statefulset.md 15 under way.
type play struct {
	*testing.T
	*world
}

func start(t *testing.T, b fixture.StatefulSetBuilder) play {
	p := play{t, newWorld(b, t.Fatalf)}
	p.settle()
	return p
}

func (p play) rounds(n int) {
	for range n {
		p.round()
	}
}

// exist are the ordinals of the Pods, in ascending order.
func (p play) exist() string {
	var list []string
	for _, name := range p.pods.names() {
		list = append(list, strings.TrimPrefix(name, "web-"))
	}
	slices.SortFunc(list, func(a, b string) int { return len(a)*100 - len(b)*100 + strings.Compare(a, b) })
	return strings.Join(list, " ")
}

// images are those of the Pods in ascending order.
func (p play) images() string {
	var list []string
	for n := range Ordinals(p.set, p.gates).Walk() {
		if pod := p.pods.live[PodName("web", n)]; pod != nil {
			list = append(list, strings.TrimPrefix(pod.Spec.Containers[0].Image, "app:"))
		}
	}
	return strings.Join(list, " ")
}

func (p play) uids() map[string]string {
	m := map[string]string{}
	for name, pod := range p.pods.live {
		m[name] = string(pod.UID)
	}
	return m
}

func (p play) owners(claim string) (kinds []string) {
	for _, r := range p.claims.live[claim].OwnerReferences {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

func (p play) image(name string) {
	p.change("image "+name, func(s *v1beta1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = name })
}

func (p play) replicas(n int32) {
	p.change("replicas", func(s *v1beta1.StatefulSet) { s.Spec.Replicas = &n })
}

func (p play) partition(n int32) {
	p.change("partition", func(s *v1beta1.StatefulSet) { s.Spec.UpdateStrategy.RollingUpdate.Partition = &n })
}

func (p play) breakAll(names ...string) {
	for _, name := range names {
		p.broken[name] = true
		p.crash(name, false)
	}
}

func TestScenarios(t *testing.T) {
	three := ordered(3)
	for name, act := range map[string]func(*testing.T){
		"S1 Pods and their claims come back": func(t *testing.T) {
			p := start(t, three.Claim("data", "1Gi"))
			claim := p.claims.live["data-web-2"].UID
			p.replicas(0)
			p.settle()
			assert.Equal(t, int32(0), p.set.Status.Replicas)
			p.replicas(3)
			p.settle()
			assert.Equal(t, "0 1 2", p.exist())
			assert.Equal(t, claim, p.claims.live["data-web-2"].UID)
		},
		"S3 a lower Pod is made anew although a higher one is unready": func(t *testing.T) {
			p := play{t, newWorld(ordered(2), t.Fatalf)}
			p.breakAll("web-0", "web-1")
			p.settle()
			assert.Equal(t, "0", p.exist())
			delete(p.broken, "web-0")
			p.settle()
			assert.Equal(t, "0 1", p.exist())
			first := p.uids()
			p.userDeletes("web-0")
			p.settle()
			assert.NotEqual(t, first["web-0"], p.uids()["web-0"])
			assert.Equal(t, first["web-1"], p.uids()["web-1"])
			delete(p.broken, "web-1")
			p.settle()
			assert.Equal(t, int32(2), p.set.Status.ReadyReplicas)
		},
		"S4 an update waits for an unready Pod, and a rollback has the first revision's name": func(t *testing.T) {
			p := start(t, three)
			first := p.set.Status.UpdateRevision
			p.breakAll("web-1")
			p.settle()
			p.image("app:2")
			p.settle()
			assert.Equal(t, "1 1 1", p.images())
			assert.NotEqual(t, p.set.Status.CurrentRevision, p.set.Status.UpdateRevision)
			delete(p.broken, "web-1")
			p.settle()
			assert.Equal(t, "2 2 2", p.images())
			assert.Equal(t, p.set.Status.UpdateRevision, p.set.Status.CurrentRevision)
			p.image("app:1")
			p.settle()
			assert.Equal(t, "1 1 1", p.images())
			assert.Equal(t, first, p.set.Status.UpdateRevision)
			assert.Equal(t, first, p.set.Status.CurrentRevision)
		},
		"S6 a partition step by step, and Pods that come back at their revision": func(t *testing.T) {
			p := start(t, three.Partition(3))
			p.image("app:2")
			p.settle()
			assert.Equal(t, "1 1 1", p.images())
			p.partition(2)
			p.settle()
			assert.Equal(t, "1 1 2", p.images())
			p.userDeletes("web-0")
			p.userDeletes("web-2")
			p.settle()
			assert.Equal(t, "1 1 2", p.images())
			p.partition(1)
			p.settle()
			assert.Equal(t, "1 2 2", p.images())
			assert.NotEqual(t, p.set.Status.UpdateRevision, p.set.Status.CurrentRevision)
			p.partition(0)
			p.settle()
			assert.Equal(t, "2 2 2", p.images())
			assert.Equal(t, p.set.Status.UpdateRevision, p.set.Status.CurrentRevision)
		},
		"S7 OnDelete": func(t *testing.T) {
			p := start(t, three.OnDelete())
			p.image("app:2")
			p.settle()
			assert.Equal(t, "1 1 1", p.images())
			for _, name := range p.pods.names() {
				p.userDeletes(name)
			}
			p.settle()
			assert.Equal(t, "2 2 2", p.images())
		},
		"S8 in place with a grace period": func(t *testing.T) {
			p := start(t, inPlace(three).Grace(10).Partition(3))
			before := p.uids()
			p.image("app:2")
			p.settle()
			p.partition(0)
			p.settle()
			assert.Equal(t, "2 2 2", p.images())
			assert.Equal(t, before, p.uids())
		},
		"S10 what cannot be done in place is recreated": func(t *testing.T) {
			p := start(t, inPlace(three))
			before := p.uids()
			p.change("env", func(s *v1beta1.StatefulSet) {
				s.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
			})
			p.settle()
			for name, uid := range p.uids() {
				assert.NotEqual(t, before[name], uid)
			}
		},
		"S11 OrderedReady waits for health in both directions": func(t *testing.T) {
			p := start(t, ordered(1))
			p.breakAll("web-0")
			p.replicas(3)
			p.settle()
			assert.Equal(t, "0", p.exist())
			delete(p.broken, "web-0")
			p.settle()
			assert.Equal(t, "0 1 2", p.exist())
			p.breakAll("web-0", "web-1", "web-2")
			p.settle()
			p.replicas(0)
			p.settle()
			assert.Equal(t, "0 1 2", p.exist())
			clear(p.broken)
			p.deleted = nil
			p.settle()
			assert.Equal(t, "", p.exist())
			var order []string
			for _, s := range p.deleted {
				order = append(order, s.Pod)
			}
			assert.Equal(t, []string{"web-2", "web-1", "web-0"}, order)
		},
		"S12 Parallel does not": func(t *testing.T) {
			p := start(t, parallel(1))
			p.breakAll("web-0", "web-1", "web-2")
			p.replicas(3)
			p.settle()
			assert.Equal(t, "0 1 2", p.exist())
			p.replicas(0)
			p.settle()
			assert.Equal(t, "", p.exist())
			assert.Equal(t, int32(0), p.set.Status.Replicas)
		},
		"S13 a failed Pod is replaced": func(t *testing.T) {
			p := start(t, ordered(1))
			before := p.uids()
			p.crash("web-0", true)
			p.settle()
			assert.NotEqual(t, before["web-0"], p.uids()["web-0"])
			assert.Equal(t, int32(1), p.set.Status.ReadyReplicas)
		},
		"S15 steps of two, and a set that is all unready is updated": func(t *testing.T) {
			p := start(t, inPlace(parallel(3)).MinReadySeconds(3).ScaleMaxUnavailable("2"))
			p.replicas(10)
			p.rounds(1)
			assert.Len(t, p.pods.live, 5)
			p.settle()
			assert.Equal(t, int32(10), p.set.Status.AvailableReplicas)
			p.change("all at once, and a bad image", func(s *v1beta1.StatefulSet) {
				s.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromString("100%"))
				s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.FromString("100%"))
				s.Spec.Template.Spec.Containers[0].Image = "bad"
			})
			p.rounds(20)
			assert.Equal(t, int32(0), p.set.Status.ReadyReplicas)
			p.image("app:3")
			p.settle()
			assert.Equal(t, int32(10), p.set.Status.UpdatedReadyReplicas)
		},
		"S16 whenDeleted Delete: the set owns the claims": func(t *testing.T) {
			p := start(t, three.Claim("data", "1Gi").Retention(retain, remove))
			for _, name := range []string{"data-web-0", "data-web-1", "data-web-2"} {
				assert.Equal(t, []string{"StatefulSet"}, p.owners(name))
			}
		},
		"S17 whenScaled Delete: only the claim in range remains": func(t *testing.T) {
			p := start(t, three.Claim("data", "1Gi").Retention(remove, retain))
			p.replicas(1)
			p.settle()
			assert.Equal(t, []string{"data-web-0"}, p.claims.names())
			p.replicas(3)
			p.settle()
			assert.Equal(t, "0 1 2", p.exist())
		},
		"S18 with reserved ordinals": func(t *testing.T) {
			p := start(t, three.Reserve("0", "2-5").Claim("data", "1Gi").Retention(remove, retain))
			assert.Equal(t, []string{"data-web-1", "data-web-6", "data-web-7"}, p.claims.names())
			p.replicas(1)
			p.settle()
			assert.Equal(t, []string{"data-web-1"}, p.claims.names())
		},
		"S18 a volume that is going is not used again": func(t *testing.T) {
			p := start(t, ordered(2).Claim("data", "1Gi").Retention(remove, retain))
			claim := p.claims.live["data-web-1"].UID
			p.replicas(1)
			for p.pods.live["web-1"] != nil {
				p.syncAll()
				p.reconcile(func() bool { return false })
				p.kubelet("web-1")
			}
			p.replicas(2)
			p.settle()
			assert.NotEqual(t, claim, p.claims.live["data-web-1"].UID)
			assert.Empty(t, p.owners("data-web-1"))
		},
		"S19 owners are added after the Pod is there": func(t *testing.T) {
			p := start(t, ordered(1).Claim("data", "1Gi").Retention(retain, remove))
			created := slices.IndexFunc(p.story, func(s string) bool { return strings.Contains(s, "create web-0") })
			owned := slices.IndexFunc(p.story, func(s string) bool { return strings.Contains(s, "Own claim data-web-0") })
			assert.Less(t, created, owned)
		},
		"S20 a claim deleted under a pending Pod is made anew": func(t *testing.T) {
			p := start(t, ordered(1).Claim("data", "1Gi"))
			p.cordon = true
			p.userDeletes("web-0")
			p.rounds(5)
			assert.Equal(t, int32(1), p.set.Status.CurrentReplicas)
			before := p.claims.live["data-web-0"]
			going := before.DeepCopy()
			going.DeletionTimestamp = new(metav1.NewTime(p.now))
			p.storeClaim(going)
			p.rounds(5)
			assert.NotEqual(t, before.UID, p.claims.live["data-web-0"].UID)
			p.cordon = false
			p.settle()
			assert.Equal(t, int32(1), p.set.Status.ReadyReplicas)
		},
		"S21 a start that moves": func(t *testing.T) {
			p := start(t, ordered(2))
			move := func(start *int32, replicas int32) string {
				p.change("start", func(s *v1beta1.StatefulSet) {
					s.Spec.Replicas, s.Spec.Ordinals = &replicas, nil
					if start != nil {
						s.Spec.Ordinals = &v1beta1.StatefulSetOrdinals{Start: *start}
					}
				})
				p.settle()
				assert.Equal(t, replicas, p.set.Status.ReadyReplicas)
				return p.exist()
			}
			assert.Equal(t, "2 3 4", move(new(int32(2)), 3))
			assert.Equal(t, "4 5", move(new(int32(4)), 2))
			assert.Equal(t, "2 3", move(new(int32(2)), 2))
			assert.Equal(t, "0 1", move(nil, 2))
		},
		"S22 specified deletion": func(t *testing.T) {
			p := start(t, inPlace(ordered(4)))
			replaced := func(name string) {
				before := p.uids()
				p.userMarks(name)
				p.settle()
				assert.NotEqual(t, before[name], p.uids()[name])
			}
			replaced("web-1")
			p.change("image and partition", func(s *v1beta1.StatefulSet) {
				s.Spec.Template.Spec.Containers[0].Image = "app:2"
				s.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
			})
			p.settle()
			replaced("web-2")
			replaced("web-1")
			assert.Equal(t, "1 1 2 2", p.images())
			assert.NotEqual(t, p.set.Status.UpdateRevision, p.set.Status.CurrentRevision)
		},
	} {
		t.Run(name, act)
	}
}

// TestExpansionScenarios are those of statefulset.md 15.1 that are not about admission.
func TestExpansionScenarios(t *testing.T) {
	base := ordered(3).With(func(s *v1beta1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate("data"), claimTemplate("logs")}
		s.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnPodRollingUpdateVolumeClaimUpdateStrategyType
	})
	grow := func(p play, gigabytes int64) {
		p.change("size", func(s *v1beta1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = size(gigabytes) })
	}
	sizes := func(p play) string {
		var list []string
		for n := range 3 {
			list = append(list, p.claims.live[ClaimName("data", "web", n)].Status.Capacity.Storage().String())
		}
		return strings.Join(list, " ")
	}
	fits := func(t *testing.T, p play, n int32) {
		t.Helper()
		require.Equal(t, v1beta1.VolumeClaimStatus{VolumeClaimName: "data", CompatibleReplicas: n, CompatibleReadyReplicas: n}, p.set.Status.VolumeClaims[0])
	}
	for name, set := range map[string]fixture.StatefulSetBuilder{"recreate": base, "in place": inPlace(base), "Parallel": inPlace(base).Parallel()} {
		t.Run("1 to 5 sizes alone: no Pod is restarted, "+name, func(t *testing.T) {
			p := start(t, set)
			before := p.uids()
			grow(p, 2)
			p.settle()
			assert.Equal(t, "2Gi 2Gi 2Gi", sizes(p))
			assert.Equal(t, before, p.uids())
			fits(t, p, 3)
			assert.Equal(t, int32(3), p.set.Status.VolumeClaims[1].CompatibleReadyReplicas)
		})
		t.Run("1 to 5 with an image, "+name, func(t *testing.T) {
			p := start(t, set)
			grow(p, 2)
			p.image("app:2")
			p.settle()
			assert.Equal(t, "2Gi 2Gi 2Gi", sizes(p))
			assert.Equal(t, "2 2 2", p.images())
			fits(t, p, 3)
		})
		t.Run("9 to 12 size, image and partition, then back, "+name, func(t *testing.T) {
			begin := func(t *testing.T) play {
				p := start(t, set)
				grow(p, 2)
				p.image("app:2")
				p.partition(2)
				p.settle()
				require.Equal(t, "1 1 2", p.images())
				fits(t, p, 1)
				return p
			}
			t.Run("9 the image rolled back", func(t *testing.T) {
				p := begin(t)
				p.image("app:1")
				p.partition(0)
				p.settle()
				assert.Equal(t, "2Gi 2Gi 2Gi", sizes(p))
				fits(t, p, 3)
				grow(p, 3)
				p.settle()
				assert.Equal(t, "3Gi 3Gi 3Gi", sizes(p))
				fits(t, p, 3)
			})
			t.Run("10 a third image", func(t *testing.T) {
				p := begin(t)
				p.image("app:3")
				p.partition(0)
				p.settle()
				assert.Equal(t, "2Gi 2Gi 2Gi", sizes(p))
				assert.Equal(t, "3 3 3", p.images())
				fits(t, p, 3)
			})
			t.Run("11 image and size rolled back", func(t *testing.T) {
				p := begin(t)
				p.image("app:1")
				grow(p, 1)
				p.partition(0)
				p.settle()
				assert.Equal(t, "1Gi 1Gi 2Gi", sizes(p))
				fits(t, p, 3)
			})
			t.Run("12 strategy OnDelete", func(t *testing.T) {
				p := begin(t)
				p.change("OnDelete for claims", func(s *v1beta1.StatefulSet) {
					s.Spec.VolumeClaimUpdateStrategy.Type = v1beta1.OnDeleteVolumeClaimUpdateStrategyType
				})
				p.image("app:3")
				p.partition(0)
				p.settle()
				assert.Equal(t, "3 3 3", p.images())
				assert.Equal(t, "1Gi 1Gi 2Gi", sizes(p))
				fits(t, p, 1)
			})
		})
	}
	t.Run("a driver that needs a restart gets one per Pod", func(t *testing.T) {
		p := play{t, newWorld(base, t.Fatalf)}
		p.offline = true
		p.settle()
		before := p.uids()
		grow(p, 2)
		p.settle()
		assert.Equal(t, "2Gi 2Gi 2Gi", sizes(p))
		fits(t, p, 3)
		for name, uid := range p.uids() {
			assert.NotEqual(t, before[name], uid)
		}
		assert.Len(t, p.deleted, 3)
	})
}

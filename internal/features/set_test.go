// SPDX-License-Identifier: Apache-2.0

package features

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// enabled returns the names that are on, sorted.
func enabled(s *Set) []string {
	var on []string
	for _, st := range s.Effective() {
		if st.Enabled {
			on = append(on, string(st.Name))
		}
	}
	slices.Sort(on)
	return on
}

func TestRegistry(t *testing.T) {
	defaults := []string{
		"DaemonWatchingPod", "InPlaceUpdateEnvFromMetadata", "KruiseDaemon", "PodIndexLabel", "PodProbeMarkerGate",
		"PodUnavailableBudgetDeleteGate", "PodWebhook", "StatefulSetAutoDeletePVC", "WorkloadSpread",
	}
	if diff := cmp.Diff(defaults, enabled(New())); diff != "" {
		t.Errorf("gates that are on by default differ (-want +got):\n%s", diff)
	}
	beta := []string{"DaemonWatchingPod", "InPlaceUpdateEnvFromMetadata", "KruiseDaemon", "PodIndexLabel", "PodProbeMarkerGate",
		"PodUnavailableBudgetDeleteGate", "PodWebhook", "ResourceDistributionGate", "ResourcesDeletionProtection",
		"StatefulSetAutoDeletePVC", "WorkloadSpread"}
	var gotBeta []string
	seen := map[Gate]bool{}
	for _, i := range All() {
		if seen[i.Name] {
			t.Errorf("gate %s is registered twice", i.Name)
		}
		seen[i.Name] = true
		if i.Stage == Beta {
			gotBeta = append(gotBeta, string(i.Name))
		} else if i.Stage != Alpha {
			t.Errorf("gate %s has stage %q", i.Name, i.Stage)
		}
		if !strings.HasSuffix(i.Effect, ".") {
			t.Errorf("the effect of gate %s is not a sentence: %q", i.Name, i.Effect)
		}
	}
	slices.Sort(gotBeta)
	if diff := cmp.Diff(beta, gotBeta); diff != "" {
		t.Errorf("Beta gates differ (-want +got):\n%s", diff)
	}
	if len(seen) != 36 {
		t.Errorf("%d gates, want 36", len(seen))
	}
}

func TestRulesFollowTheSpec(t *testing.T) {
	want := []rule{
		{gate: "PodWebhook", others: []Gate{"KruisePodReadinessGate", "WorkloadSpread", "PodUnavailableBudgetDeleteGate",
			"PodUnavailableBudgetUpdateGate", "SidecarSetPatchPodMetadataDefaultsAllowed", "EnablePodProbeMarkerOnServerless",
			"EnhancedLivenessProbe"}},
		{gate: "KruiseDaemon", others: []Gate{"DaemonWatchingPod", "PreDownloadImageForInPlaceUpdate",
			"PreDownloadImageForDaemonSetUpdate", "InPlaceUpdateEnvFromMetadata", "SidecarTerminator", "PodProbeMarkerGate",
			"EnhancedLivenessProbe", "ImagePullJobGate"}},
		{gate: "ResourcesDeletionProtection", others: []Gate{"DeletionProtectionForCRDCascadingGate"}},
		{gate: "PreDownloadImageForInPlaceUpdate", when: true, then: true, others: []Gate{"ImagePullJobGate"}},
		{gate: "PreDownloadImageForDaemonSetUpdate", when: true, then: true, others: []Gate{"ImagePullJobGate"}},
	}
	if diff := cmp.Diff(want, rules(registry()), cmp.AllowUnexported(rule{})); diff != "" {
		t.Errorf("rules() differs (-want +got):\n%s", diff)
	}
}

func TestSet(t *testing.T) {
	cases := map[string]struct {
		values   []string
		opts     []Option
		on, off  []Gate
		warnings []string
		err      string
	}{
		"the empty value means the defaults": {
			values: []string{""}, on: []Gate{PodWebhook}, off: []Gate{CloneSetShortHash},
		},
		"white space around entries is ignored": {
			values: []string{" CloneSetShortHash = true , , PodIndexLabel=false "},
			on:     []Gate{CloneSetShortHash}, off: []Gate{PodIndexLabel},
		},
		"an explicit entry wins over AllAlpha wherever it stands": {
			values: []string{"TemplateNoDefaults=false,AllAlpha=true,EnableExternalCerts=false"},
			on:     []Gate{CloneSetShortHash, ImagePullJobGate}, off: []Gate{TemplateNoDefaults, EnableExternalCerts, ResourcesDeletionProtection},
		},
		"AllBeta sets the Beta gates only": {
			values: []string{"AllBeta=true"},
			on:     []Gate{ResourcesDeletionProtection, ResourceDistributionGate}, off: []Gate{CloneSetShortHash},
		},
		"a repeated flag adds, and its last word counts": {
			values: []string{"AllAlpha=true", "AllAlpha=false,CloneSetShortHash=true"},
			on:     []Gate{CloneSetShortHash}, off: []Gate{CloneSetPartitionRollback},
		},
		"without the daemon its dependents are off even when asked for": {
			values:   []string{"KruiseDaemon=false,PodProbeMarkerGate=true,PreDownloadImageForInPlaceUpdate=true"},
			off:      []Gate{PodProbeMarkerGate, PreDownloadImageForInPlaceUpdate, ImagePullJobGate, DaemonWatchingPod, InPlaceUpdateEnvFromMetadata},
			warnings: []string{"feature gate PreDownloadImageForInPlaceUpdate=true has no effect: forced by KruiseDaemon=false", "feature gate PodProbeMarkerGate=true has no effect: forced by KruiseDaemon=false"},
		},
		"pre-download turns pull jobs on even when they are asked off": {
			values:   []string{"PreDownloadImageForDaemonSetUpdate=true,ImagePullJobGate=false"},
			on:       []Gate{ImagePullJobGate},
			warnings: []string{"feature gate ImagePullJobGate=false has no effect: forced by PreDownloadImageForDaemonSetUpdate=true"},
		},
		"cascading protection of CRDs needs deletion protection": {
			values:   []string{"DeletionProtectionForCRDCascadingGate=true"},
			off:      []Gate{DeletionProtectionForCRDCascadingGate},
			warnings: []string{"feature gate DeletionProtectionForCRDCascadingGate=true has no effect: forced by ResourcesDeletionProtection=false"},
		},
		"the spelling of the documents is taken, with a warning": {
			values: []string{"EnhancedLivenessProbeGate=true,ForceDeleteTimeoutExpectationFeatureGate=true"},
			on:     []Gate{EnhancedLivenessProbe, ForceDeleteTimeoutExpectationGate},
			warnings: []string{"feature gate EnhancedLivenessProbeGate is spelled EnhancedLivenessProbe",
				"feature gate ForceDeleteTimeoutExpectationFeatureGate is spelled ForceDeleteTimeoutExpectationGate"},
		},
		"AllAlpha warns about what it should not have turned on": {
			values: []string{"AllAlpha=true"},
			on:     []Gate{EnableExternalCerts},
			warnings: []string{
				"feature gate TemplateNoDefaults is on, set by AllAlpha=true: existing templates lose or gain defaults, which makes new revisions; once on it must stay on",
				"feature gate EnableExternalCerts is on, set by AllAlpha=true: without a prepared Secret the manager does not start",
				// ResourcesDeletionProtection is off, which silently keeps its dependent off: nobody named it.
			},
		},
		"a replaced default can still be set": {
			values: []string{"KruisePodReadinessGate=true"}, opts: []Option{WithDefault(PodWebhook, false)},
			off:      []Gate{PodWebhook, KruisePodReadinessGate, WorkloadSpread},
			warnings: []string{"feature gate KruisePodReadinessGate=true has no effect: forced by PodWebhook=false"},
		},
		"a typo is answered with the name that was meant": {
			values: []string{"CloneSetShortHahs=true"},
			err:    `unknown feature gate "CloneSetShortHahs", did you mean CloneSetShortHash?`,
		},
		"a name like no other gets no suggestion": {
			values: []string{"Turbo=true"}, err: `unknown feature gate "Turbo"`,
		},
		"every bad entry is named": {
			values: []string{"PodWebhook,PodIndexLabel=maybe,X=true"},
			err: "feature gate PodWebhook needs a value: write PodWebhook=true or PodWebhook=false\n" +
				`feature gate PodIndexLabel has value "maybe": write true or false` + "\n" + `unknown feature gate "X"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := New(tc.opts...)
			for _, v := range tc.values {
				if err := s.Set(v); err != nil {
					if err.Error() != tc.err {
						t.Fatalf("Set(%q) = %q, want %q", v, err, tc.err)
					}
					return
				}
			}
			if tc.err != "" {
				t.Fatalf("no error, want %q", tc.err)
			}
			for _, g := range tc.on {
				if !s.Enabled(g) {
					t.Errorf("%s is off", g)
				}
			}
			for _, g := range tc.off {
				if s.Enabled(g) {
					t.Errorf("%s is on", g)
				}
			}
			if diff := cmp.Diff(tc.warnings, s.Warnings()); diff != "" {
				t.Errorf("Warnings() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcceptanceProfileTurnsAllOnButTwo(t *testing.T) {
	s, err := Parse("AllAlpha=true,AllBeta=true,EnableExternalCerts=false,TemplateNoDefaults=false")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range s.Effective() {
		if want := st.Name != "EnableExternalCerts" && st.Name != "TemplateNoDefaults"; st.Enabled != want {
			t.Errorf("%s is %t, want %t", st.Name, st.Enabled, want)
		}
	}
	if w := s.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
}

// However the entries stand in the list, the result is the same, and String reads back to it.
func TestOrderOfEntriesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := map[string]string{}
		for _, i := range All() {
			if v := rapid.SampledFrom([]string{"", "true", "false"}).Draw(t, string(i.Name)); v != "" {
				entries[string(i.Name)] = v
			}
		}
		for _, all := range []string{"AllAlpha", "AllBeta"} {
			if v := rapid.SampledFrom([]string{"", "true", "false"}).Draw(t, all); v != "" {
				entries[all] = v
			}
		}
		var list []string
		for n, v := range entries {
			list = append(list, n+"="+v)
		}
		slices.Sort(list)
		shuffled := rapid.Permutation(list).Draw(t, "order")
		a, errA := Parse(strings.Join(list, ","))
		b, errB := Parse(strings.Join(shuffled, ","))
		if errA != nil || errB != nil {
			t.Fatalf("%v, %v", errA, errB)
		}
		c, err := Parse(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a.Effective(), b.Effective()); diff != "" {
			t.Fatalf("order matters:\n%s", diff)
		}
		if diff := cmp.Diff(a.Effective(), c.Effective()); diff != "" {
			t.Fatalf("String loses something:\n%s", diff)
		}
		for _, st := range a.Effective() {
			for _, d := range st.DependsOn {
				if st.Enabled && !a.Enabled(d) {
					t.Fatalf("%s is on without %s", st.Name, d)
				}
			}
		}
	})
}

func TestLookup(t *testing.T) {
	if i, err := Lookup("EnhancedLivenessProbeGate"); err != nil || i.Name != "EnhancedLivenessProbe" {
		t.Errorf("Lookup by alias = %v, %v", i.Name, err)
	}
	if _, err := Lookup("podwebhook"); err == nil || err.Error() != `unknown feature gate "podwebhook", did you mean PodWebhook?` {
		t.Errorf("Lookup by wrong case: %v", err)
	}
}

func TestCollectorReportsEveryGate(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Collector(New()))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 || families[0].GetName() != "kruise_feature_enabled" || len(families[0].GetMetric()) != 36 {
		t.Errorf("families = %v", families)
	}
}

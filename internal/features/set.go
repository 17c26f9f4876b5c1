// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"

	"github.com/kruisectl/kruisectl/internal/editdistance"
)

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// Set holds what one program was told about the gates. The zero value is not usable, New
// makes one. Set (the method) is for start-up; after it, reading is safe for concurrent
// use.
type Set struct {
	infos    []Info
	defaults map[Gate]bool
	asked    map[string]bool // what --feature-gates said, aliases resolved
	forced   map[Gate]string // gate → why its value is not the one asked for
	warnings []string
	gate     featuregate.MutableVersionedFeatureGate
}

// State is a gate as it is in effect in one Set.
type State struct {
	Info
	Enabled bool
	// Because is empty for the default, else one phrase: what set or forced the value.
	Because string
}

// Option changes what New returns.
type Option func(*Set)

// WithDefault replaces the default of a gate, for the legacy environment variable
// CUSTOM_RESOURCE_ENABLE.
func WithDefault(g Gate, value bool) Option {
	return func(s *Set) { s.defaults[g] = value }
}

// New returns a Set with every gate at its default.
func New(opts ...Option) *Set {
	s := &Set{infos: registry(), defaults: map[Gate]bool{}, asked: map[string]bool{}}
	for _, i := range s.infos {
		s.defaults[i.Name] = i.Default
	}
	for _, o := range opts {
		o(s)
	}
	if err := s.apply(); err != nil {
		panic(err) // the registry itself is broken; a test covers it
	}
	return s
}

// Parse returns a Set for the value of --feature-gates.
func Parse(value string, opts ...Option) (*Set, error) {
	s := New(opts...)
	if err := s.Set(value); err != nil {
		return nil, err
	}
	return s, nil
}

// Set adds value, a comma-separated list of Name=true|false. A later entry for a name wins
// over an earlier one; an entry for a gate wins over AllAlpha and AllBeta wherever it
// stands. On error nothing is changed, and the error names every bad entry. Set makes *Set
// a pflag.Value.
func (s *Set) Set(value string) error {
	asked := maps.Clone(s.asked)
	var errs []error
	var warnings []string
	for entry := range strings.SplitSeq(value, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, text, found := strings.Cut(entry, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		if g, ok := aliases()[name]; ok {
			warnings = append(warnings, fmt.Sprintf("feature gate %s is spelled %s", name, g))
			name = string(g)
		}
		on, err := strconv.ParseBool(text)
		switch {
		case !s.known(name):
			errs = append(errs, s.unknown(name))
		case !found:
			errs = append(errs, fmt.Errorf("feature gate %s needs a value: write %s=true or %s=false", name, name, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("feature gate %s has value %q: write true or false", name, text))
		default:
			asked[name] = on
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	s.asked, s.warnings = asked, append(s.warnings, warnings...)
	return s.apply()
}

// apply builds the gates anew from defaults and what was asked, then normalises dependent
// gates. Building anew keeps repeated flags independent of their order.
func (s *Set) apply() error {
	gate := featuregate.NewFeatureGate()
	specs := make(map[featuregate.Feature]featuregate.FeatureSpec, len(s.infos))
	for _, i := range s.infos {
		spec := featuregate.FeatureSpec{Default: s.defaults[i.Name], PreRelease: featuregate.Alpha}
		if i.Stage == Beta {
			spec.PreRelease = featuregate.Beta
		}
		specs[i.Name] = spec
	}
	if err := gate.Add(specs); err != nil {
		return fmt.Errorf("registering feature gates: %w", err)
	}
	// Stage-wide entries first, as the others must win over them.
	quiet := klog.Logger{}
	for _, all := range []string{allAlpha, allBeta} {
		if v, ok := s.asked[all]; ok {
			if err := gate.SetFromMapWithLogger(quiet, map[string]bool{all: v}); err != nil {
				return fmt.Errorf("setting %s: %w", all, err)
			}
		}
	}
	if err := gate.SetFromMapWithLogger(quiet, s.asked); err != nil {
		return fmt.Errorf("setting feature gates: %w", err)
	}
	forced := map[Gate]string{}
	for _, r := range rules(s.infos) {
		if gate.Enabled(r.gate) != r.when {
			continue
		}
		for _, g := range r.others {
			if gate.Enabled(g) == r.then {
				continue
			}
			if err := gate.SetFromMapWithLogger(quiet, map[string]bool{string(g): r.then}); err != nil {
				return fmt.Errorf("normalising feature gates: %w", err)
			}
			forced[g] = fmt.Sprintf("forced by %s=%t", r.gate, r.when)
		}
	}
	s.gate, s.forced = gate, forced
	return nil
}

// Enabled reports whether g is effectively on. It panics for a name that is not in the
// registry, which no constant of this package is.
func (s *Set) Enabled(g Gate) bool { return s.gate.Enabled(g) }

// All returns every gate, in the order of the documentation. The caller may keep it.
func (s *Set) All() []Info { return All() }

// All returns every gate of the product, in the order of the documentation.
func All() []Info { return registry() }

// Lookup returns the gate called name; aliases count. For another name the error suggests
// the gate that is most similar.
func Lookup(name string) (Info, error) {
	if g, ok := aliases()[name]; ok {
		name = string(g)
	}
	infos := registry()
	for _, i := range infos {
		if string(i.Name) == name {
			return i, nil
		}
	}
	return Info{}, (&Set{infos: infos}).unknown(name)
}

// Effective returns every gate with its value in this Set and where the value is from.
func (s *Set) Effective() []State {
	states := make([]State, 0, len(s.infos))
	for _, i := range s.infos {
		st := State{Info: i, Enabled: s.gate.Enabled(i.Name)}
		stage := allAlpha
		if i.Stage == Beta {
			stage = allBeta
		}
		_, explicit := s.asked[string(i.Name)]
		v, wide := s.asked[stage]
		switch {
		case s.forced[i.Name] != "":
			st.Because = s.forced[i.Name]
		case explicit:
			st.Because = "set explicitly"
		case wide:
			st.Because = fmt.Sprintf("set by %s=%t", stage, v)
		}
		states = append(states, st)
	}
	return states
}

// Warnings are sentences about the values that were given: names by alias, explicit
// settings that a dependency overrides, and gates that are risky to turn on by a
// stage-wide entry.
func (s *Set) Warnings() []string {
	warnings := slices.Clone(s.warnings)
	for _, st := range s.Effective() {
		want, explicit := s.asked[string(st.Name)]
		if explicit && want != st.Enabled {
			warnings = append(warnings, fmt.Sprintf("feature gate %s=%t has no effect: %s", st.Name, want, st.Because))
		}
		if st.Risky != "" && st.Enabled && !explicit && strings.HasPrefix(st.Because, "set by All") {
			warnings = append(warnings, fmt.Sprintf("feature gate %s is on, %s: %s", st.Name, st.Because, st.Risky))
		}
	}
	return warnings
}

// String returns what was asked for, sorted, in the form that Set reads.
func (s *Set) String() string {
	if s == nil {
		return ""
	}
	entries := make([]string, 0, len(s.asked))
	for name, v := range s.asked {
		entries = append(entries, fmt.Sprintf("%s=%t", name, v))
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}

// Type is the placeholder that help texts show for the flag's value.
func (s *Set) Type() string { return "mapStringBool" }

// Usage is the help text of the flag --feature-gates.
func Usage() string {
	var b strings.Builder
	b.WriteString("Feature gates to set, as Name=true|false, separated by commas. The gates are:\n" +
		"AllAlpha=true|false (all Alpha gates that are not named)\n" +
		"AllBeta=true|false (all Beta gates that are not named)")
	for _, i := range registry() {
		fmt.Fprintf(&b, "\n%s=true|false (%s, default=%t)", i.Name, i.Stage, i.Default)
	}
	return b.String()
}

func (s *Set) known(name string) bool {
	return name == allAlpha || name == allBeta ||
		slices.ContainsFunc(s.infos, func(i Info) bool { return string(i.Name) == name })
}

// unknown returns the error for a name outside of the registry, with the nearest name when
// there is one that a typo could have come from.
func (s *Set) unknown(name string) error {
	best, distance := "", len(name)/3+2
	candidates := []string{allAlpha, allBeta}
	for _, i := range s.infos {
		candidates = append(candidates, string(i.Name))
	}
	for _, c := range candidates {
		if d := editdistance.Of(strings.ToLower(name), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		return fmt.Errorf("unknown feature gate %q", name)
	}
	return fmt.Errorf("unknown feature gate %q, did you mean %s?", name, best)
}

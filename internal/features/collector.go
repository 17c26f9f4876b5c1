// SPDX-License-Identifier: Apache-2.0

package features

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metric kruise_feature_enabled{name,stage}, 1 for a gate that is on
// and 0 for one that is off, so that a dashboard can tell what every replica runs with.
func Collector(s *Set) prometheus.Collector { return collector{set: s} }

type collector struct{ set *Set }

var enabledDesc = prometheus.NewDesc("kruise_feature_enabled",
	"Whether a feature gate is in effect in this process.", []string{"name", "stage"}, nil)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { ch <- enabledDesc }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, st := range c.set.Effective() {
		value := 0.0
		if st.Enabled {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(enabledDesc, prometheus.GaugeValue, value, string(st.Name), string(st.Stage))
	}
}

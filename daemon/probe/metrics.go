// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kruisectl/kruisectl/apis/apps/v1alpha1"
)

// Metrics counts probes by result. A nil *Metrics counts nothing.
type Metrics struct {
	seconds *prometheus.HistogramVec
	probes  prometheus.Gauge
	misses  prometheus.Counter
	writes  prometheus.Counter
}

// NewMetrics registers kruise_daemon_probe_seconds, kruise_daemon_probes,
// kruise_daemon_probe_misses_total and kruise_daemon_probe_status_writes_total with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kruise_daemon_probe_seconds",
			Help:    "Time that a probe took, the wait for a turn included, by kind (exec, http or tcp) and result (succeeded or failed).",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 5, 30},
		}, []string{"kind", "result"}),
		probes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kruise_daemon_probes", Help: "Probes that run on this node."}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kruise_daemon_probe_misses_total",
			Help: "Probes without a result, as the container does not exist, the Pod has no IP or the runtime does not answer.",
		}),
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kruise_daemon_probe_status_writes_total", Help: "Writes of the status of this node's NodePodProbe.",
		}),
	}
	r.MustRegister(m.seconds, m.probes, m.misses, m.writes)
	return m
}

func (m *Metrics) probed(kind string, state v1alpha1.ProbeState, took time.Duration) {
	if m != nil {
		m.seconds.WithLabelValues(kind, strings.ToLower(string(state))).Observe(took.Seconds())
	}
}

func (m *Metrics) running(n int) {
	if m != nil {
		m.probes.Set(float64(n))
	}
}

func (m *Metrics) missed() {
	if m != nil {
		m.misses.Inc()
	}
}

func (m *Metrics) wrote() {
	if m != nil {
		m.writes.Inc()
	}
}

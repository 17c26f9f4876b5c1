// SPDX-License-Identifier: Apache-2.0

package images

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tells of pulls. A nil *Metrics tells nobody.
type Metrics struct {
	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec
	running  prometheus.Gauge
}

// NewMetrics registers the metrics kruise_daemon_image_pull… with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kruise_daemon_image_pull_seconds",
			Help:    "Time from the start of an image's first attempt to its end, by result (succeeded or failed).",
			Buckets: []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900},
		}, []string{"result"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kruise_daemon_image_pull_failures_total",
			Help: "Images given up, by the cause of the last failure.",
		}, []string{"cause"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kruise_daemon_image_pulls_running",
			Help: "Images being pulled, those between two attempts included.",
		}),
	}
	r.MustRegister(m.seconds, m.failures, m.running)
	return m
}

func (m *Metrics) started() {
	if m != nil {
		m.running.Inc()
	}
}

func (m *Metrics) ended() {
	if m != nil {
		m.running.Dec()
	}
}

func (m *Metrics) pulled(err error, took time.Duration) {
	if m == nil {
		return
	}
	result := "succeeded"
	if err != nil {
		result = "failed"
		m.failures.WithLabelValues(string(causeOf(err))).Inc()
	}
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}

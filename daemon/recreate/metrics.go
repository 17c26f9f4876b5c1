// SPDX-License-Identifier: Apache-2.0

package recreate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests and stops by result. A nil *Metrics counts nothing.
type Metrics struct {
	requests, stops *prometheus.HistogramVec
}

// NewMetrics registers kruise_daemon_container_recreate_seconds and
// kruise_daemon_container_stop_seconds with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kruise_daemon_container_recreate_seconds",
			Help:    "Time from when this agent took a ContainerRecreateRequest up until it completed it, by the reason of its final condition.",
			Buckets: []float64{1, 2, 5, 10, 20, 40, 80, 160, 600},
		}, []string{"reason"}),
		stops: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kruise_daemon_container_stop_seconds",
			Help:    "Time to stop a container for a ContainerRecreateRequest, its preStop hook included, by result (succeeded or failed).",
			Buckets: []float64{0.1, 0.5, 1, 2, 5, 10, 30, 60, 300},
		}, []string{"result"}),
	}
	r.MustRegister(m.requests, m.stops)
	return m
}

func (m *Metrics) ended(reason string, took time.Duration) {
	if m != nil {
		m.requests.WithLabelValues(reason).Observe(took.Seconds())
	}
}

func (m *Metrics) stopped(err error, took time.Duration) {
	if m == nil {
		return
	}
	result := "succeeded"
	if err != nil {
		result = "failed"
	}
	m.stops.WithLabelValues(result).Observe(took.Seconds())
}

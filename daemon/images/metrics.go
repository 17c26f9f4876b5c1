// SPDX-License-Identifier: Apache-2.0

package images

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts pulls by result. A nil *Metrics counts nothing.
type Metrics struct {
	seconds *prometheus.HistogramVec
}

// NewMetrics registers kruise_daemon_image_pull_seconds with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kruise_daemon_image_pull_seconds",
		Help:    "Time from the start of an image's first attempt to its end, by result (succeeded or failed).",
		Buckets: []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900},
	}, []string{"result"})}
	r.MustRegister(m.seconds)
	return m
}

func (m *Metrics) pulled(err error, took time.Duration) {
	if m == nil {
		return
	}
	result := "succeeded"
	if err != nil {
		result = "failed"
	}
	m.seconds.WithLabelValues(result).Observe(took.Seconds())
}

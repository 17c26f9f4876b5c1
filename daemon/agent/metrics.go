// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// NewRegistry returns a registry with the metrics of the process, of requests to the API
// server and of work queues, under the names that Kubernetes' own programs have. Those of
// client-go are of the whole process: of several registries all have the same.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	clientMetrics().register(r)
	return r
}

// clientMetrics are made once: client-go takes one provider for all of a process.
var clientMetrics = sync.OnceValue(func() *clientGo {
	m := newClientGo()
	workqueue.SetProvider(m)
	metrics.Register(metrics.RegisterOpts{RequestResult: m})
	return m
})

// clientGo implements the hooks of client-go for metrics.
type clientGo struct {
	requests                    *prometheus.CounterVec
	depth, unfinished, longest  *prometheus.GaugeVec
	adds, retries               *prometheus.CounterVec
	queueDuration, workDuration *prometheus.HistogramVec
}

func newClientGo() *clientGo {
	name := []string{"name"}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + metric, Help: help}, name)
	}
	counter := func(metric, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + metric, Help: help}, name)
	}
	histogram := func(metric, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_" + metric, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 10, 6)}, name)
	}
	return &clientGo{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Requests to the API server by code, method and host.",
		}, []string{"code", "method", "host"}),
		depth:         gauge("depth", "Items that wait in a queue."),
		unfinished:    gauge("unfinished_work_seconds", "How long the items at work have been at it, summed up."),
		longest:       gauge("longest_running_processor_seconds", "How long the oldest item has been at work."),
		adds:          counter("adds_total", "Items added to a queue."),
		retries:       counter("retries_total", "Items tried again."),
		queueDuration: histogram("queue_duration_seconds", "How long items wait in a queue."),
		workDuration:  histogram("work_duration_seconds", "How long items are at work."),
	}
}

func (m *clientGo) register(r prometheus.Registerer) {
	r.MustRegister(m.requests, m.depth, m.unfinished, m.longest, m.adds, m.retries, m.queueDuration, m.workDuration)
}

// Increment implements metrics.ResultMetric.
func (m *clientGo) Increment(_ context.Context, code, method, host string) {
	m.requests.WithLabelValues(code, method, host).Inc()
}

// NewDepthMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

// NewAddsMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

// NewLatencyMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.queueDuration.WithLabelValues(name)
}

// NewWorkDurationMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.workDuration.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

// NewRetriesMetric implements workqueue.MetricsProvider.
func (m *clientGo) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}

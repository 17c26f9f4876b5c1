// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	systemNamespace = "kruise-system"
	managerUser     = "system:serviceaccount:kruise-system:kruise-manager"
)

// leader reads the metrics of the manager that holds the lease, or of one that is a process
// of this machine.
type leader struct {
	kube kubernetes.Interface
	pod  string
	url  string // of the metrics of a process

	mu   sync.Mutex
	peak int64
}

func (b *bench) findLeader(ctx context.Context) (*leader, error) {
	if b.metrics != "" {
		return &leader{url: b.metrics}, nil
	}
	lease, err := b.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "kruise-manager", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("finding the leader: %w", err)
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return &leader{kube: b.kube, pod: pod}, nil
}

// read returns CPU seconds used so far and resident bytes now.
func (l *leader) read(ctx context.Context) (cpu float64, resident int64, err error) {
	raw, err := l.metrics(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("reading metrics of %s%s: %w", l.pod, l.url, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		return 0, 0, fmt.Errorf("parsing metrics of %s%s: %w", l.pod, l.url, err)
	}
	value := func(name string, counter bool) float64 {
		f := families[name]
		if f == nil || len(f.Metric) == 0 {
			return 0
		}
		if counter {
			return f.Metric[0].GetCounter().GetValue()
		}
		return f.Metric[0].GetGauge().GetValue()
	}
	return value("process_cpu_seconds_total", true), int64(value("process_resident_memory_bytes", false)), nil
}

func (l *leader) metrics(ctx context.Context) ([]byte, error) {
	if l.url == "" {
		return l.kube.CoreV1().Pods(systemNamespace).ProxyGet("http", l.pod, "8080", "/metrics", nil).DoRaw(ctx)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// watchPeak remembers the highest resident memory seen, until ctx ends.
func (l *leader) watchPeak(ctx context.Context) {
	for ctx.Err() == nil {
		if _, resident, err := l.read(ctx); err == nil {
			l.mu.Lock()
			l.peak = max(l.peak, resident)
			l.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

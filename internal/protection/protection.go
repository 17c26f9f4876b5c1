// SPDX-License-Identifier: Apache-2.0

// Package protection records denials that protect users from themselves: one line of JSON
// in the protection log and one count for each. Formats are platform.md 2.8.
package protection

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// fileName is the log's name in its directory.
const fileName = "protection.log"

// Recorder writes the protection log and counts. A nil Recorder does nothing.
type Recorder struct {
	workloads, namespaces, definitions *prometheus.CounterVec

	mu  sync.Mutex
	out io.WriteCloser
}

// Open makes dir if needed and appends to its protection.log.
func Open(dir string) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the protection log: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the protection log: %w", err)
	}
	return New(f), nil
}

// New returns a Recorder that writes to out and closes it in Close.
func New(out io.WriteCloser) *Recorder {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Recorder{
		out:         out,
		workloads:   counter("workload_deletion_protection", "Deletions of workloads, Services and Ingresses that were denied.", "kind_namespace_name", "username"),
		namespaces:  counter("namespace_deletion_protection", "Deletions of Namespaces that were denied.", "name", "username"),
		definitions: counter("crd_deletion_protection", "Deletions of CustomResourceDefinitions that were denied.", "name", "username"),
	}
}

// Close closes the log.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	return r.out.Close()
}

// event is one line of the log. UserAgent holds the user name; the key is on the wire.
type event struct {
	Event     string
	Kind      string
	Namespace string
	Name      string
	UserAgent string
}

// Deletion records that user was kept from deleting an object. The namespace is empty for
// a kind that has none.
func (r *Recorder) Deletion(kind, namespace, name, user string) error {
	if r == nil {
		return nil
	}
	switch kind {
	case "Namespace":
		r.namespaces.WithLabelValues(name, user).Inc()
	case "CustomResourceDefinition":
		r.definitions.WithLabelValues(name, user).Inc()
	default:
		r.workloads.WithLabelValues(kind+"_"+namespace+"_"+name, user).Inc()
	}
	line, err := json.Marshal(event{Event: "DeletionProtection", Kind: kind, Namespace: namespace, Name: name, UserAgent: user})
	if err != nil {
		return fmt.Errorf("encoding a line of the protection log: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the protection log: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []*prometheus.CounterVec{r.workloads, r.namespaces, r.definitions} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []*prometheus.CounterVec{r.workloads, r.namespaces, r.definitions} {
		c.Collect(ch)
	}
}

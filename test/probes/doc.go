// SPDX-License-Identifier: Apache-2.0

// Package probes tests PodProbeMarkers as a whole: both controllers and the node agent's
// prober, in a model of a cluster that loses events and restarts managers, and against a
// real API server with fake container runtimes. Rules: podprobe.md.
package probes

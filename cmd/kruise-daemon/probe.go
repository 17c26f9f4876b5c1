// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/kruisectl/kruisectl/daemon/agent"
)

// probe builds the worker that runs the probes of this node's NodePodProbe.
func (w *wiring) probe(context.Context) (agent.Worker, error) { return nil, nil }

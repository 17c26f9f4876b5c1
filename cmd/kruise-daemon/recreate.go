// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/kruisectl/kruisectl/daemon/agent"
)

// recreate builds the worker that restarts containers for ContainerRecreateRequests.
func (w *wiring) recreate(context.Context) (agent.Worker, error) { return nil, nil }

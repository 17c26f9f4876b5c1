// SPDX-License-Identifier: Apache-2.0

// Package tui is the terminal UI: a stack of screens over immutable views of the cluster.
// Screens know neither client-go nor the command tree; what they show comes in as
// messages, what the user wants goes out as messages, and only the root acts, through the
// functions that the commands call. View functions depend on fields, size and the clock
// in the model alone. Layouts, keys and sizes are those of cli.md 14.
package tui

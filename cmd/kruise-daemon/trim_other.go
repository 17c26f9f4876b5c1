// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

// dropProgramPages does nothing: other systems do it by themselves or have no need.
func dropProgramPages() error { return nil }

# SPDX-License-Identifier: Apache-2.0

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# -trimpath and no cgo everywhere but under the race detector: the product, its tests and the cluster's parts then share one build cache.
export GOFLAGS := -trimpath
export CGO_ENABLED := 0
export PATH := $(CURDIR)/bin:$(PATH)
# Property tests draw the same cases in every run of a pipeline; `make test-all` draws new ones.
export RAPID_SEED ?= 20261130

TOOL := go tool -modfile=hack/tools/go.mod
OUT := $(CURDIR)/out
VERSION ?= v0.1.0-dev
# The rules of rollouts: more than 100,000 random cases in all, of code that starts no goroutine.
PLANS := ./internal/rollout/plan/...
LDFLAGS := -s -w -X github.com/kruisectl/kruisectl/internal/version.Version=$(VERSION)

# Without gRPC's request tracing, which brings in a template engine: the node agent is 8 MB smaller.
TAGS := -tags grpcnotrace

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install the Debian packages that building and testing need
	@hack/setup.sh

.PHONY: build
build: ## build kruisectl, kruise-manager and kruise-daemon into bin/
	go build $(TAGS) -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...
	ln -sf kruisectl bin/kubectl-kruise

.PHONY: cluster-tool
cluster-tool:
	@cd test/cluster && go build -o $(CURDIR)/bin/cluster ./cmd/cluster

.PHONY: generate
generate: ## write deepcopy functions and CRDs
	go generate ./apis/...

.PHONY: lint
lint: setup ## formatting, vet (the node agent also for Windows), linters, generated files up to date
	hack/verify-generated.sh
	$(TOOL) golangci-lint run --allow-parallel-runners ./...
	GOOS=windows go vet ./cmd/kruise-daemon

.PHONY: test-unit
test-unit: setup ## unit and property tests, with the race detector where goroutines are
	@mkdir -p $(OUT)
	$(TOOL) gotestsum --format pkgname --jsonfile $(OUT)/plan.json -- $(PLANS)
	CGO_ENABLED=1 $(TOOL) gotestsum --format pkgname --jsonfile $(OUT)/unit.json -- -race $$(go list ./... | grep -vxFf <(go list $(PLANS)))
	cd test/cluster && go test ./...
	cd hack/tools && go test ./image ./sbom

.PHONY: test-envtest
test-envtest: setup cluster-tool ## controllers and webhooks against a real API server
	@mkdir -p $(OUT)
	hack/envtest.sh

.PHONY: test-e2e
test-e2e: setup build cluster-tool ## the core scenarios on a real three-node cluster
	hack/e2e.sh core

.PHONY: test-e2e-full
test-e2e-full: setup build cluster-tool ## every scenario on a real three-node cluster
	hack/e2e.sh full

.PHONY: test
test: lint test-unit test-envtest test-e2e ## what CI runs
	@hack/count-tests.sh $(OUT)

.PHONY: test-all
test-all: export RAPID_SEED := 0
test-all: lint release-check test-unit test-envtest test-e2e-full bench ## everything
	@hack/count-tests.sh $(OUT)

.PHONY: release-check
release-check: ## check the release configuration
	$(TOOL) goreleaser check

.PHONY: bench
bench: setup build cluster-tool ## rollouts and an image job on 200 simulated nodes
	hack/bench.sh

.PHONY: demo
demo: setup build cluster-tool ## bring up a cluster, install, roll a CloneSet out in place
	hack/demo.sh

.PHONY: cluster-up cluster-down cluster-status
cluster-up: setup cluster-tool ## bring up a real three-node Kubernetes on this machine
	cluster up
cluster-down: cluster-tool ## take it away
	cluster down
cluster-status: cluster-tool ## say what runs
	cluster status

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin out dist

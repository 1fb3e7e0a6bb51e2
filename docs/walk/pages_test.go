package walk

import "strings"

// page says what a page's blocks need.
type page struct {
	before    string   // what is run first, in a shell
	ownServer bool     // whether it needs a server of its own, since it makes roles
	python    string   // what runs the handler charge.py that its Python block is
	python3   bool     // whether its programs are in Python, with the standard library alone
	replaced  []string // texts that stand for a reader's own, each with what is run instead
	rules     []rule
}

func (p page) replace(text string) string { return strings.NewReplacer(p.replaced...).Replace(text) }

// rule is for the lines that begin with a text. Without one, a line is run as it is
// and has to end with exit code 0.
type rule struct {
	line    string // how the line or the block begins
	first   string // what is run before it, in a shell: what the line speaks of
	instead string // what is run in its place
	exit    int    // the exit code that it has to have
	until   string // of a program that runs until it is stopped: what it says when it works
	stays   bool   // until the end of the page, and not only of the block
	stopped string // a program that stays, which the reader stops with Ctrl-C before the line: how its command begins
	screen  string // of a program for a terminal: what its screen shows
	file    string // the file that has the block as it is, which a test runs, or at least compiles
	saved   string // the name under which the reader saves the block
	excused string // why it is not run
	all     bool   // excused is for the whole block
}

// Rules of all pages, after those of the page.
var everywhere = []rule{
	{line: "jobq worker -", until: "worker started"},
	{line: "jobq janitor events"},
	{line: "jobq janitor", until: "leadership acquired"},
	{line: "jobq stats --watch", until: "default"},
	{line: "jobq tui --print"},
	{line: "jobq tui", screen: "Overview"},
	{line: "jobq doctor", exit: 6}, // servers of tests do not sync their files, which is critical
	{line: "jobq  staging", excused: "a screen, which make captures writes", all: true},
	{line: "go install", excused: "the walk builds this checkout; a release comes from the network"},
}

// goBlocks has the blocks of Go that are parts of a program. They compile there; examples of the packages run such calls.
const goBlocks = "docs/walk/blocks/blocks_test.go"

// inHandler is why a script with durable steps is not run.
const inHandler = "runs inside of a handler: examples/steps and examples/spawn, which TestExamples runs"

// What pages speak of: waiting jobs 4711 and 4712, failed ones, and action 17.
const (
	jobs4711 = `psql "$DATABASE_URL" -qXc "delete from jobq.pending where id > 4710; delete from jobq.run where id > 4710; select setval('jobq.job_id_seq', 4710)"
		for job in 1 2; do jobq enqueue SendMail '{"tenant": 4411}' --queue email; done`
	failed = `job=$(jobq enqueue SendMail --queue email --max-attempts 1)
		jobq worker -q email --run SendMail=false & worker=$!
		jobq wait $job || [ $? = 7 ]
		kill $worker; wait $worker`
	interrupted = jobs4711 + `
		psql "$DATABASE_URL" -qXc "truncate jobq.audit cascade; alter table jobq.audit alter column id restart with 17"
		jobq edit --filter kind:SendMail --priority 1 --max 1 --yes`
	// A worker that gives its jobs the result {"width": 640}, and the args of two such jobs.
	makeResizer = `printf '#!/bin/sh\njobq job result "{\\"width\\": 640}"\n' > resize.sh
		chmod +x resize.sh
		printf '{"image": "a.jpg"}\n{"image": "b.jpg"}\n' > images.ndjson`
	resizer = "jobq worker --run resize=./resize.sh & worker=$!\n"
	// Workers of the hosts spot-17 and web-1.
	registered = `psql "$DATABASE_URL" -qXc "insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) select id, 1, host, '', '{}', '{}', '{}'
		from (values ('spot-17-4711-0a1b2c3d', 'spot-17'), ('web-1-4711-0a1b2c3d', 'web-1')) w(id, host) on conflict do nothing"`
	lostSpot = "jobq workers lost spot-17 --reason preempted --yes" // the page's asks first
	action17 = `psql "$DATABASE_URL" -qXc "alter table jobq.audit alter column id restart with 17"; jobq queues set another limit=1`
)

var pages = map[string]page{
	"README.md": {rules: []rule{
		{line: "go run ./cmd/jobq demo", instead: "jobq demo"},
		{line: "go run ./internal/testall", excused: "it runs this test"},
		{line: "jobq dev", until: "postgres://", stays: true},
		{line: "export DATABASE_URL=", instead: `export DATABASE_URL="$(grep -m 1 ^postgres: said.txt)"`},
		{line: "type sendReceipt struct", file: "examples/quickstart/main.go"},
	}},
	"docs/cli.md": {
		before: `jobq enqueue hello
			jobq queues set reports key_limit=5
			mkdir jobq && echo "contexts: {staging: {database_url: '$DATABASE_URL'}, prod: {database_url: '$DATABASE_URL'}}" > jobq/config.yaml
			echo '[{"id": 1}, {"id": 2}]' > images.json
			echo '{"kind": "hello"}' > jobs.ndjson
			printf 'dt,steps,commit\n0.10,100,12e5\n0.05,200,7f3\n' > sweep.csv
			printf '{"name": "fetch", "kind": "fetch"}\n{"kind": "load", "after": ["fetch"]}\n' > import.ndjson
			` + makeResizer + `
			touch a.png b.png
			jobq keygen > keys
			printf 'app: docs\nschedules: {tick: {every: 1h, kind: tick}}\n' > jobq.yaml`,
		replaced: []string{"/srv/archive/jobq", "archive", "/etc/jobq/keys", "keys", "3f2a9c1e", "$(jobq errors --json | jq -r .groups[0].id)"},
		rules: []rule{
			{line: "jobq audit resume 17", first: interrupted},
			{line: "jobq bench drain --jobs", instead: "jobq bench drain --jobs 1000 --workers 2 --slots 500 --json"},
			{line: "jobq bench drain", instead: "jobq bench drain --jobs 1000"},
			{line: "jobq bench held", instead: "jobq bench held --duration 1s"},
			{line: "jobq cancel 4711", first: jobs4711},
			{line: "jobq clone 4711", first: jobs4711},
			{line: "jobq crash-test", excused: "takes a worker of the reader's: examples/crashtest, which TestExamples runs"},
			{line: "jobq delete 4711", first: jobs4711},
			{line: "jobq dev --ephemeral -- go test", instead: "jobq dev --ephemeral -- go version"},
			{line: "jobq dev --ephemeral"},
			{line: "jobq dev", until: "postgres://"},
			{line: "jobq edit 4711", first: jobs4711},
			{line: "jobq enqueue report --after 12,13", instead: `jobq enqueue report --after "$(jobq enqueue a),$(jobq enqueue b)"`},
			{line: "jobq enqueue resize '{\"id\": 1}' --wait", instead: resizer + `[ "$(jobq enqueue resize '{"id": 1}' --wait --wait-timeout 1m | jq .width)" = 640 ]; kill $worker; wait $worker`},
			{line: "jobq enqueue resize - <", instead: resizer + `jobq enqueue resize - < images.ndjson | xargs -n 1000 jobq wait | jq -c 'select(.state != "completed")'; kill $worker; wait $worker`},
			{line: "jobq errors show", first: failed},
			{line: "jobq errors requeue 3f2a9c1e --rate 10/s --yes", first: failed},
			{line: "jobq errors requeue", first: failed, instead: "jobq errors requeue $(jobq errors --json | jq -r .groups[0].id) --sample 5 --yes"}, // the page's asks first
			{line: "jobq inbox river", instead: "jobq inbox river --kind sort_args > inbox.sql"},                                                      // bench/inbox has the other queues' tables
			{line: "jobq inbox graphile-worker", instead: "jobq inbox graphile-worker --remove > remove.sql"},
			{line: "jobq job", excused: "runs inside of a handler: examples/shell, which TestExamples runs"},
			{line: "JOBQ_DATABASE_URL, DATABASE_URL", excused: "variables, which help topics list", all: true},
			{line: "0  it worked", excused: "exit codes", all: true},
			{line: "limit             a number of at least 1", excused: "settings, which TestQueueSettings has", all: true},
			{line: "queue             1 to 128 characters", excused: "settings, which TestKindSettings has", all: true},
			{line: "ready      when its next job", excused: "the words of a column, which TestQueuesKeys has", all: true},
			{line: "order=$(jobq job step", excused: inHandler, all: true},
			{line: "payment=$(jobq job wait-event", excused: inHandler, all: true},
			{line: "result=$(jobq job await", excused: inHandler, all: true},
			{line: "page=$(jobq job spawn", excused: inHandler, all: true},
			{line: "jobq kinds resume", first: "jobq kinds pause Encode --new"},
			{line: "jobq kinds pause Encode", instead: "jobq kinds pause Encode --new --reason 'the codec is broken'"},
			{line: "jobq list state:failed --watch", first: failed, until: `"failed"`},
			{line: "jobq logs -f 4711", first: jobs4711 + "; jobq cancel 4711"},
			{line: "jobq metrics", instead: "jobq metrics --metrics-addr 127.0.0.1:0", until: "serving metrics"},
			{line: "jobq queues pause import"},
			{line: "jobq queues", first: "jobq queues set email limit=5"},
			{line: "jobq requeue 4711", first: jobs4711},
			{line: "jobq schedules add"},
			{line: "jobq schedules", first: "jobq schedules add report --every 1h --kind report"},
			{line: "jobq tui --open job/4711", first: jobs4711, screen: "4711"},
			{line: "jobq undo 17", first: interrupted},
			{line: "jobq wait 4711", first: jobs4711, exit: 8, instead: "jobq cancel 4711; jobq wait 4711 --timeout 30s"},
			{line: "jobq wait --filter", exit: 8, first: "jobq enqueue a --tag sweep1", instead: "jobq cancel --filter tag:sweep1 --yes; jobq wait --filter tag:sweep1 --timeout 30s"},
			{line: "jobq workers drain", instead: `jobq worker --run hello=cat & worker=$!
				until jobq workers drain "$(jobq workers --json | jq -r '.[] | select(.kinds == ["hello"]) | .id')"; do sleep 0.2; done
				wait $worker`},
			{line: "jobq workers lost spot-17", first: registered, instead: lostSpot},
			{line: "jobq workers lost web-1-4711", first: registered},
			{line: "jobq workers lost web-1", first: registered, instead: "jobq workers lost web-1 --yes"},
		},
	},
	"docs/hosts.md": {rules: []rule{{line: "jobq workers lost spot-17", first: registered, instead: lostSpot}}},
	"docs/internals/crash-comparison.md": {rules: []rule{
		{line: "func (s *shop) handle(", file: "examples/order/order.go"},
		{line: "func orderWorkflow(", excused: "for another library, which jobq does not depend on", all: true},
	}},
	"docs/transactional-completion.md": {
		ownServer: true,
		replaced:  []string{"python3 charge.py", "./charge"},
		before:    `psql "$DATABASE_URL" -qXc "create table account (name text, balance int); insert into account values ('ann', 100)" -f roles.sql`,
		python: `python=python3; $python -c 'import psycopg' 2>&- || python=/usr/bin/python3
			jobq enqueue charge
			echo "kinds: {charge: {command: $python charge.py, ends_itself: true, pass_env: [DATABASE_URL]}}" > jobq.yaml
			jobq worker --config jobq.yaml & worker=$!
			until [ "$(jobq list state:completed -o jsonl)" ]; do sleep 0.2; done
			kill $worker; wait $worker
			[ "$(psql "$DATABASE_URL" -AtXc "select balance from account")" = 88 ]`,
	},
	"docs/configuration.md": {
		replaced: []string{"/srv/archive/jobq", "archive"},
		rules: []rule{
			{line: `{"begin":`, excused: "an export, shortened; docs/cli.md has its fields from the types", all: true},
		},
	},
	"docs/internals/crash-test.md": {
		before:   `psql "$DATABASE_URL" -qXc "create table charged (order_id bigint)"`,
		replaced: []string{"any($1)", "any('{1}')"},
		rules: []rule{
			{line: "jobq crash-test", excused: "takes a worker of the reader's: examples/crashtest, which TestExamples runs", all: true},
			{line: "killed the worker between", excused: "what it prints: TestExamples", all: true},
		},
	},
	"docs/decisions/0026-rolling-upgrades.md": {rules: []rule{
		{line: "-- jobq:compatible-from", excused: "the first line of a migration: TestCompatibilityInSQL has one", all: true},
		{line: "version  compatible_from", excused: "an example in a table", all: true},
	}},
	"docs/dependencies.md": {
		before: `for job in $(seq 13); do jobq enqueue fetch; done`,
		rules:  []rule{{line: "var graph jobq.Graph", file: goBlocks}},
	},
	"docs/backup.md": {
		ownServer: true,
		before:    `psql "$DATABASE_URL" -qXc 'create database other' -c 'create database migrated'; jobq enqueue hello; jobq enqueue hello --unique-key a; jobq schedules add tick --every 1h --kind tick`,
		replaced:  []string{"$NEW_URL", `${DATABASE_URL/\/postgres\?/\/other?}`, "$MIGRATED_URL", `${DATABASE_URL/\/postgres\?/\/migrated?}`},
	},
	"docs/containers.md": {
		before:   "mkdir prometheus && mv jobq.rules.yaml prometheus/",
		replaced: []string{"kubectl apply -f -", "grep -A 2 '^  groups:' | grep '^    - name: jobq'"},
		rules: []rule{
			{line: "docker", excused: "needs a Docker engine; TestDeployedCommands and TestDockerfile read the files", all: true},
		},
	},
	"docs/deploy.md": {
		ownServer: true,
		rules: []rule{
			{line: "export DATABASE_URL=", excused: "the walk has a database already"},
			{line: "useradd", excused: "changes this machine; TestDeployedCommands reads the units", all: true},
			{line: "ExecStart=", excused: "a line of a unit", all: true},
			{line: "/usr/bin/python3 -m venv", excused: "changes this machine", all: true},
			{line: "[Service]", excused: "lines of a unit, as in systemd.exec(5)", all: true},
			{line: "curl -fsS http://127.0.0.1:9400/readyz", excused: "needs the units; TestMetricsCommands asks the same of a worker and of jobq metrics", all: true},
			{line: "scrape_configs:", excused: "needs a Prometheus; TestPromtool has the files read, and TestPrometheus scrapes a worker", all: true},
			{line: "install -m 644 prometheus/jobq.rules.yaml", excused: "changes this machine; TestPromtool has the rules read", all: true},
			{line: "curl -fsS http://127.0.0.1:9090", excused: "needs a Prometheus; the alert fires and ends in TestPrometheus", all: true},
		},
	},
	"docs/doctor.md": {
		replaced: []string{"DATABASE_URL=postgres://… ", ""},
		rules:    []rule{{line: "DATABASE_URL=", exit: 6}},
	},
	"docs/encryption.md": {rules: []rule{
		{line: "keys, err := keyring.Load", file: goBlocks},
		{line: "job 1", excused: "an answer; TestEncryptedJobs has it", all: true},
	}},
	"docs/encryption-reference.md": {rules: []rule{
		{line: `{"$jobq": "enc"`, excused: "what is stored; FuzzParse reads it", all: true},
	}},
	"docs/recovery.md": {replaced: []string{"--run …", "--run hello=cat"}},
	"docs/retries.md": {
		before:   jobs4711,
		replaced: []string{"3f2a9c1e", "$(jobq errors --json | jq -r .groups[0].id)"},
		rules: []rule{
			{line: "jobq errors show", first: failed},
			{line: "jobq errors requeue 3f2a9c1e --sample", first: failed, instead: "jobq errors requeue $(jobq errors --json | jq -r .groups[0].id) --sample 5 --yes"}, // the page's asks first
			{line: "jobq errors requeue 3f2a9c1e --rate", first: failed},
		},
	},
	"docs/languages.md": {rules: []rule{
		{line: "sql() {", file: "examples/languages/produce.sh"},
		{line: "with psycopg", file: "examples/languages/produce.py"},
		{line: "// One job. The answer is its id, as", file: "examples/languages/produce.cjs"},
		{line: "connection = PG", file: "examples/languages/produce.rb"},
		{line: "// One job.", file: "examples/languages/Produce.java"},
		{line: "job 11: {", excused: "what the programs say: TestWaitInEachLanguage", all: true},
		{line: "# wait_for JOB", file: "examples/results/wait.sh"},
		{line: "class NotCompleted(", file: "examples/results/wait.py"},
		{line: "// The job has failed", file: "examples/results/wait.cjs"},
		{line: "# The job has failed", file: "examples/results/wait.rb"},
		{line: "// Returns the result", file: "examples/results/Wait.java"},
	}},
	"docs/limits.md": {rules: []rule{{line: "jobq undo 17", first: action17}}},
	"docs/metrics.md": {rules: []rule{
		{line: "jobq worker --run hello=cat --metrics-addr 9400", instead: "jobq worker --run hello=cat --metrics-addr 127.0.0.1:0", until: "worker started"},
		{line: "jobq metrics --metrics-addr 9401", instead: "jobq metrics --metrics-addr 127.0.0.1:0", until: "serving metrics"},
		{line: "curl", excused: "the walk's ports are others; TestMetricsCommands asks the same of a worker and of jobq metrics"},
		{line: "registry := prometheus.NewRegistry()", file: "metrics/otel_test.go"},
	}},
	"docs/migrate.md": {
		replaced: []string{"redis-cli --raw zrange schedule 0 -1 withscores", `printf '%s\n%s\n' '{"class": "HardJob", "queue": "default", "args": [1], "jid": "a"}' 1790000000.5`},
		rules: []rule{
			{line: "jobq inbox river", instead: "jobq inbox river --kind sort_args > inbox.sql"}, // bench/inbox has River's tables
			{line: "// River", excused: "names of two libraries beside each other", all: true},
			{line: "with moved as", excused: "TestMigrateGuide runs it, on the other queues' tables", all: true},
			{line: "select graphile_worker", excused: "the other queue's"},
			{line: "await boss", excused: "two calls beside each other; the first of the block above runs", all: true},
		},
	},
	"docs/priorities.md": {rules: []rule{
		{line: "jobq kinds pause report", instead: "jobq kinds pause report --new --reason 'wrong totals'"},
	}},
	"docs/sweeps.md": {rules: []rule{
		{line: "dt,steps", saved: "sweep.csv"},
		{line: "jobq wait --filter", instead: "jobq worker --run simulate=true & worker=$!\njobq wait --filter tag:sweep1 --timeout 1m; kill $worker; wait $worker"},
		{line: "jobq requeue 4711", first: jobs4711},
	}},
	"docs/clusters.md": {rules: []rule{
		{line: "#!/bin/bash", excused: "for a cluster with Slurm", all: true},
		{line: "sbatch sweep.sh", excused: "for a cluster with Slurm", all: true},
		{line: "tail -n +2 sweep.csv", excused: "for an Azure account", all: true},
		{line: "kinds:", saved: "jobq.yaml"},
		{line: "jobq enqueue simulate", first: "printf 'dt,steps\\n0.1,100\\n' > sweep.csv"},
	}},
	"docs/results.md": {
		before: makeResizer,
		rules: []rule{
			{line: "result, err := jobq.WaitResult", file: goBlocks},
			{line: "ended, err :=", file: goBlocks},
			{line: "jobq enqueue resize '{", instead: resizer + `[ "$(jobq enqueue resize '{"image": "cat.jpg"}' --wait | jq .width)" = 640 ]; kill $worker; wait $worker`},
			{line: "jobq wait 4711", first: jobs4711, exit: 8, instead: "jobq cancel 4711; jobq wait 4711 --timeout 30s"},
			{line: "jobq enqueue resize -", instead: resizer + "jobq enqueue resize - < images.ndjson | xargs -n 1000 jobq wait; kill $worker; wait $worker"},
			{line: `{"id":12`, excused: "what it prints"},
			{line: `{"id":11`, excused: "what it prints"},
		},
	},
	"docs/internals/scale.md": {rules: []rule{
		{line: `DATABASE_URL="$MAIL_DATABASE"`, instead: "jobq worker -q mail --run send=cat", until: "worker started"},
		{line: `DATABASE_URL="$REPORTS_DATABASE"`, instead: "jobq worker -q reports --run report=cat", until: "worker started"},
		{line: "jobq bench drain", instead: "jobq bench drain --jobs 1000 --workers 4 --slots 500"},
		{line: "jobq bench enqueue", instead: "jobq bench enqueue --writers 4 --batch 100 --duration 100ms"},
		{line: "jobq bench mixed", instead: "jobq bench mixed --rate 20 --writers 2 --workers 4 --duration 500ms"},
		{line: "jobq bench held", instead: "jobq bench held --duration 1s"},
	}},
	"docs/sql.md": {
		replaced: []string{"queue, …) VALUES …", "queue) VALUES ('a', '{}', 'b')"},
		rules: []rule{
			{line: "alter table jobq.run detach", first: `psql "$DATABASE_URL" -qXc "create table jobq.run_20261101 partition of jobq.run for values from (1) to (2)"`},
		},
	},
	"docs/start.md": {python3: true, rules: []rule{
		{line: "jobq dev", until: "postgres://", stays: true},
		{line: "export DATABASE_URL=", instead: `export DATABASE_URL="$(grep -m 1 ^postgres: said.txt)"`},
		{line: "jobq why", instead: "jobq why $(jobq list state:available -o id) | grep 'no live worker takes jobs from the queue'"},
		{line: "import json", saved: "greet.py"},
		{line: "jobq show 1", instead: "jobq show 1 | grep 'hello, Ann'"},
		{line: "jobq show 3                  # two runs", instead: "jobq show 3 | grep 'hello, stranger'"},
		{line: "jobq show 3", instead: `jobq show 3 | grep "exit code 1: KeyError: 'name'"`},
		{line: "jobq worker --run greet=", until: "worker started", stays: true},
		{line: "jobq wait 3                  # exit code 7", exit: 7},
		{line: "jobq enqueue greet '{\"name\": \"Carl\"}'", stopped: "jobq worker"},
		{line: "go mod", excused: "the walk has built the program in this checkout; a release comes from the network"},
		{line: "package main", file: "examples/start/main.go"},
		{line: "scheduled ──▶", excused: "a drawing", all: true},
		{line: "go run .", stopped: "jobq worker", instead: "start", until: "hello, Dora", stays: true},
	}},
	"docs/steps.md": {rules: []rule{
		{line: "err := worker.Handle(w, func(ctx", file: goBlocks},
		{line: "set -eu", excused: inHandler, all: true},
		{line: "jobq requeue 4711", first: jobs4711 + `
			psql "$DATABASE_URL" -qXc "insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name) values (4711, now(), 0, now(), 1, 'step', 'charge')"`},
	}},
	"docs/steps-reference.md": {rules: []rule{
		{line: "select done, result from jobq.step_get", excused: "needs the token of a run: sql/tests/step_test.go has these calls", all: true},
	}},
	"docs/subprocess.md": {python3: true, rules: []rule{
		{line: "import json, os, sys", saved: "resize.py"},
		{line: "import json", saved: "score.py"},
		{line: "jobq wait 1 ", instead: "[ \"$(jobq wait 1 | jq .width)\" = 640 ]"},
		{line: "jobq wait 2 ", instead: "[ \"$(jobq wait 2 | jq .words)\" = 3 ]"},
	}},
	"docs/go.md": {rules: []rule{
		{line: "return pgx.BeginFunc(", file: "examples/gotransaction/main.go"},
		{line: "tx, err := database.BeginTx(", file: "examples/gosql/main.go"},
		{line: "if err := job.CompleteTx(", file: "examples/gosql/main.go"},
		{line: "_, err = jobqsql.Enqueue(ctx, o.client", file: "examples/gosql/orders.go"},
		{line: "state, err := client.CancelByUniqueKeyTx(", file: goBlocks},
		{line: "config := &worker.Config{OnFailure:", file: goBlocks},
	}},
	"docs/unique.md": {rules: []rule{{line: "added, err := client.Enqueue(", file: goBlocks}}},
	"docs/testing.md": {rules: []rule{
		{line: "jobq dev --ephemeral", instead: "jobq dev --ephemeral -- sh -c 'JOBQ_TEST_DATABASE_URL=$DATABASE_URL go version'"},
		{line: "test := worker.NewTestJob(", file: goBlocks},
		{line: "database := jobqtest.New(", file: goBlocks},
		{line: "func newDatabase(", file: goBlocks},
		{line: "enqueued := jobqtest.Record(", file: goBlocks},
		{line: "jobqtest: 0 jobs of kind", excused: "what a failure says", all: true},
		{line: "tx, err := pool.Begin(ctx)", file: goBlocks},
		{line: "counts := jobqtest.RunDue(", file: goBlocks},
		{line: "jobqtest.RunDue(", file: goBlocks},
		{line: "import os", file: "examples/pytest/conftest.py"},
		{line: "def wait(job)", file: "examples/pytest/test_resize.py"},
	}},
	"docs/tracing.md":      {rules: []rule{{line: "traces := tracing.New(", file: goBlocks}}},
	"docs/troubleshoot.md": {before: jobs4711},
	"docs/tui.md":          {rules: []rule{{line: "jobq tui --open job/4711", first: jobs4711, screen: "4711"}}},
	"docs/why.md": {
		before: jobs4711,
		rules:  []rule{{line: "$ jobq why 4711", excused: "an answer; the first block runs the command", all: true}},
	},
}

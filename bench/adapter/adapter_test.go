// Package adapter tests jobq-bench against the contract of the benchmark that it is for, CONTRIBUTING_ADAPTERS.md of
// hardbyte/postgresql-job-queue-benchmarking. It stands outside, since jobq-bench is taken as it is.
package adapter

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// record is a line of the adapter's, descriptor or sample.
type record struct {
	Kind        string   `json:"kind"`
	System      string   `json:"system"`
	EventTables []string `json:"event_tables"`
	Extensions  []string `json:"extensions"`
	Version     string   `json:"version"`
	DBName      string   `json:"db_name"`
	StartedAt   string   `json:"started_at"`
	Time        string   `json:"t"`
	SubjectKind string   `json:"subject_kind"`
	Metric      string   `json:"metric"`
	Value       *float64 `json:"value"`
	Window      *float64 `json:"window_s"`
	Instance    *int     `json:"instance_id"`
}

// manifest is adapter.json, as the harness reads it before the start.
type manifest struct {
	System       string   `json:"system"`
	DBName       string   `json:"db_name"`
	EventTables  []string `json:"event_tables"`
	EventIndexes []string `json:"event_indexes"`
	Extensions   []string `json:"extensions"`
}

func readManifest(t *testing.T) manifest {
	t.Helper()
	content, err := os.ReadFile("jobq-bench/adapter.json")
	require.NoError(t, err)
	var m manifest
	require.NoError(t, json.Unmarshal(content, &m))
	return m
}

// build makes the program of the files that the Dockerfile copies, and of jobq's sources here: a release need not be there.
func build(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	dockerfile, err := os.ReadFile("jobq-bench/Dockerfile")
	require.NoError(t, err)
	patterns := regexp.MustCompile(`(?m)^COPY (go\.mod .*) \./$`).FindSubmatch(dockerfile)
	require.NotNil(t, patterns)
	for _, pattern := range append(strings.Fields(string(patterns[1])), "go.sum") { // which is made anew there
		files, err := filepath.Glob(filepath.Join("jobq-bench", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			content, err := os.ReadFile(file) // #nosec G304 -- our own
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o600))
		}
	}
	sources, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, arguments := range [][]string{{"mod", "edit", "-replace=github.com/jobq-dev/jobq=" + sources}, {"build", "-o", "jobq-bench", "."}} {
		command := exec.CommandContext(t.Context(), "go", arguments...) // #nosec G204 -- our own
		command.Dir = folder
		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))
	}
	return filepath.Join(folder, "jobq-bench")
}

// harness is a private server with the adapter's database in it, as the harness makes it.
func harness(t *testing.T) (url string) {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Config{InMemory: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	name := readManifest(t).DBName
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create database "+name)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return server.URL(name)
}

// adapter is the program at work.
type adapter struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan record // closed at its end
}

func start(t *testing.T, program, url string, environment ...string) *adapter {
	t.Helper()
	a := &adapter{cmd: exec.CommandContext(t.Context(), program), lines: make(chan record)} // #nosec G204 -- our own
	a.cmd.Env = append([]string{"DATABASE_URL=" + url, "SCENARIO=long_horizon", "WORKER_COUNT=8", "SAMPLE_EVERY_S=1", "JOB_WORK_MS=1", "JOB_PAYLOAD_BYTES=256"}, environment...)
	a.cmd.Stderr = os.Stderr
	var err error
	a.stdin, err = a.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := a.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, a.cmd.Start())
	go func() {
		defer close(a.lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			var r record
			if json.Unmarshal(scanner.Bytes(), &r) != nil {
				r.Kind = "no JSON: " + scanner.Text()
			}
			a.lines <- r
		}
	}()
	return a
}

// until reads lines until one is as wanted, and returns all.
func (a *adapter) until(t *testing.T, wanted func(record) bool) []record {
	t.Helper()
	var all []record
	for r := range a.lines {
		require.Contains(t, []string{"descriptor", "adapter"}, r.Kind)
		if all = append(all, r); wanted(r) {
			return all
		}
	}
	require.Fail(t, "the adapter has ended too early")
	return nil
}

// end tells it to end, and wants the exit status 0.
func (a *adapter) end(t *testing.T) {
	t.Helper()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	for range a.lines { // what was under way
	}
	require.NoError(t, a.cmd.Wait())
}

// above wants a metric that is larger.
func above(metric string, value float64) func(record) bool {
	return func(r record) bool { return r.Metric == metric && *r.Value > value }
}

// The first line describes what adapter.json has said, all required metrics follow each second, jobs are added at a rate and
// run, and SIGTERM ends it in order.
func TestContract(t *testing.T) {
	t.Parallel()
	program, url, m := build(t), harness(t), readManifest(t)
	a := start(t, program, url, "PRODUCER_MODE=fixed", "PRODUCER_RATE=200")
	first := <-a.lines
	require.Equal(t, "descriptor", first.Kind)
	require.Equal(t, m.System, first.System)
	require.Equal(t, m.DBName, first.DBName)
	require.Subset(t, first.EventTables, m.EventTables)
	require.NotNil(t, first.Extensions)
	require.NotEmpty(t, first.Version)
	_, err := time.Parse(time.RFC3339, first.StartedAt)
	require.NoError(t, err)

	seen := make(map[string]float64)
	a.until(t, above("enqueue_rate", 0))
	a.until(t, above("completion_rate", 0))
	for _, r := range a.until(t, func(r record) bool {
		if r.Metric != "" {
			seen[r.Metric] = *r.Window
		}
		return len(seen) >= 7
	}) {
		require.Equal(t, "adapter", r.SubjectKind)
		require.Equal(t, "jobq", r.System)
		require.Equal(t, 0, *r.Instance)
		_, err := time.Parse(time.RFC3339, r.Time)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{
		"claim_p50_ms": 30, "claim_p95_ms": 30, "claim_p99_ms": 30, "enqueue_rate": 1, "completion_rate": 1, "queue_depth": 0, "producer_target_rate": 0,
	}, seen)

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }() // it only reads
	for _, name := range append(m.EventTables, m.EventIndexes...) {
		var kind string
		require.NoError(t, conn.QueryRow(t.Context(), "select c.relkind::text from pg_class c where c.oid = $1::text::regclass", name).Scan(&kind), name)
		require.Contains(t, []string{"r", "i"}, kind, "%s: pgstattuple reads no partitioned table", name)
	}
	a.end(t)
}

// With the harness's pacing, exactly the jobs of its lines are added, and all are run.
func TestHarnessPacing(t *testing.T) {
	t.Parallel()
	program, url := build(t), harness(t)
	a := start(t, program, url, "PRODUCER_PACING=harness", "PRODUCER_RATE=800", "PRODUCER_BATCH_MAX=20", "BENCH_QUEUE_COUNT=4", "JOB_PRIORITY_PATTERN=1,1,4")
	go func() {
		for range a.lines { // it must not wait for a reader
		}
	}()
	_, err := io.WriteString(a.stdin, "ENQUEUE 50\nENQUEUE 7\n")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }() // it only reads
	completed := func() (jobs, queues, priorities int) {
		// Until the tables are there, nothing is.
		_ = conn.QueryRow(t.Context(), `select count(*), count(distinct queue), count(distinct priority)
			from jobq.job where state = 'completed' and length(args::text) > 200`).Scan(&jobs, &queues, &priorities)
		return jobs, queues, priorities
	}
	for jobs, _, _ := completed(); jobs < 57; jobs, _, _ = completed() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			require.Fail(t, "not all were run")
		}
	}
	jobs, queues, priorities := completed()
	require.Equal(t, []int{57, 4, 2}, []int{jobs, queues, priorities})
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, a.cmd.Wait())
}

// SIGTERM ends it although jobs run that take longer than the contract's 5 s: none of them is waited for, and all go back.
func TestEndsBeforeItsJobs(t *testing.T) {
	t.Parallel()
	program, url := build(t), harness(t)
	a := start(t, program, url, "PRODUCER_PACING=harness", "PRODUCER_BATCH_MAX=20", "WORKER_COUNT=4", "JOB_WORK_MS=60000")
	go func() {
		for range a.lines { // it must not wait for a reader
		}
	}()
	_, err := io.WriteString(a.stdin, "ENQUEUE 4\n")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }() // it only reads
	in := func(state string) (jobs int) {
		// Until the tables are there, nothing is.
		_ = conn.QueryRow(t.Context(), "select count(*) from jobq.job where state::text = $1", state).Scan(&jobs)
		return jobs
	}
	for in("running") < 4 {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			require.Fail(t, "not all were begun")
		}
	}
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, a.cmd.Wait())
	require.Equal(t, 4, in("available"))
}

// A depth is kept; a second process reports only what is its own; and what the harness spells wrong is refused.
func TestDepthAndReplica(t *testing.T) {
	t.Parallel()
	program, url := build(t), harness(t)
	a := start(t, program, url, "PRODUCER_MODE=depth-target", "TARGET_DEPTH=300", "BENCH_INSTANCE_ID=1", "WORKER_COUNT=1", "JOB_WORK_MS=20")
	enough := 0
	for _, r := range a.until(t, func(r record) bool {
		if above("completion_rate", 0)(r) {
			enough++
		}
		return enough > 1
	}) {
		require.Equal(t, 1, *r.Instance)
		require.NotEqual(t, "queue_depth", r.Metric, "the first process reports what is the same for all")
	}
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	var waiting int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from jobq.pending").Scan(&waiting))
	require.NoError(t, conn.Close(t.Context()))
	require.LessOrEqual(t, waiting, 2*300, "not more and more")
	require.Greater(t, waiting, 0)
	a.end(t)

	wrong := exec.CommandContext(t.Context(), program) // #nosec G204 -- our own
	wrong.Env = []string{"DATABASE_URL=" + url, "PRODUCER_MODE=fast", "WORKER_COUNT=none"}
	output, err := wrong.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), `no PRODUCER_MODE "fast"`)
	require.Contains(t, string(output), `WORKER_COUNT="none"`)

	migrate := exec.CommandContext(t.Context(), program) // #nosec G204 -- our own
	migrate.Env = []string{"DATABASE_URL=" + url, "SCENARIO=migrate_only"}
	output, err = migrate.CombinedOutput()
	require.NoError(t, err, string(output))
}

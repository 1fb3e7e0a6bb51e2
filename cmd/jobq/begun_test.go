package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// asLedger is the variable that makes the test program a worker with a Go handler that writes down
// what begins. It has the URL of the database and the file, with a space between.
const asLedger = "JOBQ_TEST_LEDGER"

// write adds a job to a ledger. A line that is this short is written whole.
func write(ledger string, job int64) error {
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- the test's
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, job)
	return errors.Join(err, file.Close())
}

type ledgerTask struct{}

func (ledgerTask) Kind() string { return "task" }

// runLedger is the test program as a worker.
func runLedger(url, ledger string) error {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{
		Queues: map[string]worker.QueueConfig{"default": {Slots: ledgerSlots}}, NoJanitor: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(_ context.Context, job *worker.Job[ledgerTask]) error { return write(ledger, job.ID()) }, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

const ledgerSlots = 4

// Nothing counts that did not begin: workers with 4 slots claim ahead, and are killed with SIGKILL at
// random moments. A job that its handler has not written down as its first act has used no attempt, and
// shows no run. Between the moment at which the lease says that a job begins and the handler's first act,
// one job of each slot can be counted; of jobs with attempts left also those that were about to begin.
func TestNothingCountsThatDidNotBegin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		jobs  int
		start func(t *testing.T, url, ledger string) *process
	}{
		"Go": {6000, func(t *testing.T, url, ledger string) *process {
			t.Helper()
			return startProcessWith(t, []string{asCommand + "=", asLedger + "=" + url + " " + ledger})
		}},
		"program": {600, func(t *testing.T, url, ledger string) *process {
			t.Helper()
			return startLedgerWorker(t, url, "--run", fmt.Sprintf(`task=sh -c 'echo $JOBQ_JOB_ID >> %s'`, ledger))
		}},
		"kept process": {3000, func(t *testing.T, url, ledger string) *process {
			t.Helper()
			return startLedgerWorker(t, url, "--run-stream", fmt.Sprintf(
				`task=sh -c 'while read -r job; do id=${job#*\"id\":}; id=${id%%%%,*}; echo $id >> %s; echo "{\"id\": $id, \"done\": true}"; done'`, ledger))
		}},
		"two kept processes of two queues": {3000, func(t *testing.T, url, ledger string) *process {
			t.Helper()
			config := filepath.Join(t.TempDir(), "jobq.yaml")
			require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
queues: {default: 4, other: 4}
kinds:
  task:
    stream: [sh, -c, 'while read -r job; do id=${job#*\"id\":}; id=${id%%%%,*}; echo $id >> %s; echo "{\"id\": $id, \"done\": true}"; done']
    processes: %d
`, ledger, ledgerSlots/2)), 0o600))
			return startProcess(t, "worker", "--database-url", url, "--config", config, "--reconcile", "off", "--janitor", "off")
		}},
		"HTTP": {3000, func(t *testing.T, url, ledger string) *process {
			t.Helper()
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				id, err := strconv.ParseInt(r.Header.Get("Jobq-Job-Id"), 10, 64)
				if err == nil {
					err = write(ledger, id)
				}
				if err != nil {
					panic(err)
				}
			}))
			t.Cleanup(server.Close)
			return startLedgerWorker(t, url, "--run-http", "task="+server.URL)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLedger(t, test.jobs, test.start)
		})
	}
}

func startLedgerWorker(t *testing.T, url string, handler ...string) *process {
	t.Helper()
	return startProcess(t, append([]string{"worker", "--database-url", url, "-q", fmt.Sprint("default=", ledgerSlots), "--reconcile", "off", "--janitor", "off"}, handler...)...)
}

// checkLedger kills three workers and reaps what they had claimed.
func checkLedger(t *testing.T, jobs int, start func(t *testing.T, url, ledger string) *process) {
	t.Helper()
	url, ctx := pgtest.URL(t), context.Background()
	pool := pgtest.Connect(t, url)
	ledger := t.TempDir() + "/ledger"
	_, err := pool.Exec(ctx, "select jobq.enqueue('task', queue => case when $2 and i % 2 = 0 then 'other' else 'default' end, max_attempts => case when i % 3 = 0 then 25 else 1 end)\n"+
		"from generate_series(1, $1::integer) i", jobs, strings.Contains(t.Name(), "two_queues"))
	require.NoError(t, err)
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	claimed := 0
	for kill := 1; kill <= 3; kill++ {
		victim := start(t, url, ledger)
		enough := jobs*(kill-1)/4 + 1 + rand.IntN(jobs/4) // #nosec G404 -- a moment
		require.Eventually(t, func() bool { return len(readLedger(t, ledger)) >= enough }, patience, time.Millisecond)
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		require.Eventually(t, func() bool { // a statement that the victim has sent may still hold its rows
			require.NoError(t, pgtest.ExpireLeases(ctx, pool))
			reaped, err := schema.Reap(ctx, pool, nil, 10_000, "test")
			require.NoError(t, err)
			for _, job := range reaped {
				if !job.Begun {
					claimed++
				}
			}
			return query[int](t, pool, "select count(*)::integer from jobq.lease") == 0
		}, patience, 5*time.Millisecond)
	}
	require.Positive(t, claimed, "workers have claimed ahead")
	begun := readLedger(t, ledger)
	last, others := 0, 0
	rows, err := pool.Query(ctx, `select j.id, j.max_attempts = 1 from jobq.job j
		where j.attempts > 0 or j.crashes > 0 or j.state = 'failed' or j.last_error is not null or exists (select from jobq.attempt a where a.job_id = j.id)`)
	require.NoError(t, err)
	for rows.Next() {
		var id int64
		var isLast bool
		require.NoError(t, rows.Scan(&id, &isLast))
		switch {
		case begun[id]:
		case isLast:
			last++
		default:
			others++
		}
	}
	require.NoError(t, rows.Err())
	require.LessOrEqual(t, last, 3*ledgerSlots, "jobs of one attempt that never began have failed")
	require.LessOrEqual(t, others, 3*200, "jobs that never began have used an attempt")
	require.Zero(t, query[int](t, pool, "select count(*)::integer from jobq.job where state not in ('completed', 'failed', 'available', 'scheduled')"))
	t.Logf("%d begun, %d claimed and not begun; counted and not begun: %d with one attempt, %d others", len(begun), claimed, last, others)
}

// readLedger returns the jobs that have begun.
func readLedger(t *testing.T, ledger string) map[int64]bool {
	t.Helper()
	content, err := os.ReadFile(ledger) // #nosec G304 -- the test's
	if err != nil && !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	begun := make(map[int64]bool)
	for line := range strings.Lines(string(content)) {
		if id, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil {
			begun[id] = true
		}
	}
	return begun
}

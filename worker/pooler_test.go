package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

// hung ends a test that would not end otherwise; nothing is to be that fast.
const hung = 5 * time.Minute

// execModes are pgx's ways to send a statement, as in a URL.
var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// Behind PgBouncer, whatever its mode, pgx's and the janitor's, and without any
// setting for it: jobs run once, succeed and come due, an expired lease is
// reaped, and the server's sessions are left as they were.
// Two programs share the database, since what one leaves behind the other meets.
func TestPoolerMatrix(t *testing.T) {
	t.Parallel()
	for name, pooled := range map[string]struct {
		settings  map[string]string
		execModes []string
		shared    int
	}{
		"session":     {map[string]string{"pool_mode": "session", "default_pool_size": "100"}, execModes, 0},
		"transaction": {map[string]string{"pool_mode": "transaction", "default_pool_size": "5"}, execModes, 5},
		"one session": {map[string]string{"pool_mode": "transaction", "default_pool_size": "1"}, execModes[:1], 1},
		"in turn":     {map[string]string{"pool_mode": "transaction", "default_pool_size": "2", "server_round_robin": "1"}, execModes[:1], 2},
	} {
		pooler := pgtest.StartPgBouncer(t, pgtest.Server(t).URL("postgres"), pooled.settings)
		for _, execMode := range pooled.execModes {
			for _, janitorMode := range []janitor.Mode{janitor.ModeLeader, janitor.ModeAny} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, execMode, janitorMode), func(t *testing.T) {
					t.Parallel()
					direct := pgtest.URL(t)
					cell := &poolerCell{T: t, direct: pgtest.Connect(t, direct), url: pooler.URL(t, direct), shared: pooled.shared}
					cell.run(execMode, janitorMode)
				})
			}
		}
	}
}

// poolerCell is one cell of the matrix.
type poolerCell struct {
	*testing.T
	direct *pgxpool.Pool
	url    string          // through the pooler
	shared int             // so many sessions are shared by its clients; 0: each has its own
	listen *pgxpool.Config // the direct connection; nil for none, and then the workers poll
}

func (c *poolerCell) run(execMode string, janitorMode janitor.Mode) {
	ctx, stop := context.WithCancel(context.Background())
	const jobs, scheduled = 40, 5
	var runs [jobs + scheduled + 2]atomic.Int32
	var programs sync.WaitGroup
	defer programs.Wait()
	defer stop()
	var client *jobq.Client
	ends := make(chan error, 4)
	log := c.logger()
	poll := 50 * time.Millisecond
	if c.listen != nil {
		poll = time.Hour
	}
	for range 2 {
		var err error
		client, err = jobq.NewClient(pgtest.Connect(c, c.url+"&default_query_exec_mode="+execMode), &jobq.Config{Listen: c.listen})
		require.NoError(c, err)
		require.NoError(c, client.Check(ctx))
		w, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: poll, Logger: log})
		require.NoError(c, err)
		require.NoError(c, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
			runs[job.Args.N].Add(1)
			job.Progress(50, "half", "way")
			return job.SetResult(map[string]int{"n": job.Args.N})
		}, nil))
		j, err := janitor.New(client, &janitor.Config{Mode: janitorMode, ScanInterval: 50 * time.Millisecond, Logger: log})
		require.NoError(c, err)
		programs.Go(func() { ends <- w.Run(ctx) })
		programs.Go(func() { ends <- j.Run(ctx) })
	}
	for n := range jobs {
		enqueue(c.T, client, n, nil)
	}
	for n := range scheduled {
		enqueue(c.T, client, jobs+n, &jobq.EnqueueOptions{RunAt: time.Now().Add(time.Duration(n) * 100 * time.Millisecond)})
	}
	c.expireOne(jobs + scheduled)
	require.Eventually(c, func() bool {
		require.Empty(c, ends, "a program has ended")
		return c.number("select count(*) from jobq.job where finished_at is not null") == jobs+scheduled+1
	}, hung, 20*time.Millisecond, "jobs are left over")
	stop()
	programs.Wait()
	for range cap(ends) {
		require.NoError(c, <-ends)
	}
	for n := range jobs + scheduled + 1 {
		require.EqualValues(c, 1, runs[n].Load(), "runs of job %d", n)
	}
	require.Zero(c, c.number("select count(*) from jobq.job where state <> 'completed'"))
	require.Zero(c, c.number("select count(*) from jobq.attempt where outcome <> 'lost'"), "runs that did not succeed")
	c.requireNothingLeft()
}

// expireOne adds a job that a dead worker has left with an expired lease.
func (c *poolerCell) expireOne(n int) {
	err := pgtest.InsertRunning(context.Background(), c.direct, 1, pgtest.Columns{
		"lease_expires_at": "now() - interval '1 h'", "backoff_base": "interval '1 ms'", "args": fmt.Sprintf("jsonb_build_object('n', %d)", n),
	})
	require.NoError(c, err)
}

func (c *poolerCell) number(sql string) (number int) {
	require.NoError(c, c.direct.QueryRow(context.Background(), sql).Scan(&number))
	return number
}

func (c *poolerCell) logger() *slog.Logger { return slog.New(slog.NewTextHandler(c.Output(), nil)) }

// requireNothingLeft looks into each session that the pooler still has, by a
// transaction on each at once: no lock, no setting, no channel, no statement.
func (c *poolerCell) requireNothingLeft() {
	ctx := context.Background()
	require.Eventually(c, func() bool { // a session that has its own client ends a little after it
		return c.number("select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and l.locktype = 'advisory'") == 0
	}, hung, 20*time.Millisecond, "locks")
	if c.shared == 0 {
		return // a session is cleaned before another gets it
	}
	const others = "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
	for range min(c.number(others), c.shared) { // some may be direct connections that end only now
		conn, err := pgx.Connect(ctx, c.url)
		require.NoError(c, err)
		defer func() { require.NoError(c, conn.Close(ctx)) }()
		_, err = conn.Exec(ctx, "begin")
		require.NoError(c, err)
		defer func() { _, _ = conn.Exec(ctx, "rollback") }()
		var left string
		require.NoError(c, conn.QueryRow(ctx, `
			select coalesce(string_agg(what, ', '), '') from (
			  select name || '=' || setting from pg_settings where source = 'session'
			    and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')
			  union all select 'prepared ' || left(statement, 60) from pg_prepared_statements
			  union all select 'channel ' || c from pg_listening_channels() c) as leftovers(what)`, pgx.QueryExecModeSimpleProtocol).Scan(&left))
		require.Empty(c, left)
	}
}

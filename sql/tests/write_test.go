package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// written is a queue on a server that nobody else writes to.
type written struct {
	*queue
	conn *pgxpool.Conn
}

func quiet(t *testing.T) written {
	t.Helper()
	ctx := context.Background()
	url := pgtest.OwnServer(t).URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, url, "jobq"))
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	pool := pgtest.Connect(t, url)
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	for _, setting := range []string{"full_page_writes = off", "autovacuum = off"} { // what depends on the time
		_, err := conn.Exec(ctx, "alter system set "+setting)
		require.NoError(t, err)
	}
	_, err = conn.Exec(ctx, "select pg_reload_conf()")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var setting string
		err := conn.QueryRow(ctx, "select current_setting('full_page_writes') || current_setting('autovacuum')").Scan(&setting)
		return err == nil && setting == "offoff"
	}, eventually, tick)
	return written{&queue{T: t, schema: schema, queries: schema.Queries(pool), pool: pool}, conn}
}

// bytes is how much log a function makes the server write.
func (w written) bytes(call func()) (bytes int) {
	w.Helper()
	var before, after string
	const place = "select pg_current_wal_insert_lsn()::text"
	require.NoError(w, w.conn.QueryRow(context.Background(), place).Scan(&before))
	call()
	require.NoError(w, w.conn.QueryRow(context.Background(), place).Scan(&after))
	require.NoError(w, w.conn.QueryRow(context.Background(), "select ($1::pg_lsn - $2::pg_lsn)::integer", after, before).Scan(&bytes))
	return bytes
}

// drain runs all jobs in batches, whose ends go with the next claim.
func (w written) drain(batch int32) (jobs int) {
	w.Helper()
	exchange := db.Exchange{Owner: "a", Claim: &db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: batch}}
	for {
		answer, err := w.schema.Exchange(context.Background(), w.conn, exchange)
		require.NoError(w, err)
		require.Len(w, answer.Completed, len(exchange.Completions))
		jobs += len(answer.Completed)
		exchange.Completions = nil
		for _, job := range answer.Claimed {
			exchange.Completions = append(exchange.Completions, plainly(job))
		}
		if len(answer.Claimed) == 0 && len(answer.Completed) == 0 {
			return jobs
		}
	}
}

// insert adds jobs with args of 100 bytes.
func (w written) insert(count int) {
	w.Helper()
	w.exec("insert into jobq.pending (kind, args) select 'k', jsonb_build_object('text', repeat('x', 87)) from generate_series(1, $1::integer)", count)
}

// A job that plainly succeeds is written to the log as few bytes: the row of run
// and what dies of pending, and its part of a lease.
func TestPlainJobsWriteLittle(t *testing.T) {
	t.Parallel()
	w := quiet(t)
	for _, c := range []struct {
		batch, jobs int
		most        int // bytes a job
	}{{500, 10_000, 480}, {100, 5_000, 480}, {10, 1_000, 560}, {1, 200, 1_200}} {
		w.insert(c.jobs)
		var jobs int
		bytes := w.bytes(func() { jobs = w.drain(int32(c.batch)) }) // #nosec G115 -- few
		require.Equal(t, c.jobs, jobs)
		t.Logf("batches of %d: %d B of log a job", c.batch, bytes/jobs)
		require.LessOrEqual(t, bytes/jobs, c.most, "batches of %d", c.batch)
	}

	w.insert(1000)
	blocks := func(call func(*db.Queries)) int {
		query := w.schema.Queue(&pgx.Batch{}, call)
		return buffers(t, w.conn, query.SQL, query.Arguments...)
	}
	claim := db.JobClaimParams{Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 500}
	db.WholeLine(&claim)
	claimed := blocks(func(q *db.Queries) { _, _ = q.JobClaim(context.Background(), claim) })
	w.exec("update jobq.lease set owner = 'b'")
	end := db.LeaseEndParams{Owner: "a", Lows: []int32{1}, Highs: []int32{500}}
	for _, job := range w.claim("a", 500) {
		end.Plain = append(end.Plain, job.Slot)
		end.Ids, end.ClaimedAts = []int64{job.LeaseToken}, []pgtype.Timestamptz{job.StartedAt}
	}
	ended := blocks(func(q *db.Queries) { _, _ = q.LeaseEnd(context.Background(), end) })
	require.Equal(t, 500, w.number("select count(*) from jobq.job where state = 'running'"))
	t.Logf("of 500: the claim touches %d blocks, the end %d", claimed, ended)
	require.Less(t, claimed, 10*500)
	require.Less(t, ended, 100)
}

// Once jobs have waited for others, those for which none waits are written to the log as
// before: their ends look for dependencies, and write nothing.
func TestJobsWithoutDependentsWriteAsLittle(t *testing.T) {
	t.Parallel()
	w := quiet(t)
	const jobs, most = 2_000, 480 // bytes a job
	drained := func() (perJob int) {
		w.insert(jobs)
		bytes := w.bytes(func() { require.Equal(t, jobs, w.drain(500)) })
		return bytes / jobs
	}
	drained() // the first pages of tables
	before := drained()
	w.exec("select jobq.enqueue('k', queue => 'children', after => array[jobq.enqueue('k', queue => 'parents')])")
	after := drained()
	t.Logf("%d B of log a job, and %d once a job waits for another", before, after)
	require.LessOrEqual(t, after, most)
	require.LessOrEqual(t, after, before+before/10, "a row or a look for each job would be more")
}

// Trap 12: a lease whose jobs end one by one writes some bytes a job that has
// ended, each time, and not the ids again.
func TestEndsOneByOneWriteLittle(t *testing.T) {
	t.Parallel()
	w := quiet(t)
	one := func(job db.JobClaimRow) {
		answer, err := w.schema.Exchange(context.Background(), w.conn, db.Exchange{Owner: "a", Completions: []db.Completion{plainly(job)}})
		require.NoError(t, err)
		require.Len(t, answer.Completed, 1)
	}
	w.insert(1)
	one(w.claim("a", 1)[0]) // the first pages of tables
	for _, c := range []struct {
		leases, jobs, most int // bytes an end, on average
	}{{100, 1, 600}, {1, 100, 700}, {1, 500, 1_600}, {1, 1000, 2_600}} {
		w.insert(c.leases * c.jobs)
		var jobs []db.JobClaimRow
		for range c.leases {
			jobs = append(jobs, w.claim("a", int32(c.jobs))...) // #nosec G115 -- few
		}
		require.Len(t, jobs, c.leases*c.jobs)
		bytes := w.bytes(func() {
			for _, job := range jobs {
				one(job)
			}
		})
		t.Logf("one by one, of %d: %d B an end", c.jobs, bytes/len(jobs))
		require.LessOrEqual(t, bytes/len(jobs), c.most, "of %d", c.jobs)
	}
}

// Trap 11: what dies while a transaction holds everything back is what waited,
// and a version of each lease: nothing of the history.
func TestHistoryHasNoDeadRows(t *testing.T) {
	t.Parallel()
	w := quiet(t)
	w.insert(2000)
	require.Equal(t, 2000, w.drain(100))
	dead := func(table string) int {
		return w.number(`select coalesce(sum(pg_stat_get_dead_tuples(c.oid) + pg_stat_get_tuples_updated(c.oid)), 0) from pg_class c
			where c.relnamespace = 'jobq'::regnamespace and c.relkind = 'r' and c.relname ~ $1`, table)
	}
	require.Eventually(t, func() bool {
		_, err := w.conn.Exec(context.Background(), "select") // a session tells of its statistics after a statement, once a second or so
		require.NoError(t, err)
		return dead("^lease$") >= 20 && dead("^pending$") >= 2000
	}, eventually, 50*tick, "statistics come late")
	require.LessOrEqual(t, dead("^lease$"), 20, "20 leases")
	require.Zero(t, dead("^(run|past_lease)_"))
}

// Trap 12: what a run reports is written to a narrow table alone.
func TestReportsDoNotTouchTheHistory(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 20)
	size := func(tables string) int {
		return l.number("select sum(pg_relation_size(c.oid)) from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relname ~ $1", tables)
	}
	const history = "^(run|past_lease|lease|pending|attempt)(_|$)"
	before := size(history)
	// As the worker sends them: all in one round trip.
	batch := &pgx.Batch{}
	for percent := range 100 {
		done, stage := float32(percent), strings.Repeat("s", percent)
		for _, job := range l.jobs {
			l.schema.Queue(batch, func(q *db.Queries) {
				_, _ = q.RunProgress(context.Background(), db.RunProgressParams{Percent: &done, Stage: &stage, ID: job.ID, Token: l.id, Owner: "a", ClaimedAt: job.StartedAt})
			}).Exec(func(tag pgconn.CommandTag) error {
				require.EqualValues(t, 1, tag.RowsAffected())
				return nil
			})
		}
	}
	require.NoError(t, l.pool.SendBatch(context.Background(), batch).Close())
	require.Equal(t, before, size(history), "after 2,000 reports of 20 jobs")
	require.Equal(t, 20, l.number("select count(*) from jobq.job where progress_percent = 99"))

	// What is reported goes with the run, and a report of one that is over changes nothing.
	require.True(t, writes["checkpoint"](l.queue, at(l.jobs[1]), "a"))
	require.Equal(t, "scheduled", l.end(l.jobs[1], db.Ending{Outcome: "failed", Delay: db.DelayOf(time.Hour)}))
	require.Equal(t, 1, l.number("select count(*) from jobq.pending where checkpoint = '1'"))
	require.Equal(t, 19, l.number("select count(*) from jobq.progress"))
	require.Equal(t, 19, l.lose(100))
	require.Zero(t, l.number("select count(*) from jobq.progress"))
	require.False(t, writes["progress"](l.queue, at(l.jobs[2]), "a"))
	require.False(t, writes["checkpoint"](l.queue, at(l.jobs[2]), "a"))
}

// Trap 12: what runs report again and again is written in place, into rows of progress and, where a report is the
// heartbeat, of lease: hardly an index entry comes of it, and nothing grows with the number of reports.
func TestReportsAreWrittenInPlace(t *testing.T) {
	t.Parallel()
	ctx, q := context.Background(), quiet(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 200)")
	jobs := q.claimEach("a", 200)
	sizes := func() (bytes map[string]int) {
		require.NoError(t, q.pool.QueryRow(ctx, `select jsonb_object_agg(c.relname, pg_relation_size(c.oid)) from pg_class c
			where c.relnamespace = 'jobq'::regnamespace and c.relname ~ '^(progress|lease|run)(_|$)'`).Scan(&bytes))
		return bytes
	}
	var before map[string]int
	for round := range 30 { // each as in a transaction of its own, a second after the one before
		if round == 10 {
			before = sizes()
		}
		require.NoError(t, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
			percent, stage := float32(round), "a stage"
			for _, job := range jobs {
				count, err := q.schema.Queries(tx).RunProgress(ctx, db.RunProgressParams{
					Percent: &percent, Stage: &stage, ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt, ExtendBy: hour,
				})
				require.NoError(t, err)
				require.EqualValues(t, 1, count)
			}
			for table, updates := range map[string]int{"progress": min(round, 1) * len(jobs), "lease": len(jobs)} {
				var updated, inPlace int
				require.NoError(t, tx.QueryRow(ctx, "select pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_hot_updated(c) from cast('jobq.' || $1::text as regclass) c",
					table).Scan(&updated, &inPlace))
				require.GreaterOrEqual(t, updated, updates, table)      // the server may count earlier transactions as well
				require.GreaterOrEqual(t, inPlace, updated*9/10, table) // now and then a row moves to a page with more room
			}
			return nil
		}))
	}
	require.Equal(t, before, sizes())
}

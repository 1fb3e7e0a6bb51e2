package tests

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// queue is a database and the statements that a worker uses on it.
type queue struct {
	*testing.T
	schema  *db.Schema
	queries *db.Queries
	pool    *pgxpool.Pool
}

func setUp(t *testing.T) *queue {
	t.Helper()
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	// A statement that waits where it must not is to fail, not to hang.
	config.ConnConfig.RuntimeParams["lock_timeout"] = "10s"
	pool := pgtest.ConnectConfig(t, config)
	return &queue{T: t, schema: schema, queries: schema.Queries(pool), pool: pool}
}

func (q *queue) exec(sql string, args ...any) {
	q.Helper()
	_, err := q.pool.Exec(context.Background(), sql, args...)
	require.NoError(q, err)
}

func (q *queue) number(sql string, args ...any) (number int) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), sql, args...).Scan(&number))
	return number
}

// change changes running jobs behind the back of their workers.
func (q *queue) change(columns pgtest.Columns, where string, args ...any) {
	q.Helper()
	require.NoError(q, pgtest.UpdateRunning(context.Background(), q.pool, columns, where, args...))
}

func (q *queue) exchange(exchange db.Exchange) db.Exchanged {
	q.Helper()
	answer, err := q.schema.Exchange(context.Background(), q.pool, exchange)
	require.NoError(q, err)
	return answer
}

// claim takes up to count jobs of kind k for the owner.
func (q *queue) claim(owner string, count int32) []db.JobClaimRow {
	q.Helper()
	return q.exchange(db.Exchange{Owner: owner, Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: count,
	}}).Claimed
}

func (q *queue) reap() {
	q.Helper()
	require.NoError(q, pgtest.ExpireLeases(context.Background(), q.pool))
	_, err := q.schema.Reap(context.Background(), q.pool, nil, 1000, "test")
	require.NoError(q, err)
}

// at is where a claimed job is.
func at(job db.JobClaimRow) db.Slot {
	return db.Slot{ID: job.ID, Token: job.LeaseToken, Slot: job.Slot, ClaimedAt: job.StartedAt.Time}
}

// slotsOf are the places of claimed jobs, by job.
func slotsOf(jobs []db.JobClaimRow) map[int64]db.Slot {
	slots := make(map[int64]db.Slot, len(jobs))
	for _, job := range jobs {
		slots[job.ID] = at(job)
	}
	return slots
}

// extend asks for more time for a lease, or only after it with 0.
func (q *queue) extend(owner string, at db.Slot, by time.Duration) (answer string) {
	q.Helper()
	answers, err := q.schema.ExtendLeases(context.Background(), q.pool, owner, []db.Extension{{ID: at.Token, ClaimedAt: at.ClaimedAt, Lease: db.Interval(by)}})
	require.NoError(q, err)
	require.Len(q, answers, 1)
	return answers[at.Token]
}

// cancelled are the jobs of a lease that somebody has asked to cancel.
func (q *queue) cancelled(lease int64) []int64 {
	q.Helper()
	cancelled, err := q.schema.CancelledJobs(context.Background(), q.pool, []int64{lease})
	require.NoError(q, err)
	return cancelled[lease]
}

// fateOf asks what has become of a job that was completed in a transaction.
func fateOf(job db.JobClaimRow) db.RunFateParams {
	return db.RunFateParams{ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt, EndsItself: true}
}

// write is one of the writes that a worker may do under a lease. It says
// whether the database accepted it.
type write func(q *queue, at db.Slot, owner string) bool

func ending(outcome string) write {
	return func(q *queue, at db.Slot, owner string) bool {
		return len(q.exchange(db.Exchange{Owner: owner, Endings: []db.Ending{{Slot: at, Outcome: outcome, Error: "e", Started: true}}}).Ended) == 1
	}
}

func completing(change func(*db.Completion)) write {
	return func(q *queue, at db.Slot, owner string) bool {
		completion := db.Completion{Slot: at, Kind: "k"}
		change(&completion)
		return len(q.exchange(db.Exchange{Owner: owner, Completions: []db.Completion{completion}}).Completed) == 1
	}
}

var writes = map[string]write{
	"complete":             completing(func(*db.Completion) {}),
	"complete with output": completing(func(c *db.Completion) { c.Output = "o" }),
	"complete with result": completing(func(c *db.Completion) { c.Result = json.RawMessage("1") }),
	"complete on its row":  completing(func(c *db.Completion) { c.OnRow = true }),
	"complete in a transaction": func(q *queue, at db.Slot, owner string) bool {
		ids, err := q.queries.RunCompleteTx(context.Background(), db.RunCompleteTxParams{ID: at.ID, Token: at.Token, Owner: owner, ClaimedAt: db.Timestamp(at.ClaimedAt)})
		require.NoError(q, err)
		return len(ids) == 1
	},
	"fail": ending("failed"), "time out": ending("timed_out"), "cancel": ending("cancelled"),
	"release": ending("released"), "snooze": ending("snoozed"),
	"extend": func(q *queue, at db.Slot, owner string) bool {
		return q.extend(owner, at, time.Hour+time.Minute) == db.LeaseOK
	},
	"progress": func(q *queue, at db.Slot, owner string) bool {
		percent := float32(50)
		count, err := q.queries.RunProgress(context.Background(), db.RunProgressParams{Percent: &percent, ID: at.ID, Token: at.Token, Owner: owner, ClaimedAt: db.Timestamp(at.ClaimedAt)})
		require.NoError(q, err)
		return count == 1
	},
	"checkpoint": func(q *queue, at db.Slot, owner string) bool {
		count, err := q.queries.RunCheckpoint(context.Background(), db.RunCheckpointParams{Checkpoint: json.RawMessage(`1`), ID: at.ID, Token: at.Token, Owner: owner, ClaimedAt: db.Timestamp(at.ClaimedAt)})
		require.NoError(q, err)
		return count == 1
	},
	"output": func(q *queue, at db.Slot, owner string) bool {
		count, err := q.queries.OutputAppend(context.Background(), db.OutputAppendParams{EndsAt: 1, Content: "x", ID: at.ID, Token: at.Token, Owner: owner, ClaimedAt: db.Timestamp(at.ClaimedAt)})
		require.NoError(q, err)
		return count == 1
	},
}

// everything is what the tables say that a write may change.
func (q *queue) everything() (rows string) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), `select concat((select json_agg(j) from jobq.job j),
		(select json_agg(l) from jobq.lease l), (select json_agg(l) from jobq.past_lease l), (select json_agg(p) from jobq.progress p),
		(select json_agg(p) from jobq.pending p), (select json_agg(a) from jobq.attempt a), (select json_agg(s) from jobq.stat_delta s),
		(select json_agg(o) from jobq.output o), (select json_agg(s) from jobq.step s))`).Scan(&rows))
	return rows
}

// Every write is refused, and leaves no trace, when the token or the owner is
// not the lease's: above all while the job runs again, also when the same
// worker has claimed it again. With both right it is accepted.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("select jobq.enqueue('k')")
			first := q.claim("a", 1)[0]
			q.reap()
			before := q.everything()
			require.False(t, write(q, at(first), "a"), "accepted after the reap")
			require.Equal(t, before, q.everything())

			second := q.claim("a", 1)[0]
			require.Greater(t, second.LeaseToken, first.LeaseToken)
			before = q.everything()
			for _, stale := range []struct {
				token int64
				owner string
			}{{first.LeaseToken, "a"}, {second.LeaseToken, "b"}, {second.LeaseToken + 1, "a"}} {
				require.False(t, write(q, db.Slot{ID: first.ID, Token: stale.token, Slot: 1, ClaimedAt: second.StartedAt.Time}, stale.owner), "token %d of %s was accepted", stale.token, stale.owner)
				require.Equal(t, before, q.everything())
			}
			require.True(t, write(q, at(second), "a"))
			require.NotEqual(t, before, q.everything())

			if q.number("select count(*) from jobq.job where state = 'running'") == 1 {
				require.True(t, writes["complete on its row"](q, at(second), "a"))
			}
			before = q.everything()
			write(q, at(second), "a")
			require.Equal(t, before, q.everything(), "accepted twice")
		})
	}
}

// A completion with the current token counts though the lease has expired, as
// long as nobody has reaped it.
func TestCompletionAfterExpiry(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	q.change(pgtest.Columns{"lease_expires_at": "now() - interval '1 hour'"}, "true")
	require.True(t, writes["complete"](q, at(job), "a"))
}

// A claim returns at most as many as asked for, in the order of priority and
// position, only of the kinds and the queue, and nothing of a paused queue.
func TestClaim(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', priority => i % 3) from generate_series(1, 30) i")
	q.exec("select jobq.enqueue('other', priority => -1), jobq.enqueue('k', queue => 'elsewhere', priority => -1), jobq.enqueue('k', run_at => now() + interval '1 hour')")
	var ids []int64
	for _, job := range q.claim("a", 15) {
		ids = append(ids, job.ID)
	}
	require.Len(t, ids, 15)
	require.Equal(t, 10, q.number("select count(*) from jobq.job where state = 'running' and priority = 0"))
	require.Equal(t, 5, q.number("select count(*) from jobq.job where state = 'running' and priority = 1 and id <= 13"))
	q.exec("insert into jobq.queue (name, paused_at) values ('default', now())")
	require.Empty(t, q.claim("a", 15))
	q.exec("update jobq.queue set paused_at = null")
	require.Len(t, q.claim("a", 100), 15)
}

// A row that is edited while a claim waits for nobody is skipped while it is
// locked, and claimed afterwards, once.
func TestEditedRowIsClaimedLater(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k'), jobq.enqueue('k')")
	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "update jobq.pending set priority = 1 where id = 1")
	require.NoError(t, err)
	require.Len(t, q.claim("a", 10), 1)
	require.NoError(t, tx.Commit(ctx))
	jobs := q.claim("a", 10)
	require.Len(t, jobs, 1)
	require.EqualValues(t, 1, jobs[0].ID)
	require.EqualValues(t, 1, jobs[0].Priority)
}

// A new claim shows nothing of the run before: no progress, no wish to cancel.
func TestClaimStartsClean(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', max_attempts => 5)")
	job := q.claim("a", 1)[0]
	require.True(t, writes["progress"](q, at(job), "a"))
	require.True(t, writes["checkpoint"](q, at(job), "a"))
	q.reap()
	again := q.claim("b", 1)[0]
	require.JSONEq(t, "1", string(again.Checkpoint))
	require.EqualValues(t, 1, again.Attempts)
	require.EqualValues(t, 1, again.Crashes)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and progressed_at is null and progress_percent is null and cancel_requested_at is null and lease_owner = 'b'"))
}

// A released job is at its old place in the line, a failed one at its end.
func TestPlaceInLine(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
	jobs := q.claim("a", 2)
	require.Len(t, jobs, 2)
	slots := slotsOf(jobs)
	q.exchange(db.Exchange{Owner: "a", Endings: []db.Ending{
		{Slot: slots[1], Outcome: "failed", Error: "e", Delay: db.DelayOf(0), Started: true},
		{Slot: slots[2], Outcome: "released"},
	}})
	var order []int64
	for range 3 {
		order = append(order, q.claim("a", 1)[0].ID)
	}
	require.Equal(t, []int64{2, 3, 1}, order)
	require.Equal(t, 1, q.number("select count(*) from jobq.attempt"), "what was released before it began leaves no record")
}

// An extension answers for each lease without waiting for one that somebody has
// locked. Of several leases, the jobs to be cancelled are told by lease.
func TestExtensionAnswers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	var leases []int64
	var extensions []db.Extension
	var locked db.JobClaimRow
	for _, count := range []int32{1, 2, 1, 1} {
		locked = q.claim("a", count)[0]
		leases = append(leases, locked.LeaseToken)
		extensions = append(extensions, db.Extension{ID: locked.LeaseToken, ClaimedAt: locked.StartedAt.Time, Lease: hour})
	}
	q.exec("select jobq.cancel(2), jobq.cancel(5)")
	q.exec("delete from jobq.lease where id = $1", leases[2])
	release := q.lockLeases(leases[3])
	answers, err := q.schema.ExtendLeases(ctx, q.pool, "a", extensions)
	require.NoError(t, err)
	require.Equal(t, map[int64]string{leases[0]: db.LeaseOK, leases[1]: db.LeaseOK, leases[2]: db.LeaseLost, leases[3]: db.LeaseBusy}, answers)
	cancelled, err := q.schema.CancelledJobs(ctx, q.pool, leases)
	require.NoError(t, err)
	require.Equal(t, map[int64][]int64{leases[1]: {2}, leases[3]: {5}}, cancelled)
	release()
	require.Equal(t, db.LeaseOK, q.extend("a", at(locked), time.Hour))
}

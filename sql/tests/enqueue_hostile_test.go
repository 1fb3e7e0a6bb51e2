package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// No row that a producer may insert, whatever its values, keeps other jobs
// from being claimed, finished, retried or reaped: it is refused, or it can be
// run. One statement deals with many rows, so one that fails would hold up all.
func TestNoRowHoldsUpOthers(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for name, values := range map[string]string{
		"run_at in the infinite past":   "(kind, run_at) values ('k', '-infinity')",
		"run_at in the infinite future": "(kind, run_at) values ('k', 'infinity')",
		"run_at in the distant past":    "(kind, run_at) values ('k', '4713-01-01 BC')",
		"created in the infinite past":  "(kind, created_at) values ('k', '-infinity')",
		"endless backoff":               "(kind, backoff_base, backoff_max) values ('k', '178000000 years', '178000000 years')",
		"endless timeout":               "(kind, timeout) values ('k', '178000000 years')",
		"no attempts left":              "(kind, attempts, max_attempts) values ('k', 32767, 1)",
		"attempts below zero":           "(kind, attempts) values ('k', -32768)",
		"crashes":                       "(kind, crashes) values ('k', 32767)",
		"largest token":                 "(kind, lease_token) values ('k', 9223372036854775807)",
		"token below zero":              "(kind, lease_token) values ('k', -9223372036854775808)",
		"position below zero":           "(kind, position) values ('k', -9223372036854775808)",
		"args said to be apart":         "(kind, args, args_apart) values ('k', null, true)",
		"error given":                   "(kind, last_error) values ('k', repeat('e', 1000))",
		"checkpoint given":              "(kind, checkpoint) select 'k', jsonb_agg(md5(i::text)) from generate_series(1, 50000) i",
		"both waits at their longest":   "(kind, backoff_base, backoff_max, timeout) values ('k', '10 years', '10 years', '10 years')",
		"a run so far in the future":    "(kind, run_at) values ('k', '294276-12-31')",
		"metadata of null":              "(kind, metadata, tags) values ('k', 'null', '{}')",
	} {
		t.Log(name)
		q.live("insert into jobq.pending " + values)
	}
}

// live takes the row that the statement adds, if it is not refused, and three
// ordinary ones through all that can happen to a job.
func (q *queue) live(insert string) {
	q.Helper()
	ctx := context.Background()
	q.exec("delete from jobq.pending")
	q.exec("select jobq.delete_job(id) from jobq.job where finished_at is not null")
	add := func() (all int) {
		if _, err := q.pool.Exec(ctx, insert); err != nil {
			_, refused := db.Invalid(err)
			require.True(q, refused, err)
		}
		q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
		return q.number("select count(*) from jobq.pending where position is not null")
	}
	claim := func() []db.JobClaimRow {
		all := add()
		jobs := q.claim("a", 100)
		require.Len(q, jobs, all)
		return jobs
	}
	for name, write := range writes {
		for _, job := range claim() {
			require.True(q, write(q, at(job), "a"), name)
		}
		require.NoError(q, pgtest.DeleteRunning(ctx, q.pool, "true"))
		q.exec("update jobq.pending set run_at = now() - interval '1 s'")
		_, err := q.schema.Promote(ctx, q.pool, db.DuePlace{}, 100)
		require.NoError(q, err)
		q.claim("a", 100)
		require.NoError(q, pgtest.DeleteRunning(ctx, q.pool, "true"))
	}
	claim()
	_, err := q.nextDue(1000, 1000, true)
	require.NoError(q, err)
	q.reap()
	require.Zero(q, q.number("select count(*) from jobq.job where state = 'running'"))
	add()
	q.exec("select jobq.cancel(id) from jobq.job")
	ended, err := q.schema.JobList(ctx, q.pool, db.JobPage{States: []string{"failed", "cancelled"}, Sort: db.SortID, Size: 1000})
	require.NoError(q, err)
	require.NotEmpty(q, ended)
	for _, job := range ended {
		_, err := q.pool.Exec(ctx, "select jobq.requeue($1)", job.ID)
		code, _, _ := db.Refused(err)
		require.True(q, err == nil || code == db.CodeConflict, err) // its args are not there
	}
	_, err = q.queries.StatsByQueue(ctx, hour)
	require.NoError(q, err)
	rows, err := q.schema.JobList(ctx, q.pool, db.JobPage{States: []string{"available", "failed"}, Sort: db.SortID, Size: 1000})
	require.NoError(q, err)
	require.NotEmpty(q, rows)
}

// A limit on args that is lowered holds for new jobs; those that were accepted
// before are run, retried and recovered all the same.
func TestLoweredArgsLimit(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', to_jsonb(repeat('x', 800))), jobq.enqueue('k', to_jsonb(repeat('x', 5000)))")
	q.exec("create or replace function jobq.args_bytes_max() returns integer language sql stable parallel safe return 100")
	_, err := q.pool.Exec(context.Background(), "select jobq.enqueue('k', to_jsonb(repeat('x', 800)))")
	require.ErrorContains(t, err, "args must be at most")
	require.Len(t, q.claim("a", 2), 2)
	q.reap()
	for _, write := range []string{"release", "fail", "complete"} {
		jobs := q.claim("a", 2)
		require.Len(t, jobs, 2)
		for _, job := range jobs {
			require.True(t, writes[write](q, at(job), "a"))
			q.exec("select jobq.requeue($1)", job.ID)
		}
	}
}

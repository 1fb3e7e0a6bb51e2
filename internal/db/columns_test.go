package db_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// columns is the only job there is, as the view has it, and its place in line.
func (q *queue) columns() (columns map[string]any) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), `select to_jsonb(j) || jsonb_build_object('position',
		coalesce((select p.position from jobq.pending p), (select r.position from jobq.run r))) from jobq.job j`).Scan(&columns))
	return columns
}

// changed are the columns that differ, in order.
func changed(before, after map[string]any) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !reflect.DeepEqual(before[name], after[name]) {
			names = append(names, name)
		}
	}
	return names
}

// everyColumn adds a job with something in each column.
const everyColumn = `insert into jobq.pending (lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts, crashes,
		queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key)
	values (7, '2026-01-02', '2026-01-01', '1 min', '2 s', '3 min', 4, 2, 9, 1, 'default', 'k', $1, $2, 'the last', 'c', '{"p": 1}', '{"m": 1}', '{t}', 'p')`

// Trap 10: every column of a job comes through every transition; what changes
// is listed. A column that is new must be filled here.
func TestEveryColumnSurvives(t *testing.T) {
	t.Parallel()
	const claims = "lease_expires_at lease_owner lease_token started_at state"
	end := func(ending db.Ending) func(q *queue, job db.JobClaimRow) {
		ending.Error = "e"
		return func(q *queue, job db.JobClaimRow) { q.end(job, ending) }
	}
	complete := func(change func(*db.Completion)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			done := plainly(job)
			change(&done)
			require.Len(q, q.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{done}}).Completed, 1)
		}
	}
	report := func(q *queue, job db.JobClaimRow) {
		percent, stage, message := float32(40), "s", "m"
		_, err := q.queries.RunProgress(context.Background(), db.RunProgressParams{
			Percent: &percent, Stage: &stage, Message: &message, ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt,
		})
		require.NoError(q, err)
		_, err = q.queries.RunCheckpoint(context.Background(), db.RunCheckpointParams{Checkpoint: []byte(`{"p": 2}`), ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt})
		require.NoError(q, err)
	}
	reported := func(then func(q *queue, job db.JobClaimRow)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			report(q, job)
			then(q, job)
		}
	}
	byItself := func(call string) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) { q.exec("select "+call, job.ID, runToken(job)) }
	}
	cancelled := func(then func(q *queue, job db.JobClaimRow)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			q.exec("select jobq.cancel($1)", job.ID)
			then(q, job)
		}
	}
	reap := func(q *queue, _ db.JobClaimRow) { q.reap() }
	last := func(then func(q *queue, job db.JobClaimRow)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			q.change(pgtest.Columns{"max_attempts": "3"}, "true")
			then(q, job)
		}
	}
	requeue := func(then func(q *queue, job db.JobClaimRow)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			then(q, job)
			q.exec("select jobq.requeue($1)", job.ID)
		}
	}
	onRow := complete(func(c *db.Completion) { c.OnRow = true })
	const over = "clear_reason finished_at lease_owner lease_token started_at state"
	for name, walk := range map[string]struct {
		keyless bool // what plainly succeeds has no unique key
		do      func(q *queue, job db.JobClaimRow)
		changes string // beside what waited
	}{
		"claimed":              {false, func(*queue, db.JobClaimRow) {}, claims},
		"reported":             {false, report, "checkpoint lease_expires_at lease_owner lease_token progress_message progress_percent progress_stage progressed_at started_at state"},
		"to be cancelled":      {false, cancelled(func(*queue, db.JobClaimRow) {}), "cancel_requested_at " + claims},
		"succeeded":            {true, complete(func(*db.Completion) {}), over},
		"completed":            {false, onRow, over},
		"with a result":        {false, complete(func(c *db.Completion) { c.Result = []byte(`1`) }), "clear_reason finished_at lease_owner lease_token result started_at state"},
		"reported, completed":  {false, reported(onRow), "checkpoint " + over},
		"cancelled, completed": {false, cancelled(onRow), over},
		"in a transaction": {false, reported(func(q *queue, job db.JobClaimRow) {
			require.True(q, writes["complete in a transaction"](q, at(job), "a"))
		}), "checkpoint " + over},
		"failed":              {false, last(end(db.Ending{Outcome: "failed"})), "attempts clear_reason finished_at last_error lease_owner lease_token max_attempts started_at state"},
		"retried":             {false, end(db.Ending{Outcome: "failed", Delay: db.DelayOf(0)}), "attempts clear_reason last_error lease_token position run_at"},
		"retried later":       {false, end(db.Ending{Outcome: "timed_out", Delay: db.DelayOf(time.Hour)}), "attempts clear_reason last_error lease_token position run_at state"},
		"reported, retried":   {false, reported(end(db.Ending{Outcome: "failed", Delay: db.DelayOf(0)})), "attempts checkpoint clear_reason last_error lease_token position run_at"},
		"snoozed":             {false, end(db.Ending{Outcome: "snoozed", Delay: db.DelayOf(time.Hour)}), "clear_reason lease_token position run_at state"},
		"released":            {false, end(db.Ending{Outcome: "released"}), "lease_token"},
		"cancelled":           {false, cancelled(end(db.Ending{Outcome: "failed"})), "attempts clear_reason finished_at last_error lease_owner lease_token started_at state"},
		"lost":                {false, reap, "attempts clear_reason crashes last_error lease_token position run_at"},
		"reported, lost":      {false, reported(reap), "attempts checkpoint clear_reason crashes last_error lease_token position run_at"},
		"lost for good":       {false, last(reap), "attempts clear_reason crashes finished_at last_error lease_owner lease_token max_attempts started_at state"},
		"cancelled, lost":     {false, cancelled(reap), "attempts clear_reason crashes finished_at last_error lease_owner lease_token started_at state"},
		"completed by itself": {false, reported(byItself("jobq.complete($1, $2)")), "checkpoint " + over},
		"failed by itself":    {false, last(byItself("jobq.fail($1, $2, 'e')")), "attempts clear_reason finished_at last_error lease_owner lease_token max_attempts started_at state"},
		"retried by itself":   {false, reported(byItself("jobq.fail($1, $2, 'e', '0')")), "attempts checkpoint clear_reason last_error lease_token position run_at"},
		"snoozed by itself":   {false, byItself("jobq.snooze($1, $2, '1 h')"), "clear_reason lease_token position run_at state"},
		"cancelled by itself": {false, cancelled(byItself("jobq.fail($1, $2, 'e')")), "attempts clear_reason finished_at last_error lease_owner lease_token started_at state"},
		"reported by itself":  {false, byItself("jobq.progress($1, $2, 1, 's', 'm'), jobq.checkpoint($1, $2, '2')"), "checkpoint " + claims + " progress_message progress_percent progress_stage progressed_at"},
		"requeued":            {true, requeue(complete(func(*db.Completion) {})), "clear_reason lease_token position run_at"},
		"requeued on a row":   {false, requeue(onRow), "clear_reason lease_token position run_at"},
		"requeued as failed":  {false, requeue(last(end(db.Ending{Outcome: "failed"}))), "attempts clear_reason last_error lease_token max_attempts position run_at"},
	} {
		for size, args := range map[string]string{"small": `{"a": 1}`, "large": `"` + string(slices.Repeat([]byte("x"), 5000)) + `"`} {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				key := &name
				if walk.keyless {
					key = nil
				}
				q.exec(everyColumn, args, key)
				before := q.columns()
				for column, value := range before {
					if !slices.Contains([]string{
						"position", "unique_key", "started_at", "finished_at", "lease_owner", "lease_expires_at", "cancel_requested_at",
						"progressed_at", "progress_percent", "progress_stage", "progress_message", "result",
					}, column) {
						require.NotNil(t, value, "the test fills %s", column)
					}
				}
				claimed := q.exchange(keyed("a", 1)).Keyed
				require.Len(t, claimed, 1)
				walk.do(q, claimed[0].JobClaimRow)
				require.ElementsMatch(t, strings.Fields(walk.changes), changed(before, q.columns()))
				apart, err := pgtest.ArgsApart(context.Background(), q.pool)
				require.NoError(t, err)
				require.Equal(t, apart, q.number("select count(*) from jobq.payload"))
			})
		}
	}
}

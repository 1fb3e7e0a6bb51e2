package tests

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// columns is a job as the view has it, and its place in line; nil if it is gone.
func (q *queue) columns(id int64) (columns map[string]any) {
	q.Helper()
	err := q.pool.QueryRow(context.Background(), `select to_jsonb(j) || jsonb_build_object('position',
		coalesce((select p.position from jobq.pending p where p.id = j.id), (select r.position from jobq.run r where r.id = j.id))) from jobq.job j where j.id = $1`, id).Scan(&columns)
	if !errors.Is(err, pgx.ErrNoRows) {
		require.NoError(q, err)
	}
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

// sizes are args that a job has in its row, and those that it has in payload.
var sizes = map[string]string{"small": `{"a": 1}`, "large": `"` + strings.Repeat("x", 5000) + `"`}

// everyColumn adds a job with something in each column, and returns its id.
func (q *queue) everyColumn(args string, uniqueKey *string, partitionKey string) (id int64) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), `insert into jobq.pending (lease_token, run_at, created_at, timeout, backoff_base, backoff_max,
			priority, attempts, max_attempts, crashes, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key, lost, max_lost)
		values (7, '2026-01-02Z', '2026-01-01Z', '1 min', '2 s', '3 min', 4, 2, 9, 1, 'default', 'k', $1, $2, 'the last', 'c', '{"p": 1}', '{"m": 1}', '{t}', $3, 3, 8)
		returning id`, args, uniqueKey, partitionKey).Scan(&id))
	for column, value := range q.columns(id) {
		if !slices.Contains([]string{
			"position", "unique_key", "started_at", "finished_at", "lease_owner", "lease_expires_at", "cancel_requested_at",
			"progressed_at", "progress_percent", "progress_stage", "progress_message", "result", "partition_key",
		}, column) {
			require.NotNil(q, value, "the test fills %s", column)
		}
	}
	return id
}

// requireArgsAsSaid is that jobs have args in payload if and only if their rows say so.
func (q *queue) requireArgsAsSaid() {
	q.Helper()
	apart, err := pgtest.ArgsApart(context.Background(), q.pool)
	require.NoError(q, err)
	require.Equal(q, apart, q.number("select count(*) from jobq.payload"))
}

const claimChanges = "lease_expires_at lease_owner lease_token started_at state"

// Trap 10, of each statement that claims: it takes every column along, and gives the
// worker what is in them.
func TestEveryColumnIsClaimed(t *testing.T) {
	t.Parallel()
	each := func(exchange db.Exchange) db.Exchange {
		exchange.Claim.LeasePerJob = true
		return exchange
	}
	for name, claim := range map[string]struct {
		exchange     db.Exchange
		keyLimit     bool
		partitionKey string
	}{
		"JobClaim":                       {plain("a", 1), false, ""},
		"JobClaim, with a lease a job":   {each(plain("a", 1)), false, ""},
		"LaneTake":                       {keyed("a", 1), false, "p"},
		"lane_claim, of a limited key":   {keyed("a", 1), true, "p"},
		"lane_claim, with a lease a job": {each(keyed("a", 1)), false, "p"},
	} {
		for size, args := range sizes {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				if claim.keyLimit {
					q.set(`{"key_limit": 2}`)
				}
				id := q.everyColumn(args, &name, claim.partitionKey)
				before := q.columns(id)
				answer := q.exchange(claim.exchange)
				job := onlyJob(t, answer)
				require.ElementsMatch(t, strings.Fields(claimChanges), changed(before, q.columns(id)))
				q.requireArgsAsSaid()

				lastError, clearReason := "the last", "c"
				expected := db.JobClaimRow{
					ID: id, LeaseToken: job.LeaseToken, Slot: 1, Position: pgtype.Int8{Int64: 1, Valid: true}, Priority: 4, Attempts: 2, MaxAttempts: 9, Crashes: 1,
					Queue: "default", Kind: "k", CreatedAt: job.CreatedAt, RunAt: job.RunAt, StartedAt: job.StartedAt, TimeoutMs: 60_000,
					Args: json.RawMessage(args), Checkpoint: json.RawMessage(`{"p": 1}`), Metadata: json.RawMessage(`{"m": 1}`), Tags: []string{"t"},
					LastError: &lastError, ClearReason: &clearReason, HasKey: true, Lost: 3,
				}
				for i, given := 0, reflect.ValueOf(expected); i < given.NumField(); i++ {
					require.False(t, given.Field(i).IsZero(), "the test fills %s", given.Type().Field(i).Name)
				}
				require.Equal(t, expected, job)
				require.True(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Equal(job.CreatedAt.Time))
				require.True(t, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC).Equal(job.RunAt.Time))
				require.True(t, job.StartedAt.Valid)
				for _, job := range answer.Keyed {
					require.Equal(t, claim.partitionKey, job.PartitionKey)
				}
			})
		}
	}
}

// A claim of a suspect takes every column along, too.
func TestEveryColumnIsClaimedAlone(t *testing.T) {
	t.Parallel()
	for size, args := range sizes {
		for _, key := range []string{"", "p"} {
			t.Run(size+", key "+key, func(t *testing.T) {
				t.Parallel()
				q, name := setUp(t), "unique"
				q.set(`{"key_limit": 2}`)
				id := q.everyColumn(args, &name, key)
				q.exec("update jobq.pending set crashes = 2, position = null")
				before := q.columns(id)
				jobs := q.alone("k")
				require.Len(t, jobs, 1)
				require.ElementsMatch(t, strings.Fields(claimChanges), changed(before, q.columns(id)))
				q.requireArgsAsSaid()
				require.JSONEq(t, args, string(jobs[0].Args))
				require.Equal(t, key, jobs[0].PartitionKey)
				require.Equal(t, []any{id, int16(1), int16(2), int16(3), time.Minute}, []any{jobs[0].ID, jobs[0].Slot, jobs[0].Crashes, jobs[0].Lost, db.Milliseconds(jobs[0].TimeoutMs)})
			})
		}
	}
}

// plain is a claim of up to so many jobs without partition keys, of a queue without limits.
func plain(owner string, count int) db.Exchange {
	exchange := limited(owner, count)
	exchange.HasLimits = false
	return exchange
}

// onlyJob is the only job that was claimed.
func onlyJob(t *testing.T, answer db.Exchanged) db.JobClaimRow {
	t.Helper()
	jobs := answer.Claimed
	for _, job := range answer.Keyed {
		jobs = append(jobs, job.JobClaimRow)
	}
	require.Len(t, jobs, 1)
	return jobs[0]
}

// Trap 10: every column of a job comes through every transition; what changes
// is listed. A column that is new must be filled here. The small jobs have a partition
// key and the large ones have none: other statements claim them.
func TestEveryColumnSurvives(t *testing.T) {
	t.Parallel()
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
	unlimited := func(q *queue, job db.JobClaimRow) {
		q.change(pgtest.Columns{"max_lost": "null"}, "true")
		q.reap()
	}
	lostTooOften := func(q *queue, job db.JobClaimRow) {
		q.change(pgtest.Columns{"max_lost": "3"}, "true")
		q.reap()
	}
	requeue := func(then func(q *queue, job db.JobClaimRow)) func(q *queue, job db.JobClaimRow) {
		return func(q *queue, job db.JobClaimRow) {
			then(q, job)
			q.exec("select jobq.requeue($1)", job.ID)
		}
	}
	onRow := complete(func(c *db.Completion) { c.OnRow = true })
	const suspended = "clear_reason crashes lease_token position run_at state"
	const over = "clear_reason finished_at lease_owner lease_token started_at state"
	for name, walk := range map[string]struct {
		keyless bool // what plainly succeeds has no unique key
		do      func(q *queue, job db.JobClaimRow)
		changes string // beside what waited
	}{
		"claimed":              {false, func(*queue, db.JobClaimRow) {}, claimChanges},
		"reported":             {false, report, "checkpoint lease_expires_at lease_owner lease_token progress_message progress_percent progress_stage progressed_at started_at state"},
		"to be cancelled":      {false, cancelled(func(*queue, db.JobClaimRow) {}), "cancel_requested_at " + claimChanges},
		"succeeded":            {true, complete(func(*db.Completion) {}), over},
		"completed":            {false, onRow, over},
		"with a result":        {false, complete(func(c *db.Completion) { c.Result = []byte(`1`) }), "clear_reason finished_at lease_owner lease_token result started_at state"},
		"reported, completed":  {false, reported(onRow), "checkpoint " + over},
		"cancelled, completed": {false, cancelled(onRow), over},
		"in a transaction": {false, reported(func(q *queue, job db.JobClaimRow) {
			require.True(q, writes["complete in a transaction"](q, at(job), "a"))
		}), "checkpoint " + over},
		"failed":              {false, last(end(db.Ending{Outcome: "failed"})), "attempts clear_reason finished_at last_error lease_owner lease_token max_attempts started_at state"},
		"retried":             {false, end(db.Ending{Outcome: "failed", Delay: db.DelayOf(0)}), "attempts clear_reason crashes last_error lease_token position run_at"},
		"retried later":       {false, end(db.Ending{Outcome: "timed_out", Delay: db.DelayOf(time.Hour)}), "attempts clear_reason crashes last_error lease_token position run_at state"},
		"reported, retried":   {false, reported(end(db.Ending{Outcome: "failed", Delay: db.DelayOf(0)})), "attempts checkpoint clear_reason crashes last_error lease_token position run_at"},
		"snoozed":             {false, end(db.Ending{Outcome: "snoozed", Delay: db.DelayOf(time.Hour)}), "clear_reason crashes lease_token position run_at state"},
		"released":            {false, end(db.Ending{Outcome: "released"}), "lease_token"},
		"cancelled":           {false, cancelled(end(db.Ending{Outcome: "failed"})), "attempts clear_reason finished_at last_error lease_owner lease_token started_at state"},
		"lost":                {false, reap, "clear_reason crashes last_error lease_token lost position run_at state"},
		"lost, no max_lost":   {false, unlimited, "attempts clear_reason crashes last_error lease_token max_lost position run_at state"},
		"reported, lost":      {false, reported(reap), "checkpoint clear_reason crashes last_error lease_token lost position run_at state"},
		"lost for good":       {false, lostTooOften, "clear_reason crashes finished_at last_error lease_owner lease_token lost max_lost started_at state"},
		"cancelled, lost":     {false, cancelled(reap), "lost clear_reason crashes finished_at last_error lease_owner lease_token started_at state"},
		"completed by itself": {false, reported(byItself("jobq.complete($1, $2)")), "checkpoint " + over},
		"failed by itself":    {false, last(byItself("jobq.fail($1, $2, 'e')")), "attempts clear_reason finished_at last_error lease_owner lease_token max_attempts started_at state"},
		"retried by itself":   {false, reported(byItself("jobq.fail($1, $2, 'e', '0')")), "attempts checkpoint clear_reason crashes last_error lease_token position run_at"},
		"snoozed by itself":   {false, byItself("jobq.snooze($1, $2, '1 h')"), "clear_reason crashes lease_token position run_at state"},
		"cancelled by itself": {false, cancelled(byItself("jobq.fail($1, $2, 'e')")), "attempts clear_reason finished_at last_error lease_owner lease_token started_at state"},
		"sleeps":              {false, byItself("jobq.step_sleep($1, $2, 's', '1 h')"), suspended},
		"reported, sleeps":    {false, reported(byItself("jobq.step_sleep($1, $2, 's', '1 h')")), "checkpoint " + suspended},
		"waits for an event":  {false, byItself("jobq.step_wait($1, $2, 's')"), suspended},
		"awaits a job": {false, func(q *queue, job db.JobClaimRow) {
			q.exec("select jobq.step_await($1, $2, 's', array[jobq.enqueue('other', run_at => now() + interval '1 day')])", job.ID, runToken(job))
		}, suspended},
		"reported by itself": {false, byItself("jobq.progress($1, $2, 1, 's', 'm'), jobq.checkpoint($1, $2, '2')"), "checkpoint " + claimChanges + " progress_message progress_percent progress_stage progressed_at"},
		"requeued":           {true, requeue(complete(func(*db.Completion) {})), "clear_reason lease_token lost position run_at"},
		"requeued on a row":  {false, requeue(onRow), "clear_reason lease_token lost position run_at"},
		"requeued as failed": {false, requeue(last(end(db.Ending{Outcome: "failed"}))), "attempts clear_reason last_error lease_token lost max_attempts position run_at state"},
	} {
		for size, args := range sizes {
			t.Run(name+", "+size, func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				key := &name
				if walk.keyless {
					key = nil
				}
				exchange, partitionKey := plain("a", 1), ""
				if size == "small" {
					exchange, partitionKey = keyed("a", 1), "p"
				}
				id := q.everyColumn(args, key, partitionKey)
				before := q.columns(id)
				walk.do(q, onlyJob(t, q.exchange(exchange)))
				require.ElementsMatch(t, strings.Fields(walk.changes), changed(before, q.columns(id)))
				q.requireArgsAsSaid()
			})
		}
	}
}

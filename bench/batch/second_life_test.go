package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// Goal: who asks for a job to be cancelled touches neither its lease nor the
// other jobs of it: the owner ends those beside an open transaction that
// cancels, and is told to look when that has committed.
func TestCancelLeavesTheLeaseAlone(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 3)
	got, l := h.claim()
	tx, err := h.other.Begin(h.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.execOn(tx, runCancel, h.id(got, 1)))
	l.succeed(2)
	require.True(t, h.end(l))
	require.Equal(t, "ok", h.extend(l), "not yet")
	require.Zero(t, h.endOwn(got, "failed", 1), "the row is locked: it is not waited for")
	require.NoError(t, tx.Commit(h.ctx))
	require.Equal(t, "look", h.extend(l))
	look := h.hot(leaseLook, l.id, h.owner)[0]
	require.Equal(t, true, look["held"])
	require.Equal(t, []any{h.id(got, 1)}, look["cancel"])
	require.Equal(t, 1, h.endOwn(got, "failed", 1))
	require.Equal(t, "cancelled", h.state(h.id(got, 1)), "a job that somebody asked to cancel does not go back")
	require.Equal(t, "ok", h.extend(l))
	require.Zero(t, h.exec(runCancel, h.id(got, 2)), "it has ended")
	l.elsewhere(1)
	l.succeed(3)
	require.True(t, h.end(l))
	require.Empty(t, h.extend(l), "nothing is left to extend")
	require.Zero(t, ask[int64](h, "select count(*) from jobq.lease"))
}

// Goal: a lease that somebody else has locked is busy, and neither lost nor waited for.
func TestExtendSaysBusy(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	_, l := h.claim()
	tx, err := h.other.Begin(h.ctx)
	require.NoError(t, err)
	_, err = tx.Exec(h.ctx, h.schema.SQL("select from jobq.lease for update"))
	require.NoError(t, err)
	require.Equal(t, "busy", h.extend(l))
	l.succeed(1)
	require.False(t, h.end(l))
	require.NoError(t, tx.Rollback(h.ctx))
	require.True(t, h.end(l))
}

// Goal: an end is stored and counted once, when its answer was lost and it is
// sent again; and an array that comes late takes back nothing.
func TestEndIsCountedOnce(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 3)
	_, l := h.claim()
	l.succeed(1)
	first := endsOf(h.owner, []*lease{l})
	require.Len(t, h.hot(leaseEnd, first...), 1)
	before := ask[int16](h, "select ended[1] from jobq.lease")
	require.Empty(t, h.hot(leaseEnd, first...), "the same again")
	require.Equal(t, before, ask[int16](h, "select ended[1] from jobq.lease"))
	l.acknowledge(before)
	l.succeed(2)
	require.True(t, h.end(l))
	require.Empty(t, h.hot(leaseEnd, first...), "older than what is there")
	require.EqualValues(t, 2, ask[int64](h, "select sum(completed) from jobq.stat_delta"))
	require.EqualValues(t, 2, ask[int64](h, "select count(*) from jobq.run_job where state = 'completed'"))
}

// Goal: a result is stored with the end of its slot, once, and not for a lease that is lost.
func TestResultGoesWithTheEnd(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2)
	got, l := h.claim()
	keep := func(slot int16) int64 {
		return h.exec(resultKeep, []int64{l.id}, []int16{slot}, []json.RawMessage{json.RawMessage(`{"n": 1}`)}, h.owner)
	}
	require.Zero(t, keep(1), "it has not ended")
	l.succeed(1)
	require.True(t, h.end(l))
	require.EqualValues(t, 1, keep(1))
	require.Zero(t, keep(1), "the same again")
	require.JSONEq(t, `{"n": 1}`, ask[string](h, "select result::text from jobq.run_job where id = $1", h.id(got, 1)))
	h.expire()
	h.reap()
	require.Zero(t, keep(2))
}

// Goal: what was claimed longer ago than a smallint has milliseconds for is not
// ended by its lease, but on its own row.
func TestLongRunEndsOnItsOwnRow(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	got, l := h.claim()
	h.age(got, l, 40*time.Second)
	l.succeed(1)
	require.False(t, h.end(l))
	require.Equal(t, 1, h.endOwn(got, "completed", 1))
	require.Equal(t, "completed", h.state(got.ids[0]))
	require.GreaterOrEqual(t, ask[float64](h, "select extract(epoch from finished_at - started_at)::float8 from jobq.run_job"), 40.0)
	l.ended[0].Valid, l.fresh = false, 0
	l.elsewhere(1)
	require.True(t, h.end(l))
	require.Zero(t, ask[int64](h, "select count(*) from jobq.lease"))
}

// age moves a claim into the past, and to the day that its id is of then.
func (h *hands) age(got claimed, l *lease, by time.Duration) {
	h.t.Helper()
	days := int64(by/(24*time.Hour)) << 40
	h.execOn(h.other, "update jobq.run set lease_id = lease_id - $1", days)
	h.execOn(h.other, "update jobq.lease set id = id - $1, claimed_at = claimed_at - $2::interval", days, db.Interval(by))
	l.id -= days
	for i := range got.tokens {
		got.tokens[i] -= days
	}
}

// Goal: a job with a unique key ends on its own row, and gives the key up then.
func TestUniqueKeyEndsOnItsOwnRow(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	h.execOn(h.other, "update jobq.pending set position = null, run_at = now() + interval '1 hour'")
	h.execOn(h.other, "select jobq.enqueue('k', unique_key => 'u')")
	rows := h.hot(runClaim, db.Interval(time.Minute), h.owner, []int32{-1 << 15}, []int64{0}, []int32{1 << 15}, queueName, []string{kind}, 10)
	require.Len(t, rows, 1)
	require.Equal(t, true, rows[0]["ends_on_row"])
	got := claimed{ids: []int64{rows[0]["id"].(int64)}, tokens: []int64{rows[0]["lease_id"].(int64)}, slots: []int{1}}
	require.Equal(t, 1, h.endOwn(got, "completed", 1))
	require.Zero(t, ask[int64](h, "select count(*) from jobq.unique_key"))
}

// Goal: where jobs extend their own leases by what they report, each has one.
func TestLeaseForEachJob(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 5)
	h.path.claim = runClaimEach
	got, _ := h.claim()
	require.Len(t, leasesOf(got), 5)
	require.EqualValues(t, 5, ask[int64](h, "select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id where l.job_ids = array[r.id] and r.slot = 1 and l.ended = '{null}'"))
	h.had = h.run(got)
	require.NoError(t, h.drain(h.ctx))
	require.EqualValues(t, 5, ask[int64](h, "select count(*) from jobq.run_job where state = 'completed'"))
}

// Trap 6: a day goes from the history when nothing of it runs and nothing of it
// has ended since: a job that runs for weeks keeps its day.
func TestDayOfAnOpenLeaseStays(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2)
	got, l := h.claim()
	l.succeed(1)
	require.True(t, h.end(l))
	h.age(got, l, 20*24*time.Hour)
	prunableDays := func() int64 {
		return ask[int64](h, "select count(*) from ("+prunable+") d where jobq.lease_day(d.day) = $3::bigint >> 40 << 40",
			time.Now().UTC().AddDate(0, 0, -7), 30, l.id)
	}
	require.Zero(t, prunableDays(), "the other job runs")
	require.Equal(t, 1, h.endOwn(got, "completed", 2))
	l.elsewhere(2)
	require.True(t, h.end(l))
	require.Zero(t, prunableDays(), "and has ended just now")
	h.execOn(h.other, "update jobq.run set finished_at = finished_at - interval '20 days' where state is not null")
	require.EqualValues(t, 1, prunableDays())
}

// Trap 7: lists look leases up by key, and never read all of them: with ten
// times the history, a page touches as many blocks.
func TestListsLookLeasesUp(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	few := make(map[string]int64)
	for _, jobs := range []int{40_000, 120_000} {
		h.execOn(h.other, "truncate jobq.run, jobq.lease, jobq.past_lease")
		require.NoError(t, h.fillHistory(h.ctx, jobs))
		for _, l := range lists(jobs) {
			if strings.Contains(l.name, "rare") || strings.Contains(l.name, "error") || strings.Contains(l.name, "all") || strings.Contains(l.name, "count") {
				continue // these read all, as they do today
			}
			_, rows, blocks, err := h.timed(h.ctx, l.second, l.args, 1)
			require.NoError(t, err)
			if first, ok := few[l.name]; ok && rows > 0 { // none of many is a scan of a day, as it is today
				require.LessOrEqual(t, blocks, first*13/10+100, "%s: %d rows", l.name, rows)
			}
			few[l.name] = blocks
			plan := h.plan(l.second, l.args)
			require.NotContains(t, plan, "Hash", "%s\n%s", l.name, plan)
		}
	}
}

func (h *hands) plan(sql string, args []any) string {
	h.t.Helper()
	rows, err := h.other.Query(h.ctx, "explain (costs off) "+h.schema.SQL(sql), args...)
	require.NoError(h.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(h.t, err)
	return strings.Join(lines, "\n")
}

// Trap 8: a job that completed with its lease is requeued, deleted, and put
// back as any other; one that runs is not. What is put back is written whole, so that it
// does not ask a lease that retention may have dropped.
func TestActionsOnWhatCompletedWithItsLease(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 4)
	got, l := h.claim()
	l.succeed(1, 2)
	require.True(t, h.end(l))
	require.EqualValues(t, 1, h.exec(runRequeue, h.id(got, 1)))
	require.Equal(t, "available", h.state(h.id(got, 1)))
	kept := ask[map[string]any](h, "select to_jsonb(j) from jobq.run_job j where j.id = $1", h.id(got, 2))
	require.EqualValues(t, 1, h.exec(runDelete, h.id(got, 2)))
	require.Equal(t, "none", h.state(h.id(got, 2)))
	require.Zero(t, h.exec(runRequeue, h.id(got, 3)))
	require.Zero(t, h.exec(runDelete, h.id(got, 3)))
	// The requeued one runs again beside the lease that it had.
	again, l2 := h.claim()
	require.Equal(t, []int64{h.id(got, 1)}, again.ids)
	h.expire()
	runs, open := h.reap()
	require.EqualValues(t, []int64{3, 0}, []int64{runs, open}, "3 and 4 of the first lease, the requeued one of the second")
	require.NotEqual(t, l.id, l2.id)
	// Undo of the delete: the row as the view had it.
	h.exec(`insert into jobq.run (id, lease_id, slot, run_at, created_at, finished_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
		select v.id, v.lease_token, 1, v.run_at, v.created_at, v.finished_at, v.state, v.priority, v.attempts, v.max_attempts, v.crashes, false, v.queue, v.kind, v.args
		from jsonb_to_record($1) as v(id bigint, lease_token bigint, run_at timestamptz, created_at timestamptz, finished_at timestamptz,
			state jobq.job_state, priority smallint, attempts smallint, max_attempts smallint, crashes smallint, queue text, kind text, args jsonb)`, kept)
	h.execOn(h.other, "delete from jobq.past_lease")
	require.Equal(t, "completed", h.state(h.id(got, 2)))
}

// Trap 9: finished_at is exact to the millisecond by both kinds of end.
func TestFinishedAtIsExact(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2)
	got, l := h.claim()
	h.age(got, l, 1234*time.Millisecond)
	between := func(id int64, end func()) {
		before := ask[time.Time](h, "select clock_timestamp()")
		end()
		after := ask[time.Time](h, "select clock_timestamp()")
		at := ask[time.Time](h, "select finished_at from jobq.run_job where id = $1", id)
		require.WithinRange(t, at, before.Add(-time.Millisecond), after.Add(time.Millisecond))
	}
	between(h.id(got, 1), func() {
		l.succeed(1)
		require.True(t, h.end(l))
	})
	between(h.id(got, 2), func() { require.Equal(t, 1, h.endOwn(got, "completed", 2)) })
	run, waited := ask[float64](h, "select sum(run_seconds) from jobq.stat_delta"), ask[float64](h, "select sum(wait_seconds) from jobq.stat_delta")
	require.Greater(t, run, 2.4, "both ran for more than 1.234 seconds")
	require.NotZero(t, waited)
}

// Trap 10: every column of a job comes through every transition; what changes is listed.
func TestEveryColumnSurvives(t *testing.T) {
	t.Parallel()
	all := `insert into jobq.pending (lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts, crashes,
			queue, kind, args, last_error, clear_reason, checkpoint, metadata, tags)
		values (7, '2026-01-02', '2026-01-01', '1 min', '2 s', '3 min', 4, 2, 9, 1, 'default', 'k', '{"a": 1}', 'e', 'c', '{"p": 1}', '{"m": 1}', '{t}')`
	for name, walk := range map[string]struct {
		do      func(h *hands, got claimed, l *lease)
		changes []string // of the columns that pending has, in the row afterwards
	}{
		"claimed":   {func(*hands, claimed, *lease) {}, nil},
		"succeeded": {func(h *hands, _ claimed, l *lease) { l.succeed(1); require.True(t, h.end(l)) }, nil},
		"completed": {func(h *hands, got claimed, _ *lease) { h.endOwn(got, "completed", 1) }, []string{"clear_reason"}},
		"failed": {func(h *hands, got claimed, _ *lease) {
			h.execOn(h.other, "update jobq.run set max_attempts = 3")
			h.endOwn(got, "failed", 1)
		}, []string{"attempts", "clear_reason", "last_error", "max_attempts"}},
		"retried":  {func(h *hands, got claimed, _ *lease) { h.endOwn(got, "failed", 1) }, []string{"attempts", "clear_reason", "last_error", "position", "run_at"}},
		"snoozed":  {func(h *hands, got claimed, _ *lease) { h.endOwn(got, "snoozed", 1) }, []string{"clear_reason", "position", "run_at"}},
		"released": {func(h *hands, got claimed, _ *lease) { h.endOwn(got, "released", 1) }, nil},
		"lost":     {func(h *hands, _ claimed, _ *lease) { h.expire(); h.reap() }, []string{"attempts", "clear_reason", "crashes", "last_error", "position", "run_at"}},
		"requeued": {func(h *hands, got claimed, l *lease) {
			l.succeed(1)
			require.True(t, h.end(l))
			require.EqualValues(t, 1, h.exec(runRequeue, got.ids[0]))
		}, []string{"clear_reason", "position", "run_at"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := secondOf(t, 1)
			h.execOn(h.other, "delete from jobq.pending")
			h.execOn(h.other, all)
			before := ask[map[string]any](h, "select to_jsonb(p) from jobq.pending p")
			got, l := h.claim1(4)
			walk.do(h, got, l)
			after := ask[map[string]any](h, "select coalesce((select to_jsonb(p) from jobq.pending p), (select to_jsonb(r) from jobq.run r))")
			var changed []string
			for _, column := range slices.Sorted(maps.Keys(before)) {
				if column != "lease_token" && fmt.Sprint(before[column]) != fmt.Sprint(after[column]) {
					changed = append(changed, column)
				}
				if column != "position" && column != "unique_key" && column != "lease_token" {
					require.NotNil(t, before[column], "the test fills %s", column)
				}
			}
			require.Equal(t, walk.changes, changed)
		})
	}
}

// claim1 claims the one job there is, of a priority.
func (h *hands) claim1(priority int32) (claimed, *lease) {
	h.t.Helper()
	rows := h.hot(runClaim, db.Interval(time.Minute), h.owner, []int32{priority - 1}, []int64{1 << 60}, []int32{priority}, queueName, []string{kind}, 10)
	require.Len(h.t, rows, 1)
	got := claimed{ids: []int64{rows[0]["id"].(int64)}, tokens: []int64{rows[0]["lease_id"].(int64)}, slots: []int{1}}
	return got, leasesOf(got)[0]
}

// Goal: a job that is cancelled before it ran comes into the history whole, and
// as one that was never started by anybody.
func TestCancelOfWhatWaits(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	before := ask[map[string]any](h, "select to_jsonb(p) - 'lease_token' - 'position' from jobq.pending p")
	require.EqualValues(t, 1, h.exec(runCancelPending, before["id"]))
	after := ask[map[string]any](h, "select to_jsonb(r) from jobq.run r")
	for column := range before {
		require.Equal(t, before[column], after[column], column)
	}
	require.Equal(t, "cancelled", ask[string](h, "select j.state::text from jobq.run_job j where j.started_at is null and j.lease_owner is null and j.finished_at is not null"))
	require.EqualValues(t, 1, h.exec(runRequeue, before["id"]))
}

// Trap 11: what dies while a transaction holds everything back is what waited,
// and a version of each lease: nothing of the history.
func TestHistoryHasNoDeadRows(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 2000)
	h.batch = 100
	require.NoError(t, h.drain(h.ctx))
	h.execOn(h.other, "select pg_stat_force_next_flush()")
	dead := func(table string) int64 {
		return ask[int64](h, "select coalesce(sum(pg_stat_get_dead_tuples(c.oid) + pg_stat_get_tuples_updated(c.oid)), 0)::bigint from pg_class c where c.relnamespace = left('jobq.', -1)::regnamespace and c.relname ~ $1", table)
	}
	require.Eventually(t, func() bool { return dead("^lease$") >= 20 }, 2*time.Minute, 50*time.Millisecond, "statistics come late")
	require.LessOrEqual(t, dead("^lease$"), int64(40), "20 leases")
	require.Zero(t, dead("^(run|past_lease)_[0-9]"))
}

// Trap 12: what a run reports is written to a narrow table alone, and in place.
func TestReportsDoNotTouchTheHistory(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 100)
	got, l := h.claim()
	history := func() int64 {
		return ask[int64](h, "select sum(pg_relation_size(c.oid))::bigint from pg_class c where c.relname ~ '^(run|past_lease)_'")
	}
	before := history()
	percents, texts := make([]float32, len(got.ids)), make([]string, len(got.ids))
	for i := range texts {
		texts[i] = "x"
	}
	for percent := range 100 {
		for i := range percents {
			percents[i] = float32(percent)
		}
		require.EqualValues(t, 100, h.exec(runProgress, got.ids, got.tokens, h.owner, percents, texts, texts))
	}
	require.Equal(t, before, history(), "after 10,000 reports of 100 jobs")
	require.EqualValues(t, 99, ask[float64](h, "select min(progress_percent) from jobq.run_job"))
	// A checkpoint is what the next run begins with, and goes with the job.
	require.EqualValues(t, 1, h.exec(runCheckpoint, h.id(got, 1), l.id, h.owner, json.RawMessage(`{"at": 7}`)))
	require.Equal(t, 1, h.endOwn(got, "failed", 1))
	require.JSONEq(t, `{"at": 7}`, ask[string](h, "select checkpoint::text from jobq.pending where id = $1", h.id(got, 1)))
	require.EqualValues(t, 99, ask[int64](h, "select count(*) from jobq.progress"))
	// A report of a run that is over changes nothing.
	h.expire()
	h.reap()
	require.Zero(t, h.exec(runProgress, got.ids, got.tokens, h.owner, percents, texts, texts))
	require.Zero(t, h.exec(runCheckpoint, h.id(got, 2), l.id, h.owner, json.RawMessage(`{}`)))
}

// Goal: a checkpoint that was accepted is what the next run begins with: a
// reaper that comes at the same moment waits for the next pass.
func TestCheckpointHoldsTheReaperOff(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1)
	got, l := h.claim()
	tx, err := h.conn.Begin(h.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.execOn(tx, runCheckpoint, got.ids[0], l.id, h.owner, json.RawMessage(`{"at": 7}`)))
	h.expire()
	runs, open := h.reap()
	require.EqualValues(t, []int64{0, 1}, []int64{runs, open})
	require.NoError(t, tx.Commit(h.ctx))
	runs, open = h.reap()
	require.EqualValues(t, []int64{1, 0}, []int64{runs, open})
	require.JSONEq(t, `{"at": 7}`, ask[string](h, "select checkpoint::text from jobq.pending"))
}

// Trap 12: a lease whose jobs end one by one rewrites a row of two bytes a slot
// each time, and not the array of ids.
func TestEndsOneByOneWriteLittle(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 1000)
	h.batch = 1000
	_, l := h.claim()
	var bytes int64
	for slot := 1; slot <= 100; slot++ {
		l.succeed(slot)
		var err error
		bytes, err = walOf(h.ctx, h.conn, h.schema.SQL(leaseEnd), endsOf(h.owner, []*lease{l}))
		require.NoError(t, err)
		l.acknowledge(ask[int16](h, "select ended[$1] from jobq.lease", slot))
	}
	require.Less(t, bytes, int64(1000), "the hundredth, of 1,000 slots; the ids alone are 8,000 bytes")
}

// Trap 13: jobs that wait, run and have ended come into the second layout, in
// steps, and back again, with every value that people see.
func TestMigrateThereAndBack(t *testing.T) {
	t.Parallel()
	h := secondOf(t, 40)
	old := today()
	claim := func(count int, owner string) (ids, tokens []int64) {
		for _, row := range h.hot(old.claim, db.Interval(time.Minute), owner, []int32{-1 << 15}, []int64{0}, []int32{1 << 15}, queueName, []string{kind}, count) {
			ids, tokens = append(ids, row["id"].(int64)), append(tokens, row["lease_token"].(int64))
		}
		return ids, tokens
	}
	ids, tokens := claim(10, "old")
	require.Len(t, h.hot(old.complete, ids, tokens, make([]json.RawMessage, 10), "old", true), 10)
	ids, _ = claim(10, "old")
	h.exec("update jobq.running set progressed_at = now(), progress_percent = 50, progress_stage = 's', progress_message = 'm', checkpoint = '{}' where id = $1", ids[0])
	claim(10, "other")
	seen := func(view string) string {
		return ask[string](h, `select jsonb_agg(to_jsonb(j) - 'lease_token' order by j.id)::text from jobq.`+view+` j where j.state <> 'available'`)
	}
	before := seen("job")
	require.EqualValues(t, 20, h.exec(runningToRun))
	for h.exec(finishedToRun, 3) > 0 {
		require.EqualValues(t, 30, ask[int64](h, "select (select count(*) from jobq.finished) + (select count(*) from jobq.run)"))
	}
	require.JSONEq(t, before, seen("run_job"))
	require.EqualValues(t, 20, ask[int64](h, "select count(*) from jobq.lease"))
	got, l := h.claim()
	require.Len(t, got.ids, 10, "what waited stays where it was")
	require.Greater(t, l.id, slices.Max(tokens))
	h.expire()
	var runs int64
	for range 3 { // ten leases each
		some, _ := h.reap()
		runs += some
	}
	require.EqualValues(t, 30, runs)
	for h.exec(runToFinished, 3) > 0 { //nolint:revive // in steps
	}
	require.EqualValues(t, 10, ask[int64](h, "select count(*) from jobq.job where state = 'completed' and lease_owner = 'old'"))
	require.Zero(t, ask[int64](h, "select count(*) from jobq.run"))
}

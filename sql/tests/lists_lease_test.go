package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Trap 7: with three times the history, a page of a list looks at no more, and
// leases of the history are looked up for the jobs of the page, never hashed.
func TestListsLookLeasesUp(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec(`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
		from unnest(array['run', 'past_lease']) as parent, generate_series(1, 9) as ago`)
	q.exec(fillRunning)
	few := make(map[string]int)
	for i, jobs := range []int{40_000, 80_000} { // and then 120,000
		q.exec(fillEnded, 20_000_000+i*40_000, jobs, 7-4*i, false)
		q.exec("vacuum analyze")
		for _, c := range listCases() {
			if c.count == 0 {
				continue // they read more days of a longer history
			}
			c.page.Size = 51
			sql, args := c.page.SQL()
			buffers := explainBuffers(t, q.pool, sql, args...)
			if first, ok := few[c.name]; ok {
				require.LessOrEqual(t, buffers, first*13/10+8*c.page.Size, c.name) // a few pages for each row shown
			}
			few[c.name] = buffers
			require.NotRegexp(t, `Hash (\w+ )*Join`, q.plan(q.pool, sql, args...), c.name)
		}
	}
	require.Greater(t, len(few), 20)
}

// Trap 3, in lists: the others of a lease with one slow job are shown as completed at
// once, and so they are when the slow one's lease is lost.
func TestListsOfALeaseWithOneSlowJob(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, 500)")
	jobs := q.claim("w", 500)
	require.Len(t, jobs, 500)
	slow, others := jobs[0], jobs[1:]
	exchange := db.Exchange{Owner: "w"}
	for _, job := range others {
		exchange.Completions = append(exchange.Completions, plainly(job))
	}
	require.Len(t, q.exchange(exchange).Completed, 499)
	check := func(state string) {
		require.Equal(t, []int64{slow.ID}, q.listed(db.JobPage{States: []string{state}, Sort: db.SortID}))
		completed := db.JobPage{States: []string{"completed"}, Sort: db.SortID, Size: 1000}
		require.Len(t, q.listed(completed), 499)
		count, err := q.schema.JobCount(context.Background(), q.pool, completed)
		require.NoError(t, err)
		require.EqualValues(t, 499, count)
	}
	check("running")
	queues, err := q.queries.QueueList(context.Background(), 1000)
	require.NoError(t, err)
	require.EqualValues(t, 1, queues[0].Running)
	q.reap()
	check("available")
}

// Jobs that were claimed ahead and have not begun do not run: the lists of queues and workers tell them apart.
func TestClaimedAheadIsNotRunning(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("insert into jobq.worker (id, pid, hostname, version, queues, kinds) values ('w', 1, 'h', 'v', '{\"a\": 3}', '{}')")
	for _, lease := range []struct{ begun, jobs, ended string }{
		{"32767", "{1,2}", "{}"},      // 2 run
		{"3", "{3,4,5,6,7}", "{1,5}"}, // 2 run, 1 is claimed
		{"0", "{8,9,10}", "{2}"},      // 2 are claimed
		{"5", "{11,12}", "{2}"},       // 1 runs
	} {
		q.exec("insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, ended_slots, ended_ms, job_ids) "+
			"select jobq.lease_id_next(), now(), now(), $1::text::smallint, 'w', 'a', $2::text::smallint[], array_fill(1::smallint, array[cardinality($2::text::smallint[])]), $3::text::bigint[]",
			lease.begun, lease.ended, lease.jobs)
	}
	queues, err := q.queries.QueueList(ctx, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 5, queues[0].Running)
	require.EqualValues(t, 3, queues[0].Claimed)
	workers, err := q.queries.WorkerList(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 5, workers[0].Running)
	require.EqualValues(t, 3, workers[0].Claimed)
}

// listed are the ids of a page.
func (q *queue) listed(page db.JobPage) (ids []int64) {
	q.Helper()
	if page.Size == 0 {
		page.Size = 1000
	}
	rows, err := q.schema.JobList(context.Background(), q.pool, page)
	require.NoError(q, err)
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

// Lists and counts agree with the view about jobs in all that can become of a
// lease, in each set of states, in each order, page by page.
func TestListsAgreeWithTheView(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.leasesOfAllKinds()
	q.set(`{"max_lost": 9}`)
	for _, table := range []string{"pending", "run"} {
		q.exec("update jobq." + table + " set lost = nullif(id % 3, 0), max_lost = nullif(id % 2, 0)")
	}
	rows, err := q.pool.Query(ctx, `select j.id, j.state::text, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.crashes, j.lease_token, j.run_at,
		  j.created_at, j.started_at, j.finished_at, j.lease_owner, j.lease_expires_at, j.cancel_requested_at, j.progressed_at,
		  j.progress_percent, j.progress_stage, j.progress_message,
		  coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint, j.unique_key, j.last_error, j.clear_reason, j.tags, j.metadata,
		  null::jsonb, null::jsonb, null::jsonb, coalesce(j.partition_key, ''), j.lost, coalesce(j.max_lost, 0)
		from jobq.job j order by j.id desc`)
	require.NoError(t, err)
	view, err := pgx.CollectRows(rows, pgx.RowToStructByPos[db.JobGetRow])
	require.NoError(t, err)
	all := []string{"scheduled", "available", "running", "completed", "failed", "cancelled"}
	for set := range 1 << len(all) {
		page := db.JobPage{Sort: db.SortID, Size: 3}
		for i, state := range all {
			if set>>i&1 == 1 {
				page.States = append(page.States, state)
			}
		}
		want := slices.DeleteFunc(slices.Clone(view), func(row db.JobGetRow) bool { return !slices.Contains(page.States, row.State) })
		for _, ascending := range []bool{false, true} {
			page.Ascending, page.After = ascending, nil
			for _, asked := range []db.Condition{nil, func(s db.Stage, _ int) (string, []any) { return s.Worker + " is distinct from 'nobody'", nil }} {
				page.Condition, page.After = asked, nil
				var got []db.JobGetRow
				for {
					rows, err := q.schema.JobList(ctx, q.pool, page)
					require.NoError(t, err)
					got = append(got, rows...)
					if len(rows) < page.Size {
						break
					}
					page.After = &db.JobKey{ID: rows[len(rows)-1].ID}
				}
				require.Equal(t, len(want), len(got), page.States)
				for i := range want {
					require.Equal(t, want[i], got[i], page.States)
				}
			}
			slices.Reverse(want)
		}
		count, err := q.schema.JobCount(ctx, q.pool, db.JobPage{States: page.States, Sort: db.SortID, Size: 1000})
		require.NoError(t, err)
		untold := 0
		if slices.Contains(page.States, "running") {
			untold = 2 // see leasesOfAllKinds
		}
		require.EqualValues(t, len(want)+untold, count, page.States)
	}
}

// leasesOfAllKinds makes jobs that run and jobs that are over, in leases that are
// held, lost and past, and without one. Two leases were not told that a job
// of theirs has ended on its own row.
func (q *queue) leasesOfAllKinds() {
	q.Helper()
	ctx := context.Background()
	add := func(count int) []db.JobClaimRow {
		q.exec("insert into jobq.pending (kind, metadata) select 'k', to_jsonb(i) from generate_series(1, $1::integer) i", count)
		jobs := q.claim("w", int32(count)) // #nosec G115 -- small
		require.Len(q, jobs, count)
		return jobs
	}
	end := func(job db.JobClaimRow, outcome string) db.Ending {
		return db.Ending{Slot: at(job), Outcome: outcome, Error: "e", Delay: db.DelayOf(0), Final: true, Started: true}
	}
	// Held: some end, some run, one of them with progress and one that is to stop.
	held := add(8)
	q.exchange(db.Exchange{Owner: "w", Completions: []db.Completion{plainly(held[0]), plainly(held[5])}})
	q.exchange(db.Exchange{Owner: "w", Completions: []db.Completion{{Slot: at(held[1]), Kind: "k", Result: json.RawMessage("1")}}, Endings: []db.Ending{end(held[2], "failed")}})
	percent := float32(50)
	_, err := q.queries.RunProgress(ctx, db.RunProgressParams{Percent: &percent, ID: held[3].ID, Token: held[3].LeaseToken, Owner: "w", ClaimedAt: held[3].StartedAt})
	require.NoError(q, err)
	_, err = q.queries.JobCancel(ctx, held[4].ID)
	require.NoError(q, err)
	// Not told: completed in a transaction; and failed, to be claimed and to succeed again.
	_, err = q.queries.RunCompleteTx(ctx, db.RunCompleteTxParams{ID: held[6].ID, Token: held[6].LeaseToken, Owner: "w", ClaimedAt: held[6].StartedAt})
	require.NoError(q, err)
	stale := add(2)
	q.exec("update jobq.run set state = 'failed', finished_at = now() where id = $1", stale[0].ID)
	q.exec("select jobq.requeue($1)", stale[0].ID)
	again := q.claim("x", 1)
	require.Equal(q, stale[0].ID, again[0].ID)
	q.exchange(db.Exchange{Owner: "x", Completions: []db.Completion{plainly(again[0])}})
	// Past.
	past := add(4)
	q.exchange(db.Exchange{Owner: "w", Completions: []db.Completion{plainly(past[2]), plainly(past[0])}, Endings: []db.Ending{end(past[1], "failed"), end(past[3], "cancelled")}})
	// Lost, with a job that somebody has locked.
	lost := add(2)
	q.exec("update jobq.lease set lost_at = now(), expires_at = now() - interval '1 s' where id = $1", lost[0].LeaseToken)
	// Without a lease: cancelled before it ran; and waiting.
	q.exec("insert into jobq.pending (kind, run_at) select 'k', now() + i * interval '1 hour' from generate_series(0, 3) i")
	_, err = q.queries.JobCancel(ctx, int64(q.number("select max(id) from jobq.pending")))
	require.NoError(q, err)
	require.Equal(q, 2, q.number("select count(*) from jobq.past_lease"))
	require.Equal(q, 3, q.number("select count(*) from jobq.lease"))
}

// What ended within, or before, a time is found in the days that this leaves,
// on whatever row it ended, and at whatever hour it is.
func TestListsOfWhatEndedLately(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec(`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
		from unnest(array['run', 'past_lease']) as parent, generate_series(1, 9) as ago`)
	q.exec(fillEnded, 1_000_000, 3_000, 4, false)
	// One that ran for days, and one that ended just now on its own row.
	require.NoError(t, pgtest.InsertFinished(ctx, q.pool, 2, pgtest.Columns{
		"started_at": "now() - interval '3 days'", "finished_at": "now() - interval '5 minutes'", "lease_owner": "'w'", "state": "'completed'",
	}))
	over := []string{"completed", "failed", "cancelled"}
	for _, age := range []time.Duration{time.Minute, 10 * time.Minute, 90 * time.Minute, 5 * time.Hour, 25 * time.Hour, 72 * time.Hour, 200 * time.Hour} {
		for _, states := range [][]string{over, over[:1], over[:2], over[1:]} {
			within := db.JobPage{States: states, Sort: db.SortID, Size: 100_000, EndedWithin: age}
			within.Condition = func(s db.Stage, first int) (string, []any) {
				return fmt.Sprintf("%s > now() - $%d::bigint * interval '1 us'", s.Since, first), []any{age.Microseconds()}
			}
			before := db.JobPage{States: states, Sort: db.SortID, Size: 100_000, EndedBefore: age}
			before.Condition = func(s db.Stage, first int) (string, []any) {
				return fmt.Sprintf("%s < now() - $%d::bigint * interval '1 us'", s.Since, first), []any{age.Microseconds()}
			}
			require.NoError(t, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error { // in which now() stands still
				for comparison, page := range map[string]db.JobPage{">": within, "<": before} {
					rows, err := tx.Query(ctx, `select j.id from jobq.job j where j.state::text = any($1)
						and j.finished_at `+comparison+` now() - $2::bigint * interval '1 us' order by j.id desc`, states, age.Microseconds())
					require.NoError(t, err)
					want, err := pgx.CollectRows(rows, pgx.RowTo[int64])
					require.NoError(t, err)
					listed, err := q.schema.JobList(ctx, tx, page)
					require.NoError(t, err)
					got := make([]int64, len(listed))
					for i, row := range listed {
						got[i] = row.ID
					}
					require.Equal(t, len(want), len(got), "%s %s %s", states, comparison, age)
					require.True(t, slices.Equal(want, got), "%s %s %s", states, comparison, age)
					count, err := q.schema.JobCount(ctx, tx, page)
					require.NoError(t, err)
					require.EqualValues(t, len(want), count)
				}
				return nil
			}))
		}
	}
}

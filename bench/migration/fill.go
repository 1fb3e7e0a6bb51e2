package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// sizes are how many jobs the database has.
type sizes struct{ waiting, running, finished int }

// scaled are the sizes of which issue 14 speaks, times a factor.
func scaled(factor float64) sizes {
	of := func(jobs float64) int { return max(int(jobs*factor), 10) }
	return sizes{waiting: of(1_000_000), running: of(1000), finished: of(1_000_000)}
}

const (
	// queueHeld is of jobs that living workers hold, and queueKept of jobs that
	// nobody touches. queueHistory has ended before.
	queueHeld    = "held"
	queueKept    = "kept"
	queueHistory = "history"
	historyDays  = 7
	keptJobs     = 10
	// args are as large as those of the other benchmarks.
	args = `{"d": "AQRIyJpLGbyfaKJWpIAwGrvxRwXnYkNYhQhlPLLbqFLwzTdEcdHiAGcuEwCVDTcBpnkPwtMCVknRDFoyxUYGcvXI"}`
)

// everyColumn sets the columns that most jobs do not have.
const everyColumn = `timeout, backoff_base, backoff_max, last_error, checkpoint, metadata, tags`

const everyValue = `interval '1 min', interval '2 s', interval '3 min', 'it was lost', '{"at": 4}'::jsonb, '{"m": [5, null]}'::jsonb, '{t,"u v"}'::text[]`

// fillStatements make the jobs of the first layout. Of the history, one in a
// hundred was cancelled before it ran, one has every column and its args in
// payload, and five have failed.
func fillStatements(s sizes) []string {
	return []string{
		fmt.Sprintf(`
			insert into jobq.pending (queue, kind, args)
				select case when i <= %d then '%s' else '%s' end, '%s', '%s' from generate_series(1, %d) as i`,
			s.running, queueHeld, queueLoad, kind, args, s.running+s.waiting),
		fmt.Sprintf(`
			insert into jobq.pending (queue, kind, args, position, run_at, lease_token, attempts, crashes, priority, unique_key, clear_reason, %s)
				select '%s', '%s', '%s', case when i %% 2 = 0 then nextval('jobq.position_seq') end, now() + i * interval '1 hour', i, i %% 3, i %% 2,
						i, 'waiting ' || i, 'it was lost', %s
					from generate_series(1, %d) as i`, everyColumn, queueKept, kind, args, everyValue, keptJobs),
		fmt.Sprintf(`
			insert into jobq.running (id, position, lease_token, lease_expires_at, started_at, run_at, created_at, progressed_at, cancel_requested_at,
					progress_percent, progress_stage, progress_message, priority, attempts, max_attempts, crashes, args_apart, queue, kind,
					lease_owner, args, unique_key, clear_reason, %s)
				select nextval('jobq.job_id_seq'), nextval('jobq.position_seq'), i, now() + interval '1 day', now() - i * interval '1 min',
						now() - interval '1 hour', now() - interval '2 hours', now() - interval '1 s', case when i %% 2 = 0 then now() end,
						i * 1.5, 'stage', 'message', i, i %% 3, 25, i %% 2, false, '%s', '%s', 'keeper', '%s', 'running ' || i, 'it was lost', %s
					from generate_series(1, %d) as i`, everyColumn, queueKept, kind, args, everyValue, keptJobs),
		fmt.Sprintf(`insert into jobq.unique_key (kind, key, job_id) select r.kind, r.unique_key, r.id from jobq.running r where r.queue = '%s'`, queueKept),
		fmt.Sprintf(`
			insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts,
					crashes, args_apart, queue, kind, lease_owner, args)
				select nextval('jobq.job_id_seq'), e.at, i %% 3, case when i %% 100 <> 7 then e.at - (i %% 90) * interval '1 s' end,
						e.at - interval '2 min', e.at - interval '3 min',
						case when i %% 100 = 7 then 'cancelled' when i %% 20 = 3 then 'failed' else 'completed' end::jobq.job_state,
						i %% 5, i %% 4, 25, i %% 2, false, '%s', '%s', case when i %% 100 <> 7 then 'worker-' || i %% 10 end, '%s'
					from generate_series(1, %d) as i
					cross join lateral (select now() - i * interval '%d days' / %d as at) e
					where i %% 100 <> 50`, queueHistory, kind, args, s.finished, historyDays, s.finished),
		fmt.Sprintf(`
			with f as (
				insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts,
						crashes, args_apart, queue, kind, lease_owner, unique_key, result, %s)
					select nextval('jobq.job_id_seq'), e.at, 4, e.at - interval '2 days', e.at - interval '3 days', e.at - interval '3 days', 'completed',
							i %% 5, i %% 4, 25, i %% 2, true, '%s', '%s', 'worker', 'ended ' || i, '{"r": 6}', %s
						from generate_series(1, %d) as i
						cross join lateral (select now() - i * interval '%d days' / %d as at) e
						where i %% 100 = 50
					returning id
			)
			insert into jobq.payload (job_id, args) select f.id, '%s' from f`,
			everyColumn, queueHistory, kind, everyValue, s.finished, historyDays, s.finished, args),
	}
}

// makeFirst turns a database that has the second layout and no jobs into one of
// the first layout with jobs.
func makeFirst(ctx context.Context, m migration, s sizes) error {
	if _, err := m.down(ctx); err != nil {
		return fmt.Errorf("make the first layout: %w", err)
	}
	if err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		for day := today().AddDate(0, 0, -historyDays); day.Before(today()); day = day.AddDate(0, 0, 1) {
			if err := addDay(ctx, tx, "finished", day, finishedBounds(day)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, sql := range fillStatements(s) {
		if _, err := m.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	_, err := m.conn.Exec(ctx, "vacuum analyze jobq.pending")
	return err
}

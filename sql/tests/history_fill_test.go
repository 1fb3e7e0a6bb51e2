package tests

import (
	"context"

	"github.com/stretchr/testify/require"
)

// fillEnded makes jobs with ids from $1 on, $2 of them, which ended in the last
// $3 days; with large args, on the first of these days only. Each lease had a
// hundred: of these, one failed, one was cancelled, one completed with a result, and
// the others plainly succeeded.
const fillEnded = `
with g as materialized (
  select $1::integer + i as id, ($1::integer + i) / 100 as lease, (i % 100 + 1)::smallint as slot, $4::boolean as apart, i,
      case when $4::boolean then date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' - $3::integer * interval '1 day' + i / 100 * interval '1 s'
        else now() - $3::integer * interval '1 day' + i / 100 * 100 * ($3::integer * interval '1 day' / $2::integer) end as claimed_at,
      (case i % 100 when 0 then 'failed' when 1 then 'cancelled' when 2 then 'completed' end)::jobq.job_state as state
    from generate_series(0, $2::integer - 1) i
), l as (
  insert into jobq.past_lease (id, claimed_at, owner, ended)
    select jobq.lease_day((g.claimed_at at time zone 'UTC')::date) + g.lease, g.claimed_at, 'w' || g.lease % 200,
        array_agg(case when g.state is null then g.slot * 10 else -1 end order by g.slot)
      from g
      group by g.claimed_at, g.lease
)
insert into jobq.run (id, lease_id, slot, run_at, created_at, finished_at, state, priority, attempts, max_attempts, crashes, args_apart,
    queue, kind, args, last_error, result)
  select g.id, jobq.lease_day((g.claimed_at at time zone 'UTC')::date) + g.lease, g.slot, g.claimed_at, g.claimed_at,
      case when g.state is not null then g.claimed_at + g.slot * interval '10 ms' end, g.state, 0, 0, 25, 0, g.apart,
      'q' || g.i / 100 % 10, 'k' || g.i % 5, case when not g.apart then '{}'::jsonb end,
      case when g.state = 'failed' then 'error ' || g.lease % 7 end, case when g.state = 'completed' then '1'::jsonb end
    from g`

// fillRunning makes 40 live leases of 125 jobs, with ids from 40,000,001 on. The first
// 25 of each have succeeded.
const fillRunning = `
with g as materialized (
  select 40000001 + i as id, jobq.lease_day((now() at time zone 'UTC')::date) + (1 << 30) + i / 125 as lease, i / 125 as number, (i % 125 + 1)::smallint as slot
    from generate_series(0, 4999) i
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids, ended_slots, ended_ms)
    select g.lease, now(), now() + interval '1 hour', 'w' || g.number, 'q' || g.number % 10, array_agg(g.id order by g.slot),
        array_agg(g.slot) filter (where g.slot <= 25), array_agg(g.slot) filter (where g.slot <= 25)
      from g
      group by g.lease, g.number
)
insert into jobq.run (id, lease_id, slot, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
  select g.id, g.lease, g.slot, now(), now(), 0, 0, 25, 0, false, 'q' || g.number % 10, 'k', '{}' from g`

// fillHistory fills all tables. Of what grows with the age of an installation
// and with its backlog, at scale 1, there are 2 million scheduled jobs, 1 million
// available ones in a hundred queues, 3 million finished ones in nine days, claimed
// a hundred at a time, 2 million rows of stat (30 days, 50 queue and kind pairs), 300,000 large args to be
// pruned, 600,000 attempts, 300,000 events and pieces of output and 2 million jobs
// in the audit. Of what is as small as the work in hand (leases, workers, stats
// not yet rolled up), and of what is there to be pruned and promoted, there is as
// much at each scale.
//
// The ids of jobs: up to 5 million available ones, from there on those that are gone; from 6 million
// on those that wait for others, from 10 the scheduled ones, from 19 those that are due, from 20
// those that have ended (from 30 with large args), from 40 those that run.
func (q *queue) fillHistory(scale float64) {
	q.Helper()
	require.LessOrEqual(q, scale, scaleMax, "ids of one kind would reach those of the next")
	ctx := context.Background()
	conn, err := q.pool.Acquire(ctx)
	require.NoError(q, err)
	defer conn.Release()
	rows := func(full float64) int { return int(full * scale) }
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{"set synchronous_commit = off", nil},
		{"set session_replication_role = replica", nil}, // no triggers, no foreign keys
		{`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
			from unnest(array['run', 'past_lease', 'attempt']) as parent, generate_series(1, 9) as ago`, nil},
		{autovacuumOff, nil},
		{`insert into jobq.pending (id, position, run_at, kind, queue, attempts)
			select 10000000 + i, null, now() + i * interval '1 s' + interval '1 hour', 'k' || i % 5, 'q' || i % 10, i % 3 from generate_series(1, $1::integer) i`, []any{rows(2e6)}},
		{`insert into jobq.pending (id, position, kind, queue)
			select i, i, 'k' || i % 5, 'q' || i % 100 from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.pending (id, position, run_at, kind, queue)
			select 19000000 + i, null, now() - i * interval '1 ms', 'k', 'due' from generate_series(1, 20) i`, nil},
		{fillEnded, []any{20_000_000, rows(27e5), 7, false}},
		{fillEnded, []any{30_000_000, rows(3e5), 9, true}},
		{fillRunning, nil},
		{`create function public.live_lease(n integer) returns bigint language sql stable
			as 'select x.id from jobq.lease x order by x.id offset n limit 1'`, nil},
		{`create function public.last_in_line() returns bigint language sql stable
			as 'select x.id from jobq.pending x where x.queue = ''q1'' and x.position is not null order by x.priority desc, x.position desc limit 1'`, nil},
		{`create function public.of_full_key() returns bigint language sql stable
			as 'select max(x.id) from jobq.pending x where x.queue = ''keys'' and x.partition_key = ''full 2'''`, nil},
		{`create function public.claimed_at(lease bigint) returns timestamptz language sql stable
			as 'select x.claimed_at from jobq.lease x where x.id = lease union all select x.claimed_at from jobq.past_lease x where x.id = lease'`, nil},
		{`create function public.run_token(lease bigint) returns text language sql stable
			as 'select t.run || ''.'' || jobq.run_token_code(t.run) from (select lease || ''.'' || (extract(epoch from public.claimed_at(lease)) * 1000000)::bigint || ''.'' || (select r.slot from jobq.run r where r.id = 40000026 and r.lease_id = lease) as run) t'`, nil},
		// Jobs that wait for one that has failed, one by one or with many others, and old dependencies.
		{`insert into jobq.pending (id, position, waits, kind, queue)
			select 6000000 + i, null, true, 'k' || i % 5, 'q' || i % 10 from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.dependency (child, parent, on_failure)
			select 6000000 + i, 20000100, 'run' from generate_series(1, $1::integer) i
			union all select 6000001, 40000026 + i, 'run' from generate_series(1, 4000) i`, []any{rows(1e6)}},
		{`insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure)
			select 20000001 + i, 20000000 + i, jobq.lease_day((now() at time zone 'UTC')::date - 9) + i, 'completed', 'cancel' from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure)
			select 50000000 + i, 20000050, jobq.lease_day((now() at time zone 'UTC')::date - 7) + i, 'completed', 'cancel' from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{"select nextval('jobq.dependency_seq')", nil},
		{"insert into jobq.payload (job_id, args) select 30000000 + i, '{}' from generate_series(1, $1::integer) i", []any{rows(3e5)}},
		{`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
			select 20000000 + 4 * i, now() - interval '7 days' + i * (interval '7 days' / $1::integer), now(), 1, 'failed', 1, 'w', 'e'
			from generate_series(1, $1::integer) i`, []any{rows(6e5)}},
		{`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()) - m * interval '1 minute', 'q' || k % 10, 'k' || k / 10, 1, 0, 0, 0, 0, 1, 1
			from generate_series($1::integer, 0, -1) m, generate_series(0, 49) k`, []any{rows(43_000)}},
		{`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()) - interval '31 days' - m * interval '1 minute', 'q' || k % 10, 'k' || k / 10, 1, 0, 0, 0, 0, 1, 1
			from generate_series(20, 0, -1) m, generate_series(0, 49) k`, nil},
		{`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()), 'q' || i % 10, 'k' || i % 5, 1, 0, 0, 0, 0, 1, 1 from generate_series(1, 5000) i`, nil},
		{`insert into jobq.event (at, type, source) select now() - interval '8 days' + i * interval '1 ms', 'stalled', 's' from generate_series(1, 1000) i`, nil},
		{`insert into jobq.event (at, type, source)
			select now() - interval '6 days' + i * (interval '6 days' / $1::integer), 'stalled', 's' from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{`insert into jobq.audit (at, actor, action, done)
			select now() - case when i <= 20 then interval '91 days' else interval '80 days' end + i * interval '1 s', 'ann', 'cancel', 100
			from generate_series(1, $1::integer + 20) i`, []any{rows(20_000)}},
		{`insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
			select a, 20000000 + a * 100 + j, 1, 'failed', 'available', '{}' from generate_series(1, $1::integer + 20) a, generate_series(1, 100) j`, []any{rows(20_000)}},
		{`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots)
			select 'w' || i, i, 'h' || i % 50, 'v', '{"q1": 5, "q2": 5}', '{k1,k2}', '{}' from generate_series(1, 200) i`, nil},
		{`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
			select 20000000 + i % 100, 1, i, i + 1, now() - interval '6 minutes', 'x' from generate_series(1, 1000) i`, nil},
		{`insert into jobq.output (job_id, lease_token, begins_at, ends_at, content)
			select 40000000 + 26 + i % 4000, live_lease(0), i, i + 1, 'x' from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{`insert into jobq.schedule (name, cron, kind, cursor_at, due_at)
			select 's' || i, '@hourly', 'k', '2026-01-01', now() + i * interval '1 min' from generate_series(1, 500) i`, nil},
		{`insert into jobq.schedule_tick (schedule, tick_at, job_id)
			select 's' || i % 500, now() - (i + 1) * interval '1 s', 20000000 + i from generate_series(1, $1::integer) i`, []any{rows(1e7)}},
		// Of jobs that have ended, of jobs that are gone, of jobs that wait for events, and of one that has done much.
		{`insert into jobq.step (job_id, started_at, finished_at, lease_token, claimed_at, number, type, name, result)
			select 20000000 + i / 5, now() - interval '7 days', now(), 1, now(), i % 5 + 1, 'step', 'step ' || i % 5, '1' from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.step (job_id, started_at, finished_at, lease_token, claimed_at, number, type, name, result)
			select 5000000 + i / 5, now() - interval '10 days', now(), 1, now(), i % 5 + 1, 'step', 'step ' || i % 5, '1' from generate_series(1, 5000) i`, nil},
		{`insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name)
			select 10000000 + i, now(), 0, now(), 1, 'event', 'w' || i % ($1::integer / 10) from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.step (job_id, started_at, finished_at, lease_token, claimed_at, number, type, name, result)
			select 40000026, now(), now(), 1, now(), i, 'step', 'step ' || i, '1' from generate_series(1, 9000) i`, nil},
		{`insert into jobq.emitted (name, emitted_at, payload)
			select 'e' || i, now() - interval '8 days' + i * (interval '8 days' / $1::integer), '1' from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{"select setval('jobq.job_id_seq', $1::bigint), setval('jobq.position_seq', $1::bigint)", []any{firstBigID}},
	} {
		_, err = conn.Exec(ctx, statement.sql, statement.args...)
		require.NoError(q, err, statement.sql)
	}
	_, err = conn.Exec(ctx, "set session_replication_role = origin")
	require.NoError(q, err)
}

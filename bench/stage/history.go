package stage

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// FillHistory adds finished jobs to the tables of a jobq: leases of a hundred jobs each, 3 ms a job, one lease each 300 ms until
// now. One job in 2,000 has failed. The number of jobs is rounded up to whole leases.
func FillHistory(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
	const days = `select jobq.partition_add(t, d::date) from unnest(array['run', 'past_lease']) t,
		generate_series((now() - $1 * interval '300 ms') at time zone 'UTC', now() at time zone 'UTC', '1 day') d`
	// How the jobs of a lease ended, by slot, from i and s: their numbers.
	const insert = `with l as (
			insert into jobq.past_lease (id, claimed_at, owner, ended)
				select jobq.lease_day((t at time zone 'UTC')::date) + nextval('jobq.lease_number_seq'), t, 'web-1',
						array(select case when (i * 100 + s) % 2000 = 0 or (i * 100 + s) % 50000 = 1 then -1 else 80 + 3 * s end::smallint
							from generate_series(0, 99) s)
					from (select i, now() - ($1 - i) * interval '300 ms' as t from generate_series(0, $1 - 1) i) x
				returning id, claimed_at, ended
		)
		insert into jobq.run (id, lease_id, slot, position, run_at, created_at, state, finished_at, priority, attempts, max_attempts, crashes,
				args_apart, queue, kind, args, last_error)
			select nextval('jobq.job_id_seq'), l.id, s, nextval('jobq.position_seq'), l.claimed_at - interval '1 s', l.claimed_at - interval '1 s',
				case when l.ended[s] = -1 then case when s = 1 then 'failed' else 'cancelled' end::jobq.job_state end,
				case when l.ended[s] = -1 then l.claimed_at + (80 + 3 * s) * interval '1 ms' end, 0, 1, 5, 0, false, 'q' || l.id % 8, 'kind' || s % 20,
				'{"tenant": 4411}', case when l.ended[s] = -1 and s = 1 then 'smtp 421 rate limited' end
			from l cross join lateral generate_series(1, cardinality(l.ended)) s` // lateral: neighbours have one lease
	leases := (jobs + 99) / 100
	if _, err := pool.Exec(ctx, days, leases); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, insert, leases); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, "vacuum (analyze) jobq.run, jobq.past_lease") // as autovacuum has done where a history has grown
	return err
}

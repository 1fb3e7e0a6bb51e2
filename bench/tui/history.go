package main

import (
	"context"
	"fmt"
)

// fill makes a history in which one job of 2,000 has failed.
func (b *bench) fill(ctx context.Context, history int) error {
	var have int
	if err := b.pool.QueryRow(ctx, "select coalesce(sum(reltuples), 0)::bigint from pg_class where relname like 'finished\\_%' and relkind = 'r'").Scan(&have); err != nil {
		return err
	}
	if have < history*9/10 {
		_, err := b.pool.Exec(ctx, `insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, last_error)
			select nextval('jobq.job_id_seq'), t, 1, t - interval '80 ms', t - interval '1 s', t - interval '1 s',
				case when i % 2000 = 0 then 'failed' when i % 50000 = 1 then 'cancelled' else 'completed' end::jobq.job_state, 0, 1, 5, 0, false,
				'q' || i % 8, 'kind' || i % 20, 'web-1', '{"tenant": 4411}', case when i % 2000 = 0 then 'smtp 421 rate limited' end
			from (select i, now() - ($1 - i) * interval '3 ms' as t from generate_series(1, $1::integer) i) x`, history)
		if err == nil {
			_, err = b.pool.Exec(ctx, "vacuum (analyze) jobq.finished") // as autovacuum has done where a history has grown
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("history            %d finished jobs\n", max(have, history))
	return nil
}

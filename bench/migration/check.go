package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// snapshot writes down of each job, in a table, where it is and a digest of what
// the view jobq.job says of it, with its place in line. The token changes with
// the layout. The lease of what a living worker holds is extended meanwhile. Jobs
// that wait to be run by the load have no digest: nobody compares them.
func snapshot(ctx context.Context, conn *pgx.Conn, table string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(`
		create schema if not exists checks;
		drop table if exists checks.%[1]s;
		create unlogged table checks.%[1]s as
			select j.id, j.state, j.queue, case when j.queue <> '%[3]s' or j.state not in ('scheduled', 'available') then md5((to_jsonb(j) - 'lease_token' - case when j.queue = '%[2]s' then '' else 'lease_expires_at' end)::text
					|| coalesce((select p.position from jobq.pending p where p.id = j.id and j.queue = '%[2]s'), 0)) end as digest
				from jobq.job j;
		analyze checks.%[1]s`, table, queueKept, queueLoad))
	return err
}

// rowsOfFirst writes down the rows of the first layout's own tables that nobody
// touches: they are to be the same when the database has come back.
func rowsOfFirst(ctx context.Context, conn *pgx.Conn, table string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(`
		create schema if not exists checks;
		drop table if exists checks.%[1]s;
		create unlogged table checks.%[1]s as
			select r.id, r.lease_token, md5((to_jsonb(r) - 'lease_token')::text) as digest from jobq.running r where r.queue = '%[2]s'
			union all
			select f.id, f.lease_token, md5((to_jsonb(f) - 'lease_token')::text) from jobq.finished f where f.queue = '%[3]s';
		analyze checks.%[1]s`, table, queueKept, queueHistory))
	return err
}

// none is an error when a query finds ids.
func none(ctx context.Context, conn *pgx.Conn, what, query string, args ...any) error {
	rows, err := conn.Query(ctx, query+" limit 10", args...)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return err
	}
	return fmt.Errorf("%s: jobs %v", what, ids)
}

// checkSame is an error when a job that nobody has touched since the snapshot
// before is not there as it was, or when a job is lost, or there twice.
func checkSame(ctx context.Context, conn *pgx.Conn) error {
	if err := snapshot(ctx, conn, "after"); err != nil {
		return err
	}
	return errors.Join(
		none(ctx, conn, "there twice", "select a.id from checks.after a group by a.id having count(*) > 1"),
		none(ctx, conn, "lost", "select b.id from checks.before b where not exists (select from checks.after a where a.id = b.id)"),
		none(ctx, conn, "changed", `select b.id from checks.before b join checks.after a on a.id = b.id
			where b.queue in ($1, $2) and (a.state, a.digest) <> (b.state, b.digest)`, queueKept, queueHistory),
		none(ctx, conn, "ended, and not any more", `select b.id from checks.before b join checks.after a on a.id = b.id
			where b.state in ('completed', 'failed', 'cancelled') and (a.state, a.digest) <> (b.state, b.digest)`),
	)
}

// checkRowsOfFirst is an error when a row of the first layout's tables is not as
// it was at the very beginning, or has a smaller token.
func checkRowsOfFirst(ctx context.Context, conn *pgx.Conn) error {
	if err := rowsOfFirst(ctx, conn, "returned"); err != nil {
		return err
	}
	return none(ctx, conn, "changed on the way there and back", `
		select b.id from checks.original b left join checks.returned r on r.id = b.id
			where (r.digest = b.digest and r.lease_token > b.lease_token) is not true`)
}

// checkAcknowledged is an error when a job whose insert was acknowledged is not
// there, or one whose completion was is not completed.
func (l *load) checkAcknowledged(ctx context.Context, conn *pgx.Conn) error {
	l.mu.Lock()
	inserted, completed := slices.Clone(l.inserted), slices.Collect(maps.Keys(l.completed))
	l.mu.Unlock()
	if len(inserted) == 0 || len(completed) == 0 {
		return fmt.Errorf("%d inserts and %d completions: there was no load", len(inserted), len(completed))
	}
	return errors.Join(
		none(ctx, conn, "inserted, and lost", `select i.id from unnest($1::bigint[]) as i(id)
			where not exists (select from checks.after a where a.id = i.id)`, inserted),
		none(ctx, conn, "completed, and not stored", `select i.id from unnest($1::bigint[]) as i(id)
			where not exists (select from checks.after a where a.id = i.id and a.state = 'completed')`, completed),
		none(ctx, conn, "stored as completed by nobody", `select a.id from checks.after a
			where a.queue in ($2, $3) and a.state = 'completed'
				and not exists (select from unnest($1::bigint[]) as i(id) where i.id = a.id)`, completed, queueLoad, queueHeld),
	)
}

// check is an error when a job of the holders is not as it was when they held it.
// The view finds jobs by an array of ids in its indexes, and would read the whole
// history in a join.
func (h *holders) check(ctx context.Context, conn *pgx.Conn) error {
	var ids []int64
	for _, jobs := range h.jobs {
		held, _ := columns(jobs)
		ids = append(ids, held...)
	}
	return none(ctx, conn, "held, and not as before", `
		with j as materialized (
			select j.id, j.state, md5((to_jsonb(j) - 'lease_token' - 'lease_expires_at')::text || 0) as digest
				from jobq.job j where j.id = any($1::bigint[])
		)
		select h.id from unnest($1::bigint[]) as h(id)
			where not exists (select from j join checks.before b on b.id = j.id and b.state = j.state and b.digest = j.digest where j.id = h.id)`, ids)
}

package child

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The limit that a queue with a history can be compared with: three tables, and one statement each to
// claim with a lease and to complete. bench/notes/0001.md has the figures of other layouts.

// layoutColumns are the columns of a job besides its stage's own.
const layoutColumns = `id bigint, position bigint, lease_token bigint default 0, run_at timestamptz default now(), created_at timestamptz default now(),
  priority smallint default 0, attempts smallint default 0, max_attempts smallint default 25, queue text default 'default',
  kind text default 'k', args jsonb`

const layoutColumnNames = `id, position, lease_token, run_at, created_at, priority, attempts, max_attempts, queue, kind, args`

const layoutTables = `
  create sequence id_seq;
  create table pending (` + layoutColumns + `);
  create unique index on pending (id);
  create index on pending (queue, priority, position) where position is not null;
  create table running (` + layoutColumns + `, owner text, lease_expires_at timestamptz, started_at timestamptz) with (fillfactor = 70);
  create unique index on running (id);
  create table finished (` + layoutColumns + `, owner text, started_at timestamptz, finished_at timestamptz, state text) partition by range (finished_at);
  create table finished_today partition of finished for values from ('2020-01-01') to ('2100-01-01');
  create index on finished (id);
  create index on finished (finished_at, id) where state <> 'completed';`

const layoutClaim = `
  with candidate as materialized (
    select p.ctid as place from pending p where p.queue = 'default' and p.position is not null
      order by p.priority, p.position limit $2 for update skip locked
  ), taken as (
    delete from pending p where p.ctid = any(array(select place from candidate)) returning ` + layoutColumnNames + `
  )
  insert into running (` + layoutColumnNames + `, owner, lease_expires_at, started_at)
    select id, position, lease_token + 1, run_at, created_at, priority, attempts, max_attempts, queue, kind, args, $1,
        clock_timestamp() + interval '60 s', clock_timestamp() from taken
    returning id, lease_token, args`

const layoutComplete = `
  with done as (
    delete from running r using unnest($1::bigint[], $2::bigint[]) as f(id, token)
      where r.id = f.id and r.lease_token = f.token and r.owner = $3
      returning r.id, r.position, r.lease_token, r.run_at, r.created_at, r.priority, r.attempts, r.max_attempts, r.queue, r.kind, r.args, r.owner, r.started_at
  )
  insert into finished (` + layoutColumnNames + `, owner, started_at, finished_at, state) select done.*, clock_timestamp(), 'completed' from done`

// drainLayout claims and completes in batches until nothing is left, and tells how
// many each batch had.
func drainLayout(ctx context.Context, conn *pgx.Conn, owner string, batch int, ran func(jobs int)) error {
	for {
		rows, err := conn.Query(ctx, layoutClaim, owner, batch)
		if err != nil {
			return err
		}
		var ids, tokens []int64
		var id, token int64
		var args []byte
		if _, err := pgx.ForEachRow(rows, []any{&id, &token, &args}, func() error {
			ids, tokens = append(ids, id), append(tokens, token)
			return nil
		}); err != nil {
			return err
		}
		if len(ids) == 0 {
			return nil
		}
		tag, err := conn.Exec(ctx, layoutComplete, ids, tokens, owner)
		if err != nil {
			return err
		}
		if int(tag.RowsAffected()) != len(ids) {
			return fmt.Errorf("completed %d of %d", tag.RowsAffected(), len(ids))
		}
		ran(len(ids))
	}
}

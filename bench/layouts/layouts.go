// Package layouts has ways to keep jobs as hand-written SQL: the limits that
// a queue in PostgreSQL can be compared with.
package layouts

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Layout is one way to keep jobs. Insert takes a number of jobs and the args;
// Claim an owner and a number; Complete ids, tokens and the owner.
type Layout struct{ Name, Tables, Insert, Claim, Complete string }

// common are the columns of a job besides its stage's own.
const common = `id bigint, position bigint, lease_token bigint default 0, run_at timestamptz default now(), created_at timestamptz default now(),
  priority smallint default 0, attempts smallint default 0, max_attempts smallint default 25, queue text default 'default',
  kind text default 'k', args jsonb`

const commonNames = `id, position, lease_token, run_at, created_at, priority, attempts, max_attempts, queue, kind, args`

const threeTables = `
  create sequence id_seq;
  create table pending (` + common + `);
  create unique index on pending (id);
  create index on pending (queue, priority, position) where position is not null;
  create table running (` + common + `, owner text, lease_expires_at timestamptz, started_at timestamptz) with (fillfactor = 70);
  create unique index on running (id);
  create table finished (` + common + `, owner text, started_at timestamptz, finished_at timestamptz, state text) partition by range (finished_at);
  create table finished_today partition of finished for values from ('2020-01-01') to ('2100-01-01');
  create index on finished (id);
  create index on finished (finished_at, id) where state <> 'completed';`

const threeClaim = `
  with candidate as materialized (
    select p.ctid as place from pending p where p.queue = 'default' and p.position is not null
      order by p.priority, p.position limit $2 for update skip locked
  ), taken as (
    delete from pending p where p.ctid = any(array(select place from candidate)) returning ` + commonNames + `
  )
  insert into running (` + commonNames + `, owner, lease_expires_at, started_at)
    select id, position, lease_token + 1, run_at, created_at, priority, attempts, max_attempts, queue, kind, args, $1,
        clock_timestamp() + interval '60 s', clock_timestamp() from taken
    returning id, lease_token, `

const threeComplete = `
  with done as (
    delete from running r using unnest($1::bigint[], $2::bigint[]) as f(id, token)
      where r.id = f.id and r.lease_token = f.token and r.owner = $3
      returning r.id, r.position, r.lease_token, r.run_at, r.created_at, r.priority, r.attempts, r.max_attempts, r.queue, r.kind, r.args, r.owner, r.started_at
  )
  insert into finished (` + commonNames + `, owner, started_at, finished_at, state) select done.*, clock_timestamp(), 'completed' from done`

// ThreeTables is the layout that jobq has: docs/decisions/0001.
const ThreeTables = "three tables"

// Named is the layout of that name.
func Named(name string) (Layout, error) {
	for _, layout := range All() {
		if layout.Name == name {
			return layout, nil
		}
	}
	return Layout{}, fmt.Errorf("no layout %q", name)
}

// Fill inserts jobs in batches, the last of them with what is left, and returns
// how many there are now. It is an error when these are not as many as asked
// for, or none: no rate can be had from them.
func (l Layout) Fill(ctx context.Context, conn *pgx.Conn, jobs, batch int, args string) (inserted int, err error) {
	for inserted < jobs {
		tag, err := conn.Exec(ctx, l.Insert, min(batch, jobs-inserted), args)
		if err != nil {
			return inserted, err
		}
		if tag.RowsAffected() == 0 {
			break
		}
		inserted += int(tag.RowsAffected())
	}
	if inserted != jobs || inserted == 0 {
		return inserted, fmt.Errorf("inserted %d jobs of %d", inserted, jobs)
	}
	return inserted, nil
}

// Drain claims and completes in batches until nothing is left, and tells how
// many each batch had.
func (l Layout) Drain(ctx context.Context, conn *pgx.Conn, owner string, batch int, ran func(jobs int)) error {
	for {
		rows, err := conn.Query(ctx, l.Claim, owner, batch)
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
		tag, err := conn.Exec(ctx, l.Complete, ids, tokens, owner)
		if err != nil {
			return err
		}
		if int(tag.RowsAffected()) != len(ids) {
			return fmt.Errorf("completed %d of %d", tag.RowsAffected(), len(ids))
		}
		ran(len(ids))
	}
}

// All are the layouts that were compared.
func All() []Layout {
	return []Layout{
		{
			Name: "one table",
			Tables: `
  create sequence id_seq;
  create table job (` + common + `, state text default 'available', owner text, lease_expires_at timestamptz, started_at timestamptz, finished_at timestamptz) with (fillfactor = 70);
  create unique index on job (id);
  create index on job (queue, priority, position) where state = 'available';
  create index on job (id) where state = 'running';
  create index on job (finished_at, id) where state in ('failed', 'cancelled');`,
			Insert: `insert into job (id, position, args) select n, n, $2 from (select nextval('id_seq') as n from generate_series(1, $1)) x`,
			Claim: `
  with candidate as materialized (
    select j.id from job j where j.queue = 'default' and j.state = 'available'
      order by j.priority, j.position limit $2 for update skip locked
  )
  update job j set state = 'running', owner = $1, lease_token = j.lease_token + 1, lease_expires_at = clock_timestamp() + interval '60 s', started_at = clock_timestamp()
    from candidate c where j.id = c.id returning j.id, j.lease_token, j.args`,
			Complete: `
  update job j set state = 'completed', finished_at = clock_timestamp(), lease_expires_at = null
    from unnest($1::bigint[], $2::bigint[]) as f(id, token)
    where j.id = f.id and j.lease_token = f.token and j.owner = $3 and j.state = 'running'`,
		},
		{
			Name:     ThreeTables,
			Tables:   threeTables,
			Insert:   `insert into pending (id, position, args) select n, n, $2 from (select nextval('id_seq') as n from generate_series(1, $1)) x`,
			Claim:    threeClaim + `args`,
			Complete: threeComplete,
		},
		{
			// Args above 1,000 bytes are written once, and null in the row.
			Name:   "three tables and payload",
			Tables: threeTables + `create table payload (id bigint primary key, args jsonb);`,
			Insert: `
  with new as materialized (select nextval('id_seq') as n, $2::jsonb as args from generate_series(1, $1)),
    apart as (insert into payload (id, args) select n, args from new where pg_column_size(args) > 1000)
  insert into pending (id, position, args) select n, n, case when pg_column_size(args) <= 1000 then args end from new`,
			Claim:    threeClaim + `coalesce(args, (select p.args from payload p where p.id = running.id))`,
			Complete: threeComplete,
		},
	}
}

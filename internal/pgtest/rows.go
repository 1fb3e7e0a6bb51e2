package pgtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// This file alone knows in which tables the running and the finished jobs of a
// test are. Tests read them in the view jobq.job, and write them with what is here.

// History is the table that has the finished jobs, partitioned by day.
const History = "run"

// Database is a pool, a connection or a transaction.
type Database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Columns are values of jobs: an SQL expression for each column, named as in
// the view jobq.job. In new jobs it may use i, which is 1 in the first of them; in
// changed ones the columns as they were. Besides there are args_apart, which
// means that the args are in jobq.payload, and position, the place in line.
type Columns map[string]string

// types are those of the columns, since an expression may not have one.
var types = Columns{
	"id": "bigint", "lease_token": "bigint", "position": "bigint", "run_at": "timestamptz", "created_at": "timestamptz", "finished_at": "timestamptz",
	"started_at": "timestamptz", "lease_expires_at": "timestamptz", "cancel_requested_at": "timestamptz", "timeout": "interval", "backoff_base": "interval",
	"backoff_max": "interval", "state": "jobq.job_state", "priority": "smallint", "attempts": "smallint", "max_attempts": "smallint",
	"crashes": "smallint", "args_apart": "boolean", "queue": "text", "kind": "text", "lease_owner": "text", "args": "jsonb", "unique_key": "text",
	"last_error": "text", "clear_reason": "text", "checkpoint": "jsonb", "metadata": "jsonb", "tags": "text[]", "result": "jsonb",
}

// ofLease are the columns that a lease has, and what they are called there.
var ofLease = Columns{"lease_owner": "owner", "lease_expires_at": "expires_at", "started_at": "claimed_at"}

// leaseOfMany is how many jobs share a lease where many are made at once: then
// nobody asks for the owner of each.
const leaseOfMany = 100

// InsertRunning makes jobs that somebody called dead has claimed for an hour,
// as far as the columns do not say otherwise. Each has a lease of its own.
func InsertRunning(ctx context.Context, database Database, count int, columns Columns) error {
	return insert(ctx, database, count, columns, Columns{
		"position": "i", "lease_expires_at": "now() + interval '1 hour'", "started_at": "now()", "max_attempts": "25", "lease_owner": "'dead'",
		"lease_token": "jobq.lease_id_next()",
	}, `insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
	    select n.lease_token, n.started_at, n.lease_expires_at, n.lease_owner, n.queue, array[n.id] from n`)
}

// InsertFinished makes jobs that completed just now, as far as the columns do
// not say otherwise.
func InsertFinished(ctx context.Context, database Database, count int, columns Columns) error {
	each := 1
	if count > 10*leaseOfMany {
		each = leaseOfMany
	}
	return insert(ctx, database, count, columns, Columns{
		"finished_at": "now()", "state": "'completed'", "max_attempts": "1", "started_at": "null", "lease_owner": "null",
		"lease_token": fmt.Sprintf("jobq.lease_day(((%s) at time zone 'UTC')::date) + (select nextval('jobq.lease_number_seq') << 16) + (i - 1) / %d",
			first(columns, "now()", "started_at", "finished_at"), each),
	}, `insert into jobq.past_lease (id, claimed_at, owner, ended)
	    select n.lease_token, coalesce(min(n.started_at), min(n.finished_at)), coalesce(min(n.lease_owner), 'somebody'), array_fill(-1::smallint, array[count(*)::integer])
	      from n where n.started_at is not null or n.lease_owner is not null group by n.lease_token`)
}

// first is the first of the names that is given, or else the default.
func first(columns Columns, otherwise string, names ...string) string {
	for _, name := range names {
		if expression, ok := columns[name]; ok {
			return expression
		}
	}
	return otherwise
}

func insert(ctx context.Context, database Database, count int, columns, defaults Columns, leases string) error {
	all := Columns{
		"id": "nextval('jobq.job_id_seq')", "run_at": "now()", "created_at": "now()", "priority": "0", "attempts": "0",
		"crashes": "0", "args_apart": "false", "queue": "'default'", "kind": "'task'", "args": "'{}'",
	}
	maps.Copy(all, defaults)
	maps.Copy(all, columns)
	var values, names, own []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		values = append(values, fmt.Sprintf("(%s)::%s as %s", all[name], types[name], name))
		if _, apart := ofLease[name]; !apart && name != "lease_token" {
			names, own = append(names, name), append(own, "n."+name)
		}
	}
	_, err := database.Exec(ctx, fmt.Sprintf(`with n as materialized (select %s from generate_series(1, $1::integer) i), l as (%s)
	  insert into jobq.run (lease_id, slot, %s) select n.lease_token, row_number() over (partition by n.lease_token), %s from n`,
		strings.Join(values, ", "), leases, strings.Join(names, ", "), strings.Join(own, ", ")), count)
	return err
}

// MakeRunning claims an available job for an hour, for somebody, without regard
// to its place in line.
func MakeRunning(ctx context.Context, database Database, id int64) error {
	return one(database.Exec(ctx, `
		with taken as (delete from jobq.pending where id = $1 and position is not null returning *),
		l as (
		  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		    select jobq.lease_id_next(), now(), now() + interval '1 hour', 'somebody', t.queue, array[t.id] from taken t
		    returning id
		)
		insert into jobq.run (id, lease_id, slot, position, run_at, created_at, priority, attempts,
		    max_attempts, crashes, args_apart, queue, kind, args, unique_key)
		  select t.id, l.id, 1, t.position, t.run_at, t.created_at, t.priority, t.attempts,
		      t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key from taken t cross join l`, id))
}

// ExpireLeases lets the leases of these running jobs be over, or those of all.
// The other jobs of the same leases lose them too.
func ExpireLeases(ctx context.Context, database Database, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{"lease_expires_at": "now() - interval '1 s'"}, "$1::bigint[] is null or id = any($1)", ids)
}

// StealLeases gives these running jobs to somebody else, as if they had been lost
// and claimed again: each gets a lease of its own.
func StealLeases(ctx context.Context, database Database, thief string, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{
		"lease_owner": "$2::text", "lease_token": "jobq.lease_id_next()", "lease_expires_at": "now() + interval '1 hour'",
	}, "id = any($1)", ids, thief)
}

// UpdateRunning changes the running jobs of which the condition is true, and no
// others but those of the same lease, behind the back of the workers who have
// them. With a lease_token, each gets a new lease with that id.
func UpdateRunning(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	var news, run, lease []string
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		news = append(news, fmt.Sprintf("(%s)::%s as new_%s", columns[name], types[name], name))
		switch apart, ok := ofLease[name]; {
		case ok:
			lease = append(lease, fmt.Sprintf("%s = n.new_%s", apart, name))
		case name == "lease_token":
			run = append(run, "lease_id = n.new_lease_token", "slot = 1")
		default:
			run = append(run, fmt.Sprintf("%s = n.new_%s", name, name))
		}
	}
	changes := []string{"n as materialized (select id as job_id, lease_token as token, " + strings.Join(news, ", ") +
		" from jobq.job where state = 'running' and (" + where + "))"}
	switch _, anew := columns["lease_token"]; {
	case anew:
		value := func(name, old string) string {
			if _, ok := columns[name]; ok {
				return "n.new_" + name
			}
			return old
		}
		changes = append(changes, fmt.Sprintf(`l as (insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		  select n.new_lease_token, %s, %s, %s, l.queue, array[n.job_id] from n join jobq.lease l on l.id = n.token)`,
			value("started_at", "l.claimed_at"), value("lease_expires_at", "l.expires_at"), value("lease_owner", "l.owner")))
	case len(lease) > 0:
		changes = append(changes, "l as (update jobq.lease l set "+strings.Join(lease, ", ")+" from n where l.id = n.token)")
	}
	if len(run) > 0 {
		changes = append(changes, "r as (update jobq.run r set "+strings.Join(run, ", ")+" from n where r.id = n.job_id and r.lease_id = n.token)")
	}
	_, err := database.Exec(ctx, "with "+strings.Join(changes, ", ")+" select", args...)
	return err
}

// UpdateFinished changes the finished jobs of which the condition is true. One
// that had plainly succeeded gets a row that says so itself.
func UpdateFinished(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	set := []string{"state = coalesce(r.state, n.state)", "finished_at = coalesce(r.finished_at, n.finished_at)"}
	var news, lease []string
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		news = append(news, fmt.Sprintf(", (%s)::%s as new_%s", columns[name], types[name], name))
		switch apart, ok := ofLease[name]; {
		case ok:
			lease = append(lease, fmt.Sprintf("%s = n.new_%s", apart, name))
		case name == "lease_token":
			set, lease = append(set, "lease_id = n.new_lease_token"), append(lease, "id = n.new_lease_token")
		default:
			set = append(slices.DeleteFunc(set, func(each string) bool { return strings.HasPrefix(each, name+" =") }), fmt.Sprintf("%s = n.new_%s", name, name))
		}
	}
	changes := []string{"n as materialized (select id, lease_token, state, finished_at" + strings.Join(news, "") +
		" from jobq.job where state in ('completed', 'failed', 'cancelled') and (" + where + "))"}
	if len(lease) > 0 {
		changes = append(changes, "l as (update jobq.past_lease l set "+strings.Join(lease, ", ")+" from n where l.id = n.lease_token)")
	}
	changes = append(changes, "r as (update jobq.run r set "+strings.Join(set, ", ")+" from n where r.id = n.id and r.lease_id = n.lease_token)")
	_, err := database.Exec(ctx, "with "+strings.Join(changes, ", ")+" select", args...)
	return err
}

// DeleteRunning takes running jobs away, as nothing in jobq does. Their leases stay.
func DeleteRunning(ctx context.Context, database Database, where string, args ...any) error {
	_, err := database.Exec(ctx, "delete from jobq.run where id in (select id from jobq.job where state = 'running' and ("+where+"))", args...)
	return err
}

// LockRunning locks the row of a running job until the transaction ends, as a
// statement that ends it on its own row does.
func LockRunning(ctx context.Context, tx Database, ids ...int64) error {
	tag, err := tx.Exec(ctx, "select from jobq.run where id = any($1) and state is null for update", ids)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("%d of %d jobs run", tag.RowsAffected(), len(ids))
	}
	return err
}

// LockLeases locks the leases of running jobs until the transaction ends, as a
// statement that extends them does.
func LockLeases(ctx context.Context, tx Database, ids ...int64) error {
	_, err := tx.Exec(ctx, "select from jobq.lease where id in (select lease_token from jobq.job where id = any($1)) for update", ids)
	return err
}

// LockFinished locks the rows of finished jobs until the transaction ends. It
// does not wait: it fails if somebody has locked one.
func LockFinished(ctx context.Context, tx Database, ids ...int64) error {
	tag, err := tx.Exec(ctx, "select from jobq.run where id = any($1) for update nowait", ids)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("%d of %d jobs have finished", tag.RowsAffected(), len(ids))
	}
	return err
}

// LockHistory keeps everybody from the finished jobs until the transaction ends.
func LockHistory(ctx context.Context, tx Database) error {
	_, err := tx.Exec(ctx, "lock table jobq.run in access exclusive mode")
	return err
}

// ArgsApart says how many jobs have their args in jobq.payload.
func ArgsApart(ctx context.Context, database Database) (count int, err error) {
	err = database.QueryRow(ctx, `select count(*) from (select args_apart from jobq.pending
		union all select args_apart from jobq.run) j where args_apart`).Scan(&count)
	return count, err
}

// BeforeCompletion runs statements of PL/pgSQL before a job is stored as
// completed on its own row, in the same transaction. The variable job is its id.
func BeforeCompletion(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "before update on jobq.run for each row when (new.state = 'completed')", "job bigint := new.id;", statements)
}

// BeforeProgress runs statements of PL/pgSQL before a report of progress is
// stored, in the same transaction. The variable stage is the stage reported.
func BeforeProgress(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "before insert or update on jobq.progress for each row", "stage text := new.stage;", statements)
}

func trigger(ctx context.Context, database Database, when, variable, statements string) error {
	if _, err := database.Exec(ctx, "create function public.before_row() returns trigger language plpgsql as $test$ declare "+variable+" begin "+
		statements+" return new; end $test$"); err != nil {
		return err
	}
	_, err := database.Exec(ctx, "create trigger before_row "+when+" execute function public.before_row()")
	return err
}

func one(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("%d jobs, want one", tag.RowsAffected())
	}
	return err
}

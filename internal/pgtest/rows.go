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

// InsertRunning makes jobs that somebody called dead has claimed for an hour,
// as far as the columns do not say otherwise.
func InsertRunning(ctx context.Context, database Database, count int, columns Columns) error {
	return insert(ctx, database, "running", count, columns, Columns{
		"position": "i", "lease_expires_at": "now() + interval '1 hour'", "started_at": "now()", "max_attempts": "25", "lease_owner": "'dead'",
	})
}

// InsertFinished makes jobs that completed just now, as far as the columns do
// not say otherwise.
func InsertFinished(ctx context.Context, database Database, count int, columns Columns) error {
	return insert(ctx, database, "finished", count, columns, Columns{"finished_at": "now()", "state": "'completed'", "max_attempts": "1"})
}

func insert(ctx context.Context, database Database, table string, count int, columns, defaults Columns) error {
	all := Columns{
		"id": "nextval('jobq.job_id_seq')", "lease_token": "1", "run_at": "now()", "created_at": "now()", "priority": "0", "attempts": "0",
		"crashes": "0", "args_apart": "false", "queue": "'default'", "kind": "'task'", "args": "'{}'",
	}
	maps.Copy(all, defaults)
	maps.Copy(all, columns)
	names := slices.Sorted(maps.Keys(all))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = all[name]
	}
	_, err := database.Exec(ctx, fmt.Sprintf("insert into jobq.%s (%s) select %s from generate_series(1, $1::integer) i",
		table, strings.Join(names, ", "), strings.Join(values, ", ")), count)
	return err
}

// MakeRunning claims an available job for an hour, for somebody, without regard
// to its place in line.
func MakeRunning(ctx context.Context, database Database, id int64) error {
	return one(database.Exec(ctx, `
		with taken as (delete from jobq.pending where id = $1 and position is not null returning *)
		insert into jobq.running (id, position, lease_token, lease_expires_at, started_at, run_at, created_at, priority, attempts,
		    max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key)
		  select id, position, lease_token + 1, now() + interval '1 hour', now(), run_at, created_at, priority, attempts,
		      max_attempts, crashes, args_apart, queue, kind, 'somebody', args, unique_key from taken`, id))
}

// ExpireLeases lets the leases of these running jobs be over, or those of all.
func ExpireLeases(ctx context.Context, database Database, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{"lease_expires_at": "now() - interval '1 s'"}, "$1::bigint[] is null or id = any($1)", ids)
}

// StealLeases gives the leases of these running jobs to somebody else, as if
// they had been lost and claimed again.
func StealLeases(ctx context.Context, database Database, thief string, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{
		"lease_owner": "$2", "lease_token": "lease_token + 1", "lease_expires_at": "now() + interval '1 hour'",
	}, "id = any($1)", ids, thief)
}

// UpdateRunning changes the running jobs of which the condition is true, and no
// others, behind the back of the workers who have them.
func UpdateRunning(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	return update(ctx, database, "running", columns, where, args)
}

// UpdateFinished changes the finished jobs of which the condition is true.
func UpdateFinished(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	return update(ctx, database, "finished", columns, where, args)
}

func update(ctx context.Context, database Database, table string, columns Columns, where string, args []any) error {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		set = append(set, name+" = "+columns[name])
	}
	_, err := database.Exec(ctx, fmt.Sprintf("update jobq.%s set %s where %s", table, strings.Join(set, ", "), where), args...)
	return err
}

// DeleteRunning takes running jobs away, as nothing in jobq does.
func DeleteRunning(ctx context.Context, database Database, where string, args ...any) error {
	_, err := database.Exec(ctx, "delete from jobq.running where "+where, args...)
	return err
}

// LockRunning locks the row of a running job until the transaction ends, as a
// statement that ends it does.
func LockRunning(ctx context.Context, tx Database, ids ...int64) error {
	tag, err := tx.Exec(ctx, "select from jobq.running where id = any($1) for update", ids)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("%d of %d jobs run", tag.RowsAffected(), len(ids))
	}
	return err
}

// LockFinished locks the rows of finished jobs until the transaction ends. It
// does not wait: it fails if somebody has locked one.
func LockFinished(ctx context.Context, tx Database, ids ...int64) error {
	tag, err := tx.Exec(ctx, "select from jobq.finished where id = any($1) for update nowait", ids)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("%d of %d jobs have finished", tag.RowsAffected(), len(ids))
	}
	return err
}

// LockHistory keeps everybody from the finished jobs until the transaction ends.
func LockHistory(ctx context.Context, tx Database) error {
	_, err := tx.Exec(ctx, "lock table jobq.finished in access exclusive mode")
	return err
}

// ArgsApart says how many jobs have their args in jobq.payload.
func ArgsApart(ctx context.Context, database Database) (count int, err error) {
	err = database.QueryRow(ctx, `select count(*) from (select args_apart from jobq.pending
		union all select args_apart from jobq.running union all select args_apart from jobq.finished) j where args_apart`).Scan(&count)
	return count, err
}

// BeforeCompletion runs statements of PL/pgSQL before a job is stored as
// completed, in the same transaction. The variable job is its id.
func BeforeCompletion(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "before insert on jobq.finished for each row when (new.state = 'completed')", "job bigint := new.id;", statements)
}

// BeforeProgress runs statements of PL/pgSQL before a report of progress is
// stored, in the same transaction. The variable stage is the stage reported.
func BeforeProgress(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "before update of progress_stage on jobq.running for each row", "stage text := new.progress_stage;", statements)
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

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

// History is the table that has the finished jobs, partitioned by the day of their claim.
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

// Where columns of the view are, and what they are called there. All others are
// columns of run, of the same name.
var (
	leaseColumns    = map[string]string{"lease_token": "id", "lease_expires_at": "expires_at", "started_at": "claimed_at", "lease_owner": "owner"}
	progressColumns = map[string]string{
		"progressed_at": "progressed_at", "progress_percent": "percent", "progress_stage": "stage", "progress_message": "message",
	}
	columnTypes = map[string]string{
		"checkpoint": "jsonb", "result": "jsonb", "args": "jsonb", "metadata": "jsonb", "tags": "text[]", "state": "jobq.job_state",
		"timeout": "interval", "backoff_base": "interval", "backoff_max": "interval", "progress_percent": "real",
		"priority": "smallint", "attempts": "smallint", "max_attempts": "smallint", "crashes": "smallint", "lost": "smallint", "max_lost": "smallint", "lease_token": "bigint", "id": "bigint",
		"finished_at": "timestamptz", "started_at": "timestamptz", "lease_expires_at": "timestamptz", "progressed_at": "timestamptz",
		"cancel_requested_at": "timestamptz", "run_at": "timestamptz", "created_at": "timestamptz", "position": "bigint", "args_apart": "boolean",
	}
)

// typed is the expression of a column as its type. A literal of none would be a text.
func (c Columns) typed(name string) string {
	kind := columnTypes[name]
	if kind == "" {
		kind = "text"
	}
	return "(" + c[name] + ")::" + kind
}

// names are those of the columns that are in one of the tables.
func (c Columns) names(among map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if _, ok := among[name]; ok {
			names = append(names, name)
		}
	}
	return names
}

// runNames are those of the columns that are in run, under the same name.
func (c Columns) runNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c)), func(name string) bool {
		return leaseColumns[name] != "" || progressColumns[name] != ""
	})
}

// InsertRunning makes jobs that somebody called dead has claimed for an hour, each
// with a lease of its own, as far as the columns do not say otherwise.
func InsertRunning(ctx context.Context, database Database, count int, columns Columns) error {
	all := newColumns(columns, Columns{
		"position": "i", "lease_expires_at": "now() + interval '1 hour'", "started_at": "now()", "max_attempts": "25", "lease_owner": "'dead'",
		"lease_token": "jobq.lease_id_next()",
	})
	return insert(ctx, database, count, all, 1, `, leases as (
		  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		    select lease_token, started_at, lease_expires_at, lease_owner, queue, array[id] from made
		)`)
}

// InsertFinished makes jobs that completed just now and were claimed on the day
// on which they did, as far as the columns do not say otherwise.
func InsertFinished(ctx context.Context, database Database, count int, columns Columns) error {
	all := newColumns(columns, Columns{
		"finished_at": "now()", "state": "'completed'", "max_attempts": "1", "started_at": "null", "lease_owner": "null",
	})
	if all["lease_token"] == "" {
		all["lease_token"] = "jobq.lease_day((" + all.typed("finished_at") + " at time zone 'UTC')::date) + nextval('jobq.lease_number_seq')"
	}
	return insert(ctx, database, count, all, 0, `, leases as (
		  insert into jobq.past_lease (id, claimed_at, owner, ended)
		    select lease_token, coalesce(started_at, finished_at), coalesce(lease_owner, 'dead'), '{-1}' from made
		      where started_at is not null or lease_owner is not null
		)`)
}

func newColumns(columns, defaults Columns) Columns {
	all := Columns{
		"id": "nextval('jobq.job_id_seq')", "run_at": "now()", "created_at": "now()", "priority": "0", "attempts": "0",
		"crashes": "0", "args_apart": "false", "queue": "'default'", "kind": "'task'", "args": "'{}'",
	}
	maps.Copy(all, defaults)
	maps.Copy(all, columns)
	return all
}

func insert(ctx context.Context, database Database, count int, columns Columns, slot int, leases string) error {
	var made []string
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		made = append(made, columns.typed(name)+" as "+name)
	}
	var progress string
	if names := columns.names(progressColumns); len(names) > 0 {
		targets := make([]string, len(names))
		for i, name := range names {
			targets[i] = progressColumns[name]
		}
		progress = fmt.Sprintf(", reports as (insert into jobq.progress (job_id, lease_id, %s) select id, lease_token, %s from made)",
			strings.Join(targets, ", "), strings.Join(names, ", "))
	}
	run := strings.Join(columns.runNames(), ", ")
	_, err := database.Exec(ctx, fmt.Sprintf(`
		with made as materialized (select %s from generate_series(1, $1::integer) i)%s%s
		insert into jobq.run (lease_id, slot, %s) select lease_token, %d, %s from made`,
		strings.Join(made, ", "), leases, progress, run, slot, run), count)
	return err
}

// MakeRunning claims an available job for an hour, for somebody, without regard
// to its place in line.
func MakeRunning(ctx context.Context, database Database, id int64) error {
	return one(database.Exec(ctx, `
		with taken as (delete from jobq.pending where id = $1 and position is not null returning *),
		l as (
		  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
		    select jobq.lease_id_next(), now(), now() + interval '1 hour', 'somebody', queue, array[id] from taken
		    returning id
		)
		insert into jobq.run (id, lease_id, slot, position, run_at, created_at, priority, attempts,
		    max_attempts, crashes, args_apart, queue, kind, args, unique_key, metadata, lost, max_lost)
		  select t.id, l.id, 1, t.position, t.run_at, t.created_at, t.priority, t.attempts,
		      t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key, t.metadata, t.lost, t.max_lost from taken t, l`, id))
}

// ExpireLeases lets the leases of these running jobs be over, or those of all.
func ExpireLeases(ctx context.Context, database Database, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{"lease_expires_at": "now() - interval '1 s'"}, "$1::bigint[] is null or id = any($1)", ids)
}

// StealLeases gives the leases of these running jobs to somebody else, as if
// they had been lost and claimed again.
func StealLeases(ctx context.Context, database Database, thief string, ids ...int64) error {
	return UpdateRunning(ctx, database, Columns{
		"lease_owner": "'" + thief + "'", "lease_token": NextToken, "lease_expires_at": "now() + interval '1 hour'",
	}, "id = any($1)", ids)
}

// NextToken is a lease_token that the next claim could have had.
const NextToken = "jobq.lease_id_next()"

// UpdateRunning changes the running jobs of which the condition is true, and no
// others, behind the back of the workers who have them. With a lease_token each
// gets a lease of its own. Else it changes what belongs to the lease only where the
// condition is true of all running jobs of that lease.
func UpdateRunning(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	lease := columns.names(leaseColumns)
	anew := columns["lease_token"] != ""
	if len(lease) > 0 && !anew {
		var others int
		err := database.QueryRow(ctx, fmt.Sprintf(`
			with j as materialized (select id, lease_token, (%s) as chosen from jobq.job where state = 'running')
			select count(*) from j where chosen is not true and lease_token in (select lease_token from j where chosen)`, where), args...).Scan(&others)
		if err != nil {
			return err
		}
		if others > 0 {
			return fmt.Errorf("%d other jobs have the same lease", others)
		}
	}
	chosen := []string{"id as old_id", "lease_token as old_token"}
	var set, setLease []string
	for _, name := range lease { // of a volatile one, all of a lease have the same
		if anew {
			chosen = append(chosen, columns.typed(name)+" as new_"+name)
			continue
		}
		chosen = append(chosen, fmt.Sprintf("first_value(%s) over (partition by lease_token) as new_%s", columns.typed(name), name))
		setLease = append(setLease, leaseColumns[name]+" = c.new_"+name)
	}
	for _, name := range columns.runNames() {
		chosen = append(chosen, columns.typed(name)+" as new_"+name)
		set = append(set, name+" = c.new_"+name)
	}
	if anew {
		set = append(set, "lease_id = c.new_lease_token", "slot = 1")
	}
	reported := columns.names(progressColumns)
	var targets, values, merged []string
	for _, name := range reported {
		chosen = append(chosen, columns.typed(name)+" as new_"+name)
		targets, values = append(targets, progressColumns[name]), append(values, "new_"+name)
		merged = append(merged, progressColumns[name]+" = excluded."+progressColumns[name])
	}
	sql := fmt.Sprintf("with c as materialized (select %s from jobq.job where state = 'running' and (%s))", strings.Join(chosen, ", "), where)
	if anew {
		value := func(name string) string {
			if columns[name] != "" {
				return "c.new_" + name
			}
			return "l." + leaseColumns[name]
		}
		sql += fmt.Sprintf(`, l as (insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
			select c.new_lease_token, %s, %s, %s, l.queue, array[c.old_id] from c join jobq.lease l on l.id = c.old_token),
			gone as (delete from jobq.lease l where l.id in (select old_token from c) and l.job_ids <@ array(select old_id from c))`,
			value("started_at"), value("lease_expires_at"), value("lease_owner"))
	}
	if len(setLease) > 0 {
		sql += fmt.Sprintf(", l as (update jobq.lease l set %s from c where l.id = c.old_token)", strings.Join(setLease, ", "))
	}
	if len(reported) > 0 {
		sql += fmt.Sprintf(`, p as (insert into jobq.progress (job_id, lease_id, %s) select old_id, old_token, %s from c on conflict (job_id) do update set %s)`,
			strings.Join(targets, ", "), strings.Join(values, ", "), strings.Join(merged, ", "))
	}
	if len(set) > 0 {
		sql += fmt.Sprintf(", r as (update jobq.run r set %s from c where r.id = c.old_id and r.lease_id = c.old_token)", strings.Join(set, ", "))
	}
	_, err := database.Exec(ctx, sql+" select from c", args...)
	return err
}

// UpdateFinished changes the finished jobs of which the condition is true.
func UpdateFinished(ctx context.Context, database Database, columns Columns, where string, args ...any) error {
	all := Columns{"state": "state", "finished_at": "finished_at"} // which a job that ended with its lease does not have yet
	maps.Copy(all, columns)
	chosen, set := []string{"id as old_id", "lease_token as old_token"}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		chosen = append(chosen, all.typed(name)+" as new_"+name)
		target := name
		if name == "lease_token" {
			target = "lease_id"
		}
		set = append(set, target+" = c.new_"+name)
	}
	_, err := database.Exec(ctx, fmt.Sprintf(`with c as materialized (select %s from jobq.job where finished_at is not null and (%s))
		update jobq.run r set %s from c where r.id = c.old_id and r.lease_id = c.old_token`,
		strings.Join(chosen, ", "), where, strings.Join(set, ", ")), args...)
	return err
}

// DeleteRunning takes running jobs away, and the leases of which no other job
// runs, as nothing in jobq does.
func DeleteRunning(ctx context.Context, database Database, where string, args ...any) error {
	_, err := database.Exec(ctx, fmt.Sprintf(`
		with j as materialized (select id, lease_token, (%s) as chosen from jobq.job where state = 'running'),
		l as (delete from jobq.lease l where l.id in (select lease_token from j group by 1 having bool_and(coalesce(chosen, false))))
		delete from jobq.run r using j where r.id = j.id and r.lease_id = j.lease_token and j.chosen`, where), args...)
	return err
}

// LockRunning locks running jobs, and the leases that they are under, until the
// transaction ends: nobody can end or extend them.
func LockRunning(ctx context.Context, tx Database, ids ...int64) error {
	_, err := tx.Exec(ctx, "select from jobq.lease where job_ids && $1 order by id for update", ids)
	if err != nil {
		return err
	}
	return LockRuns(ctx, tx, ids...)
}

// LockRuns locks running jobs, and not their leases, as CompleteTx does.
func LockRuns(ctx context.Context, tx Database, ids ...int64) error {
	tag, err := tx.Exec(ctx, "select from jobq.run where id = any($1) and state is null order by id for update", ids)
	if err == nil && int(tag.RowsAffected()) != len(ids) {
		return fmt.Errorf("%d of %d jobs run", tag.RowsAffected(), len(ids))
	}
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
// completed, on its own row or with its lease, in the same transaction. The
// variable job is its id.
func BeforeCompletion(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "jobs bigint[]; job bigint;", `
		if tg_table_name = 'lease' then
		  jobs := array(select r.id from jobq.run r where r.lease_id = new.id and r.state is null
		    and r.slot = any(new.ended_slots) and r.slot <> all(old.ended_slots));
		elsif tg_table_name like 'past_lease%' then
		  jobs := array(select r.id from jobq.run r where r.lease_id = new.id and r.state is null and new.ended[r.slot] >= 0);
		else
		  jobs := array[new.id];
		end if;
		foreach job in array jobs loop `+statements+" end loop;",
		"before update on jobq.run for each row when (new.state = 'completed')",
		"before update on jobq.lease for each row when (new.ended_slots <> old.ended_slots)",
		"before insert on jobq.past_lease for each row")
}

// BeforeProgress runs statements of PL/pgSQL before a report of progress is
// stored, in the same transaction. The variable stage is the stage reported.
func BeforeProgress(ctx context.Context, database Database, statements string) error {
	return trigger(ctx, database, "stage text;", "stage := new.stage; "+statements,
		"before insert or update of stage on jobq.progress for each row")
}

func trigger(ctx context.Context, database Database, variables, statements string, when ...string) error {
	if _, err := database.Exec(ctx, "create function public.before_row() returns trigger language plpgsql as $test$ declare "+variables+" begin "+
		statements+" return new; end $test$"); err != nil {
		return err
	}
	for i, event := range when {
		if _, err := database.Exec(ctx, fmt.Sprintf("create trigger before_row_%d %s execute function public.before_row()", i, event)); err != nil {
			return err
		}
	}
	return nil
}

func one(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("%d jobs, want one", tag.RowsAffected())
	}
	return err
}

package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

//go:embed sql/*.sql
var files embed.FS

// file is a statement, or several, of the folder sql.
func file(name string) string {
	content, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic("embedded SQL: " + err.Error()) // a broken build, not a run-time condition
	}
	return db.Render(string(content), db.DefaultSchema)
}

const (
	// lockTimeout is for how long the switch waits for a table. All who want to
	// claim or to end a job wait behind it, so it gives up soon and comes again.
	lockTimeout = 100 * time.Millisecond
	// switchTries is after how many such tries it is an error.
	switchTries = 600
	// stepBlocks is how much of the history one transaction moves: 64 blocks of
	// 8 kB have some 2,000 jobs with small args.
	stepBlocks = 64
	daysAhead  = 3
	// planByIndex keeps statements from reading all of the history, until their
	// transaction ends: of tables that were filled just now there are no statistics.
	// A table without an index to use then looks so dear that a plan would be compiled.
	planByIndex = "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);"
)

// migration moves a database from the first layout to the second, or back. Four
// steps follow one another; each looks at what there is, so that a migration
// that was interrupted goes on, and one that is to be undone halfway goes back.
type migration struct {
	conn *pgx.Conn
	log  io.Writer // is told of each step
}

// timing is how long a migration took.
type timing struct {
	prepare, history time.Duration
	locked           time.Duration // how long the switch had the table locked
	tries            int           // of the switch
	steps            int           // of the history
}

// up moves a database from the first layout to the second.
func (m migration) up(ctx context.Context) (took timing, err error) {
	objects, err := objects()
	if err != nil {
		return took, err
	}
	began := time.Now()
	if err := m.prepareSecond(ctx, objects); err != nil {
		return took, fmt.Errorf("prepare the second layout: %w", err)
	}
	took.prepare = time.Since(began)
	fmt.Fprintf(m.log, "the tables of the second layout are there after %s\n", took.prepare.Round(time.Millisecond))
	view, err := viewOf(objects)
	if err != nil {
		return took, err
	}
	if err := m.change(ctx, "running", &took, func(tx pgx.Tx) error { return switchToSecond(ctx, tx, objects, view) },
		file("up_running"), "drop table jobq.running"); err != nil {
		return took, fmt.Errorf("switch to the second layout: %w", err)
	}
	fmt.Fprintf(m.log, "switched, with running locked for %s, try %d\n", took.locked.Round(time.Millisecond), took.tries)
	return took, m.moveAndClean(ctx, "finished", "up_history", &took, []string{view, file("up_done")})
}

// down moves a database from the second layout to the first.
func (m migration) down(ctx context.Context) (took timing, err error) {
	began := time.Now()
	if err := m.prepareFirst(ctx); err != nil {
		return took, fmt.Errorf("prepare the first layout: %w", err)
	}
	took.prepare = time.Since(began)
	fmt.Fprintf(m.log, "the tables of the first layout are there after %s\n", took.prepare.Round(time.Millisecond))
	if err := m.change(ctx, "lease", &took, func(tx pgx.Tx) error { return switchToFirst(ctx, tx) },
		file("down_running"), file("down_leases")); err != nil {
		return took, fmt.Errorf("switch to the first layout: %w", err)
	}
	fmt.Fprintf(m.log, "switched, with lease locked for %s, try %d\n", took.locked.Round(time.Millisecond), took.tries)
	return took, m.moveAndClean(ctx, "run", "down_history", &took, []string{file("first_view"), file("down_done")})
}

// prepareSecond makes the tables of the second layout, with a partition for each
// day that the history has. Nobody uses them yet, so nobody waits.
func (m migration) prepareSecond(ctx context.Context, all []object) error {
	var tables []object
	for _, o := range all {
		if strings.HasPrefix(o.file, "001") || strings.HasPrefix(o.file, "002") || o.kind == "index" {
			tables = append(tables, o)
		}
	}
	tries := 0
	return m.retried(ctx, &tries, func(tx pgx.Tx) error {
		if err := makeMissing(ctx, tx, tables); err != nil {
			return err
		}
		earliest, err := earliestDay(ctx, tx, "finished")
		if err != nil {
			return err
		}
		// What ended on the first day of the history may have been claimed the day before.
		for day := earliest.AddDate(0, 0, -1); !day.After(today().AddDate(0, 0, daysAhead)); day = day.AddDate(0, 0, 1) {
			bounds := fmt.Sprintf("jobq.lease_day('%s')) to (jobq.lease_day('%s')", day.Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly))
			for _, parent := range []string{"run", "past_lease"} {
				if err := addDay(ctx, tx, parent, day, bounds); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// prepareFirst does the same for the first layout.
func (m migration) prepareFirst(ctx context.Context) error {
	tries := 0
	return m.retried(ctx, &tries, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, file("first_tables")); err != nil {
			return err
		}
		earliest, err := earliestDay(ctx, tx, "run")
		if err != nil {
			return err
		}
		for day := earliest; !day.After(today().AddDate(0, 0, daysAhead)); day = day.AddDate(0, 0, 1) {
			if err := addDay(ctx, tx, "finished", day, finishedBounds(day)); err != nil {
				return err
			}
		}
		return nil
	})
}

// change is the switch: functions first, whose callers do not wait for it, then
// the statements under a lock on the table through which all claims and ends go.
// A try that does not get a lock in time leaves nothing behind. Without the table
// the switch was made before.
func (m migration) change(ctx context.Context, table string, took *timing, functions func(tx pgx.Tx) error, underLock ...string) error {
	var exists bool
	if err := m.conn.QueryRow(ctx, "select to_regclass('jobq."+table+"') is not null").Scan(&exists); err != nil || !exists {
		return err
	}
	var locked time.Time
	err := m.retried(ctx, &took.tries, func(tx pgx.Tx) error {
		if err := functions(tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "lock table jobq."+table+" in access exclusive mode"); err != nil {
			return err
		}
		locked = time.Now()
		for _, sql := range underLock {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	took.locked = time.Since(locked)
	return err
}

// retried runs a transaction again while a lock is not to be had in time.
func (m migration) retried(ctx context.Context, tries *int, work func(tx pgx.Tx) error) error {
	for *tries = 1; ; *tries++ {
		err := m.tryOnce(ctx, work)
		if err == nil || !db.IsLockTimeout(err) && !db.IsContention(err) || *tries == switchTries {
			return err
		}
		if err := pause(ctx, lockTimeout); err != nil { // for those who have waited behind it
			return err
		}
	}
}

func (m migration) tryOnce(ctx context.Context, work func(tx pgx.Tx) error) error {
	tx, err := m.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing, after a commit
	if _, err := tx.Exec(ctx, planByIndex+fmt.Sprintf("set local lock_timeout = '%d ms'", lockTimeout.Milliseconds())); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// switchToSecond replaces the functions and the view. The view has the old history too.
func switchToSecond(ctx context.Context, tx pgx.Tx, all []object, view string) error {
	if _, err := tx.Exec(ctx, file("up_functions")); err != nil {
		return err
	}
	var functions []object
	for _, o := range all {
		if o.kind == "function" {
			functions = append(functions, o)
		}
	}
	if err := makeMissing(ctx, tx, functions); err != nil {
		return err
	}
	if err := revoke(ctx, tx, all); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, strings.TrimSuffix(view, ";")+"\n"+file("up_view"))
	return err
}

// switchToFirst is the way back.
func switchToFirst(ctx context.Context, tx pgx.Tx) error {
	view := strings.TrimSuffix(strings.TrimSpace(file("first_view")), ";") + "\n" + file("down_view")
	for _, sql := range []string{file("down_functions"), file("first_functions"), view} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// moveAndClean moves the history out of a table in steps, and then drops what
// the layout that is left does without.
func (m migration) moveAndClean(ctx context.Context, table, statement string, took *timing, done []string) error {
	began := time.Now()
	if err := m.moveHistory(ctx, table, file(statement), took); err != nil {
		return fmt.Errorf("move the history: %w", err)
	}
	tries := 0
	err := m.retried(ctx, &tries, func(tx pgx.Tx) error {
		var left bool
		if err := tx.QueryRow(ctx, "select exists (select from jobq."+table+")").Scan(&left); err != nil {
			return err
		}
		if left {
			return fmt.Errorf("%s is not empty", table)
		}
		for _, sql := range done {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	took.history = time.Since(began)
	return err
}

// viewOf is the statement of the second layout that replaces the view jobq.job.
func viewOf(all []object) (string, error) {
	for _, o := range all {
		if o.kind == "view" && o.name == "job" {
			return strings.Replace(o.sql, "create view", "create or replace view", 1), nil
		}
	}
	return "", fmt.Errorf("sql/migrations has no view job")
}

// revoke takes from everybody the right to call functions, as sql/migrations does.
// sql/roles.sql gives it to the roles.
func revoke(ctx context.Context, tx pgx.Tx, all []object) error {
	for _, o := range all {
		if strings.HasPrefix(o.sql, "revoke ") {
			if _, err := tx.Exec(ctx, o.sql); err != nil {
				return fmt.Errorf("%s, revoke: %w", o.file, err)
			}
		}
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/fault/check"
)

// raceReap holds a running row, as a heartbeat that is slow to commit does,
// past the end of its lease, and then extends it.
func raceReap(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	trials := 0
	err := l.until(max(l.duration(), 5*time.Second), func() error {
		id, err := l.enqueue(order{Ms: 2500})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
			return err
		}
		tx, err := l.pool.Begin(l.ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(l.ctx) }()
		// The worker cannot extend meanwhile, and keeps its belief for the lease
		// less its margin; the extension that commits is in time by the row.
		if err := lockRunning(l.ctx, tx, id); err != nil {
			return err
		}
		var remaining float64
		if err := tx.QueryRow(l.ctx, "select extract(epoch from lease_expires_at - clock_timestamp())::float8 from jobq.job where id = $1", id).Scan(&remaining); err != nil {
			return err
		}
		pause(l.ctx, time.Duration(remaining*float64(time.Second))+l.between(50*time.Millisecond, scan))
		if err := extendLease(l.ctx, tx, id); err != nil {
			return err
		}
		trials++
		return tx.Commit(l.ctx)
	})
	l.after = func(v *check.Verdict) string { return fmt.Sprintf("%d races, %d early reaps", trials, v.Early) }
	return err
}

// terminateBackends ends server processes of jobq at random.
func terminateBackends(l *lab) error {
	// The leader's session is among them now and then. Whoever leads next looks
	// for the lock at this interval (docs/internals/guarantees.md, profile d).
	l.run.Bound += lease / 2
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(20, 100)
	terminated := 0
	err := l.until(l.duration(), func() error {
		pause(l.ctx, 200*time.Millisecond)
		terminated += max(0, l.number(`select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
			where datname = current_database() and application_name like 'jobq%' order by random() limit 1) x`))
		return nil
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	failed := l.number("select count(*) from jobq.attempt where outcome = 'failed'")
	l.figuref("%d backends terminated, %d errors seen by jobs", terminated, failed)
	if terminated == 0 || failed != 0 {
		return brokenf("%d terminated, %d jobs failed", terminated, failed)
	}
	return nil
}

// stealLock kills leaders' connections in the middle of their work, and holds
// their lock from elsewhere for a while.
func stealLock(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	stop := l.produce(15, 120)
	stolen, terminated := 0, 0
	err = l.until(l.duration(), func() error {
		i := l.random.IntN(len(workers))
		workers[i].kill() // something to reap
		if workers[i], err = l.worker(); err != nil {
			return err
		}
		pause(l.ctx, l.between(lease/2, lease))
		from, err := l.now()
		if err != nil {
			return err
		}
		var class, object int64
		err = l.pool.QueryRow(l.ctx, `select l.classid::bigint, l.objid::bigint from pg_locks l join pg_stat_activity a using (pid)
			where a.datname = current_database() and a.application_name = 'jobq-janitor' and l.locktype = 'advisory' limit 1`).Scan(&class, &object)
		if err != nil {
			return nil // nobody leads at the moment
		}
		conn, err := l.pool.Acquire(l.ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		terminated += max(0, l.number("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name = 'jobq-janitor'"))
		if _, err := conn.Exec(l.ctx, "select pg_advisory_lock(($1::bigint::bit(32))::int, ($2::bigint::bit(32))::int)", class, object); err != nil {
			return err
		}
		pause(l.ctx, scan)
		if _, err := conn.Exec(l.ctx, "select pg_advisory_unlock_all()"); err != nil {
			return err
		}
		stolen++
		to, err := l.now()
		l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to.Add(2 * scan)})
		return err
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("lock stolen %d times, %d janitor backends terminated, %d reaps, %d double bumps", stolen, terminated, v.Reaps, v.DoubleBump)
	}
	if stolen == 0 {
		return fmt.Errorf("the lock was never stolen")
	}
	return nil
}

// badData offers what cannot be stored, and results that cannot.
func badData(l *lab) error {
	if _, err := l.crew(1); err != nil {
		return err
	}
	refused := 0
	for _, args := range []string{`{"a": "\u0000"}`, `{"a": 1e400000}`, `{"a": "` + strings.Repeat("x", 2<<20) + `"}`, strings.Repeat("[", 100_000)} {
		var id int64
		if err := l.pool.QueryRow(l.ctx, "select jobq.enqueue('task', $1::text::jsonb)", args).Scan(&id); err == nil {
			return fmt.Errorf("args of %d bytes were accepted: %.40s", len(args), args)
		}
		refused++
	}
	scripts := map[string]string{
		"nul in the output":      `printf 'a\000b' >&2; exit 1`,
		"not UTF-8":              `printf '\377\376' >&2; exit 1`,
		"nul in the result":      `printf '{"result": "\\u0000"}\n' >&3`,
		"number out of range":    `printf '{"result": 1e400000}\n' >&3`,
		"50 MiB of error":        `head -c 52428800 /dev/zero | tr '\0' x >&2; exit 1`,
		"deep result":            `(head -c 200000 /dev/zero | tr '\0' '['; head -c 200000 /dev/zero | tr '\0' ']') > $0.x; (printf '{"result": '; cat $0.x; printf '}\n') >&3`,
		"control channel broken": `printf '{"result"' >&3; exit 1`,
	}
	var args []string
	for name, script := range scripts {
		args = append(args, "--run", fmt.Sprintf("%s=sh -c '%s' %s/scratch", strings.ReplaceAll(name, " ", "-"), strings.ReplaceAll(script, "'", `'"'"'`), l.folder))
	}
	if _, err := l.worker(args...); err != nil {
		return err
	}
	if _, err := l.enqueue(order{Ms: 1}); err != nil { // the worker lives on
		return err
	}
	for name := range scripts {
		if _, err := l.enqueueVia(l.pool, order{}, strings.ReplaceAll(name, " ", "-"), ""); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, len(scripts), "select count(*) from jobq.job where state = 'failed'"); err != nil {
		return err
	}
	l.figuref("%d sorts of args refused, %d sorts of ends stored as failed attempts", refused, len(scripts))
	return nil
}

// unknownKind has jobs of a kind that only the newer workers know.
func unknownKind(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	for range 10 {
		if _, err := l.enqueueVia(l.pool, order{Ms: 1}, "newer", ""); err != nil {
			return err
		}
		if _, err := l.enqueue(order{Ms: 1}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 10, "select count(*) from jobq.job where finished_at is not null"); err != nil {
		return err
	}
	spent := l.number("select coalesce(sum(attempts + lease_token), 0) from jobq.pending where kind = 'newer'")
	if _, err := l.worker("--run", fmt.Sprintf("newer=%s program %s", l.self, l.folder)); err != nil {
		return err
	}
	l.figuref("%d attempts spent on a kind that nobody knew", spent)
	if spent != 0 {
		return brokenf("%d claims or attempts of an unknown kind", spent)
	}
	return l.awaitNumber(patience, 20, "select count(*) from jobq.job where state = 'completed'")
}

// contend has many sessions cancel and requeue jobs while workers complete
// them, with a deadlock timeout that lets none pass unseen. When the sessions
// take jobs in the order of ids, as everything in jobq does, nobody may
// deadlock; when they do not, no job may be hurt by it.
func contend(inOrder bool) func(*lab) error {
	order := "random()"
	if inOrder {
		order = "id"
	}
	return func(l *lab) error {
		l.run.Requeues = true
		l.run.Bound += lease / 2 // the janitor skips rows that these sessions hold
		if _, err := l.pool.Exec(l.ctx, fmt.Sprintf("alter database %s set deadlock_timeout = '50ms'", l.database)); err != nil {
			return err
		}
		if _, err := l.crew(3); err != nil {
			return err
		}
		stop := l.produce(40, 5)
		var sessions sync.WaitGroup
		var own, done atomic.Int64
		failures := make([]error, 4)
		for i := range failures {
			sessions.Go(func() {
				conn, err := pgx.Connect(l.ctx, l.url(l.database)) // its end has its deadlocks counted
				if err != nil {
					failures[i] = err
					return
				}
				defer func() { _ = conn.Close(l.ctx) }()
				statement := fmt.Sprintf("select jobq.%s(id) from (select id from jobq.job order by id desc limit 30) j order by %s", []string{"cancel", "requeue"}[i%2], order)
				failures[i] = l.until(l.duration(), func() error {
					_, err := conn.Exec(l.ctx, statement)
					var refused *pgconn.PgError
					switch {
					case errors.As(err, &refused) && refused.Code == "40P01":
						own.Add(1)
					case err != nil && !strings.Contains(err.Error(), "is running"):
						return err
					}
					done.Add(1)
					pause(l.ctx, 10*time.Millisecond)
					return nil
				})
			})
		}
		sessions.Wait()
		if err := errors.Join(append(failures, stop(), l.drain())...); err != nil { // as does the end of workers
			return err
		}
		seen := 0
		err := l.within(5*time.Second, "the count of deadlocks", func() (bool, error) {
			seen = l.number("select deadlocks from pg_stat_database where datname = current_database()")
			return seen >= int(own.Load()), nil
		})
		l.figuref("%d statements on 30 jobs each; %d deadlocks, of which %d ended the test's own statements and the others work that was tried again", done.Load(), seen, own.Load())
		switch {
		case err != nil:
			return err
		case inOrder && seen > 0:
			return brokenf("%d deadlocks, %d of the test's own sessions, although all took jobs in the order of ids", seen, own.Load())
		case !inOrder && seen == 0:
			return errors.New("nobody met a deadlock")
		}
		return nil
	}
}

// uniqueRace enqueues one key from 64 sessions at once, again and again.
func uniqueRace(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	duplicates := 0
	for round := range 10 {
		var sessions sync.WaitGroup
		ids := make([]int64, 64)
		failures := make([]error, 64)
		for i := range ids {
			sessions.Go(func() {
				conn, err := pgx.Connect(l.ctx, l.server.SocketURL(l.database))
				if err != nil {
					failures[i] = err
					return
				}
				defer func() { _ = conn.Close(l.ctx) }()
				// Longer than a round takes on a busy machine: the key is free when the job has ended.
				ids[i], failures[i] = l.enqueueVia(conn, order{Ms: 6000}, "task", fmt.Sprintf(", unique_key => 'round %d'", round))
			})
		}
		sessions.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
		different := map[int64]bool{}
		for _, id := range ids {
			different[id] = true
		}
		duplicates += len(different) - 1
	}
	l.figuref("640 inserts of 10 keys, %d duplicates", duplicates)
	if duplicates != 0 {
		return brokenf("%d duplicates", duplicates)
	}
	return nil
}

// restartServer restarts the server at once, as a crash of it does, under load.
func restartServer(l *lab) error {
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(20, 100)
	restarts := 0
	var longest time.Duration
	err := l.until(l.duration(), func() error {
		pause(l.ctx, l.between(300*time.Millisecond, 900*time.Millisecond))
		from, err := l.now()
		if err != nil {
			return err
		}
		if err := l.server.Halt(); err != nil {
			return err
		}
		if err := l.server.Relaunch(l.ctx); err != nil {
			return err
		}
		up := time.Now()
		restarts++
		before := l.number("select coalesce(max(seq), 0) from fault.history")
		err = l.within(patience, "the first claim after the restart", func() (bool, error) {
			return l.number("select count(*) from fault.history where seq > $1 and stage = 'run' and op = 'insert'", before) > 0, nil
		})
		longest = max(longest, time.Since(up))
		to, err2 := l.awaitReaper()
		l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to})
		return errors.Join(err, err2)
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d restarts, %d acknowledged jobs, %d lost; first claim at most %s after the server was up", restarts, v.Acknowledged, v.Lost,
			longest.Round(10*time.Millisecond))
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// dueBacklog has far more jobs come due at once than one step of a janitor
// promotes, and kills workers meanwhile. Their leases must be reaped between
// the steps (I6), and every job must be promoted in the end.
func dueBacklog(mode string) func(*lab) error {
	return func(l *lab) error {
		const jobs = 100_000
		// Without triggers: what is under test is the promotion, not the insert.
		err := l.inTx(func(tx pgx.Tx) error {
			_, err := tx.Exec(l.ctx, fmt.Sprintf(`set local session_replication_role = replica;
				insert into jobq.pending (kind, queue, args, position, run_at)
					select 'later', 'later', '{}', null, clock_timestamp() - interval '1 s' from generate_series(1, %d)`, jobs))
			return err
		})
		if err != nil {
			return err
		}
		workers := make([]*process, 3)
		for i := range workers {
			if workers[i], err = l.worker(); err != nil {
				return err
			}
		}
		for range 2 * len(workers) {
			if _, err := l.enqueue(order{Ms: 60_000, MsTwo: 50}); err != nil {
				return err
			}
		}
		if err := l.awaitNumber(patience, 2*len(workers), "select count(*) from jobq.job where state = 'running'"); err != nil {
			return err
		}
		for range 2 {
			if err := l.janitor("--mode", mode); err != nil {
				return err
			}
		}
		const waiting = "select count(*) from jobq.pending where kind = 'later' and position is null"
		const begun = "select count(*) from pg_stat_activity where datname = current_database() and query like '%JobPromote%' and pid <> pg_backend_pid()"
		err = l.within(patience, "the promotion to begin", func() (bool, error) { return l.number(begun) > 0, nil })
		if err != nil {
			return err
		}
		for _, w := range workers {
			w.kill()
			pause(l.ctx, l.between(100*time.Millisecond, 400*time.Millisecond))
		}
		if _, err := l.worker(); err != nil {
			return err
		}
		began := time.Now()
		if err := l.awaitNumber(patience, 0, waiting); err != nil {
			return err
		}
		took := time.Since(began)
		if err := l.awaitNumber(patience, 2*len(workers), "select count(*) from jobq.job where kind = 'task' and finished_at is not null"); err != nil {
			return err
		}
		// A step that takes longer than a lease delays reaps; how long one takes is the machine's.
		largest := l.number("select max(n) from (select count(*) as n from fault.history where stage = 'pending' and op = 'update' group by txid) s")
		if largest < 1 || largest > 1000 {
			return brokenf("%d jobs were promoted in one transaction", largest)
		}
		l.after = func(v *check.Verdict) string {
			l.samples = v.ReapDelays
			return fmt.Sprintf("%d due jobs promoted within %s; reaped after the lease's end: %s", jobs, took.Round(10*time.Millisecond), some(v.ReapDelays))
		}
		return nil
	}
}

// slowChore has a chore of the janitor take far longer than a lease. Recovery
// and promotion must go on meanwhile.
func slowChore(l *lab) error {
	// The chore that rolls up the stats finds a row, and needs a minute for it.
	_, err := l.pool.Exec(l.ctx, `create function fault.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$;
		create trigger slow before insert or update on jobq.stat for each row execute function fault.slow();
		insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (date_trunc('minute', clock_timestamp()), 'default', 'task', 0, 0, 0, 0, 0, 1, 1)`)
	if err != nil {
		return err
	}
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	const sleeping = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
	stop := l.produce(10, 300)
	if err := l.within(patience, "the chore to begin", func() (bool, error) { return l.number(sleeping) > 0, nil }); err != nil {
		return errors.Join(err, stop())
	}
	late := 0
	err = l.until(max(l.duration(), 6*time.Second), func() error {
		var id int64
		err := l.pool.QueryRow(l.ctx, "select jobq.enqueue('task', $1::jsonb, run_at => clock_timestamp() + interval '300 ms')", order{Ms: 10}).Scan(&id)
		if err != nil {
			return err
		}
		i := l.random.IntN(len(workers))
		workers[i].kill()
		if workers[i], err = l.worker(); err != nil {
			return err
		}
		pause(l.ctx, lease)
		if l.number(sleeping) > 0 && l.number("select count(*) from jobq.pending where id = $1", id) > 0 {
			late++
		}
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d jobs reaped while a chore hung: %s; %d scheduled jobs late", v.Reaps, some(v.ReapDelays), late)
	}
	if late > 0 {
		return brokenf("%d scheduled jobs had not run %s after they were due, while a chore hung", late, lease-300*time.Millisecond)
	}
	_, err = l.pool.Exec(l.ctx, "drop trigger slow on jobq.stat")
	return err
}

// longReader reads the history in a long transaction, as pg_dump does, while
// a day is past its retention and another is missing. Completions must go on.
func longReader(l *lab) error {
	_, err := l.pool.Exec(l.ctx, "select jobq.partition_add($1, (now() at time zone 'UTC')::date - 30)", history)
	if err != nil {
		return err
	}
	reader, err := l.pool.Begin(l.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Rollback(l.ctx) }() // it only reads
	if _, err := reader.Exec(l.ctx, "select count(*) from jobq.job"); err != nil {
		return err
	}
	// Days ahead are missing too: the janitor has to attach them.
	if _, err := l.crew(2); err != nil {
		return err
	}
	stop := l.produce(40, 5)
	from, err := l.now()
	if err != nil {
		return err
	}
	pause(l.ctx, max(l.duration(), 8*time.Second))
	if err := stop(); err != nil {
		return err
	}
	// How much of the time lay in gaps of more than half a second between two
	// completions. Where they wait for the janitor's lock, nearly all does.
	var stalled, span float64
	err = l.pool.QueryRow(l.ctx, `select coalesce(sum(gap) filter (where gap > 0.5), 0)::float8, extract(epoch from clock_timestamp() - $1)::float8 from (
		select extract(epoch from lead(at, 1, clock_timestamp()) over (order by at) - at) as gap
			from (select at from fault.history where (stage = 'past_lease' or stage = 'run' and op = 'update' and state is not null) and at > $1
				union all select $1) h) g`, from).Scan(&stalled, &span)
	if err != nil {
		return err
	}
	l.figuref("completions stood still for %.1f s of %.1f s beside a reader of the history; %d warnings name it", stalled, span, l.logged("holder_pid"))
	switch {
	case l.logged("holder_pid") == 0:
		return brokenf("no warning names the reader that keeps a day from being dropped")
	case stalled > span/2:
		return brokenf("completions stood still for %.1f s of %.1f s beside a reader of the history", stalled, span)
	}
	return reader.Rollback(l.ctx)
}

// keptLock has a stranger hold the janitor's lock all the time. Leases must be
// reaped all the same, and the log must say who holds it.
func keptLock(l *lab) error {
	workers := make([]*process, 2)
	var err error
	for i := range workers {
		if workers[i], err = l.worker(); err != nil {
			return err
		}
	}
	stranger, err := l.pool.Acquire(l.ctx)
	if err != nil {
		return err
	}
	defer stranger.Release()
	if err := l.janitor(); err != nil { // its lock's numbers are seen there
		return err
	}
	var class, object int64
	err = l.within(patience, "a leader", func() (bool, error) {
		err := l.pool.QueryRow(l.ctx, `select l.classid::bigint, l.objid::bigint from pg_locks l join pg_stat_activity a using (pid)
			where a.datname = current_database() and a.application_name = 'jobq-janitor' and l.locktype = 'advisory' and l.granted limit 1`).Scan(&class, &object)
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	leader := l.processes[len(l.processes)-1]
	leader.kill()
	if _, err := stranger.Exec(l.ctx, "select pg_advisory_lock(($1::bigint::bit(32))::int, ($2::bigint::bit(32))::int)", class, object); err != nil {
		return err
	}
	defer func() { _, _ = stranger.Exec(l.ctx, "select pg_advisory_unlock_all()") }() // or it ends with the session
	for range 2 {
		if err := l.janitor(); err != nil {
			return err
		}
	}
	l.run.Bound += followerPatience
	stop := l.produce(10, 300)
	kills := 0
	err = l.until(max(l.duration(), 8*time.Second), func() error {
		pause(l.ctx, l.between(300*time.Millisecond, time.Second))
		i := l.random.IntN(len(workers))
		workers[i].kill()
		kills++
		workers[i], err = l.worker()
		return err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	warnings := l.logged("work is overdue")
	if warnings == 0 {
		return brokenf("nobody has said who keeps the lock")
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d kills, %d warnings; reaped without the lock, after the lease's end: %s", kills, warnings, some(v.ReapDelays))
	}
	return nil
}

// inTx runs the work in a transaction.
func (l *lab) inTx(work func(pgx.Tx) error) error { return pgx.BeginFunc(l.ctx, l.pool, work) }

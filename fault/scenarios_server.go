package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/fault/check"
)

// promote kills the primary with SIGKILL and promotes its standby.
func promote(synchronous bool) func(*lab) error {
	return func(l *lab) error {
		primary := l.own
		standby, err := l.standby()
		if err != nil {
			return err
		}
		if synchronous {
			if _, err := l.pool.Exec(l.ctx, "alter system set synchronous_standby_names = '*'"); err != nil {
				return err
			}
			if _, err := l.pool.Exec(l.ctx, "select pg_reload_conf()"); err != nil {
				return err
			}
			if err := l.awaitNumber(patience, 1, "select count(*) from pg_stat_replication where sync_state = 'sync'"); err != nil {
				return err
			}
		} else {
			l.run.MayLose = true
		}
		if _, err := l.crew(3); err != nil {
			return err
		}
		stop := l.produce(60, 400)
		pause(l.ctx, 4*time.Second)
		if !synchronous { // the last moments do not reach the standby
			if _, err := l.pool.Exec(l.ctx, "select pg_terminate_backend(pid, 1000) from pg_stat_replication"); err != nil {
				return err
			}
		}
		from, err := l.now()
		if err != nil {
			return err
		}
		died := time.Now()
		primary.end(syscall.SIGKILL)
		if err := stop(); err != nil {
			return err
		}
		if err := standby.do(l.ctx, "pg_ctl", "promote", "-w", "-D", standby.data()); err != nil {
			return err
		}
		if err := l.moveTo(standby); err != nil {
			return err
		}
		promoted := time.Now()
		before := l.number("select coalesce(max(seq), 0) from fault.history")
		stop = l.produce(30, 200)
		err = l.within(patience, "a claim on the promoted server", func() (bool, error) {
			return l.number("select count(*) from fault.history where seq > $1 and stage = 'run' and op = 'insert'", before) > 0, nil
		})
		claimed := time.Now()
		reaper, err2 := l.awaitReaper()
		pause(l.ctx, 2*lease)
		if err := errors.Join(err, err2, stop()); err != nil {
			return err
		}
		l.run.Paused = append(l.run.Paused, check.Span{From: from, To: reaper})
		l.after = func(v *check.Verdict) string {
			return fmt.Sprintf("%d acknowledged jobs, %d lost with the primary; first claim %s after its death, %s after the promotion; %d stale writes accepted, %d runs began before an earlier one had ended",
				v.Acknowledged, v.Lost+v.Forgotten, claimed.Sub(died).Round(10*time.Millisecond), claimed.Sub(promoted).Round(10*time.Millisecond), v.Stale, v.Overlaps)
		}
		return l.drain()
	}
}

// standby starts a streaming standby of the run's server.
func (l *lab) standby() (*server, error) {
	standby, err := l.copyOf(l.ctx, l.own, filepath.Join(l.folder, "standby"), "hot_standby=on")
	if err != nil {
		return nil, err
	}
	l.atEnd = append(l.atEnd, func() error {
		standby.end(syscall.SIGINT)
		return nil
	})
	return standby, standby.start(l.ctx)
}

// moveTo leads everybody to another server, as a changed name would.
func (l *lab) moveTo(s *server) error {
	l.pool.Close()
	l.own = s
	l.mu.Lock()
	l.socket = s.socket()
	for _, p := range l.processes {
		p.proxy.redirect(s.socket())
		p.proxy.cut(false)
	}
	l.mu.Unlock()
	var err error
	l.pool, err = pgxpool.New(l.ctx, s.url(l.database))
	return err
}

// fillDisk fills the disk of the server, and makes room again.
func fillDisk(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	stop := l.produce(15, 100)
	pause(l.ctx, 2*time.Second)
	from, err := l.now()
	if err != nil {
		return err
	}
	filler := filepath.Join(l.own.dir, "filler")
	full := func() error {
		file, err := os.Create(filler) // #nosec G304 -- a scratch disk
		if err != nil {
			return err
		}
		block := make([]byte, 64<<10)
		for err == nil {
			_, err = file.Write(block)
		}
		return errors.Join(file.Close())
	}
	if err := full(); err != nil {
		return err
	}
	// Work that needs room finds none.
	_, refused := l.pool.Exec(l.ctx, "create table fault.big as select repeat(md5(i::text), 100) from generate_series(1, 20000) i")
	if refused == nil {
		return errors.New("the disk was not full")
	}
	pause(l.ctx, 3*time.Second)
	if err := os.Remove(filler); err != nil {
		return err
	}
	freed := time.Now()
	died := !l.own.runs()
	if died {
		if err := l.own.start(l.ctx); err != nil {
			return err
		}
	}
	before := l.number("select coalesce(max(seq), 0) from fault.history")
	err = l.within(patience, "a claim after there was room again", func() (bool, error) {
		return l.number("select count(*) from fault.history where seq > $1 and stage = 'run' and op = 'insert'", before) > 0, nil
	})
	recovery := time.Since(freed)
	to, err2 := l.now()
	l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to.Add(lease)})
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("full for 3s (%s); first claim %s after there was room, by itself; %d of %d acknowledged jobs lost",
			map[bool]string{true: "the server died of it", false: "the server lived"}[died], recovery.Round(10*time.Millisecond), v.Lost, v.Acknowledged)
	}
	return errors.Join(err, err2, stop())
}

// stepClock has the server's clock jump by an hour, forth and back, under
// jobs longer than their lease. Every lease is by that clock.
func stepClock(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	for range 6 {
		if _, err := l.enqueue(order{Ms: 5000, MsTwo: 500}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 6, "select count(*) from jobq.job where state = 'running'"); err != nil {
		return err
	}
	pause(l.ctx, lease)
	steps := 0
	var furthest time.Duration
	for _, offset := range []string{"+3600", "+0"} {
		if err := l.own.setClock(offset); err != nil {
			return err
		}
		steps++
		now, err := l.now()
		if err != nil {
			return err
		}
		furthest = max(furthest, time.Until(now))
		pause(l.ctx, 2*lease)
	}
	if furthest < time.Hour/2 {
		return errors.New("the server's clock did not jump")
	}
	// A clock that was set back leaves expiries an hour ahead: of jobs that live.
	l.run.ClockSteps = true
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d steps, of an hour; %d leases reaped by the jump forth, whose runs were stopped; %d stale writes accepted, %d jobs lost", steps, v.Reaps, v.Stale, v.Lost)
	}
	return l.awaitNumber(patience, 6, "select count(*) from jobq.job where state = 'completed'")
}

// holdTransaction keeps a transaction open that pins everything deleted since,
// has many rows that no claim wants deleted in front of those that come, and
// compares how long jobs wait at a fixed rate.
func holdTransaction(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	const churned = 8_000
	stop := l.produce(40, 10)
	wait := func(duration time.Duration) (p99 time.Duration, jobs int, err error) {
		from, err := l.now()
		if err != nil {
			return 0, 0, err
		}
		pause(l.ctx, duration)
		to, err := l.now()
		if err != nil {
			return 0, 0, err
		}
		pause(l.ctx, 2*time.Second) // those that still wait count by how long they have
		var ms float64
		err = l.pool.QueryRow(l.ctx, `select count(*), coalesce(percentile_disc(0.99) within group (order by waited), 0) from (
				select extract(epoch from coalesce(min(at) filter (where stage = 'run'), clock_timestamp()) - min(at) filter (where stage = 'pending')) * 1000 as waited
					from fault.history where op = 'insert' and key is not null
					group by id having min(at) filter (where stage = 'pending') between $1 and $2) w`, from, to).Scan(&jobs, &ms)
		return time.Duration(ms * float64(time.Millisecond)), jobs, err
	}
	pause(l.ctx, time.Second)
	free, jobs, err := wait(4 * time.Second)
	if err != nil {
		return err
	}
	if jobs == 0 {
		return errors.New("no jobs to compare with")
	}
	tx, err := l.pool.Begin(l.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(l.ctx) }()
	if _, err := tx.Exec(l.ctx, "select txid_current()"); err != nil {
		return err
	}
	for range 10 {
		if _, err := l.pool.Exec(l.ctx, "select count(jobq.enqueue('churn', '{}')) from generate_series(1, $1::integer)", churned/10); err != nil {
			return err
		}
		if _, err := l.pool.Exec(l.ctx, "delete from jobq.pending where kind = 'churn'"); err != nil {
			return err
		}
	}
	held, jobs, err := wait(l.duration())
	if err != nil {
		return err
	}
	l.figuref("99 of 100 jobs wait less than %s before; %s of %d after %d rows were deleted under a transaction held open", free.Round(time.Millisecond), held.Round(time.Millisecond), jobs, churned)
	if jobs == 0 || held > max(4*free, poll) {
		return brokenf("99 of 100 jobs waited less than %s, and %s of %d with a transaction held open", free, held, jobs)
	}
	return errors.Join(tx.Rollback(l.ctx), stop())
}

// ownServer gives the scenario a server of its own before it begins.
func ownServer(prepare func(*lab, string) (*server, error)) func(*lab) error {
	return func(l *lab) error {
		var err error
		if l.own, err = prepare(l, filepath.Join(l.folder, "server")); err != nil {
			return err
		}
		if err := l.own.start(l.ctx); err != nil {
			return err
		}
		l.socket = l.own.socket()
		return nil
	}
}

func plainServer(l *lab, dir string) (*server, error) {
	return l.newServer(l.ctx, dir, "wal_level=replica", "max_wal_senders=5", "wal_receiver_status_interval=1s")
}

func clockedServer(l *lab, dir string) (*server, error) {
	s, err := l.newServer(l.ctx, dir)
	if err != nil {
		return nil, err
	}
	return s, s.fakeClock("+0")
}

// smallDisk is a server on a disk of its own, which needs root to be mounted.
func smallDisk(l *lab, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- the server's user goes through it
		return nil, err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w", err)
	}
	l.atEnd = append(l.atEnd, func() error {
		return syscall.Unmount(dir, syscall.MNT_DETACH)
	})
	return l.newServer(l.ctx, dir, "max_wal_size=64MB")
}

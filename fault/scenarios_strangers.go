package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// turnsAdvisory is the mutant whose claims take turns by advisory locks, which any login can take.
const turnsAdvisory = "turns-as-advisory-locks"

// standsStill is for how long the jobs of a feature may stand still at most while strangers hold all that they may: a
// janitor that finds its lock taken does overdue work after followerPatience, and looks for it each 10 s. A job with steps
// becomes due twice.
const standsStill = 2*(followerPatience+10*time.Second) + slack

// strangers hold, as roles that may do less than a worker, all locks that they may take.
type strangers struct {
	lab   *lab
	kept  atomic.Int64 // how many advisory locks
	more  atomic.Int64 // how many locks of tables and rows
	ended sync.WaitGroup
}

// allLocks takes what the role may lock of jobq's tables, and of their rows, in a transaction.
const allLocks = `do $$
	declare
	  name regclass;
	  taken integer := 0;
	  sql text;
	begin
	  for name in select c.oid::regclass from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition loop
	    foreach sql in array array['lock table %s in access exclusive mode', 'lock table %s in share mode', 'lock table %s in row share mode',
	        'lock table %s in access share mode', 'select from %s for update', 'select from %s for key share'] loop
	      begin
	        execute format(sql, name);
	        taken := taken + 1;
	      exception when others then null;
	      end;
	    end loop;
	  end loop;
	  perform set_config('application_name', 'stranger ' || taken, false);
	end $$`

// seeAdvisory notes the advisory locks that jobq's processes have, and allAdvisory takes those that were noted, and those
// that the names of queues and events lead to.
const (
	seeAdvisory = `insert into pg_temp.seen
		select l.classid::bigint::bit(32)::integer, l.objid::bigint::bit(32)::integer, (l.classid::bigint << 32) | l.objid::bigint, l.objsubid = 2
			from pg_locks l
			where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
		union select 0, 0, hashtextextended(n.name, 0), false from unnest($1::text[]) as n(name)
		on conflict do nothing`
	allAdvisory = `with taken as (
			select s.ctid as row from pg_temp.seen s
				where not s.taken and case when s.pair then pg_try_advisory_lock(s.class, s.object) else pg_try_advisory_lock(s.whole) end
		)
		update pg_temp.seen s set taken = true from taken t where s.ctid = t.row`
)

// hold has each lesser role take locks until the context ends: a role that may only log in keeps all advisory locks, and
// the others keep those of tables and rows for a second or two, again and again.
func (l *lab) hold(ctx context.Context) (*strangers, error) {
	s := &strangers{lab: l}
	roles, err := os.ReadFile("../sql/roles.sql")
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ { // beside a run of another seed, which makes the same roles
		if _, err = l.pool.Exec(l.ctx, strings.Replace(string(roles), "\\set ON_ERROR_STOP on\n", "", 1)); err == nil || tries == 10 {
			break
		}
		pause(l.ctx, 100*time.Millisecond)
	}
	for _, role := range []string{"nobody", "viewer", "producer", "runner"} {
		name, member := l.database+"_"+role, " in role jobq_"+role
		if role == "nobody" {
			member = ""
		}
		if err == nil {
			_, err = l.pool.Exec(l.ctx, "create role "+name+" login"+member)
		}
		if err != nil {
			return nil, err
		}
		s.ended.Go(func() {
			for ctx.Err() == nil { // a session may be ended as the victim of a deadlock
				_ = s.session(ctx, name, role == "nobody")
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	return s, nil
}

func (s *strangers) session(ctx context.Context, role string, isNobody bool) error {
	config, err := pgx.ParseConfig(s.lab.url(s.lab.database))
	if err != nil {
		return err
	}
	config.User = role
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const prepare = `set lock_timeout = '50ms';
		create temp table seen (class integer, object integer, whole bigint, pair boolean, taken boolean not null default false, primary key (whole, pair))`
	if _, err := conn.Exec(ctx, prepare); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if isNobody {
			err = s.takeAdvisory(ctx, conn)
		} else {
			err = s.takeOthers(ctx, conn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeAdvisory adds to the locks that the session keeps.
func (s *strangers) takeAdvisory(ctx context.Context, conn *pgx.Conn) error {
	names := []string{"jobq.default", "jobq.hints.default", "jobq.announce"}
	rows, err := s.lab.pool.Query(ctx, "select 'jobq.event of ' || (j.args ->> 'key') from jobq.job j where j.kind = 'steps' and j.finished_at is null")
	if err != nil {
		return err
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, seeAdvisory, append(names, events...)); err != nil {
		return err
	}
	tag, err := conn.Exec(ctx, allAdvisory)
	if err != nil {
		return err
	}
	s.kept.Add(tag.RowsAffected())
	pause(ctx, 20*time.Millisecond)
	return nil
}

// takeOthers takes what else the role may lock, and keeps it for a while.
func (s *strangers) takeOthers(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, allLocks); err != nil {
			return err
		}
		var taken int64
		if err := tx.QueryRow(ctx, "select split_part(current_setting('application_name'), ' ', 2)::bigint").Scan(&taken); err != nil {
			return err
		}
		s.more.Add(taken)
		pause(ctx, time.Duration(1+time.Now().UnixNano()%2)*time.Second)
		return nil
	})
}

// locksOfStrangers has lesser roles hold all locks that they may take, while a queue with a limit, a rate and partition
// keys is worked off, jobs do steps and wait for events, schedules fire, and workers are killed.
func locksOfStrangers(l *lab) error {
	if err := l.prepareForStrangers(); err != nil {
		return err
	}
	workers, config, err := l.startPrograms("steps", "steps")
	if err != nil {
		return err
	}
	l.run.Bound += standsStill
	ctx, letGo := context.WithCancel(l.ctx)
	defer letGo()
	s, err := l.hold(ctx)
	if err != nil {
		return err
	}
	defer s.ended.Wait()
	defer letGo()
	// Whoever leads loses its session, and a stranger is faster than the next janitor.
	if err := l.takeLeadership(); err != nil {
		return err
	}
	stop, kills := l.produce(12, 100), 0
	err = l.until(max(l.duration(), 5*time.Second), func() error {
		if _, err := l.enqueueVia(l.pool, order{Ms: 40}, "steps", ""); err != nil {
			return err
		}
		pause(l.ctx, l.between(300*time.Millisecond, 1200*time.Millisecond))
		if err := l.emitSome("limit 2"); err != nil {
			return err
		}
		kills++
		i := l.random.IntN(len(workers))
		workers[i].kill()
		workers[i], err = l.worker("--config", config)
		return err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	longest, err := l.goOn()
	if err != nil {
		return err
	}
	named := l.logged("holder_pid")
	letGo()
	s.ended.Wait()
	l.figuref("%d kills beside %d advisory locks and %d others of strangers; a job of each feature ended within %s; %d warnings name the holder",
		kills, s.kept.Load(), s.more.Load(), longest.Round(100*time.Millisecond), named)
	switch {
	case s.kept.Load() == 0 || s.more.Load() == 0:
		return errors.New("the strangers had no locks")
	case named == 0:
		return brokenf("no warning names who has the janitor's lock")
	}
	return l.within(patience, "all jobs with steps to end", func() (bool, error) {
		return l.number("select count(*) from jobq.job where kind = 'steps' and finished_at is null") == 0, l.emitSome("")
	})
}

// prepareForStrangers gives the queue all sorts of limits, and makes schedules.
func (l *lab) prepareForStrangers() error {
	l.more = ofSomeKey
	return errors.Join(
		l.execute("create table public.step_effect (job bigint not null, name text not null, token bigint not null)"),
		l.set("limit=6", "rate=100/s", fmt.Sprintf("key_limit=%d", keyLimit)),
		l.execute("select jobq.schedule_set('s' || n, 'tick', every => '1 s', queue => 'ticks') from generate_series(1, 3) n"),
	)
}

// takeLeadership ends the leader's session until a stranger has its lock.
func (l *lab) takeLeadership() error {
	const leads = "select count(*) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and a.datname = current_database() and a.application_name = 'jobq-janitor'"
	if err := l.awaitNumber(patience, 1, leads); err != nil {
		return err
	}
	var lost time.Time // since when nobody leads
	return l.within(patience, "a stranger to have the leader's lock", func() (bool, error) {
		if l.number(leads) == 0 {
			if lost.IsZero() {
				lost = time.Now()
			}
			return time.Since(lost) > 4*scan, nil
		}
		lost = time.Time{}
		pause(l.ctx, l.between(50*time.Millisecond, 300*time.Millisecond)) // for strangers to see the lock
		return false, l.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'jobq-janitor'")
	})
}

// goOn adds a job of each feature while the strangers hold their locks, and says after how long the last has ended.
func (l *lab) goOn() (longest time.Duration, err error) {
	from, err := l.now()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	plain, err := l.enqueueSurely(order{Ms: 50}, "task")
	if err != nil {
		return 0, err
	}
	steps, err := l.enqueueSurely(order{Ms: 50}, "steps")
	if err != nil {
		return 0, err
	}
	keyed, err := l.enqueueVia(l.pool, order{Ms: 50}, "flow", ", partition_key => 'key 1'")
	if err != nil {
		return 0, err
	}
	later, err := l.enqueueVia(l.pool, order{Ms: 50}, "task", ", run_at => clock_timestamp() + interval '300 ms'")
	if err != nil {
		return 0, err
	}
	after, err := l.enqueueVia(l.pool, order{Ms: 50}, "task", fmt.Sprintf(", after => array[%d]", plain))
	if err != nil {
		return 0, err
	}
	ids := []int64{plain, steps, keyed, later, after}
	err = l.within(standsStill, "a job of each feature to end beside the strangers", func() (bool, error) {
		_, err := l.pool.Exec(l.ctx, "select jobq.emit('of ' || (j.args ->> 'key')) from jobq.job j where j.id = $1 and j.state = 'scheduled'", steps)
		return l.number("select count(*) from jobq.job where id = any($1) and finished_at is not null", ids) == len(ids), err
	})
	if err != nil {
		left := l.text("select string_agg(format('%s %s: %s', j.kind, j.id, j.state), ', ') from jobq.job j where j.id = any($1) and j.finished_at is null", ids)
		return 0, errors.Join(err, brokenf("left: %s", left))
	}
	err = l.within(standsStill, "a schedule to fire beside the strangers", func() (bool, error) {
		return l.number("select count(*) from jobq.job where kind = 'tick' and created_at > $1", from) > 0, nil
	})
	return time.Since(began), err
}

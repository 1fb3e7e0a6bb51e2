package main

import (
	"errors"
	"time"
)

// identityForgotten is the mutant whose tables have no replica identity, as tables without a key are made.
const identityForgotten = "no-replica-identity"

// publishAll has a publication for all tables while jobs succeed and fail and workers are killed. A janitor makes the
// days of the history meanwhile, so that jobs also run in days that are younger than the publication.
func publishAll(l *lab) error {
	err := l.execute(`create publication everything for all tables;
		do $$ declare day regclass; begin
			for day in select inhrelid::regclass from pg_inherits where inhparent in ('jobq.run'::regclass, 'jobq.attempt'::regclass) and inhrelid::regclass::text ~ '_[0-9]{8}$' loop
				execute format('drop table %s', day);
			end loop;
		end $$`)
	if err != nil {
		return err
	}
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	const today = "select count(*) from pg_class where relname = 'run_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')"
	if err := l.awaitNumber(patience, 1, today); err != nil {
		return err
	}
	if l.mutant == identityForgotten {
		if err := l.execute(`do $$ declare day regclass; begin
				for day in select oid::regclass from pg_class where relnamespace = 'jobq'::regnamespace and relkind = 'r' and relreplident = 'f' loop
					execute format('alter table %s replica identity default', day);
				end loop;
			end $$`); err != nil {
			return err
		}
	}
	stop, kills := l.produce(20, 50), 0
	err = l.until(l.duration(), func() error {
		pause(l.ctx, l.between(time.Second, 2*time.Second))
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
	l.figuref("%d kills and %d jobs ended, with a publication for all tables", kills, l.number("select count(*) from jobq.job where finished_at is not null"))
	if kills == 0 {
		return errors.New("no kills")
	}
	return nil
}

func (l *lab) execute(sql string) error {
	_, err := l.pool.Exec(l.ctx, sql)
	return err
}

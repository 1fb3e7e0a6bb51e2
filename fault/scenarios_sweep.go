package main

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// sweepForgotten is the mutant whose janitor keeps its place in a day in its memory.
const sweepForgotten = "sweep-place-in-memory"

// sweepAndKills has janitors delete from a day what is kept for less long than others of it, while they are killed, and
// jobs run. What is to go must be gone in the end, with what belongs to it, and nothing else.
func sweepAndKills(l *lab) error {
	const jobs, kept = 60_000, 6_000
	err := l.inTx(func(tx pgx.Tx) error {
		_, err := tx.Exec(l.ctx, `
			select jobq.partition_add(parent, (now() at time zone 'UTC')::date - 10) from unnest(array['run', 'past_lease', 'attempt']) parent;
			set local session_replication_role = replica;
			update jobq.setting set failed_retention = '30 days';
			insert into jobq.past_lease (id, claimed_at, owner, ended)
				select jobq.lease_day((now() at time zone 'UTC')::date - 10) + i, now() - interval '10 days', 'old', array_fill(case when i % 10 = 0 then -1 else 5 end, array[100])
					from generate_series(1, 600) i;
			insert into jobq.run (id, lease_id, slot, state, finished_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
				select -i, jobq.lease_day((now() at time zone 'UTC')::date - 10) + 1 + (i - 1) / 100, (i - 1) % 100 + 1,
						case when (1 + (i - 1) / 100) % 10 = 0 then 'failed'::jobq.job_state end, case when (1 + (i - 1) / 100) % 10 = 0 then now() - interval '10 days' end,
						now() - interval '10 days', 0, 0, 25, 0, false, 'old', 'old', jsonb_build_object('filler', repeat('x', 200))
					from generate_series(1, 60000) i`)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := l.crew(2); err != nil {
		return err
	}
	stop := l.produce(40, 5)
	killed, err := l.killWhileSwept()
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	left, failed := l.number("select count(*) from jobq.run where kind = 'old'"), l.number("select count(*) from jobq.job where kind = 'old' and state = 'failed' and lease_owner = 'old'")
	leases := l.number("select count(*) from jobq.past_lease where owner = 'old'")
	l.figuref("all janitors killed %d times while they swept a day of %d jobs; %d are left, with %d leases", killed, jobs, left, leases)
	switch {
	case left != kept || failed != kept || leases != kept/100:
		return brokenf("%d jobs are left of the day, %d as they were, with %d leases: there should be %d, with %d", left, failed, leases, kept, kept/100)
	case killed == 0:
		return errors.New("no janitor was killed while it swept")
	}
	return nil
}

// killWhileSwept kills all janitors after steps of the sweep, 8 times at most, and returns how often when the day is swept. On a
// busy machine all steps together may take minutes: the sweep must go on, and need not be over at some time.
func (l *lab) killWhileSwept() (killed int, err error) {
	const place = "select case when next_block is null and next_lease is null then 'swept' else concat_ws(' ', 'at', next_block, next_lease) end from jobq.sweep"
	for at := ""; at != "swept"; {
		last := at
		err := l.within(patience, "the next step of the sweep", func() (bool, error) {
			at = l.text(place)
			return at != "" && at != last, nil
		})
		if err != nil {
			return killed, err
		}
		if at == "at 0" || at == "swept" || killed == 8 {
			continue
		}
		for _, p := range l.processes {
			if p.args[0] == "janitor" && p.alive() {
				p.kill()
				if err := l.janitor(); err != nil {
					return killed, err
				}
			}
		}
		killed++
		pause(l.ctx, l.between(0, scan))
	}
	return killed, nil
}

package main

import (
	"errors"
	"fmt"
	"time"
)

// tickSchedules is how many schedules fire each second: 1,000 ticks and more while janitorCount janitors are killed for 20 seconds.
const (
	tickSchedules = 50
	janitorCount  = 5
)

// ticksLost counts what became of the ticks of all schedules in a span: each second of
// each schedule must have one job. It counts the rows of jobs, and not those in which
// jobq keeps ticks: those could be wrong in the same way.
const ticksLost = `with due as (
    select s.name, t.at
      from generate_series(1, $3::integer) n
      cross join lateral (select 's' || n as name) s
      cross join generate_series(date_trunc('second', $1::timestamptz) + interval '1 s', date_trunc('second', $2::timestamptz), interval '1 s') t(at)
  ), made as (
    select j.metadata ->> 'schedule' as name, (j.metadata ->> 'tick')::timestamptz as at, count(*) as jobs
      from jobq.job j where j.kind = 'tick' group by 1, 2
  )
  select count(*), count(*) filter (where m.jobs is null), count(*) filter (where m.jobs > 1)
    from due d left join made m on m.name = d.name and m.at = d.at`

// killJanitors has schedules fire each second while janitors are killed, and stopped for
// up to twice as long as a silent leader stays one. Each tick must fire exactly once,
// also those of a time in which no janitor ran.
func killJanitors(l *lab) error {
	var from, until time.Time
	// The janitors find the schedules when these are all there: no tick is due before.
	for i := range tickSchedules {
		_, err := l.pool.Exec(l.ctx, "select jobq.schedule_set($1, 'tick', every => '1 s', queue => 'ticks', catch_up => 'all', catch_up_max => 1000)",
			fmt.Sprintf("s%d", i+1))
		if err != nil {
			return err
		}
	}
	if err := l.pool.QueryRow(l.ctx, "select max(cursor_at) from jobq.schedule").Scan(&from); err != nil {
		return err
	}
	if _, err := l.worker(); err != nil { // what else runs is judged as ever
		return err
	}
	stop := l.produce(5, 50)
	janitors := make([]*process, janitorCount)
	start := func(i int) error {
		err := l.janitor()
		if err == nil {
			janitors[i] = l.processes[len(l.processes)-1]
		}
		return err
	}
	for i := range janitors {
		if err := start(i); err != nil {
			return errors.Join(err, stop())
		}
	}
	// Once, no janitor runs for some seconds, so that several ticks of a schedule are due at the same time.
	for _, janitor := range janitors {
		janitor.freeze()
	}
	pause(l.ctx, l.between(2500*time.Millisecond, leaderTTL))
	for _, janitor := range janitors {
		janitor.thaw()
	}
	kills, stops := 0, 0
	err := l.until(max(l.duration(), 4*time.Second), func() error {
		pause(l.ctx, l.between(20*time.Millisecond, 600*time.Millisecond))
		i := l.random.IntN(len(janitors))
		if kills == 0 || l.random.IntN(3) > 0 {
			janitors[i].kill()
			kills++
			return start(i)
		}
		stops++
		janitors[i].freeze()
		pause(l.ctx, l.between(100*time.Millisecond, 2*leaderTTL))
		janitors[i].thaw()
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if until, err = l.now(); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.schedule where cursor_at < $1", until); err != nil {
		return err
	}
	for _, janitor := range janitors { // else they fire on while ticks are counted
		if err := janitor.end(); err != nil {
			return err
		}
	}
	if err := l.janitor(); err != nil { // for the drain
		return err
	}
	var ticks, lost, twice int
	if err := l.pool.QueryRow(l.ctx, ticksLost, from, until, tickSchedules).Scan(&ticks, &lost, &twice); err != nil {
		return err
	}
	l.figuref("%d kills and %d stops of %d janitors; %d ticks, %d lost, %d twice", kills, stops, janitorCount, ticks, lost, twice)
	switch {
	case lost > 0 || twice > 0:
		return brokenf("of %d ticks, %d have no job, and %d have more than one", ticks, lost, twice)
	case ticks < tickSchedules:
		return errors.New("no tick was due")
	}
	return nil
}

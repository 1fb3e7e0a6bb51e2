package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The limit and the rate of the queue.
const (
	queueLimit = 3
	queueRate  = 20 // a second
	queueBurst = 4
)

// mostOpen is how many jobs of leases were ever open at one moment. It adds up the
// history, in its order: what a claim has counted as ended stands before the claim, and
// so this is never more than what there was.
const mostOpen = `with change as (
    select h.seq, cardinality(h.jobs) - cardinality(h.slots)
        - coalesce(lag(cardinality(h.jobs) - cardinality(h.slots)) over (partition by h.id order by h.seq), 0) as jobs
      from fault.history h where h.stage = 'lease'
  ), moment as (
    select sum(c.jobs) over (order by c.seq) as open from change c
  )
  select coalesce(max(m.open), 0)::integer from moment m`

// openNow is how many jobs of leases are open.
const openNow = "select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) from jobq.lease l"

// limitAndKills has a queue with a limit while its workers are killed, and stopped for
// longer than their leases. Never may more jobs be open than the limit, and as many must
// be when all is well again and jobs wait.
func limitAndKills(l *lab) error {
	if err := l.set(fmt.Sprintf("limit=%d", queueLimit)); err != nil {
		return err
	}
	faults, err := l.killAndStop(12, 200)
	if err != nil {
		return err
	}
	if err := l.withinLimit(); err != nil {
		return err
	}
	if err := l.claimTogether(4 * queueLimit); err != nil {
		return err
	}
	// The last of them wait: what is open then is the limit, whatever else is left.
	if err := l.awaitNumber(patience, queueLimit, openNow); err != nil {
		return errors.Join(l.withinLimit(), err)
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	if err := l.withinLimit(); err != nil {
		return err
	}
	l.figuref("%s; never more than %d jobs open", faults, queueLimit)
	return nil
}

// claimTogether enqueues jobs for idle workers, and keeps all claims from being stored
// until two are under way: who has counted what runs before the other is stored, and not
// in turn with it, has counted too little.
func (l *lab) claimTogether(jobs int) error {
	for _, none := range []string{unfinished, "select count(*) from jobq.lease"} {
		if err := l.awaitNumber(patience, 0, none); err != nil {
			return err
		}
	}
	return l.inTx(func(tx pgx.Tx) error {
		if _, err := tx.Exec(l.ctx, "lock table jobq.lease in share mode"); err != nil {
			return err
		}
		for range jobs {
			if _, err := l.enqueue(order{Ms: 2000}); err != nil {
				return err
			}
		}
		return l.within(patience, "two claims at once", func() (bool, error) { return l.number(waitingClaims) >= 2, nil })
	})
}

// waitingClaims is how many workers wait for a lock, of a table or for their turn.
const waitingClaims = `select count(distinct usename) from pg_stat_activity
	where datname = current_database() and application_name = 'jobq-worker' and wait_event_type = 'Lock'`

// withinLimit says whether as many jobs as the limit lets were open at one moment, and
// never more.
func (l *lab) withinLimit() error {
	switch most := l.number(mostOpen); {
	case most > queueLimit:
		return brokenf("%d jobs were open at one moment, with a limit of %d", most, queueLimit)
	case most < queueLimit:
		return errors.New("the limit was never reached")
	}
	return nil
}

// aboveRate counts the spans, from one claim to another and both included, in which more
// jobs started than the rate and its burst allow, and says how many jobs started in all.
const aboveRate = `with start as (
    select p.claimed_at as at, cardinality(h.jobs) as jobs
      from jobq.past_lease p
      join fault.history h on h.stage = 'lease' and h.op = 'insert' and h.id = p.id
  ), total as (
    select s.at, s.jobs, sum(s.jobs) over (order by s.at, s.jobs rows unbounded preceding) as jobs_to from start s
  )
  select count(*) filter (where b.jobs_to - a.jobs_to + a.jobs > $1::integer * extract(epoch from b.at - a.at) + $2::integer),
      coalesce(max(b.jobs_to), 0)::integer
    from total a join total b on b.at >= a.at and b.jobs_to >= a.jobs_to`

// rateAndKills has a queue with a rate, and more jobs than that, while its workers are
// killed and stopped. In no span may more jobs start than the rate and its burst allow.
func rateAndKills(l *lab) error {
	if err := l.set(fmt.Sprintf("rate=%d/s", queueRate), fmt.Sprintf("burst=%d", queueBurst)); err != nil {
		return err
	}
	faults, err := l.killAndStop(30, 60)
	if err != nil {
		return err
	}
	together := make([]order, 5*queueBurst) // however slow the machine was: these are too many at once
	for i := range together {
		together[i].Ms = 10
	}
	if _, err := l.enqueueTogether([]string{"flow"}, together...); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.lease"); err != nil {
		return err
	}
	var above, starts int
	if err := l.pool.QueryRow(l.ctx, aboveRate, queueRate, queueBurst).Scan(&above, &starts); err != nil {
		return err
	}
	l.figuref("%s; %d starts at %d/s, %d spans with too many", faults, starts, queueRate, above)
	switch {
	case above > 0:
		return brokenf("in %d spans of %d starts, more than %d/s and a burst of %d", above, starts, queueRate, queueBurst)
	case starts < len(together):
		return errors.New("few jobs started")
	}
	return nil
}

// killAndStop kills workers and starts others, and stops some past their leases, while
// so many jobs come each second, that take so many milliseconds: more than may run. It
// says how often.
func (l *lab) killAndStop(perSecond, ms int) (faults string, err error) {
	workers, err := l.crew(4)
	if err != nil {
		return "", err
	}
	stop := l.produce(perSecond, ms)
	kills, stops := 0, 0
	step := func() error {
		pause(l.ctx, l.between(300*time.Millisecond, 1200*time.Millisecond))
		i := l.random.IntN(len(workers))
		if kills > stops {
			stops++
			workers[i].freeze()
			pause(l.ctx, l.between(lease/2, 2*lease))
			workers[i].thaw()
			return nil
		}
		kills++
		workers[i].kill()
		var err error
		workers[i], err = l.worker()
		return err
	}
	err = l.until(max(l.duration(), 5*time.Second), step)
	for stops == 0 && err == nil { // a busy machine takes all that time to start one worker
		err = step()
	}
	if err := errors.Join(err, stop()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d kills and %d stops of workers", kills, stops), nil
}

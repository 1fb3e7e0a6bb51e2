package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// together starts jobs of kind flow that one claim takes, and waits until they run.
func (l *lab) together(orders ...order) ([]int64, error) {
	ids, err := l.enqueueTogether([]string{"flow"}, orders...)
	if err != nil {
		return nil, err
	}
	if len(ids) != len(orders) {
		return nil, errors.New("the jobs were not enqueued")
	}
	if err := l.awaitNumber(patience, len(ids), "select count(*) from jobq.job where id = any($1) and state = 'running'", ids); err != nil {
		return nil, err
	}
	if leases := l.number("select count(distinct lease_token) from jobq.job where id = any($1)", ids); leases != 1 {
		return nil, fmt.Errorf("%d jobs have %d leases", len(ids), leases)
	}
	return ids, nil
}

// warm has the worker's statements prepared on all its connections, for what is
// held in the network to be the ends themselves.
func (l *lab) warm() error {
	for range 3 {
		if _, err := l.together(order{Ms: 100}, order{Ms: 300}); err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
	}
	return nil
}

// loseAnswers has the answers to ends lie in the network when the ends are
// stored. The worker sends them again, and each must count once.
func loseAnswers(l *lab) error {
	l.connections = 1
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker(seldom...)
	if err != nil {
		return err
	}
	if err := l.warm(); err != nil {
		return err
	}
	rounds := 0
	for tries := 0; rounds < 4; tries++ {
		if tries == 60 {
			return fmt.Errorf("only %d answers to ends were lost in %d tries", rounds, tries)
		}
		ids, err := l.together(order{Ms: 600}, order{Ms: 650}, order{Ms: 2500})
		if err != nil {
			return err
		}
		if err := l.sendsNothing(); err != nil {
			return err
		}
		w.proxy.muffle()
		const ended = "select coalesce(max(cardinality(ended_slots)), 0) from jobq.lease where job_ids @> $1"
		// Else it was the answer to something else, such as an extension, behind which
		// the ends waited on the worker's only connection.
		if l.within(lease, "an end to be stored", func() (bool, error) { return l.number(ended, ids) > 0, nil }) == nil {
			rounds++
		}
		w.proxy.cut(false)
		w.proxy.heal()
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d answers lost, %d ends counted twice", rounds, v.DoubleBump)
	}
	return nil
}

// loseClaims has the answers to claims lie in the network when the claims are stored.
// The worker gives the jobs back, and they run, without an attempt more, long before
// their leases end.
func loseClaims(l *lab) error {
	const long = 10 * patience
	if err := l.set("lease="+long.String(), "extend_every="+extendEvery.String()); err != nil {
		return err
	}
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker()
	if err != nil {
		return err
	}
	if err := l.warm(); err != nil {
		return err
	}
	rounds, worst := 0, time.Duration(0)
	for tries := 0; rounds < 4; tries++ {
		if tries == 20 {
			return fmt.Errorf("only %d answers to claims were lost in %d tries", rounds, tries)
		}
		w.proxy.muffle() // of notifications, too: the worker polls
		ids, err := l.enqueueTogether([]string{"flow"}, order{Ms: 20}, order{Ms: 50})
		if err != nil {
			return err
		}
		const claimed = "select count(*) from jobq.lease where job_ids && $1"
		if l.within(10*poll, "a claim to be stored", func() (bool, error) { return l.number(claimed, ids) > 0, nil }) == nil {
			rounds++
		}
		w.proxy.cut(false)
		w.proxy.heal()
		healed := time.Now()
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
		worst = max(worst, time.Since(healed))
		if attempts := l.number("select coalesce(max(attempts), 0) from jobq.job where id = any($1)", ids); attempts != 0 {
			return brokenf("a job whose claim had lost its answer has %d attempts", attempts)
		}
	}
	l.figuref("%d answers lost, with leases of %s; the jobs had run within %s", rounds, long, worst.Round(10*time.Millisecond))
	return nil
}

// lateForLost has the plain end of a job lie in the network until its lease is
// lost and still there, since somebody keeps the job from being reaped.
func lateForLost(l *lab) error {
	l.connections = 1
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker(seldom...)
	if err != nil {
		return err
	}
	if err := l.warm(); err != nil {
		return err
	}
	late := 0
	for range 3 {
		ids, err := l.together(order{Ms: 20_000, MsTwo: 50}, order{Ms: 300})
		if err != nil {
			return err
		}
		w.proxy.blackhole(everything)
		from, err := l.now()
		if err != nil {
			return err
		}
		err = l.inTx(func(tx pgx.Tx) error {
			if err := lockRun(l.ctx, tx, ids[1]); err != nil {
				return err
			}
			if err := l.awaitNumber(5*lease, 1, "select count(*) from jobq.lease where lost_at is not null"); err != nil {
				return err
			}
			release, err := l.stick(w)
			if err != nil {
				return err
			}
			w.proxy.heal()
			before := w.proxy.late()
			release()
			if err := l.within(patience, "what was held to arrive", func() (bool, error) { return w.proxy.late() > before, nil }); err != nil {
				return err
			}
			late += w.proxy.late() - before
			pause(l.ctx, scan) // the server has worked on it by then
			return nil
		})
		if err != nil {
			return err
		}
		to, err := l.now()
		if err != nil {
			return err
		}
		l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to.Add(2 * scan)})
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("3 times, %d bytes delivered late, %d stale writes accepted", late, v.Stale)
	}
	return nil
}

// lockedEnd keeps the row of a job locked while it ends on it. The lease must not
// be told of the end before it is stored. Leases are long, so that none ends meanwhile.
func lockedEnd(l *lab) error {
	if err := l.set("lease=20s"); err != nil {
		return err
	}
	if _, err := l.crew(1); err != nil {
		return err
	}
	rounds := 0
	for range 3 {
		ids, err := l.enqueueTogether([]string{"task", "flow"}, order{Ms: 600}, order{Ms: 600})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 2, "select count(*) from jobq.job where id = any($1) and state = 'running'", ids); err != nil {
			return err
		}
		err = l.inTx(func(tx pgx.Tx) error {
			if err := lockRun(l.ctx, tx, ids[0]); err != nil {
				return err
			}
			if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", ids[1]); err != nil {
				return err
			}
			pause(l.ctx, l.between(lease/4, lease/2))
			return nil
		})
		if err != nil {
			return err
		}
		rounds++
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
	}
	lost := l.number("select count(*) from jobq.attempt where outcome = 'lost'")
	l.figuref("%d jobs locked while they ended, %d runs lost", rounds, lost)
	if lost != 0 {
		return brokenf("%d runs were lost", lost)
	}
	return nil
}

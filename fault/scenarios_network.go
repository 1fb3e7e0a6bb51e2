package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

// lateResult has a worker's result lie in the network until the same worker
// runs the same job again: the owner is right and only the token is old.
func lateResult(l *lab) error {
	l.connections = 1
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker(seldom...)
	if err != nil {
		return err
	}
	// Its statements are prepared by then on the only connection of the pool: else what is held would be the wish to
	// prepare them. Each job is alone, as it is in the rounds.
	for range 3 {
		if _, err := l.enqueue(order{Ms: 400}); err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 0, unfinished); err != nil {
			return err
		}
	}
	late := 0
	for range 4 {
		id, err := l.enqueue(order{Ms: 400, MsTwo: 4000})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
			return err
		}
		if err := l.sendsNothing(); err != nil {
			return err
		}
		delivered, err := lateUnder(l, w, id)
		if err != nil {
			return err
		}
		late += delivered
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("4 times, %d bytes delivered late, %d stale writes accepted", late, v.Stale)
	}
	if late == 0 {
		return fmt.Errorf("nothing was delivered late")
	}
	return nil
}

// lateUnder has all that the worker sends from now on for a job lie in the
// network until the worker runs the job again, and then delivers it. It returns
// how many bytes that were.
func lateUnder(l *lab, w *process, id int64) (late int, err error) {
	token := l.number("select lease_token from jobq.job where id = $1", id)
	w.proxy.blackhole(everything) // what is sent, and every try to send it again, stays here
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
		return 0, err
	}
	release, err := l.stick(w)
	if err != nil {
		return 0, err
	}
	w.proxy.heal() // what begins from now on gets through
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running' and lease_token > $2", id, token); err != nil {
		return 0, err
	}
	before := w.proxy.late()
	release()
	if err := l.within(patience, "what was held to arrive", func() (bool, error) { return w.proxy.late() > before, nil }); err != nil {
		return 0, err
	}
	return w.proxy.late() - before, l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and finished_at is not null", id)
}

// seldom keeps polls, which are not what is to be late, off the connection that
// the pool gives first.
var seldom = []string{"--poll", "10s"}

// lateUnderOwner has what a run has sent (extensions, progress, checkpoints and
// its end) lie in the network until the same worker runs the same job again:
// the owner is right and only the token is old.
func lateUnderOwner(l *lab) error {
	l.connections = 1
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker(seldom...)
	if err != nil {
		return err
	}
	// The statements that each round is about are prepared by then on the only
	// connection of the pool. Else what is held would be the wish to prepare them.
	// Each job is alone, as it is in the rounds: with others, its end would travel
	// with another claim.
	for range 3 {
		for _, o := range []order{{Ms: 1000, Talk: "progress"}, {Ms: 1000, Talk: "checkpoint"}, {Ms: 400, Do: "fail", Once: true}} {
			if _, err := l.enqueue(o); err != nil {
				return err
			}
			if err := l.awaitNumber(patience, 0, unfinished); err != nil {
				return err
			}
		}
	}
	rounds := []order{
		{Ms: 400, MsTwo: 1500, Do: "fail", Once: true}, // its end lies in the network
		{Ms: 20_000, MsTwo: 1500},                      // an extension
		{Ms: 20_000, MsTwo: 1500, Talk: "progress"},
		{Ms: 20_000, MsTwo: 1500, Talk: "checkpoint"},
	}
	rounds = append(rounds, rounds...)
	late := 0
	for _, o := range rounds {
		id, err := l.enqueue(o)
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
			return err
		}
		if o.Talk == "" {
			err = l.sendsNothing()
		} else {
			pause(l.ctx, 200*time.Millisecond) // it talks by then
		}
		if err != nil {
			return err
		}
		delivered, err := lateUnder(l, w, id)
		if err != nil {
			return err
		}
		late += delivered
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d times, %d bytes delivered late, %d stale writes accepted", len(rounds), late, v.Stale)
	}
	return nil
}

// lateHeartbeat has a worker's extension lie in the network until another
// worker runs the job.
func lateHeartbeat(l *lab) error {
	if err := l.janitor(); err != nil {
		return err
	}
	first, err := l.worker(seldom...)
	if err != nil {
		return err
	}
	id, err := l.enqueue(order{Ms: 20_000, MsTwo: 5000})
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
		return err
	}
	token := l.number("select lease_token from jobq.job where id = $1", id)
	pause(l.ctx, lease) // its statements are prepared by then
	first.proxy.blackhole(everything)
	pause(l.ctx, extendEvery*3/2) // an extension is under way by then
	release, err := l.stick(first)
	if err != nil {
		return err
	}
	if _, err := l.worker(); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running' and lease_token > $2", id, token); err != nil {
		return err
	}
	// The worker has asked for the cancellation of what it waited for: that
	// comes first, and finds nothing to cancel.
	first.proxy.heal()
	pause(l.ctx, extendEvery)
	before := first.proxy.late()
	release()
	if err := l.within(patience, "what was held to arrive", func() (bool, error) { return first.proxy.late() > before, nil }); err != nil {
		return err
	}
	late := first.proxy.late() - before
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d bytes delivered late, %d stale writes accepted", late, v.Stale)
	}
	return l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and finished_at is not null", id)
}

// loseNetwork takes the network from workers for one and for three times the
// lease, and cuts answers in the middle.
func loseNetwork(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(5, 1500)
	losses := 0
	err = l.until(max(l.duration(), 10*time.Second), func() error {
		w := workers[losses%len(workers)]
		switch losses % 4 {
		case 0:
			w.proxy.blackhole(everything)
			pause(l.ctx, 3*lease)
		case 1:
			w.proxy.blackhole(everything)
			pause(l.ctx, lease)
		case 2:
			w.proxy.set(0, 300+l.random.IntN(3000))
			pause(l.ctx, lease)
		case 3:
			w.proxy.cut(true)
			pause(l.ctx, lease/2)
		}
		w.proxy.heal()
		losses++
		return nil
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d losses, %d leases given up, %d runs began before an earlier one had ended", losses, l.logged("lease lost"), v.Overlaps)
	}
	return nil
}

// loseNotifications keeps notifications from the listeners: their connections stay open and
// carry nothing. Polling must find the jobs.
func loseNotifications(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	latency := func() (time.Duration, error) {
		sent := time.Now()
		id, err := l.enqueue(order{Ms: 1})
		if err != nil {
			return 0, err
		}
		err = l.within(5*poll, "a job to be picked up", func() (bool, error) {
			return l.number("select count(*) from jobq.pending where id = $1", id) == 0, nil
		})
		return time.Since(sent), err
	}
	measure := func() (delays []time.Duration, err error) {
		for range 8 {
			pause(l.ctx, l.between(100*time.Millisecond, 300*time.Millisecond)) // idle by then
			delay, err := latency()
			if err != nil {
				return nil, err
			}
			delays = append(delays, delay)
		}
		slices.Sort(delays)
		return delays, nil
	}
	healthy, err := measure()
	if err != nil {
		return err
	}
	for _, w := range workers {
		w.proxy.blackhole(withWord("jobq-listen"))
	}
	without, err := measure()
	if err != nil {
		return err
	}
	l.figuref("picked up: with notifications %s; without %s (poll %s)", some(healthy), some(without), poll)
	return nil
}

// stoppedListener stops a worker and notifies it of megabytes: what is pinned,
// and is it free afterwards?
func stoppedListener(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	channel := ""
	if err := l.pool.QueryRow(l.ctx, "select jobq.channel('work')").Scan(&channel); err != nil {
		return err
	}
	workers[0].freeze()
	for range 100 {
		if _, err := l.pool.Exec(l.ctx, "select count(pg_notify($1, i || repeat('x', 7000))) from generate_series(1, 10) i", channel); err != nil {
			return err
		}
	}
	var full float64
	if err := l.pool.QueryRow(l.ctx, "select pg_notification_queue_usage()").Scan(&full); err != nil {
		return err
	}
	if full == 0 {
		return errors.New("the stopped listener kept nothing in the notification queue")
	}
	id, err := l.enqueue(order{Ms: 1})
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and finished_at is not null", id); err != nil {
		return err
	}
	workers[0].thaw()
	since := time.Now()
	err = l.within(patience, "the notification queue to be read", func() (bool, error) {
		var usage float64
		err := l.pool.QueryRow(l.ctx, "select pg_notification_queue_usage()").Scan(&usage)
		return usage < 0.0001, err
	})
	l.figuref("queue %.4f full while stopped, empty %s after it went on; the other worker served meanwhile", full, time.Since(since).Round(10*time.Millisecond))
	return err
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

// The mutants of F53: ids of leases are the clock's, also before 2026; and a rate is used up until a time that no claim can have left.
const (
	leasesByClock = "lease-ids-by-the-clock"
	rateAheadKept = "rate-ahead-kept"
)

// oddClocks has the server's clock stand before 2026, right, two hours ahead, right again, and once more before 2026. Before
// each step all workers are killed with what they run, and the rate of the queue is used up. After each step everything
// must go on at once, and not when the clock comes to where it was.
func oddClocks(l *lab) error {
	l.run.ClockSteps, l.run.StatsGo = true, true
	if err := l.set(fmt.Sprintf("rate=%d/s", queueRate), fmt.Sprintf("burst=%d", queueBurst)); err != nil {
		return err
	}
	const before2026 = "-34560000"
	if err := l.own.setClock(before2026); err != nil {
		return err
	}
	if err := l.execute("update jobq.setting set finished_retention = '10 years'"); err != nil { // or what ended before 2026 goes
		return err
	}
	if err := l.execute("select jobq.schedule_set('each second', 'tick', every => '1 s', queue => 'ticks')"); err != nil {
		return err
	}
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	var took []string
	for _, offset := range []string{"+0", "+7200", "+0", before2026, "+0"} {
		if err := l.busyBeforeStep(workers); err != nil {
			return err
		}
		if err := l.own.setClock(offset); err != nil {
			return err
		}
		stepped := time.Now()
		for i := range workers {
			if workers[i], err = l.worker(); err != nil {
				return err
			}
		}
		if err := l.goesOn(); err != nil {
			return fmt.Errorf("clock %s: %w", offset, err)
		}
		took = append(took, time.Since(stepped).Round(100*time.Millisecond).String())
	}
	if below := l.number("select count(*) from fault.history where stage = 'lease' and id < 0"); below > 0 {
		return brokenf("%d changes of leases with an id below 0", below)
	}
	l.after = func(*check.Verdict) string {
		return fmt.Sprintf("all workers were killed before each step; after it, all jobs had ended and the schedule had ticked within %s", strings.Join(took, ", "))
	}
	return nil
}

// busyBeforeStep has jobs run and the rate used up, and kills the workers.
func (l *lab) busyBeforeStep(workers []*process) error {
	for range 3 {
		if _, err := l.enqueueSurely(order{Ms: 60_000, MsTwo: 100}, "task"); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 3, "select count(*) from jobq.job where state = 'running' and kind = 'task'"); err != nil {
		return err
	}
	for range queueRate {
		if _, err := l.enqueueSurely(order{Ms: 10}, "flow"); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 1, "select least(count(*), 1) from jobq.throttle"); err != nil {
		return err
	}
	pause(l.ctx, extendEvery)
	for _, w := range workers {
		w.kill()
	}
	return nil
}

// goesOn waits until a job of a queue with a rate has ended, then one that waits for it and all that was there before, and
// until the schedule has ticked. The janitor shortens leases each 30 s, and looks at all schedules once a minute.
func (l *lab) goesOn() error {
	ticks := l.number("select count(*) from jobq.job where kind = 'tick'")
	parent, err := l.enqueueSurely(order{Ms: 10}, "flow")
	if err != nil {
		return err
	}
	if _, err := l.enqueueVia(l.pool, order{Ms: 10}, "task", fmt.Sprintf(", after => '{%d}'", parent)); err != nil {
		return err
	}
	if err := l.awaitNumber(patience/3, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", parent); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	return l.within(2*patience, "three ticks of a schedule of each second", func() (bool, error) {
		return l.number("select count(*) from jobq.job where kind = 'tick'") >= ticks+3, nil
	})
}

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

const (
	// frozenGoesOn is the mutant whose frozen programs go on when the database answers, whatever it answers.
	frozenGoesOn = "frozen-goes-on"
	// patienceNone and patienceEndless are mutants of the janitor, which takes leases at once after an outage, or leaves
	// them alone for an hour.
	patienceNone    = "patience-none"
	patienceEndless = "patience-without-bound"
)

// freezes makes the programs of all workers that are started freeze.
func (l *lab) freezes() { l.environ = append(l.environ, "JOBQ_LOCK_LOST_BEHAVIOR=freeze") }

// begun waits until so many runs have begun, of whatever jobs.
func (l *lab) begun(count int) error {
	return l.within(patience, fmt.Sprintf("%d runs to begin", count), func() (bool, error) {
		begins, err := l.begins()
		return begins >= count, err
	})
}

func (l *lab) begins() (count int, err error) {
	effects, err := check.ReadLedger(l.folder, check.Effects)
	for _, e := range effects {
		if e.What == "begin" {
			count++
		}
	}
	return count, err
}

// awaitFrozen waits until the process has frozen so many runs.
func (l *lab) awaitFrozen(p *process, count int) error {
	return l.within(patience, fmt.Sprintf("%d frozen runs", count), func() (bool, error) {
		return p.log.count("run frozen") >= count, nil
	})
}

const lostRuns = "select count(*) from jobq.attempt where outcome = 'lost'"

// freezeAndRestart restarts the server, which is away for longer than the leases. The janitor is back before the workers. No run
// is lost: the programs are frozen meanwhile, and the janitor waits for the time in which the workers can extend their leases.
func freezeAndRestart(l *lab) error {
	l.freezes()
	const lease, jobs = 6 * time.Second, 6
	if err := l.set("lease="+lease.String(), "extend_every="+(lease/2).String()); err != nil {
		return err
	}
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	for i := range jobs {
		kind := []string{"task", "flow"}[i%2]
		if _, err := l.enqueueSurely(order{Ms: 5000, MsTwo: 300}, kind); err != nil {
			return err
		}
	}
	if err := l.begun(jobs); err != nil {
		return err
	}
	from, err := l.now()
	if err != nil {
		return err
	}
	for _, w := range workers {
		w.proxy.cut(true)
	}
	l.own.end(syscall.SIGINT)
	err = l.within(patience, "frozen programs", func() (bool, error) { return l.logged("run frozen") == jobs, nil })
	if err != nil {
		return err
	}
	pause(l.ctx, lease/3) // more than what is left of the leases
	if err := l.own.start(l.ctx); err != nil {
		return err
	}
	err = l.within(patience, "the janitor to know of the outage", func() (bool, error) { return l.logged("have some time more") > 0, nil })
	if err != nil {
		return err
	}
	if l.mutant != "" { // it shows when a janitor has looked
		err = l.within(patience, "a lost run", func() (bool, error) { return l.number(lostRuns) > 0, nil })
	}
	for _, w := range workers {
		w.proxy.heal()
	}
	err = errors.Join(err, l.awaitNumber(patience, jobs, "select count(*) from jobq.job where state = 'completed'"))
	if err != nil {
		return err
	}
	to, err := l.now()
	if err != nil {
		return err
	}
	begins, err := l.begins()
	lost := l.number(lostRuns)
	l.figuref("%d programs frozen while the server was away for longer than their leases of %s: %s from the stop to the last end; %d runs lost, %d begun again",
		jobs, lease, to.Sub(from).Round(10*time.Millisecond), lost, begins-jobs)
	if lost != 0 || begins != jobs {
		return errors.Join(err, brokenf("%d runs lost, %d begun again", lost, begins-jobs))
	}
	return err
}

// awaitStopped waits until so many programs are stopped.
func (l *lab) awaitStopped(count int) error {
	return l.within(patience, fmt.Sprintf("%d stopped programs", count), func() (bool, error) {
		out, err := exec.CommandContext(l.ctx, "ps", "-eo", "stat,args").Output()
		stopped := 0
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) == 4 && words[0][0] == 'T' && words[1] == l.self && words[2] == "program" && words[3] == l.folder {
				stopped++
			}
		}
		return stopped == count, err
	})
}

// freezeAndTake cuts a worker off. Another one takes its jobs, and its frozen programs die without going on. Then it is cut off
// again, or stopped, so that the supervisors of its programs freeze them, and killed: nothing of it survives.
func freezeAndTake(l *lab) error {
	l.freezes()
	if err := l.janitor(); err != nil {
		return err
	}
	victim, err := l.worker()
	if err != nil {
		return err
	}
	const jobs = 4
	for range jobs {
		if _, err := l.enqueue(order{Ms: 60_000, MsTwo: 2500}); err != nil {
			return err
		}
	}
	if err := l.begun(jobs); err != nil {
		return err
	}
	other, err := l.worker()
	if err != nil {
		return err
	}
	victim.proxy.cut(true)
	if err := errors.Join(l.awaitFrozen(victim, jobs), l.begun(2*jobs)); err != nil {
		return err
	}
	victim.proxy.heal() // while the other's programs run
	err = l.within(patience, "the loss of the frozen runs", func() (bool, error) { return victim.log.count("lease lost") >= jobs, nil })
	if err := errors.Join(err, l.awaitNumber(patience, jobs, "select count(*) from jobq.job where state = 'completed'"), other.end()); err != nil {
		return err
	}

	for range jobs {
		if _, err := l.enqueue(order{Ms: 60_000, MsTwo: 300}); err != nil {
			return err
		}
	}
	if err := l.begun(3 * jobs); err != nil {
		return err
	}
	if l.random.IntN(2) == 0 {
		victim.proxy.cut(true)
	} else {
		victim.freeze()
	}
	if err := l.awaitStopped(jobs); err != nil {
		return err
	}
	victim.kill()
	if err := l.survivors(); err != nil {
		return err
	}
	if _, err := l.worker(); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 2*jobs, "select count(*) from jobq.job where state = 'completed'"); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d frozen programs whose jobs were taken, %d of them went on; %d whose worker was killed, none survived", jobs, v.Overlaps, jobs)
	}
	return nil
}

// freezeAndDie cuts all workers and janitors off, and kills one of the workers. The others lose no run. What the dead one had is
// taken when its owner could have extended it: the janitor's patience has an end.
func freezeAndDie(l *lab) error {
	l.freezes()
	dead, err := l.worker()
	if err != nil {
		return err
	}
	const each = 4
	enqueue := func() error {
		for range each {
			if _, err := l.enqueue(order{Ms: 8000, MsTwo: 300}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(enqueue(), l.begun(each)); err != nil {
		return err
	}
	workers, err := l.crew(1)
	if err != nil {
		return err
	}
	if err := errors.Join(enqueue(), l.begun(2*each)); err != nil {
		return err
	}
	if err := l.within(patience, "a leader", func() (bool, error) { return l.logged("leadership acquired") > 0, nil }); err != nil {
		return err
	}
	from, err := l.now()
	if err != nil {
		return err
	}
	l.mu.Lock()
	all := append([]*process(nil), l.processes...)
	l.mu.Unlock()
	for _, p := range all {
		p.proxy.cut(true)
	}
	dead.kill()
	if err := l.awaitFrozen(workers[0], each); err != nil {
		return err
	}
	pause(l.ctx, lease)
	healed := time.Now()
	for _, p := range all {
		if p != dead {
			p.proxy.heal()
		}
	}
	if err := l.within(patience/2, "what the dead worker had to be taken", func() (bool, error) { return l.number(lostRuns) >= each, nil }); err != nil {
		return err
	}
	taken := time.Since(healed)
	to, err := l.awaitReaper()
	if err != nil {
		return err
	}
	l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to.Add(lease)})
	if err := l.awaitNumber(patience, 2*each, "select count(*) from jobq.job where state = 'completed'"); err != nil {
		return err
	}
	lost := l.number(lostRuns)
	l.figuref("%d runs of the dead worker were taken %s after the cut of all, %d of the others", each, taken.Round(10*time.Millisecond), lost-each)
	if lost != each {
		return brokenf("%d runs were lost, the dead worker had %d", lost, each)
	}
	return nil
}

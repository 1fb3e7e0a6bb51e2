package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

// killWorkers kills a worker every second or so, and starts another. What it
// held must be reaped within lease and scan.
func killWorkers(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(20, 120)
	kills := 0
	deaths := make(map[string]time.Time) // by pid
	err = l.until(l.duration(), func() error {
		pause(l.ctx, l.between(600*time.Millisecond, 1500*time.Millisecond))
		i := l.random.IntN(len(workers))
		if deaths[strconv.Itoa(workers[i].pid())], err = l.now(); err != nil {
			return err
		}
		workers[i].kill()
		kills++
		workers[i], err = l.worker()
		return err
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		l.samples = reclaimed(v, deaths)
		return fmt.Sprintf("%d kills, %d jobs; kill to reclaim, with leases and scans of %s: %s", kills, v.Acknowledged, lease+scan, some(l.samples))
	}
	if kills == 0 {
		return fmt.Errorf("no kills")
	}
	return nil
}

// reclaimed is how long after the death of its worker each job was taken.
func reclaimed(v *check.Verdict, deaths map[string]time.Time) (delays []time.Duration) {
	for _, reap := range v.Reaped {
		for pid, at := range deaths {
			if strings.Contains(reap.Owner, "-"+pid+"-") {
				delays = append(delays, reap.At.Sub(at))
			}
		}
	}
	slices.Sort(delays)
	return delays
}

// longJobs run for several times their lease under a janitor that would take
// them at once.
func longJobs(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	for range 8 {
		if _, err := l.enqueue(order{Ms: int(max(l.duration(), 4*lease).Milliseconds())}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.job where state = 'completed'"); err != nil {
		return err
	}
	reaps := l.number("select count(*) from jobq.attempt where outcome = 'lost'")
	l.figuref("8 jobs of %s with leases of %s, %d false reaps", max(l.duration(), 4*lease), lease, reaps)
	if reaps != 0 {
		return brokenf("%d false reaps", reaps)
	}
	return nil
}

// stopWorkers stops workers for longer than their leases and lets them go on
// while the next owner runs the job.
func stopWorkers(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(6, 700)
	stops := 0
	freeze := func() error {
		w := workers[l.random.IntN(len(workers))]
		pause(l.ctx, l.between(300*time.Millisecond, 800*time.Millisecond))
		w.freeze()
		shortest := lease / 2
		if stops%2 == 0 {
			shortest = lease * 5 / 4
		}
		stops++
		pause(l.ctx, l.between(shortest, 3*lease))
		w.thaw()
		return nil
	}
	err = l.until(max(l.duration(), 10*time.Second), freeze)
	for range 5 { // by chance, those that were stopped may have had no job
		if err == nil && l.logged("lease lost") == 0 {
			err = freeze()
		}
	}
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		refused := l.logged("lease lost") + l.logged("result refused")
		return fmt.Sprintf("%d stops; %d stale leases given up or refused, %d stale writes accepted", stops, refused, v.Stale)
	}
	if l.logged("lease lost") == 0 {
		return fmt.Errorf("no worker was stopped for long enough to lose a lease")
	}
	return nil
}

// stoppedWithChildren stops a worker whose programs go on, for longer than its
// leases, while another has room for its jobs. The programs' own supervisors
// must have ended them before those begin again (I2).
func stoppedWithChildren(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	for range 8 {
		if _, err := l.enqueue(order{Ms: 8000, MsTwo: 300}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.job where state = 'running'"); err != nil {
		return err
	}
	workers[0].freeze()
	if _, err := l.worker(); err != nil {
		return err
	}
	pause(l.ctx, 2*lease)
	workers[0].thaw()
	thawed := monotonic()
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.job where finished_at is not null"); err != nil {
		return err
	}
	effects, err := check.ReadLedger(l.folder, check.Effects)
	if err != nil {
		return err
	}
	again := 0
	begun := make(map[int64]bool)
	for _, e := range effects {
		if e.What != "begin" {
			continue
		}
		if begun[e.Job] && e.Mono < thawed {
			again++
		}
		begun[e.Job] = true
	}
	if again == 0 {
		return errors.New("no job began again while its worker was stopped")
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d jobs began again while their worker was stopped, %d of them before their program had been ended", again, v.Overlaps)
	}
	return nil
}

// poison mixes jobs that fail, die and kill their worker with good ones. All
// workers that die are started again, as a service manager does.
func poison(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	const each = 4
	for range each {
		for _, do := range []string{"fail", "exit137", "kill", "", "", ""} {
			if _, err := l.enqueue(order{Ms: 50, Do: do}); err != nil {
				return err
			}
		}
	}
	restarts := 0
	err = l.within(patience/2, "the end of all jobs", func() (bool, error) {
		for i, w := range workers {
			if w.alive() {
				continue
			}
			w.proxy.close()
			restarts++
			if workers[i], err = l.worker(); err != nil && !strings.Contains(err.Error(), "ended:") {
				return false, err
			}
		}
		return l.number("select count(*) from jobq.job where finished_at is null") == 0, nil
	})
	if err != nil {
		return err
	}
	failed, completed := l.number("select count(*) from jobq.job where state = 'failed'"), l.number("select count(*) from jobq.job where state = 'completed'")
	l.figuref("%d poison jobs ended as failed, good jobs caught in it included; %d completed; %d workers killed by their jobs", failed, completed, restarts)
	if failed < 3*each || restarts < each {
		return brokenf("%d failed, %d restarts: %d poison jobs must fail", failed, restarts, 3*each)
	}
	return nil
}

// poisonBesideOthers has three jobs that kill their workers each time, and others that come all the time. Only
// those three fail. A worker that was lost with a job that it ran alone was lost with nothing else.
func poisonBesideOthers(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := l.enqueue(order{Ms: 50, Do: "kill"}); err != nil {
			return err
		}
	}
	stop := l.produce(20, 50)
	restarts := 0
	running := true
	err = l.within(2*patience, "the end of all jobs", func() (bool, error) {
		for i, w := range workers {
			if w.alive() {
				continue
			}
			w.proxy.close()
			restarts++
			if workers[i], err = l.worker(); err != nil && !strings.Contains(err.Error(), "ended:") {
				return false, err
			}
		}
		if running && l.number("select count(*) from jobq.job where state = 'failed'") >= 3 {
			running = false
			if err := stop(); err != nil {
				return false, err
			}
		}
		return !running && l.number("select count(*) from jobq.job where finished_at is null") == 0, nil
	})
	if running {
		err = errors.Join(err, stop())
	}
	if err != nil {
		return err
	}
	failed, innocents := l.number("select count(*) from jobq.job where state = 'failed'"), l.number("select count(*) from jobq.job where state = 'completed'")
	lost := l.number("select coalesce(max(attempts), 0) from jobq.job where state = 'completed'")
	// A slow worker may have lost leases of other jobs before, and gone on. A lease that it still had when the
	// suspect began is reaped two thirds of a lease later at the earliest.
	beside := l.number(`select count(*) from jobq.attempt a join jobq.attempt b on b.worker_id = a.worker_id and b.job_id <> a.job_id
		where a.outcome = 'lost' and a.error like '%alone in its worker%' and b.outcome = 'lost' and b.finished_at > a.started_at + interval '1.25 s'`)
	l.figuref("%d workers killed; 3 jobs failed, and %d of the others, of which %d completed, each after %d losses at most; %d were lost beside a job that ran alone",
		restarts, failed-3, innocents, lost, beside)
	if failed != 3 || beside != 0 {
		return brokenf("%d failed, %d were lost beside a job that ran alone", failed, beside)
	}
	return nil
}

// drains ends workers at full load, by one signal, by two, and not by -9. Leases
// are long: a round trip is given up after half of one, and a claim whose answer
// comes later than that costs an attempt, which would tell of the machine's load
// and not of drains.
func drains(l *lab) error {
	if err := l.set("lease=20s"); err != nil {
		return err
	}
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	stop := l.produce(40, 150)
	rounds := 0
	var longest time.Duration
	err = l.until(l.duration(), func() error {
		pause(l.ctx, l.between(200*time.Millisecond, 600*time.Millisecond))
		i := rounds % len(workers)
		since := time.Now()
		if err := workers[i].end(); err != nil {
			return err
		}
		longest = max(longest, time.Since(since))
		rounds++
		workers[i], err = l.worker()
		return err
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	burnt := l.number("select count(*) from jobq.attempt where outcome not in ('completed', 'released')")
	l.figuref("%d drains at full load, the longest %s, %d attempts burnt", rounds, longest.Round(10*time.Millisecond), burnt)
	if rounds == 0 || burnt != 0 {
		return brokenf("%d rounds, %d attempts burnt: %s", rounds, burnt, l.text(`select string_agg(format('job %s, token %s, worker %s, %s: %s', job_id,
			lease_token, worker_id, outcome, error), '; ') from jobq.attempt where outcome not in ('completed', 'released')`))
	}
	return nil
}

// restartBesideSibling kills and restarts one of two workers of a host, beside
// one of a host with a longer name. The dead one's jobs are recovered at its
// restart, the others' are never touched.
func restartBesideSibling(l *lab) error {
	l.run.Recovers = true
	if err := l.janitor("--scan", "0"); err != nil { // only restarts recover
		return err
	}
	if err := l.set("lease=1h"); err != nil {
		return err
	}
	siblings := make([]int64, 0, 2)
	for _, host := range []hostname{"web-1", "web-1-2"} {
		if _, err := l.workerOn(host, "-q", "default=1"); err != nil {
			return err
		}
		id, err := l.enqueue(order{Ms: int((l.duration() + 25*time.Second).Milliseconds()), MsTwo: 1})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
			return err
		}
		siblings = append(siblings, id)
	}
	trials := 0
	var longest time.Duration
	err := l.until(max(l.duration(), 5*time.Second), func() error {
		victim, err := l.workerOn("web-1", "-q", "default=1")
		if err != nil {
			return err
		}
		id, err := l.enqueue(order{Ms: 60_000, MsTwo: 1})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'running'", id); err != nil {
			return err
		}
		victim.kill()
		since := time.Now()
		restarted, err := l.workerOn("web-1", "-q", "default=1")
		if err != nil {
			return err
		}
		if restarted.log.count("recovered 1 orphaned jobs") != 1 {
			return brokenf("the restarted worker did not recover one job: %s", restarted.log)
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and finished_at is not null and attempts = 1 and last_error = 'orphaned by worker restart'", id); err != nil {
			return err
		}
		longest = max(longest, time.Since(since))
		trials++
		return restarted.end()
	})
	if err != nil {
		return err
	}
	touched := l.number("select count(*) from fault.history where id = any($1) and op = 'delete' and stage = 'run'", siblings)
	l.figuref("%d restarts, siblings touched %d times; recovered and done again within %s of the kill, leases of 1h", trials, touched, longest.Round(10*time.Millisecond))
	if touched != 0 {
		return brokenf("live siblings' jobs were touched %d times", touched)
	}
	return nil
}

// chaos picks faults at random, more often heals, for as long as it may.
func chaos(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(15, 250)
	faults := map[string]int{}
	err = l.until(l.duration(), func() error {
		i := l.random.IntN(len(workers))
		w := workers[i]
		pause(l.ctx, l.between(50*time.Millisecond, 500*time.Millisecond))
		switch n := l.random.IntN(16); {
		case n < 2:
			faults["kill"]++
			w.kill()
			workers[i], err = l.worker()
			return err
		case n < 4:
			faults["stop"]++
			w.freeze()
		case n < 5:
			faults["blackhole"]++
			w.proxy.blackhole(everything)
		case n < 6:
			faults["cut"]++
			w.proxy.cut(false)
		case n < 7:
			faults["delay"]++
			w.proxy.set(l.between(time.Millisecond, 200*time.Millisecond), 0)
		default:
			for _, w := range workers {
				w.thaw()
				w.proxy.heal()
			}
		}
		return nil
	})
	for _, w := range workers {
		w.thaw()
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%v; %d transitions, %d jobs, %d violations", faults, v.Transitions, v.Acknowledged, len(v.Violations))
	}
	return nil
}

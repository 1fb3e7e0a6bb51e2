package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

// scenario is a fault, made while jobs run. Its body leaves a figure with
// figuref, and returns an error when something did not happen that had to:
// a run without the fault proves nothing.
type scenario struct {
	id, name string
	body     func(*lab) error
	alone    bool                                      // it touches the server that others use
	server   func(l *lab, dir string) (*server, error) // of its own; nil: the one of all
	smoke    bool                                      // in the short set
	needs    func() error                              // nil: nothing; its error is why the scenario cannot run here
	mutants  []string                                  // that it must catch
	scale    time.Duration                             // how long the fault goes on in the full set; the short set has a third
}

func scenarios() []scenario {
	return []scenario{
		{id: "F1", name: "kill -9 of workers", body: killWorkers, smoke: true, mutants: []string{"reap-without-bump"}, scale: 20 * time.Second},
		{id: "F2", name: "immediate restart of the server", body: restartServer, alone: true, scale: 12 * time.Second},
		{id: "F3", name: "jobs much longer than their lease", body: longJobs, smoke: true, scale: 12 * time.Second},
		{id: "F4", name: "workers stopped past their leases", body: stopWorkers, smoke: true, scale: 16 * time.Second},
		{id: "F4b", name: "a result that arrives under the next lease", body: lateResult, smoke: true, mutants: []string{"complete-without-token"}},
		{id: "F4c", name: "a heartbeat that arrives under another's lease", body: lateHeartbeat, smoke: true, mutants: []string{"extend-without-token"}},
		{id: "F5", name: "worker stopped, its programs not", body: stoppedWithChildren},
		{id: "F6", name: "a heartbeat that races the reap", body: raceReap, smoke: true, mutants: []string{"reap-without-recheck", "lock-ignored-unfenced-reap"}, scale: 15 * time.Second},
		{id: "F7", name: "network lost for 1x and 3x the lease, answers cut", body: loseNetwork, smoke: true, scale: 16 * time.Second},
		{id: "F8", name: "backends terminated at random", body: terminateBackends, smoke: true, scale: 15 * time.Second},
		{id: "F9", name: "poison jobs: exit 1, exit 137, kill of their worker", body: poison, smoke: true, mutants: []string{"uncounted-release"}},
		{id: "F10", name: "janitors terminated, their lock stolen", body: stealLock, smoke: true, scale: 15 * time.Second},
		{id: "F11", name: "notifications lost", body: loseNotifications, smoke: true, mutants: []string{"no-polling"}},
		{id: "F12", name: "the server's clock jumps by an hour, forth and back", body: stepClock, server: clockedServer, needs: fakeTime},
		{id: "F13", name: "a transaction held open", body: holdTransaction, scale: 10 * time.Second},
		{id: "F14", name: "bad data", body: badData, smoke: true},
		{id: "F15", name: "a kind that only some workers know", body: unknownKind, smoke: true},
		{id: "F18", name: "a stopped listener", body: stoppedListener},
		{id: "F19", name: "complete, cancel and requeue against each other", body: contend, smoke: true, scale: 8 * time.Second},
		{id: "F21", name: "promotion of a synchronous standby", body: promote(true), server: plainServer},
		{id: "F21b", name: "promotion of an asynchronous standby", body: promote(false), server: plainServer},
		{id: "F24", name: "disk full, and room again", body: fillDisk, server: smallDisk, needs: root},
		{id: "F25", name: "unique keys, 64 at once", body: uniqueRace, smoke: true},
		{id: "F27", name: "drain at full load", body: drains, smoke: true, scale: 15 * time.Second},
		{id: "F28", name: "everything at random", body: chaos, smoke: true, scale: 30 * time.Second},
		{id: "R1", name: "restart beside a live sibling, web-1 and web-1-2", body: restartBesideSibling, smoke: true, needs: hostnames, mutants: []string{"prefix-host"}, scale: 40 * time.Second},
	}
}

func (l *lab) figuref(format string, args ...any) { l.figure = fmt.Sprintf(format, args...) }

// duration is how long the fault goes on.
func (l *lab) duration() time.Duration { return l.scale }

// until runs the step until the time is over.
func (l *lab) until(duration time.Duration, step func() error) error {
	for end := time.Now().Add(duration); time.Now().Before(end) && l.ctx.Err() == nil; {
		if err := step(); err != nil {
			return err
		}
	}
	return l.ctx.Err()
}

// between is a random time of the range.
func (l *lab) between(low, high time.Duration) time.Duration {
	return low + time.Duration(l.random.Int64N(int64(high-low)))
}

// some is what figures say of a number of times.
func some(delays []time.Duration) string {
	if len(delays) == 0 {
		return "none"
	}
	at := func(share float64) time.Duration {
		return delays[int(share*float64(len(delays)-1))].Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", at(0.5), at(0.99), at(1), len(delays))
}

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
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.finished where state = 'completed'"); err != nil {
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
	err = l.until(max(l.duration(), 10*time.Second), func() error {
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
	})
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

// logged counts a text in the logs of all processes.
func (l *lab) logged(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, p := range l.processes {
		total += p.log.count(text)
	}
	return total
}

// lateResult has a worker's result lie in the network until the same worker
// runs the same job again: the owner is right and only the token is old.
func lateResult(l *lab) error {
	if err := l.janitor(); err != nil {
		return err
	}
	w, err := l.worker()
	if err != nil {
		return err
	}
	for range 8 { // its statements are prepared by then, on whatever connection
		if _, err := l.enqueue(order{Ms: 10}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.finished"); err != nil {
		return err
	}
	late := 0
	for range 4 {
		id, err := l.enqueue(order{Ms: 400, MsTwo: 4000})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1", id); err != nil {
			return err
		}
		w.proxy.blackhole(everything) // the result, and every try to send it again, stay here
		if err := l.awaitNumber(patience, 0, "select count(*) from jobq.running where id = $1", id); err != nil {
			return err
		}
		release := w.proxy.stick()
		w.proxy.heal() // what begins from now on gets through
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1 and lease_token = 2", id); err != nil {
			return err
		}
		before := w.proxy.late()
		release()
		if err := l.within(patience, "what was held to arrive", func() (bool, error) { return w.proxy.late() > before, nil }); err != nil {
			return err
		}
		late += w.proxy.late() - before
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.finished where id = $1", id); err != nil {
			return err
		}
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("4 times, %d bytes delivered late, %d stale writes accepted", late, v.Stale)
	}
	if late == 0 {
		return fmt.Errorf("nothing was delivered late")
	}
	return nil
}

// lateHeartbeat has a worker's extension lie in the network until another
// worker runs the job.
func lateHeartbeat(l *lab) error {
	if err := l.janitor(); err != nil {
		return err
	}
	first, err := l.worker()
	if err != nil {
		return err
	}
	id, err := l.enqueue(order{Ms: 20_000, MsTwo: 5000})
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1", id); err != nil {
		return err
	}
	pause(l.ctx, lease) // its statements are prepared by then
	first.proxy.blackhole(everything)
	pause(l.ctx, extendEvery*3/2) // an extension is under way by then
	release := first.proxy.stick()
	if _, err := l.worker(); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1 and lease_token = 2", id); err != nil {
		return err
	}
	before := first.proxy.late()
	release()
	first.proxy.heal()
	if err := l.within(patience, "what was held to arrive", func() (bool, error) { return first.proxy.late() > before, nil }); err != nil {
		return err
	}
	late := first.proxy.late() - before
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d bytes delivered late, %d stale writes accepted", late, v.Stale)
	}
	return l.awaitNumber(patience, 1, "select count(*) from jobq.finished where id = $1", id)
}

// stoppedWithChildren stops a worker whose programs go on: how long do they
// live after the lease is lost? Nobody can end them until it goes on.
func stoppedWithChildren(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	for range 8 {
		if _, err := l.enqueue(order{Ms: 6000, MsTwo: 300}); err != nil {
			return err
		}
	}
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.running"); err != nil {
		return err
	}
	workers[0].freeze()
	pause(l.ctx, 2*lease)
	workers[0].thaw()
	thawed := monotonic()
	if err := l.awaitNumber(patience, 8, "select count(*) from jobq.finished"); err != nil {
		return err
	}
	effects, err := check.ReadLedger(l.folder, check.Effects)
	if err != nil {
		return err
	}
	var longest time.Duration
	for _, e := range effects {
		if e.What == "beat" && e.Token == 1 && e.Mono > thawed && l.number("select count(*) from jobq.attempt where job_id = $1 and outcome = 'lost'", e.Job) > 0 {
			longest = max(longest, e.Mono-thawed)
		}
	}
	l.figuref("programs of the stopped worker lived %s after it went on", longest.Round(10*time.Millisecond))
	return nil
}

// raceReap holds a running row, as a heartbeat that is slow to commit does,
// past the end of its lease, and then extends it.
func raceReap(l *lab) error {
	if _, err := l.crew(2); err != nil {
		return err
	}
	trials := 0
	err := l.until(max(l.duration(), 5*time.Second), func() error {
		id, err := l.enqueue(order{Ms: 2500})
		if err != nil {
			return err
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.running where id = $1", id); err != nil {
			return err
		}
		tx, err := l.pool.Begin(l.ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(l.ctx) }()
		// The worker cannot extend meanwhile, and keeps its belief for the lease
		// less its margin; the extension that commits is in time by the row.
		if _, err := tx.Exec(l.ctx, "select from jobq.running where id = $1 for update", id); err != nil {
			return err
		}
		var remaining float64
		if err := tx.QueryRow(l.ctx, "select extract(epoch from lease_expires_at - clock_timestamp())::float8 from jobq.running where id = $1", id).Scan(&remaining); err != nil {
			return err
		}
		pause(l.ctx, time.Duration(remaining*float64(time.Second))+l.between(50*time.Millisecond, scan))
		if _, err := tx.Exec(l.ctx, "update jobq.running set lease_expires_at = clock_timestamp() + interval '3 s' where id = $1", id); err != nil {
			return err
		}
		trials++
		return tx.Commit(l.ctx)
	})
	l.after = func(v *check.Verdict) string { return fmt.Sprintf("%d races, %d early reaps", trials, v.Early) }
	return err
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

// terminateBackends ends server processes of jobq at random.
func terminateBackends(l *lab) error {
	if _, err := l.crew(3); err != nil {
		return err
	}
	stop := l.produce(20, 100)
	terminated := 0
	err := l.until(l.duration(), func() error {
		pause(l.ctx, 200*time.Millisecond)
		terminated += max(0, l.number(`select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
			where datname = current_database() and application_name like 'jobq%' order by random() limit 1) x`))
		return nil
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	failed := l.number("select count(*) from jobq.attempt where outcome = 'failed'")
	l.figuref("%d backends terminated, %d errors seen by jobs", terminated, failed)
	if terminated == 0 || failed != 0 {
		return brokenf("%d terminated, %d jobs failed", terminated, failed)
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
		return l.number("select (select count(*) from jobq.pending) + (select count(*) from jobq.running)") == 0, nil
	})
	if err != nil {
		return err
	}
	failed, completed := l.number("select count(*) from jobq.finished where state = 'failed'"), l.number("select count(*) from jobq.finished where state = 'completed'")
	l.figuref("%d poison jobs ended as failed, good jobs caught in it included; %d completed; %d workers killed by their jobs", failed, completed, restarts)
	if failed < 3*each || restarts < each {
		return brokenf("%d failed, %d restarts: %d poison jobs must fail", failed, restarts, 3*each)
	}
	return nil
}

// stealLock kills leaders' connections in the middle of their work, and holds
// their lock from elsewhere for a while.
func stealLock(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	stop := l.produce(15, 120)
	stolen, terminated := 0, 0
	err = l.until(l.duration(), func() error {
		i := l.random.IntN(len(workers))
		workers[i].kill() // something to reap
		if workers[i], err = l.worker(); err != nil {
			return err
		}
		pause(l.ctx, l.between(lease/2, lease))
		from, err := l.now()
		if err != nil {
			return err
		}
		var class, object int64
		err = l.pool.QueryRow(l.ctx, `select l.classid::bigint, l.objid::bigint from pg_locks l join pg_stat_activity a using (pid)
			where a.datname = current_database() and a.application_name = 'jobq-janitor' and l.locktype = 'advisory' limit 1`).Scan(&class, &object)
		if err != nil {
			return nil // nobody leads at the moment
		}
		conn, err := l.pool.Acquire(l.ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		terminated += max(0, l.number("select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name = 'jobq-janitor'"))
		if _, err := conn.Exec(l.ctx, "select pg_advisory_lock(($1::bigint::bit(32))::int, ($2::bigint::bit(32))::int)", class, object); err != nil {
			return err
		}
		pause(l.ctx, scan)
		if _, err := conn.Exec(l.ctx, "select pg_advisory_unlock_all()"); err != nil {
			return err
		}
		stolen++
		to, err := l.now()
		l.run.Paused = append(l.run.Paused, check.Span{From: from, To: to.Add(2 * scan)})
		return err
	})
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("lock stolen %d times, %d janitor backends terminated, %d reaps, %d double bumps", stolen, terminated, v.Reaps, v.DoubleBump)
	}
	if stolen == 0 {
		return fmt.Errorf("the lock was never stolen")
	}
	return nil
}

// loseNotifications makes the listeners deaf: their connections stay open and
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
	deaf, err := measure()
	if err != nil {
		return err
	}
	l.figuref("picked up: healthy %s; deaf %s (poll %s)", some(healthy), some(deaf), poll)
	return nil
}

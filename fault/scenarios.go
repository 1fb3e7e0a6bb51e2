package main

import (
	"fmt"
	"time"
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
	cutOff   bool                                      // processes are stopped or cut off, so that runs of a job may overlap
	needs    func() error                              // nil: nothing; its error is why the scenario cannot run here
	mutants  []string                                  // that it must catch
	scale    time.Duration                             // how long the fault goes on in the full set; the short set has a third
}

func scenarios() []scenario {
	return []scenario{
		{id: "F1", name: "kill -9 of workers", body: killWorkers, smoke: true, mutants: []string{"reap-without-bump"}, scale: 20 * time.Second},
		{id: "F2", name: "immediate restart of the server", body: restartServer, alone: true, scale: 12 * time.Second},
		{id: "F3", name: "jobs much longer than their lease", body: longJobs, smoke: true, scale: 12 * time.Second},
		{id: "F4", name: "workers stopped past their leases", body: stopWorkers, cutOff: true, smoke: true, scale: 16 * time.Second},
		{id: "F4b", name: "a result that arrives under the next lease", body: lateResult, cutOff: true, smoke: true, mutants: []string{"complete-without-token"}},
		{id: "F4c", name: "a heartbeat that arrives under another's lease", body: lateHeartbeat, cutOff: true, smoke: true, mutants: []string{"extend-without-token"}},
		{id: "F4d", name: "whatever a run sent, under the same owner's next lease", body: lateUnderOwner, cutOff: true, smoke: true, mutants: []string{"extend-old-token", "end-old-token", "progress-old-token", "checkpoint-old-token"}},
		{id: "F5", name: "worker stopped, its programs not", body: stoppedWithChildren},
		{id: "F6", name: "a heartbeat that races the reap", body: raceReap, smoke: true, mutants: []string{"reap-without-recheck", "lock-ignored-unfenced-reap"}, scale: 15 * time.Second},
		{id: "F7", name: "network lost for 1x and 3x the lease, answers cut", body: loseNetwork, cutOff: true, smoke: true, scale: 16 * time.Second},
		{id: "F8", name: "backends terminated at random", body: terminateBackends, smoke: true, scale: 15 * time.Second},
		{id: "F9", name: "poison jobs: exit 1, exit 137, kill of their worker", body: poison, smoke: true, mutants: []string{"uncounted-release"}},
		{id: "F10", name: "janitors terminated, their lock stolen", body: stealLock, smoke: true, scale: 15 * time.Second},
		{id: "F11", name: "notifications lost", body: loseNotifications, smoke: true, mutants: []string{"no-polling"}},
		{id: "F12", name: "the server's clock jumps by an hour, forth and back", body: stepClock, cutOff: true, server: clockedServer, needs: fakeTime},
		{id: "F13", name: "a transaction held open", body: holdTransaction, scale: 10 * time.Second},
		{id: "F14", name: "bad data", body: badData, smoke: true},
		{id: "F15", name: "a kind that only some workers know", body: unknownKind, smoke: true},
		{id: "F18", name: "a stopped listener", body: stoppedListener},
		{id: "F19", name: "complete, cancel and requeue against each other", body: contend(true), smoke: true, scale: 8 * time.Second},
		{id: "F19b", name: "the same in no order, with deadlocks", body: contend(false), scale: 8 * time.Second},
		{id: "F21", name: "promotion of a synchronous standby", body: promote(true), cutOff: true, server: plainServer},
		{id: "F21b", name: "promotion of an asynchronous standby", body: promote(false), cutOff: true, server: plainServer},
		{id: "F24", name: "disk full, and room again", body: fillDisk, server: smallDisk, needs: root},
		{id: "F25", name: "unique keys, 64 at once", body: uniqueRace, smoke: true},
		{id: "F27", name: "drain at full load", body: drains, smoke: true, scale: 15 * time.Second},
		{id: "F28", name: "everything at random", body: chaos, cutOff: true, smoke: true, scale: 30 * time.Second},
		{id: "F29", name: "100,000 jobs due at once, workers killed", body: dueBacklog("leader"), smoke: true, mutants: []string{"promote-unbounded"}},
		{id: "F29b", name: "the same with janitors that take turns", body: dueBacklog("any"), smoke: true},
		{id: "F30", name: "a chore of the janitor that hangs", body: slowChore, smoke: true, scale: 12 * time.Second},
		{id: "F31", name: "a long reader while days come and go", body: longReader, smoke: true, scale: 12 * time.Second},
		{id: "F32", name: "the janitor's lock kept by a stranger", body: keptLock, smoke: true, mutants: []string{"rescue-needs-lock"}, scale: 12 * time.Second},
		{id: "F33", name: "all through PgBouncer in transaction mode", body: pooled, smoke: true, needs: pooler, scale: 15 * time.Second},
		{id: "F34", name: "kept processes whose answers cannot be read", body: unreadable, smoke: true},
		{id: "F35", name: "answers to ends are lost", body: loseAnswers, smoke: true, mutants: []string{"end-counted-twice"}},
		{id: "F35b", name: "answers to claims are lost", body: loseClaims, smoke: true},
		{id: "F36", name: "a plain end that arrives when its lease is lost", body: lateForLost, cutOff: true, smoke: true, mutants: []string{"bulk-end-of-lost-lease", "close-with-locked-run"}},
		{id: "F37", name: "a job whose row is locked while it ends", body: lockedEnd, smoke: true, mutants: []string{"recorded-before-stored"}},
		{id: "F38", name: "janitors killed and stopped while schedules tick each second", body: killJanitors, smoke: true, mutants: []string{"cursor-without-insert", "tick-not-unique"}, scale: 24 * time.Second},
		{id: "F39", name: "a queue with a limit, its workers killed and stopped", body: limitAndKills, cutOff: true, smoke: true, mutants: []string{"limit-not-counted", "limit-counted-early"}, scale: 15 * time.Second},
		{id: "F40", name: "a queue with a rate, its workers killed and stopped", body: rateAndKills, cutOff: true, smoke: true, mutants: []string{"rate-not-charged"}, scale: 15 * time.Second},
		{id: "F41", name: "programs that end their jobs themselves, killed and stopped", body: ownEnds, cutOff: true, smoke: true, mutants: []string{ownUnfenced}, scale: 15 * time.Second},
		{id: "F42", name: "jobs with steps, sleeps and events, killed and stopped", body: stepsAndKills, cutOff: true, smoke: true, mutants: []string{ownUnfenced, eventUnlocked}, scale: 15 * time.Second},
		{id: "F43", name: "partition keys with a limit, workers killed and stopped", body: keysAndKills, cutOff: true, smoke: true, mutants: []string{"key-not-counted"}, scale: 15 * time.Second},
		{id: "F44", name: "jobs that wait for others, workers and janitors killed", body: dependents, smoke: true, mutants: []string{newParentOnce, firstParentFrees}, scale: 15 * time.Second},
		{id: "F45", name: "partition keys in order, workers killed and stopped", body: orderAndKills, cutOff: true, smoke: true, mutants: []string{"key-not-counted", headForgotten, retryPassed}, scale: 15 * time.Second},
		{id: "F46", name: "jobs that spawn others and await them, killed and stopped", body: spawnsAndKills, cutOff: true, smoke: true, mutants: []string{awaitUnannounced}, scale: 15 * time.Second},
		{id: "F47", name: "partition keys with a rate, workers killed and stopped", body: keyRateAndKills, cutOff: true, smoke: true, mutants: []string{"key-rate-forgotten"}, scale: 15 * time.Second},
		{id: "F48", name: "days swept of what is kept for less long, all janitors killed", body: sweepAndKills, smoke: true, mutants: []string{sweepForgotten}, scale: 15 * time.Second},
		{id: "F49", name: "jobs claimed ahead that have not begun, their worker killed", body: notBegun, smoke: true, mutants: []string{"begun-ignored"}, scale: 12 * time.Second},
		{id: "F50", name: "a job that kills its worker each time, beside others", body: poisonBesideOthers, smoke: true, mutants: []string{"suspect-beside-others"}},
		{id: "F51", name: "locks of strangers, workers killed", body: locksOfStrangers, smoke: true, mutants: []string{turnsAdvisory}, scale: 15 * time.Second},
		{id: "F52", name: "a publication for all tables, workers killed", body: publishAll, smoke: true, mutants: []string{identityForgotten}, scale: 12 * time.Second},
		{id: "F56", name: "children of programs that escape, shims and workers killed", body: escapes, smoke: true, mutants: []string{orphansLeft}, scale: 12 * time.Second},
		{id: "F53", name: "the server's clock before 2026, and two hours ahead and back", body: oddClocks, cutOff: true, server: clockedServer, needs: fakeTime, mutants: []string{leasesByClock, rateAheadKept}},
		{id: "F54", name: "promotion of a standby that lacks many ids and tokens", body: failoverIDs, cutOff: true, smoke: true, server: plainServer, mutants: []string{idsRepeat}},
		{id: "F55", name: "jobs that cannot be read among good ones, workers killed", body: oddAmongGood, smoke: true, alone: true, mutants: []string{"claim-gives-up"}, scale: 12 * time.Second},
		{id: "F57", name: "inserts that leave the notification to another", body: leftToAnother, smoke: true, mutants: []string{bellTrusted}},
		{id: "F58", name: "the server away for longer than leases, programs frozen", body: freezeAndRestart, smoke: true, server: plainServer, mutants: []string{patienceNone}},
		{id: "F59", name: "a worker cut off, its frozen programs' jobs taken, and killed", body: freezeAndTake, smoke: true, mutants: []string{frozenGoesOn}},
		{id: "F60", name: "all cut off with frozen programs, one worker killed", body: freezeAndDie, smoke: true, mutants: []string{patienceEndless}},
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

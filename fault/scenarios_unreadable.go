package main

import (
	"errors"
	"time"
)

// oddJob adds a job of which no claim can make the text: its metadata has 2 GB as text, and 200 kB as stored. The triggers
// refuse it, so it comes past them.
const oddJob = `begin;
	insert into jobq.pending (kind, priority) values ('task', -1);
	set local session_replication_role = replica;
	update jobq.pending set metadata = ('[1e131071' || repeat(',1e131071', 15000) || ']')::jsonb where priority = -1 and metadata is null;
	commit`

const oddJobsLeft = "select count(*) from jobq.pending where priority = -1"

// oddAmongGood adds jobs that cannot be read at the head of the line, one after the other, while good jobs come and workers
// are killed. The good ones complete; the odd ones fail for good, without an attempt, and say why. It runs alone: each try to
// claim an odd job takes seconds, and a gigabyte of the server's memory.
func oddAmongGood(l *lab) error {
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop, kills, odd := l.produce(15, 30), 0, 0
	err = l.until(l.duration(), func() error {
		if err := l.execute(oddJob); err != nil {
			return err
		}
		odd++
		pause(l.ctx, l.between(0, time.Second))
		i := l.random.IntN(len(workers))
		workers[i].kill()
		kills++
		if workers[i], err = l.worker(); err != nil {
			return err
		}
		if err := l.awaitNumber(3*patience, 0, oddJobsLeft); err != nil {
			return brokenf("an odd job keeps its place at the head of the line: %s", err)
		}
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	named := l.number("select count(*) from jobq.job where priority = -1 and state = 'failed' and attempts = 0 and last_error like 'the job cannot be read: %'")
	failed := l.number("select count(*) from jobq.job where priority <> -1 and state <> 'completed'")
	l.figuref("%d kills; %d odd jobs failed and say why; %d others completed, %d did not", kills, named, l.number("select count(*) from jobq.job where state = 'completed'"), failed)
	switch {
	case kills == 0:
		return errors.New("no kills")
	case named != odd:
		return brokenf("of %d odd jobs %d failed without an attempt and say why", odd, named)
	case failed > 0:
		return brokenf("%d good jobs did not complete", failed)
	}
	return nil
}

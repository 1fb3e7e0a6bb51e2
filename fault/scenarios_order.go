package main

import (
	"errors"
)

// The mutants of the order of keys: the lab changes the function that says which job is next.
const (
	headForgotten = "head-forgotten" // the one that ran last is not looked for
	retryPassed   = "retry-passed"   // while it waits for its retry, the next one is taken
)

// outOfOrder is how many claims took a job of a key after one with a higher id. Claims of the queue take turns, so the
// history has them in their order. A job that is claimed again while no other of its key was is in order.
const outOfOrder = `with claim as (
    select h.seq, j.id, j.partition_key as key
      from fault.history h
      cross join lateral unnest(h.jobs) as u(job)
      join (select r.id, r.partition_key from jobq.run r union select p.id, p.partition_key from jobq.pending p where p.partition_key <> '') j on j.id = u.job
      where h.stage = 'lease' and h.op = 'insert' and j.partition_key is not null
  ), behind as (
    select c.id < max(c.id) over (partition by c.key order by c.seq rows between unbounded preceding and 1 preceding) as wrong from claim c
  )
  select count(*) filter (where b.wrong)::integer from behind b`

// orderAndKills has a queue whose keys run in order while its workers are killed, and stopped for longer
// than their leases. The claims of each key must be in the order of the ids, and never may two jobs of a key be open.
func orderAndKills(l *lab) error {
	if err := l.set("key_order=hold"); err != nil {
		return err
	}
	l.more = ofSomeKey
	faults, err := l.killAndStop(9, 200)
	if err == nil {
		err = l.inOrder()
	}
	if err == nil {
		err = l.waitForRetry()
	}
	if err == nil {
		err = l.failAndLose()
	}
	if err == nil {
		err = l.awaitNumber(patience, 0, unfinished)
	}
	if err == nil {
		err = l.inOrder()
	}
	if err != nil {
		return err
	}
	l.figuref("%s; %d claims in the order of their keys, never two jobs of a key open", faults, l.number("select count(*) from fault.history h where h.stage = 'lease' and h.op = 'insert'"))
	return nil
}

// waitForRetry has a job of a key fail and wait for its retry while another one of it waits: that one must wait on.
func (l *lab) waitForRetry() error {
	l.more = ofTheForcedKey
	ids, err := l.enqueueTogetherAs(enqueueLateRetry, []string{"task"}, order{Ms: 10, Do: "fail", Once: true}, order{Ms: 10})
	if err != nil || ids == nil {
		return errors.Join(err, errors.New("the jobs of which one waits for its retry were not added"))
	}
	if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and attempts = 1 and state = 'scheduled'", ids[0]); err != nil {
		return err
	}
	if err := l.tryFullKey(); err != nil {
		return err
	}
	left := l.number("select count(*) from jobq.job where id = $1 and state = 'available'", ids[1])
	if _, err := l.pool.Exec(l.ctx, "select jobq.requeue($1)", ids[0]); err != nil {
		return err
	}
	if left != 1 {
		return brokenf("the head of a key waits for its retry, and the next job of the key does not wait")
	}
	return nil
}

// failAndLose has a job of a key fail until it has done so for good, and kills the worker of the next one
// while others wait: it must come first again.
func (l *lab) failAndLose() error {
	l.more = ofTheForcedKey
	ids, err := l.enqueueTogether([]string{"task"}, order{Ms: 10, Do: "fail"}, order{Ms: 60_000, MsTwo: 10}, order{Ms: 10}, order{Ms: 10})
	if err != nil || ids == nil {
		return errors.Join(err, errors.New("the jobs to put to the test were not added"))
	}
	victim, err := l.ownerOf(ids[1])
	if err != nil {
		return err
	}
	if err := l.tryFullKey(); err != nil {
		return err
	}
	victim.kill()
	if err := l.inOrder(); err != nil {
		return err
	}
	return l.awaitNumber(patience, len(ids), "select count(*) from jobq.job where id = any($1) and finished_at is not null", ids)
}

// inOrder says whether the claims of each key were in the order of the ids, and never two of its jobs open.
func (l *lab) inOrder() error {
	if wrong := l.number(outOfOrder); wrong > 0 {
		return brokenf("%d claims took a job of a key after one with a higher id", wrong)
	}
	if most := l.number(mostOpenOfAKey); most > 1 {
		return brokenf("%d jobs of one key were open at one moment", most)
	}
	return nil
}

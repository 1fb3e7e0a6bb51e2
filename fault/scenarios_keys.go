package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// keyLimit is the limit of each partition key, and keyCount how many keys there are.
	keyLimit = 2
	keyCount = 3
)

// ofSomeKey gives each job one of the keys.
var ofSomeKey = fmt.Sprintf(", partition_key => 'key ' || split_part($2::jsonb ->> 'key', '-', 2)::integer %% %d", keyCount)

// ofTheForcedKey gives jobs a key that the others do not have, and ofAKeyOfItsOwn each one its own.
const (
	ofTheForcedKey = ", partition_key => 'forced'"
	ofAKeyOfItsOwn = ", partition_key => 'only ' || ($2::jsonb ->> 'key')"
)

// mostOpenOfAKey is how many jobs of one key were ever open at one moment: see mostOpen.
const mostOpenOfAKey = `with open as (
    select h.seq, h.id, j.partition_key as key, sum((h.op <> 'delete' and u.slot <> all(h.slots))::integer) as jobs
      from fault.history h
      join fault.history made on made.stage = 'lease' and made.op = 'insert' and made.id = h.id
      cross join lateral unnest(made.jobs) with ordinality as u(job, slot)
      join (select r.id, r.partition_key from jobq.run r union select p.id, p.partition_key from jobq.pending p where p.partition_key <> '') j on j.id = u.job
      where h.stage = 'lease' and j.partition_key is not null
      group by h.seq, h.id, j.partition_key
  ), change as (
    select o.seq, o.key, o.jobs - coalesce(lag(o.jobs) over (partition by o.id, o.key order by o.seq), 0) as jobs from open o
  ), moment as (
    select sum(c.jobs) over (partition by c.key order by c.seq) as open from change c
  )
  select coalesce(max(m.open), 0)::integer from moment m`

// keysAndKills has a queue whose jobs have partition keys with a limit each, and one of them a weight, while its
// workers are killed, and stopped for longer than their leases. Never may more jobs of a
// key be open than the limit, and as many of each must be when all is well again and jobs wait.
func keysAndKills(l *lab) error {
	if err := l.set(fmt.Sprintf("key_limit=%d", keyLimit)); err != nil {
		return err
	}
	// Such a key is full in the middle of its turns, which outlive the workers.
	if err := l.set("--key", "key 0", "weight=5"); err != nil {
		return err
	}
	l.more = ofSomeKey
	faults, err := l.killAndStop(18, 400)
	if err != nil {
		return err
	}
	if err := l.withinKeyLimit(); err != nil {
		return err
	}
	if err := l.fillKey(); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	l.more = ofSomeKey
	together := make([]order, 4*keyCount*keyLimit)
	for i := range together {
		together[i].Ms = 2000
	}
	if _, err := l.enqueueTogether([]string{"task"}, together...); err != nil {
		return err
	}
	// The last of them wait: what is open then is the limit of each key, whatever else is left.
	if err := l.awaitNumber(patience, keyCount*keyLimit, openNow); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	if err := l.withinKeyLimit(); err != nil {
		return err
	}
	l.figuref("%s; never more than %d jobs of a key open", faults, keyLimit)
	return nil
}

// The rate of each partition key.
const (
	keyRate  = 8 // a second
	keyBurst = 3
)

// aboveKeyRate is aboveRate of each partition key by itself: the spans of one key in which more of its jobs started than its rate
// and burst allow, and how many jobs started in all.
const aboveKeyRate = `with start as (
    select j.partition_key as key, p.claimed_at as at, count(*) as jobs
      from jobq.past_lease p
      join fault.history h on h.stage = 'lease' and h.op = 'insert' and h.id = p.id
      cross join lateral unnest(h.jobs) as u(job)
      join jobq.run j on j.id = u.job
      where j.partition_key is not null
      group by j.partition_key, p.claimed_at
  ), total as (
    select s.key, s.at, s.jobs, sum(s.jobs) over (partition by s.key order by s.at, s.jobs rows unbounded preceding) as jobs_to from start s
  )
  select count(*) filter (where b.jobs_to - a.jobs_to + a.jobs > $1::integer * extract(epoch from b.at - a.at) + $2::integer),
      (select coalesce(sum(s.jobs), 0)::integer from start s)
    from total a join total b on b.key = a.key and b.at >= a.at and b.jobs_to >= a.jobs_to`

// keyRateAndKills has a queue whose jobs have partition keys with a rate each, and more jobs than that, while its workers
// are killed and stopped. In no span may more jobs of a key start than its rate and burst allow. Some come after their key has had
// nothing to do, which gives it no more than its burst.
func keyRateAndKills(l *lab) error {
	if err := l.set(fmt.Sprintf("key_rate=%d/s", keyRate), fmt.Sprintf("key_rate_burst=%d", keyBurst)); err != nil {
		return err
	}
	l.more = ofSomeKey
	faults, err := l.killAndStop(30, 60)
	if err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	together := make([]order, 5*keyCount*keyBurst) // however slow the machine was: these are too many at once
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
	if err := l.pool.QueryRow(l.ctx, aboveKeyRate, keyRate, keyBurst).Scan(&above, &starts); err != nil {
		return err
	}
	l.figuref("%s; %d starts at %d/s of each of %d keys, %d spans with too many", faults, starts, keyRate, keyCount, above)
	switch {
	case above > 0:
		return brokenf("in %d spans of %d starts, more than %d/s and a burst of %d of one key", above, starts, keyRate, keyBurst)
	case starts < len(together):
		return errors.New("few jobs started")
	}
	return nil
}

// fillKey makes a key full, has claims look at it while another one of its jobs waits, and kills the workers that
// run the others: these come back, and their places with them.
func (l *lab) fillKey() error {
	l.more = ofTheForcedKey
	long := slices.Repeat([]order{{Ms: 60_000, MsTwo: 10}}, keyLimit)
	ids, err := l.enqueueTogether([]string{"task"}, append(long, order{Ms: 10})...)
	if err != nil || ids == nil {
		return errors.Join(err, errors.New("the jobs that fill a key were not added"))
	}
	victims := make(map[*process]bool)
	for _, id := range ids[:keyLimit] {
		victim, err := l.ownerOf(id)
		if err != nil {
			return err
		}
		victims[victim] = true
	}
	if err := l.tryFullKey(); err != nil {
		return err
	}
	left := l.number("select count(*) from jobq.job where id = $1 and state = 'available'", ids[keyLimit])
	for victim := range victims {
		victim.kill()
	}
	if err := l.withinKeyLimit(); err != nil {
		return err
	}
	if left != 1 {
		return brokenf("the key was full, and its next job did not wait")
	}
	return l.awaitNumber(patience, len(ids), "select count(*) from jobq.job where id = any($1) and finished_at is not null", ids)
}

// tryFullKey has claims look at a key whose next job must wait. It adds jobs of other keys, each of which is claimed
// only after such a look: lanes are looked at in the order of their turns, and a lane that comes later has a later
// one. There are several since a mutant may look before it has its turn in the queue, and then misses
// the lanes that are younger than that.
func (l *lab) tryFullKey() error {
	l.more = ofAKeyOfItsOwn
	for range 3 {
		ids, err := l.enqueueTogether([]string{"task"}, order{Ms: 10})
		if err != nil || ids == nil {
			return errors.Join(err, errors.New("a job of another key was not added"))
		}
		if err := l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = any($1) and finished_at is not null", ids); err != nil {
			return err
		}
	}
	return nil
}

// ownerOf waits until a job runs, and returns its worker.
func (l *lab) ownerOf(job int64) (owner *process, err error) {
	err = l.within(patience, fmt.Sprintf("job %d to run", job), func() (bool, error) {
		name := l.text("select l.owner from jobq.lease l join jobq.job j on j.lease_token = l.id where j.id = $1 and j.state = 'running'", job)
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.processes {
			if strings.Contains(name, fmt.Sprintf("-%d-", p.pid())) && p.alive() {
				owner = p
			}
		}
		return owner != nil, nil
	})
	return owner, err
}

// withinKeyLimit says whether as many jobs of a key as its limit lets were open at one
// moment, and never more.
func (l *lab) withinKeyLimit() error {
	switch most := l.number(mostOpenOfAKey); {
	case most > keyLimit:
		return brokenf("%d jobs of one key were open at one moment, with a limit of %d", most, keyLimit)
	case most < keyLimit:
		return errors.New("the limit of the keys was never reached")
	}
	return nil
}

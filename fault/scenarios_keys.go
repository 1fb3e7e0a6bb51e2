package main

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// keyLimit is the limit of each partition key, and keyCount how many keys there are.
	keyLimit = 2
	keyCount = 3
)

// ofSomeKey gives each job one of the keys.
var ofSomeKey = fmt.Sprintf(", partition_key => 'key ' || split_part($2::jsonb ->> 'key', '-', 2)::integer %% %d", keyCount)

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

// keysAndKills has a queue whose jobs have partition keys with a limit each, while its
// workers are killed, and stopped for longer than their leases. Never may more jobs of a
// key be open than the limit, and as many of each must be when all is well again and jobs wait.
func keysAndKills(l *lab) error {
	if err := l.set("--key-limit", fmt.Sprint(keyLimit)); err != nil {
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
	// A job that comes makes claims look at its key again, which is full now.
	if _, err := l.enqueueTogether([]string{"task"}, slices.Repeat([]order{{Ms: 2000}}, keyCount)...); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, unfinished); err != nil {
		return err
	}
	if err := l.withinKeyLimit(); err != nil {
		return err
	}
	l.figuref("%s; never more than %d jobs of each of %d keys open", faults, keyLimit, keyCount)
	return nil
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

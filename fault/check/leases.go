package check

import (
	"slices"
	"time"
)

// lease is what the history has said so far of a lease.
type lease struct {
	owner   string
	expires time.Time
	jobs    []int64 // by slot
	ended   map[int16]bool
	leaving bool // deleted, and not in the history yet
}

// current is a job's row of run.
type current struct {
	token                 int64
	over                  bool
	attempts, maxAttempts *int
}

// follower turns the changes of tables into the stages of each job: pending,
// running and finished. A run that plainly succeeds leaves running without any
// change of its own row: its lease says so.
type follower struct {
	c      *checker
	leases map[int64]*lease
	runs   map[int64]*current
}

func (c *checker) follow(history []row) {
	f := &follower{c: c, leases: make(map[int64]*lease), runs: make(map[int64]*current)}
	for _, r := range history {
		switch r.Stage {
		case "pending":
			c.add(r)
		case "run":
			f.run(r)
		case "lease":
			f.lease(r)
		case "past_lease":
			f.past(r)
		case "progress":
			f.held(r, r.ID, r.Token)
		}
	}
	for id, l := range f.leases {
		if l.leaving {
			c.violate("I5", "lease %d is gone, and not in the history", id)
		}
	}
}

// add adds a row to the stages of its job.
func (c *checker) add(r row) {
	if r.Op == "insert" && r.Stage == "finished" && r.State != nil && *r.State == "completed" {
		c.completed++
	}
	c.jobs[r.ID] = append(c.jobs[r.ID], r)
}

// of gives a change of a job what its lease says.
func (f *follower) of(r row, stage, op string) row {
	r.Stage, r.Op = stage, op
	if l := f.leases[*r.Token]; l != nil {
		r.Owner, r.Expires = &l.owner, &l.expires
	}
	return r
}

// run is a change of a row of run.
func (f *follower) run(r row) {
	held := f.runs[r.ID]
	switch {
	case r.Op == "insert":
		if held != nil {
			f.c.violate("I2", "job %d: claimed under token %d while it is there under %d", r.ID, *r.Token, held.token)
		}
		f.runs[r.ID] = &current{token: *r.Token, over: r.State != nil, attempts: r.AttemptsNew, maxAttempts: r.MaxAttempts}
		if r.State != nil {
			f.c.add(f.of(r, "finished", "insert"))
			return
		}
		if l := f.leases[*r.Token]; l == nil || int(*r.Slot) > len(l.jobs) || *r.Slot < 1 || l.jobs[*r.Slot-1] != r.ID {
			f.c.violate("I2", "job %d: slot %d of lease %d, which does not have it there", r.ID, *r.Slot, *r.Token)
		}
		claimed := f.of(r, "running", "insert")
		claimed.ExpiresNew, claimed.Expires = claimed.Expires, nil
		f.c.add(claimed)
	case r.Op == "delete" && held != nil:
		delete(f.runs, r.ID)
		f.c.add(f.of(r, map[bool]string{true: "finished", false: "running"}[held.over], "delete"))
	case r.Op == "update" && held != nil && r.State != nil && r.StateBefore == nil:
		if held.over {
			f.twice(r, *r.Token)
			return
		}
		f.end(r, held)
	default:
		f.held(r, r.ID, r.Token)
	}
}

// end takes a job from running to finished. Its row then has what the change has.
func (f *follower) end(r row, held *current) {
	held.over = true
	left := f.of(r, "running", "delete")
	if left.Attempts == nil { // its lease says so, and its row is as it was
		left.Attempts, r.AttemptsNew = held.attempts, held.attempts
	}
	left.MaxAttempts, left.State = held.maxAttempts, nil
	f.c.add(left)
	r.MaxAttempts = held.maxAttempts
	f.c.add(f.of(r, "finished", "insert"))
}

// twice is a job whose run has ended, and is ended again.
func (f *follower) twice(r row, token int64) {
	f.c.verdict.DoubleBump++
	f.c.violate("I4", "job %d: the run of token %d has ended, and ends again", r.ID, token)
}

// held is a change of a running job that is not its end.
func (f *follower) held(r row, id int64, token *int64) {
	if held := f.runs[id]; held != nil && !held.over {
		change := f.of(r, "running", "update")
		change.ID, change.Token = id, token
		f.c.add(change)
	}
}

// lease is a change of a lease that is held.
func (f *follower) lease(r row) {
	l := f.leases[r.ID]
	switch {
	case r.Op == "insert":
		if l != nil && !f.c.run.MayLose {
			f.c.violate("I4", "lease %d is there twice", r.ID)
		}
		f.leases[r.ID] = &lease{owner: *r.Owner, expires: *r.ExpiresNew, jobs: r.Jobs, ended: make(map[int16]bool)}
		return
	case l == nil:
		f.c.violate("I5", "lease %d was never claimed", r.ID)
		return
	}
	if worker, owns := f.c.isWorkers(r); worker && r.Lost && (owns || !f.c.run.Recovers) {
		f.c.verdict.Stale++
		f.c.violate("I3", "lease %d of %s: changed by %s after it was lost", r.ID, l.owner, r.Session)
	}
	if r.Op == "delete" {
		l.leaving = true
		return
	}
	if !r.ExpiresNew.Equal(*r.Expires) {
		f.extended(r, l)
	}
	if *r.Owner != l.owner {
		f.c.violate("I3", "lease %d of %s has another owner, %s", r.ID, l.owner, *r.Owner)
	}
	f.ends(r, l)
}

func (f *follower) extended(r row, l *lease) {
	for _, id := range l.jobs {
		if held := f.runs[id]; held != nil && held.token == r.ID {
			change := r
			change.ID = id
			before := l.expires
			if !held.over {
				change.Stage, change.Expires = "running", &before
				f.c.add(change)
			}
		}
	}
	l.expires = *r.ExpiresNew
}

// past is a lease of which no job may run any more.
func (f *follower) past(r row) {
	l := f.leases[r.ID]
	if l == nil || !l.leaving {
		f.c.violate("I5", "lease %d is in the history and was not held before", r.ID)
		return
	}
	l.leaving = false
	if len(r.Slots) != len(l.jobs) {
		f.c.violate("I4", "lease %d of %d jobs went to the history with %d ends", r.ID, len(l.jobs), len(r.Slots))
	}
	f.ends(r, l)
	for slot, id := range l.jobs {
		if held := f.runs[id]; held != nil && held.token == r.ID && !held.over {
			f.c.violate("I5", "job %d, slot %d: runs under lease %d, which went to the history", id, slot+1, r.ID)
		}
	}
}

// ends is what a lease says of jobs that have ended since it last did.
func (f *follower) ends(r row, l *lease) {
	for i, slot := range r.Slots {
		if slot < 1 || int(slot) > len(l.jobs) || i >= len(r.Ms) {
			f.c.violate("I4", "lease %d of %d jobs: slot %d has ended", r.ID, len(l.jobs), slot)
			continue
		}
		id := l.jobs[slot-1]
		held := f.runs[id]
		runs := held != nil && held.token == r.ID && !held.over
		switch {
		case slices.Index(r.Slots, slot) < i:
			f.twice(row{ID: id}, r.ID)
		case l.ended[slot] || r.Ms[i] == -2:
		case r.Ms[i] == -1:
			l.ended[slot] = true
			if runs {
				f.c.violate("I5", "job %d runs, and lease %d says that it has ended on its own row", id, r.ID)
			}
		default:
			l.ended[slot] = true
			if !runs {
				f.twice(row{ID: id}, r.ID)
				continue
			}
			token, end := r.ID, r
			end.ID, end.Token, end.Attempts, end.State = id, &token, nil, ref("completed")
			f.end(end, held)
		}
	}
}

func ref[T any](value T) *T { return &value }

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The mutants of jobs that wait for others.
const (
	newParentOnce    = "new-parent-looked-at-once"
	firstParentFrees = "first-parent-frees"
)

// dependWrong names jobs that began before a job was over for which they waited, that ran
// although one had failed, that were cancelled for no reason, and that still wait.
const dependWrong = `select string_agg(w.text, '; ') from (
    select format('job %s began at %s, and job %s, for which it waited, ended at %s', c.id, least(f.at, c.started_at), p.id, p.finished_at) as text
      from jobq.dependency d
      join jobq.job c on c.id = d.child
      join jobq.job p on p.id = d.parent
      left join lateral (select min(a.started_at) as at from jobq.attempt a where a.job_id = c.id) f on true
      where least(f.at, c.started_at) < p.finished_at - interval '10 ms'
    union all
    select format('job %s is %s, and those for which it waited have ended as %s', c.id, c.state, e.ends)
      from jobq.job c
      join lateral (
        select array_agg(p.state) as ends, bool_or(d.on_failure = 'cancel' and p.state <> 'completed') as bad
          from jobq.dependency d
          join jobq.job p on p.id = d.parent
          where d.child = c.id
      ) e on e.ends is not null
      where (c.state = 'cancelled') <> e.bad
    union all
    select format('job %s waits for job %s', d.child, d.parent) from jobq.dependency d where d.parent_state is null
  ) w`

// dependents has jobs wait for others that complete, fail and are reaped while they are
// added, with workers and janitors killed. Each must begin when the last one is over for
// which it waits, and not before; and not at all when one of these has failed.
func dependents(l *lab) error {
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	for range 3 {
		if err := errors.Join(l.parentEndsUnseen(), l.oneOfTwoParents()); err != nil {
			return err
		}
	}
	killed, janitorsKilled := 0, 0
	err = l.until(l.duration(), func() error {
		if err := l.enqueueDependents(); err != nil {
			return err
		}
		switch l.random.IntN(4) {
		case 0:
			i := l.random.IntN(len(workers))
			workers[i].kill()
			killed++
			workers[i], err = l.worker()
			return err
		case 1:
			for _, p := range l.processes {
				if p.args[0] == "janitor" && p.alive() {
					p.kill()
					janitorsKilled++
					return l.janitor()
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	const open = "select count(*) from jobq.job where kind in ('task', 'flow') and finished_at is null"
	if err := l.awaitNumber(patience, 0, open); err != nil {
		return err
	}
	edges := l.number("select count(*) from jobq.dependency")
	cancelled := l.number("select count(*) from jobq.job where state = 'cancelled' and last_error like 'job % for which it waited, %'")
	wrong := l.text(dependWrong)
	l.figuref("%d kills of workers and %d of janitors; %d dependencies, %d jobs cancelled since another had failed", killed, janitorsKilled, edges, cancelled)
	switch {
	case !strings.HasPrefix(wrong, "unknown: <nil>"):
		return brokenf("%s", wrong)
	case killed+janitorsKilled == 0 || cancelled == 0 || edges == 0:
		return errors.New("nothing was put to the test")
	}
	return nil
}

// enqueueDependents adds jobs of which one may fail for good, soon after that two that wait
// for them all, and one that waits for these two.
func (l *lab) enqueueDependents() error {
	orders := make([]order, 1+l.random.IntN(4))
	for i := range orders {
		orders[i].Ms = l.random.IntN(150)
	}
	if l.random.IntN(3) == 0 {
		orders[0].Do = "fail"
	}
	parents, err := l.enqueueTogether([]string{"task", "flow", "flow"}, orders...)
	if err != nil || len(parents) == 0 {
		return err
	}
	pause(l.ctx, l.between(0, 250*time.Millisecond))
	var children []int64
	for _, policy := range []string{"run", "cancel"} {
		child, err := l.enqueueAfter(policy, parents...)
		if err != nil {
			return err
		}
		if child > 0 {
			children = append(children, child)
		}
	}
	_, err = l.enqueueAfter("run", children...)
	return err
}

// enqueueAfter adds a short job that waits for others.
func (l *lab) enqueueAfter(policy string, parents ...int64) (int64, error) {
	kind := []string{"task", "flow"}[l.random.IntN(2)]
	after := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(parents)), ","), "[]")
	return l.enqueueVia(l.pool, order{Ms: 10}, kind, fmt.Sprintf(", after => '{%s}', after_failure => '%s'", after, policy))
}

// enqueueOfNobody adds a job to a queue that no worker has.
func (l *lab) enqueueOfNobody() (int64, error) {
	return acknowledged(l.enqueueVia(l.pool, order{}, "task", ", queue => 'of nobody'"))
}

// acknowledged fails when a job was not: where nothing disturbs the database, each is.
func acknowledged(id int64, err error) (int64, error) {
	if err == nil && id == 0 {
		err = errors.New("a job was not added")
	}
	return id, err
}

// parentEndsUnseen ends a job in a transaction that has looked who waits for it before
// another one does, and that is committed after the janitor has looked at it for the first
// time: only a later look finds that the one that waits may run.
func (l *lab) parentEndsUnseen() error {
	parent, err := l.enqueueOfNobody()
	if err != nil {
		return err
	}
	var child int64
	err = l.inTx(func(tx pgx.Tx) error {
		if _, err := tx.Exec(l.ctx, "select jobq.cancel($1)", parent); err != nil {
			return err
		}
		if child, err = acknowledged(l.enqueueAfter("run", parent)); err != nil {
			return err
		}
		return l.awaitNumber(patience, 0, "select count(*) from jobq.dependency_look where job_id = $1 and sure_from is null", parent)
	})
	if err != nil {
		return err
	}
	return l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", child)
}

// oneOfTwoParents ends one of two jobs for which a third one waits, and the other when the
// janitor has dealt with that. No worker has the queue of the two.
func (l *lab) oneOfTwoParents() error {
	var parents [2]int64
	for i := range parents {
		var err error
		if parents[i], err = l.enqueueOfNobody(); err != nil {
			return err
		}
	}
	child, err := acknowledged(l.enqueueAfter("run", parents[:]...))
	if err != nil {
		return err
	}
	if _, err := l.pool.Exec(l.ctx, "select jobq.cancel($1)", parents[0]); err != nil {
		return err
	}
	if err := l.awaitNumber(patience, 0, "select count(*) from jobq.dependency_look where job_id = $1", parents[0]); err != nil {
		return err
	}
	if state := l.text("select state::text from jobq.job where id = $1", child); state != "waiting" {
		return brokenf("job %d is %s, and job %d, for which it waits, has not begun", child, state, parents[1])
	}
	if _, err := l.pool.Exec(l.ctx, "select jobq.cancel($1)", parents[1]); err != nil {
		return err
	}
	return l.awaitNumber(patience, 1, "select count(*) from jobq.job where id = $1 and state = 'completed'", child)
}

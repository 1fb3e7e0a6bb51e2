package main

import (
	"errors"

	"github.com/jobq-dev/jobq/fault/check"
)

// enqueueOnly adds a job that has one attempt, whatever the number is of the others.
const enqueueOnly = "select jobq.enqueue($1, $2::jsonb, max_attempts => 1 + 0 * %d %s)"

// notBegun kills workers that have claimed short jobs of one attempt ahead. What has never begun is not
// to fail: of each kill, at most one job for each of the 4 slots.
func notBegun(l *lab) error {
	workers, err := l.crew(1)
	if err != nil {
		return err
	}
	kills := 0
	err = l.until(l.duration(), func() error {
		if _, err := l.enqueueTogetherAs(enqueueOnly, []string{"flow"}, make([]order, 300)...); err != nil {
			return err
		}
		err := l.within(patience, "jobs claimed ahead", func() (bool, error) {
			return l.number("select coalesce(sum(cardinality(job_ids) - cardinality(ended_slots)), 0) from jobq.lease where lost_at is null") > 16 || l.number(unfinished) == 0, nil
		})
		if err != nil {
			return err
		}
		workers[0].kill()
		kills++
		workers[0], err = l.worker()
		return err
	})
	if err := errors.Join(err, l.awaitNumber(patience, 0, unfinished)); err != nil {
		return err
	}
	effects, err := check.ReadLedger(l.folder, check.Effects)
	if err != nil {
		return err
	}
	begun := []int64{}
	for _, entry := range effects {
		if entry.What == "begin" {
			begun = append(begun, entry.Job)
		}
	}
	failed := l.number("select count(*) from jobq.job where state = 'failed'")
	never := l.number("select count(*) from jobq.job where state = 'failed' and id <> all($1::bigint[])", begun)
	l.figuref("%d kills, %d jobs of one attempt; %d failed, of which %d had never begun", kills, l.number("select count(*) from jobq.job"), failed, never)
	if kills == 0 {
		return errors.New("no kills")
	}
	if never > 4*kills {
		return brokenf("%d jobs have failed that never began, with %d kills of workers with 4 slots", never, kills)
	}
	return nil
}

package main

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// bellTrusted is the mutant whose worker does not look, after a notification, for inserts that have left it to another one.
const bellTrusted = "bell-trusted"

// bellPoll is so long that no poll finds in time what a scenario waits for.
const bellPoll = 2 * time.Minute

// leftToAnother makes an insert find the bell of its queue locked, so that it does not notify, and lets it commit after the one
// that has notified. The worker does not poll meanwhile.
func leftToAnother(l *lab) error {
	const rounds = 3
	w, err := l.worker("--poll", bellPoll.String())
	if err != nil {
		return err
	}
	var delays []time.Duration
	for range rounds {
		// Announcements grow. One that is short may end on a busy machine, and the next one is followed by a look.
		const longAnnounced = "select (pg_sequence_last_value(jobq.waiting_group('default')) > extract(epoch from clock_timestamp()) + 9)::integer"
		if err := l.awaitNumber(patience, 1, longAnnounced); err != nil {
			return err
		}
		ringer, _, err := l.insertUntilCommit()
		if err != nil {
			return err
		}
		refused, id, err := l.insertUntilCommit()
		if err != nil {
			return errors.Join(err, ringer.Rollback(l.ctx))
		}
		if err := ringer.Commit(l.ctx); err != nil {
			return errors.Join(err, refused.Rollback(l.ctx))
		}
		err = l.awaitNumber(patience, 0, "select count(*) from jobq.pending") // the worker has the job that it was notified of
		if err == nil {
			err = l.sendsNothing() // and has looked again for more
		}
		if err := errors.Join(err, refused.Commit(l.ctx)); err != nil {
			return err
		}
		sent := time.Now()
		if err := l.awaitNumber(4*slack, 0, "select count(*) from jobq.pending"); err != nil {
			return brokenf("job %d, whose insert left the notification to another, waits: %s", id, err)
		}
		delays = append(delays, time.Since(sent))
	}
	slices.Sort(delays)
	l.figuref("%d inserts left the notification to another; picked up %s after they were committed (poll %s)", rounds, some(delays), bellPoll)
	if !w.alive() {
		return errors.New("the worker has ended")
	}
	return nil
}

// insertUntilCommit adds a job in a transaction, and does what its commit would, except to end.
func (l *lab) insertUntilCommit() (tx pgx.Tx, id int64, err error) {
	if tx, err = l.pool.Begin(l.ctx); err != nil {
		return nil, 0, err
	}
	id, err = l.enqueueVia(tx, order{Ms: 1}, "task", "")
	if err == nil {
		_, err = tx.Exec(l.ctx, "set constraints all immediate")
	}
	if err == nil && id == 0 {
		err = errors.New("a job was not added")
	}
	if err != nil {
		return nil, 0, errors.Join(err, tx.Rollback(l.ctx))
	}
	return tx, id, nil
}

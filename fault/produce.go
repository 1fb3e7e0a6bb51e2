package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/fault/check"
)

// enqueue adds a job, with its intent and its acknowledgement in the ledger,
// and returns its id; 0 when the outcome is unknown.
func (l *lab) enqueue(o order) (int64, error) { return l.enqueueVia(l.pool, o, "task", "") }

// conn is what enqueues.
type conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (l *lab) enqueueVia(via conn, o order, kind, more string) (int64, error) {
	if err := l.intend(&o); err != nil {
		return 0, err
	}
	var id int64
	err := via.QueryRow(l.ctx, fmt.Sprintf(enqueueOne, maxAttempts, more), kind, o).Scan(&id)
	if err != nil {
		return 0, nil //nolint:nilerr // not acknowledged: may be lost, or not
	}
	return id, l.acknowledge(o, id)
}

// enqueueSurely enqueues until one is acknowledged: for a moment that a scenario has to
// make. Those before it may be there all the same.
func (l *lab) enqueueSurely(o order, kind string) (int64, error) {
	for range 100 {
		if id, err := l.enqueueVia(l.pool, o, kind, ""); id != 0 || err != nil {
			return id, err
		}
		pause(l.ctx, 100*time.Millisecond)
	}
	return 0, errors.New("the database has acknowledged no job of kind " + kind)
}

const enqueueOne = "select jobq.enqueue($1, $2::jsonb, max_attempts => %d, backoff_max => '200 ms', backoff_base => '50 ms' %s)"

// enqueueLateRetry is enqueueOne with a retry that comes an hour after a failure, so not by itself.
const enqueueLateRetry = "select jobq.enqueue($1, $2::jsonb, max_attempts => %d, backoff_max => '1 h', backoff_base => '1 h' %s)"

// intend gives the order its key, and notes that it is about to be enqueued.
func (l *lab) intend(o *order) error {
	l.mu.Lock()
	l.produced++
	o.Key = fmt.Sprintf("%d-%d", l.seed, l.produced)
	l.mu.Unlock()
	return check.Append(l.folder, check.Producers, check.Entry{Mono: monotonic(), What: "intent", Key: o.Key})
}

func (l *lab) acknowledge(o order, id int64) error {
	return check.Append(l.folder, check.Producers, check.Entry{Mono: monotonic(), What: "ack", Key: o.Key, Job: id})
}

// enqueueTogether adds jobs in one transaction, by kind, so that one claim may
// take them, and returns their ids; none when the outcome is unknown.
func (l *lab) enqueueTogether(kinds []string, orders ...order) ([]int64, error) {
	return l.enqueueTogetherAs(enqueueOne, kinds, orders...)
}

func (l *lab) enqueueTogetherAs(statement string, kinds []string, orders ...order) ([]int64, error) {
	for i := range orders {
		if err := l.intend(&orders[i]); err != nil {
			return nil, err
		}
	}
	ids := make([]int64, len(orders))
	err := l.inTx(func(tx pgx.Tx) error {
		for i, o := range orders {
			if err := tx.QueryRow(l.ctx, fmt.Sprintf(statement, maxAttempts, l.more), kinds[i%len(kinds)], o).Scan(&ids[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil //nolint:nilerr // as enqueueVia
	}
	for i, o := range orders {
		if err := l.acknowledge(o, ids[i]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// burst is how many jobs produce adds at a time.
const burst = 3

// produce enqueues short jobs at a rate until the function returned is called.
// Some come together, and then have one lease; most end plainly.
func (l *lab) produce(perSecond int, ms int) (stop func() error) {
	ctx, cancel := context.WithCancel(l.ctx)
	ended := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(burst * time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-ticker.C:
			}
			orders := make([]order, burst)
			for i := range orders {
				orders[i].Ms = ms * (i + 2) / burst
			}
			if _, err := l.enqueueTogether([]string{"task", "flow", "flow"}, orders...); err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}
